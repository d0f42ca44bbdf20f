/* cc tools/perplexity.c -I. -O2 -fopenmp -lm -o perplexity     (without -fopenmp: one thread)
 *
 * Measures how well a model predicts a text: exp of the mean loss of its tokens. A text that is
 * longer than the context is read in windows, by one of the two usual recipes. */

#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "perplexity"
#define INPUT   "text"
#include "tools/common/json_out.h"
#include "tools/common/interrupt.h"
#include "tools/common/prompt.h"
#include "tools/common/utf8.h"
#include <math.h>

typedef struct options {
    const char *model, *file;
    size_t context, stride, threads;
    int recipe, isa, exact, special, bos, f16_cache, skip_checksums, json;
} options;

enum recipe { STRIDED, HALVES };
static const char *const recipe_names[] = {"strided", "halves"};
#define RECIPES "strided halves"

static const struct option table[] = {
#define AT(member) offsetof(options, member), 0 /* no commands */
    {'m', "model", "FILE", TEXT, AT(model), NULL, "the model, if it is not the first word"},
    {'f', "file", "FILE", TEXT, AT(file), NULL, "the text, if it is not the next word"},
    {'c', "context", "COUNT", COUNT, AT(context), "2 1000000000",
     "tokens in a window (default: the model's context)"},
    {0, "recipe", "NAME", CHOICE, AT(recipe), RECIPES, "strided (default) or halves"},
    {0, "stride", "COUNT", COUNT, AT(stride), "1 1000000000",
     "strided: tokens from one window to the next (default: half a window)"},
    {0, "bos", NULL, FLAG, AT(bos), NULL,
     "put the beginning-of-text token before the text; "
     "halves: in place of the first token of each window"},
    {0, "special", NULL, FLAG, AT(special), NULL, "<|endoftext|> in the text is a token"},
    {0, "exact", NULL, FLAG, AT(exact), NULL, EXACT_HELP ". Text must be UTF-8 without it"},
    {'t', "threads", "COUNT", COUNT, AT(threads), THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, AT(isa), ISA_NAMES, ISA_HELP},
    {0, "f16-cache", NULL, FLAG, AT(f16_cache), NULL, "round keys and values to half the bytes"},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), NULL, "open without verifying the file"},
    {0, "json", NULL, FLAG, AT(json), NULL, "print one JSON object"},
    PROGRAM_OPTIONS(0),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static void print_recipes(void)
{
    printf("\nRecipes:\n");
    print_row(
        "strided", 10,
        "windows overlap; every token after the first counts once, with at least CONTEXT - STRIDE "
        "tokens before it where the text has them (Hugging Face's documentation, but for its code, "
        "which weighs the mean of a window by one token less: the last digits differ)");
    print_row("halves", 10,
              "windows do not overlap; the second half of each counts, "
              "and an incomplete last window is left out (llama.cpp's perplexity)");
}

static const help_page help = {
    .usage = "perplexity MODEL.attn FILE [options]",
    .about =
        "Measures how well a model predicts a text (FILE, or - for standard input): "
        "exp of the mean loss. The standard error treats the losses as independent. "
        "The text is read in windows, by one of two recipes. lm_eval_attn.py has the harness's own "
        "windows, which do not overlap, and score refuses a text that is longer than the context.",
    .print_rows = print_recipes};

typedef struct run {
    options o;
    attn_ctx ctx;
    arena memory;
    attn_model *model;
    attn_session *session;
    attn_token *ids;
    size_t n;
    attn_token_stats *stats; /* [context], for one window */
    double sum, squares;     /* of the counted losses, and of their squares */
    size_t n_counted, n_bytes, n_windows;
} run;

/* Refuses bytes that are not UTF-8: the perplexity of a picture, an archive or a text in another
 * encoding says nothing. The first and the last character may be incomplete, since a text may have
 * been cut anywhere. */
static int check_text(const run *r, const unsigned char *text, size_t size)
{
    size_t at = 0, length = 1;
    uint32_t code;
    while (at < size && at < 3 && (text[at] & 0xC0) == 0x80)
        at++;
    for (; at < size && text[at] != 0; at += length)
        if ((length = utf8_length(text + at, size - at, &code)) == 0)
            break;
    if (at == size || (text[at] >= 0xC0 && size - at < 4))
        return FINE;
    return fail(FAILED,
                "%s is not a text in UTF-8: it has the byte %02x; "
                "convert a text (iconv -f LATIN1 -t UTF-8), or give --exact for any bytes",
                strcmp(r->o.file, "-") == 0 ? "standard input" : r->o.file, (unsigned)text[at]);
}

