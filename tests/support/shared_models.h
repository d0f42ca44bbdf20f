/* The models that suites share: plain, odd, narrow, longer (golden/long), tiny (the included model) and
 * bytes8 (the same with weights of 8 bits). SUITE_WITH_MODELS("plain odd"); in place of SUITE(); opens
 * these two before the first case of the file and closes them after the last. Include this after
 * the headers of tools/, which use these names for what is theirs. */
#ifndef SHARED_MODELS_H
#define SHARED_MODELS_H

#include "models.h"

static attn_model *plain, *odd, *narrow, *longer, *tiny, *bytes8;
static const struct {
    const char *name, *golden; /* golden: NULL for the included model */
    attn_model **model;
} shared_models[] = {{"plain", "plain", &plain},    {"odd", "odd", &odd},
                     {"narrow", "narrow", &narrow}, {"longer", "long", &longer},
                     {"tiny", NULL, &tiny},         {"bytes8", NULL, &bytes8}};
enum { N_SHARED_MODELS = sizeof shared_models / sizeof *shared_models };

static inline int open_models(const char *names)
{
    size_t size, i;
    int good = 1;
    for (; *names; names += size + (names[size] == ' ')) {
        size = strcspn(names, " ");
        for (i = 0; i < N_SHARED_MODELS && (strncmp(names, shared_models[i].name, size) != 0 ||
                                            shared_models[i].name[size]);
             i++)
            ;
        if (!CHECKF(i < N_SHARED_MODELS, "no model is called %.*s", (int)size, names))
            return 0;
        *shared_models[i].model =
            shared_models[i].golden ? golden(shared_models[i].golden)
            : shared_models[i].model == &tiny
                ? included()
                : converted("examples/tiny-stories", "q8.attn", "--dtype q8 --no-tokenizer");
        good &= *shared_models[i].model != NULL;
    }
    return good;
}

static inline void close_models(void)
{
    for (size_t i = 0; i < N_SHARED_MODELS; i++) {
        attn_model_close(*shared_models[i].model);
        *shared_models[i].model = NULL;
    }
}

#define SUITE_WITH_MODELS(names)                                                                   \
    static int open_these_models(void)                                                             \
    {                                                                                              \
        return open_models(names);                                                                 \
    }                                                                                              \
    SUITE_WITH(open_these_models, close_models)

#endif
