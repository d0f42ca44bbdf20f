/* What surprisal reads: lines and tables of any bytes, cut into words, regions and tokens. The first byte
 * chooses options. It says what is wrong, or every byte of a text is in one token of one word, or is
 * a blank. */
#include "tools/common/system.h"
#define PROGRAM "surprisal"
#include "tools/surprisal/check.h"
#include "fuzz.h"

static void must_be_whole(const surprisal_run *r, const passage *p)
{
    size_t n_tokens = 0, end = 0;
    for (size_t i = 0; i < p->n_words; i++) {
        const text_word *const w = &p->words[i];
        const int apart = r->o.punctuation == APART && w->begin == end;
        MUST(w->item < r->input.n_records && w->token == n_tokens && w->n_tokens > 0);
        MUST(w->begin == end + (i > 0 && !apart) && w->size > 0);
        MUST(!memchr(p->text + w->begin, ' ', w->size));
        MUST(w->index == (i > 0 && w[-1].item == w->item ? w[-1].index + 1 : 0));
        MUST(w->index == 0 || w->region == w[-1].region || w->region == w[-1].region + 1);
        n_tokens += w->n_tokens;
        end = w->begin + w->size;
    }
    MUST(n_tokens == p->n && end == p->size);
}

int fuzz_surprisal(const unsigned char *data, size_t size)
{
    static attn_model *model;
    static surprisal_run r;
    static char text[1 << 16];
    const unsigned choice = size ? data[0] : 0;
    size_t step;
    memset(&r, 0, sizeof r);
    r.ctx.n_threads = 1;
    if (!model)
        MUST(attn_model_open(&r.ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL) == ATTN_OK);
    r.model = model;
    r.name = r.model_name = "x";
    r.n_pass = MOST_TOKENS;
    r.o.column = choice & 1 ? "s" : NULL;
    r.o.regions = choice & 2 ? "_" : NULL;
    r.o.region_names = choice & 4 && choice & 1 ? "n" : NULL;
    r.o.continues = choice >> 3 & 1;
    r.o.punctuation = choice & 16 ? APART : WITH_WORD;
    MUST(check_for_model(&r) == ATTN_OK);
    size = size > sizeof text ? sizeof text : size;
    memcpy(text, data + (size > 0), size - (size > 0));
    if (read_records(&r, text, size - (size > 0)) == ATTN_OK && check_input(&r) == ATTN_OK) {
        step = r.o.continues ? r.input.n_records : 1;
        for (size_t i = 0; i < r.input.n_records; i += step) {
            passage p;
            MUST(make_passage(&r, &p, i, i + step) == ATTN_OK);
            must_be_whole(&r, &p);
            arena_free(&p.memory);
        }
    }
    MUST(r.ctx.status != ATTN_E_MEMORY);
    free_surprisal(&r);
    attn_ctx_free(&r.ctx);
    return 0;
}
