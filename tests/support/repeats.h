/* Texts that repeat themselves, for the model of examples/induction. */
#ifndef REPEATS_H
#define REPEATS_H

#include "models.h"
#include "tools/lens/metric.h"

enum { REPEAT = 13 };

/* [0, R, the first half of R], eight different tokens R. In the corrupted text the last token before the
 * text goes on, and the one that follows it, are others where they first stand. */
static inline lens_pair repeat_on(const attn_model *model, size_t seed)
{
    int32_t *const clean = (int32_t *)pool_new(2 * REPEAT * sizeof *clean), drawn[10];
    int32_t *const corrupted = clean + REPEAT;
    size_t j;
    random_state = 2 * seed + 1;
    for (size_t i = 0; i < 10; i += j == i) {
        drawn[i] = (int32_t)(1 + random_below(vocab_of(model) - 1));
        for (j = 0; j < i && drawn[j] != drawn[i]; j++)
            ;
    }
    clean[0] = 0;
    for (size_t i = 1; i < REPEAT; i++)
        clean[i] = drawn[(i - 1) % 8];
    memcpy(corrupted, clean, REPEAT * sizeof *clean);
    corrupted[4] = drawn[8];
    corrupted[5] = drawn[9];
    lens_pair pair = {.clean = clean,
                      .corrupted = corrupted,
                      .n_tokens = REPEAT,
                      .metric.kind = LENS_METRIC_LOGIT_DIFF,
                      .metric.token = drawn[4],
                      .metric.against = drawn[9]};
    return pair;
}

#endif