/* Reads the text and turns it into token ids. */
static int read_ids_of_file(run *r)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    const attn_token bos = attn_model_config(r->model)->bos;
    const char *bytes = NULL;
    size_t size = 0;
    int code = read_text(&r->ctx, &r->memory, r->o.file, r->o.exact, &bytes, &size);
    if (code == FINE && !r->o.exact)
        code = check_text(r, (const unsigned char *)bytes, size);
    if (code != FINE)
        return code;
    if (!tokenizer)
        return fail(FAILED, "%s has no tokenizer, so it cannot read a text", r->o.model);
    if (r->o.bos && bos < 0)
        return fail(FAILED, "%s has no beginning-of-text token for --bos", r->o.model);
    r->ids = (int32_t *)arena_alloc(&r->ctx, &r->memory, size + 2, sizeof *r->ids);
    if (!r->ids)
        return failed(&r->ctx);
    r->ids[0] = bos;
    size_t n = r->o.bos && r->o.recipe == STRIDED; /* the token is part of the text */
    r->n = size + 1;
    if ((r->o.special ? attn_encode_special : attn_encode)(&r->ctx, r->ids + n, &r->n, tokenizer,
                                                           bytes, size))
        return failed(&r->ctx);
    r->n += n;
    if (r->n < (r->o.recipe == HALVES ? r->o.context : 2))
        return fail(FAILED, "%s has %zu token%s; expected at least %zu%s",
                    strcmp(r->o.file, "-") == 0 ? "standard input" : r->o.file, r->n,
                    r->n == 1 ? "" : "s", r->o.recipe == HALVES ? r->o.context : (size_t)2,
                    r->o.recipe == HALVES
                        ? ", one window: give a longer text or a smaller --context"
                        : ", to predict one of them");
    return FINE;
}

/* Feeds the window ids[begin .. end) and counts the losses of its tokens from `first` on. */
static int score_window(run *r, size_t begin, size_t end, size_t first)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    const int32_t replaced = r->ids[begin];
    size_t size = 0;
    if (r->o.recipe == HALVES && r->o.bos)
        r->ids[begin] = attn_model_config(r->model)->bos;
    attn_status status = attn_session_truncate(&r->ctx, r->session, 0);
    if (status == ATTN_OK)
        status = attn_score(&r->ctx, r->stats, NULL, r->session, r->ids + begin, end - begin);
    r->ids[begin] = replaced;
    if (status != ATTN_OK)
        return failed(&r->ctx);
    for (size_t i = first; i < end; i++) {
        const double nll = (double)r->stats[i - begin - 1].nll;
        r->sum += nll;
        r->squares += nll * nll;
        attn_token_bytes(&size, tokenizer, r->ids[i]);
        r->n_bytes += size;
        r->n_counted++;
    }
    r->n_windows++;
    return interrupted ? INTERRUPTED : FINE;
}

static int score_all(run *r)
{
    const size_t context = r->o.context;
    progress line;
    size_t begin = 0, end = 0;
    int code = FINE;
    progress_begin(&line, "windows");
    while (code == FINE && (r->o.recipe == HALVES ? begin + context <= r->n : end < r->n)) {
        const size_t seen = end;
        end = r->n - begin < context ? r->n : begin + context;
        code = score_window(r, begin, end,
                            r->o.recipe == HALVES ? begin + context / 2 + 1
                            : seen > begin        ? seen
                                                  : begin + 1);
        begin += r->o.stride;
        progress_at(&line, (double)end / (double)r->n);
    }
    progress_end(&line);
    return code;
}

static void print_json(const run *r, double mean, double error, double bits_per_byte)
{
    json_out o = {NULL, 0, 0, 0, 0};
    out_open(&o, NULL, '{');
    out_f64(&o, "perplexity", exp(mean));
    out_f64(&o, "perplexity_error", exp(mean) * error);
    out_f64(&o, "nll", mean);
    out_f64(&o, "nll_error", error);
    out_f64(&o, "bits_per_byte", bits_per_byte);
    out_count(&o, "tokens", r->n_counted);
    out_count(&o, "windows", r->n_windows);
    out_count(&o, "context", r->o.context);
    out_count(&o, "stride", r->o.stride);
    out_word(&o, "recipe", recipe_names[r->o.recipe]);
    out_close(&o, '}');
    out_line(&o, stdout);
    out_free(&o);
}

