/* Section tokenizer: the speed of turning text into token ids. */
#ifndef BENCH_ENCODING_H
#define BENCH_ENCODING_H

#include "tools/common/vocab_files.h"
#include "measure.h"

typedef struct text_arg {
    const attn_tokenizer *tokenizer;
    char *text;
    size_t size;
    attn_token *ids;
} text_arg;

static double run_encode(bench *b, void *arg)
{
    const text_arg *a = (const text_arg *)arg;
    const double start = seconds();
    size_t n = a->size + 1;
    if (attn_encode(&b->ctx, a->ids, &n, a->tokenizer, a->text, a->size))
        return -1;
    return seconds() - start;
}

/* Fills a text with sentences in which words are about as frequent as in English: the i-th commonest
 * has the frequency 1 / i, and one word in 20 is made of random letters. The last word may end up to
 * MOST_BEYOND bytes after `size`. */
enum { MOST_BEYOND = 64 };
static void fill_english(char *text, size_t size, attn_rng *rng)
{
    static const char words[] =
        "the of and to in a is that it was for on with he as his they at be this from have or by "
        "one had not but what all were when we there can an your which their said if do will each "
        "about how up out them then she many some so these would other into has more her two like "
        "him see time could no make than first been its who now people my made over did down only "
        "way find use may water long little very after words called just where most know get "
        "through back much before go good new write our used me man too any day same right look "
        "think also around another came come work three word must because does part even place "
        "well such here take why things help put years different away again off went old number "
        "great tell men say small every found still between name should home big give air line set "
        "own under read last never us left end along while might next sound below saw something "
        "thought both few those always looked show large often together asked house world going "
        "want school important until form food keep children feet land side without boy once "
        "animals life enough took sometimes four head above kind began almost live page got earth "
        "need far hand high year mother light parts country father let night following picture "
        "being study second eyes soon times story boys since white days ever paper hard near "
        "sentence better best across during today others however sure means knew try told young "
        "miles sun ways thing whole hear example heard several change answer room sea against top "
        "turned learn point city play toward five using himself usually money seen car morning "
        "given ship government language experience consider particular attention temperature";
    const char *starts[512];
    double total = 0, sums[512];
    size_t n = 0, i, at = 0, in_sentence = 0;
    for (i = 0; words[i]; i++)
        if (i == 0 || words[i - 1] == ' ') {
            starts[n] = words + i;
            total += 1.0 / (double)(n + 1);
            sums[n++] = total;
        }
    while (at < size) {
        char word[32] = "";
        size_t length = 0;
        if (attn_rng_u32(rng) % 20 == 0) {
            length = 3 + attn_rng_u32(rng) % 9;
            for (i = 0; i < length; i++)
                word[i] = (char)(i % 2 ? "aeiou"[attn_rng_u32(rng) % 5]
                                       : "bcdfglmnprst"[attn_rng_u32(rng) % 12]);
        } else {
            const double pick = total * (double)attn_rng_uniform(rng);
            for (i = 0; i + 1 < n && sums[i] < pick; i++)
                continue;
            while (starts[i][length] && starts[i][length] != ' ') {
                word[length] = starts[i][length];
                length++;
            }
        }
        if (in_sentence == 0)
            word[0] = (char)(word[0] - 'a' + 'A');
        for (i = 0; i < length; i++)
            text[at++] = word[i];
        in_sentence++;
        if (in_sentence > 5 && attn_rng_u32(rng) % 10 == 0) {
            in_sentence = 0;
            text[at++] = '.';
            text[at++] = attn_rng_u32(rng) % 6 ? ' ' : '\n';
        } else {
            if (attn_rng_u32(rng) % 14 == 0)
                text[at++] = ',';
            text[at++] = ' ';
        }
    }
}

static void fill_text(char *text, size_t size, int kind)
{
    attn_rng rng;
    attn_rng_seed(&rng, 3);
    if (kind == 0)
        fill_english(text, size, &rng);
    for (size_t i = 0; i < size && kind > 0; i++)
        text[i] = (char)(kind == 1   ? 'a'
                         : kind == 2 ? ' '
                         : kind == 3 ? 'a' + attn_rng_u32(&rng) % 26
                                     : attn_rng_u32(&rng));
}

static int section_tokenizer(bench *b)
{
    static const char *const kinds[] = {"English-like text", "one letter", "blanks",
                                        "one word of any letters", "random bytes"};
    const char *directory = b->tokenizer ? b->tokenizer : "examples/tiny-stories";
    unsigned char *section = NULL;
    attn_tokenizer *own = NULL;
    const int threads = b->n_counts;
    text_arg a = {.size = (size_t)(b->quick ? 256 : 2048) << 10};
    task t = new_task(b, TOKENIZER, 0, "MB/s", run_encode, &a);
    size_t section_size = 0;
    int good = 1;
    b->n_counts = 1;
    heading(b, "tokenizer");
    if (!b->tokenizer && b->model)
        a.tokenizer = attn_model_tokenizer(b->model);
    if (!a.tokenizer) {
        if (!b->tokenizer && !system_is_directory(directory)) {
            fprintf(b->table,
                    "not measured: the model has no tokenizer; --tokenizer DIR gives one\n");
            b->n_counts = threads;
            return 1;
        }
        if (vocab_read(&b->ctx, directory, &section, &section_size, NULL) ||
            attn_tokenizer_new(&b->ctx, &own, section, section_size))
            good = 0;
        a.tokenizer = own;
    }
    a.text = (char *)malloc(a.size + MOST_BEYOND);
    a.ids = (int32_t *)malloc((a.size + 1) * sizeof(int32_t));
    if (good && (!a.text || !a.ids))
        good = tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory for a text") == ATTN_OK;
    if (good)
        fprintf(b->table, "%u tokens, of %s\n", (unsigned)attn_tokenizer_n_tokens(a.tokenizer),
                own ? directory : "the model");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && good; i++) {
        fill_text(a.text, a.size, (int)i);
        snprintf(t.name, sizeof t.name, "%s", kinds[i]);
        t.amount = (double)a.size / 1e6;
        good = measure(b, &t);
    }
    b->n_counts = threads;
    free(a.text);
    free(a.ids);
    attn_tokenizer_free(own);
    free(section);
    return good;
}

#endif