static void print_result(const run *r)
{
    const double n = (double)r->n_counted, mean = r->sum / n;
    const double variance = n > 1 ? (r->squares - n * mean * mean) / (n - 1) : 0;
    const double error = sqrt(fmax(variance, 0) / n);
    const double bits_per_byte = r->sum / log(2) / (double)r->n_bytes;
    if (r->o.json)
        print_json(r, mean, error, bits_per_byte);
    else
        printf("perplexity  %.4f +- %.4f\n"
               "loss        %.5f +- %.5f nats a token, %.4f bits a byte\n"
               "counted     %zu token%s in %zu window%s of %zu, %zu apart (%s)\n",
               exp(mean), exp(mean) * error, mean, error, bits_per_byte, r->n_counted,
               r->n_counted == 1 ? "" : "s", r->n_windows, r->n_windows == 1 ? "" : "s",
               r->o.context, r->o.stride, recipe_names[r->o.recipe]);
}

static int run_all(run *r)
{
    r->ctx.n_threads = (int)r->o.threads;
    r->ctx.stop_flag = &interrupted;
    int code = open_model(&r->ctx, &r->model, r->o.model, r->o.isa, r->o.skip_checksums);
    if (code != FINE)
        return code;
    size_t n_ctx = attn_model_config(r->model)->n_ctx;
    if (r->o.context > n_ctx)
        return fail(FAILED, "--context is %zu, but the model's context holds %zu", r->o.context,
                    n_ctx);
    r->o.context = r->o.context ? r->o.context : n_ctx;
    if (r->o.context < (r->o.recipe == HALVES ? 3 : 2))
        return fail(FAILED, "a window of %zu tokens has none to predict by this recipe",
                    r->o.context);
    if (r->o.stride > r->o.context)
        return fail(FAILED,
                    "--stride is %zu, longer than a window of %zu: "
                    "tokens between them would not count",
                    r->o.stride, r->o.context);
    if (r->o.recipe == HALVES)
        r->o.stride = r->o.context;
    r->o.stride = r->o.stride ? r->o.stride : (r->o.context + 1) / 2;
    if ((code = read_ids_of_file(r)) != FINE)
        return code;
    const attn_session_desc desc = {.n_ctx = r->o.context,
                                    .cache_dtype = r->o.f16_cache ? ATTN_F16 : ATTN_F32};
    r->stats = (attn_token_stats *)arena_alloc(&r->ctx, &r->memory, r->o.context, sizeof *r->stats);
    if (!r->stats || attn_session_new(&r->ctx, &r->session, r->model, &desc))
        return failed(&r->ctx);
    signal(SIGINT, on_interrupt);
    if ((code = score_all(r)) == FINE)
        print_result(r);
    return code;
}

static int run_line(const program *self, arguments *given, void *state)
{
    run *const r = (run *)state;
    int code = take_words(self, given, &r->o.model, &r->o.file, "MODEL.attn FILE");
    if (code != FINE)
        return code;
    if (!r->o.file && !system_is_terminal(stdin))
        r->o.file = "-";
    if (!r->o.file)
        return fail(USAGE, "no text given: perplexity MODEL.attn FILE (--help tells more)");
    if (strchr(r->o.file, ' ') && !system_exists(r->o.file))
        return fail(USAGE,
                    "there is no file \"%s\". If that is a text: echo \"a text\" | perplexity "
                    "MODEL.attn",
                    r->o.file);
    if (r->o.recipe == HALVES && r->o.stride)
        return fail(USAGE, "--stride is for the recipe strided: halves have none");
    code = run_all(r);
    attn_session_free(r->session);
    attn_model_close(r->model);
    arena_free(&r->memory);
    return code;
}

int main(int argc, char **argv)
{
    static run r;
    const program self = {table, N_OPTIONS, 2, "quote the path", &help, 1, NULL, NULL, NULL};
    return program_main(&self, argc, argv, &r, run_line);
}
