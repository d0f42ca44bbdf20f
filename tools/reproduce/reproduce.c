/* sh tools/lens/program/draw/embed.sh >lens_embedded.h && cc tools/reproduce/reproduce.c -I. -O2 -fopenmp -lm -o reproduce
 *                                                          (without -fopenmp: one thread)
 *
 * Computes published figures of GPT-2 small again and compares them with what was printed. The
 * figures and their sources are in published.txt. About half of them are questions to the program lens
 * (tools/waist/query.h). The parts, each in a header beside this file:
 *
 *     table.h        published.txt
 *     weights.h      whether the files are those of GPT-2 small
 *     ask.h          a question to lens, and the numbers of its answer
 *     figures.h      single figures: losses, probabilities, greedy texts
 *     data.h         data sets that the user has: HellaSwag, LAMBADA, WikiText; others are in
 *                    greater_than.h (EAP) and ioi_edges.h (EAP-IG's scores of all edges)
 *     procedures.h   whole plots, by name; study.h (direct logit attribution, ablation) and
 *                    attributing.h (attribution patching, paths) have the arithmetic of some */

#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "reproduce"
#define INPUT   "text"
#include "tools/common/json_out.h"
#include "tools/write/new_file.h"
#include "tools/common/interrupt.h"
#include "tools/waist/programs.h"
#include "weights.h"
#include "figures.h"
#include "greater_than.h"
#include "ioi_edges.h"
#include "procedures.h"

/* >> Data sets, of which nothing is downloaded =============================================== */

typedef attn_status (*data_fn)(reading *r, const char *path, float *out, float *errors);

static const struct data_set {
    const char *name; /* the name of the procedure and of the option */
    const char *wanted;
    data_fn fn;
    size_t n;
} data_sets[] = {
#define DATA_SET(name, fn, n)                                                                      \
    {                                                                                              \
        name, "give --" name " FILE", fn, n                                                        \
    }
    DATA_SET("hellaswag", hellaswag, 4),
    DATA_SET("lambada", lambada, 4),
    DATA_SET("wikitext-2", wikitext, 2),
    DATA_SET("wikitext-103", wikitext, 2),
    DATA_SET("greater-than", greater_than_figures, 6),
    DATA_SET("ioi-edges", ioi_edges, N_IOI_FIGURES),
};
enum { N_DATA_SETS = sizeof data_sets / sizeof data_sets[0] };

/* The index of the data set that a procedure needs; N_DATA_SETS if it needs none. */
static size_t find_data_set(const char *procedure)
{
    size_t i = 0;
    while (i < N_DATA_SETS && strcmp(data_sets[i].name, procedure) != 0)
        i++;
    return i;
}

/* The figures of a data set that the user has, followed by their standard errors. They are computed once and kept. NULL
 * after a message. */
static const float *read_data(study *s, size_t which, const char *path)
{
    const struct data_set *d = &data_sets[which];
    const kept_numbers *k = find_kept(s, d->name);
    float *const out = k ? k->values : room_to_keep(s, d->name, 2 * d->n);
    reading r;
    if (k || !out)
        return out;
    if (begin_reading(&r, s) || d->fn(&r, path, out, out + d->n))
        s->kept = s->kept->next;
    attn_session_free(r.session);
    return s->ctx->status ? NULL : out;
}

typedef struct options {
    const char *model, *figures, *json, *files, *data[N_DATA_SETS];
    size_t threads;
    int quick, isa, skip_checksums;
} options;

static const struct option table[] = {
#undef AT
#define AT(member) offsetof(options, member), 0 /* no commands */
    {'m', "model", "FILE", TEXT, AT(model), NULL, "the model, if it is not the first word"},
    {0, "quick", NULL, FLAG, AT(quick), NULL, "leave out the sweeps by head and position"},
    {0, "json", "FILE", OUTPUT, AT(json), NULL, "write all figures, computed and published"},
    {0, "figures", "FILE", TEXT, AT(figures), NULL,
     "published figures (default: tools/reproduce/published.txt)"},
    {0, "files", "DIRECTORY", TEXT, AT(files), NULL,
     "verify that the files from which the model was made are GPT-2 small's"},
    {0, "hellaswag", "FILE", TEXT, AT(data[0]), NULL, "hellaswag_val.jsonl, for its figures"},
    {0, "lambada", "FILE", TEXT, AT(data[1]), NULL, "lambada_test_en.jsonl"},
    {0, "wikitext-2", "FILE", TEXT, AT(data[2]), NULL, "wiki.test.raw of WikiText-2"},
    {0, "wikitext-103", "FILE", TEXT, AT(data[3]), NULL, "wiki.test.raw of WikiText-103"},
    {0, "greater-than", "FILE", TEXT, AT(data[4]), NULL,
     "greater_than_data.csv, for circuits by EAP"},
    {0, "ioi-edges", "FILE", TEXT, AT(data[5]), NULL,
     "ioi-eap-ig.json, for EAP-IG's scores of all edges"},
    {'t', "threads", "COUNT", COUNT, AT(threads), THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, AT(isa), ISA_NAMES, ISA_HELP},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), NULL, "open without verifying the file"},
    PROGRAM_OPTIONS(0),
};

static const help_page help = {
    .usage = "reproduce MODEL.attn [options]",
    .about = "Computes figures that papers, courses and notebooks printed about GPT-2 small, "
             "and prints a line for each block of them: how many agree within the tolerance, "
             "of those that are not zero; the largest difference; ok or differs; then its source. "
             "Any model with GPT-2's vocabulary can be given, but only the real weights can agree: "
             "make gpt2. Exit code 0: all computed figures agree; 1: some differ.",
    .examples = "reproduce build/gpt2.attn --json figures.json"};

typedef struct run {
    options o;
    attn_ctx ctx;
    arena memory;
    attn_model *model;
    table_of_blocks blocks;
    study study;
    size_t n_blocks, n_ok;     /* computed blocks that have a figure other than zero */
    size_t n_figures, n_agree; /* their figures other than zero */
    size_t n_left, n_differ;   /* blocks that were not computed, and those that differ */
    size_t n_wrong_files;
} run;

/* >> Blocks ==================================================================================== */

/* Selects the values whose indices are the block's ids. */
static void choose(const block *b, float *out, const float *values, size_t n)
{
    for (size_t i = 0; i < b->n_ids && i < b->n; i++)
        if ((size_t)b->ids[i] < n)
            out[i] = values[b->ids[i]];
}

/* The numbers of a block of a data set or of a plot: those that its ids select, of a data set followed by their
 * standard errors; else all values of its procedure, or x and y of several traces in turn. */
static attn_status plot_numbers(run *r, const block *b, float *out, size_t which)
{
    size_t n = which < N_DATA_SETS ? data_sets[which].n : 0;
    const float *values =
        n ? read_data(&r->study, which, r->o.data[which]) : compute(&r->study, b->procedure, &n);
    if (!values)
        return r->ctx.status;
    choose(b, out, values, n);
    if (which < N_DATA_SETS)
        choose(b, out + b->n, values + n, n);
    if (b->n_ids > 0 || which < N_DATA_SETS)
        return ATTN_OK;
    if (n != b->n)
        return tool_fail(&r->ctx, ATTN_E_SHAPE, "%s: %zu numbers here, %zu published", b->title, n,
                         b->n);
    size_t traces = strchr(b->procedure, '/') && b->ndim == 3 ? b->shape[0] : 1;
    size_t size = n / traces / 2;
    for (size_t i = 0; i < traces && traces > 1; i++)
        for (size_t j = 0; j < 2; j++)
            for (size_t k = 0; k < size; k++)
                out[(2 * i + j) * size + k] = values[(traces * j + i) * size + k];
    if (traces == 1)
        memcpy(out, values, n * sizeof *out);
    return ATTN_OK;
}

/* The numbers of a block; NULL after a message in the context. *reason: why a data set's texts do not
 * fit this model, in which case the context has no message. */
static const float *figures_of(run *r, const block *b, const char **reason)
{
    const size_t which = find_data_set(b->procedure);
    float *out = room_for(&r->study, 2 * b->n);
    const figure *f = find_figure(b->procedure);
    if (!out)
        return NULL;
    attn_status status = f ? find_numbers(&r->study, f, b, out) : plot_numbers(r, b, out, which);
    if (status == ATTN_E_CONTEXT && which < N_DATA_SETS) {
        *reason = arena_text(&r->ctx, &r->memory, r->ctx.message, strlen(r->ctx.message));
        r->ctx.status = *reason ? ATTN_OK : r->ctx.status;
    }
    return status ? NULL : out;
}

/* The tokens that the longest text of a block has. */
static size_t tokens_of_block(const block *b)
{
    const figure *f = find_figure(b->procedure);
    if (!f)
        return tokens_of_plot(b->procedure);
    if (f->needs == A_TOKENIZER || f->fn == unembedding_bias)
        return 0;
    if (f->needs == ITS_NEURONS)
        return N_TOKENS;
    if (f->fn == log_probabilities && b->at[1] > 0 && b->at[1] < b->n_ids)
        return b->at[1] + 1;
    return b->n_ids + (f->fn == greedy_ids ? b->n - 1 : 0);
}

/* Why a block's texts do not fit the model's context; NULL if they do. */
static const char *too_long(run *r, const block *b)
{
    const size_t n = tokens_of_block(b), most = attn_model_config(r->model)->n_ctx;
    char text[96];
    if (n <= most)
        return NULL;
    snprintf(text, sizeof text, "its text has %zu tokens, the model's context %zu", n, most);
    return arena_text(&r->ctx, &r->memory, text, strlen(text));
}

/* Why a block cannot be computed with this model; NULL if it can. */
static const char *reason_against(run *r, const block *b)
{
    const attn_config *c = attn_model_config(r->model);
    const figure *f = find_figure(b->procedure);
    const size_t which = find_data_set(b->procedure);
    if (strncmp(b->procedure, "none: ", 6) == 0)
        return b->procedure + 6;
    if (which < N_DATA_SETS && !r->o.data[which])
        return data_sets[which].wanted;
    if (which < N_DATA_SETS && data_sets[which].fn != ioi_edges)
        return attn_model_tokenizer(r->model) ? NULL : "the model has no tokenizer";
    if (which < N_DATA_SETS)
        return c->n_vocab < 50257 ? "it needs GPT-2's vocabulary" : too_long(r, b);
    if (strstr(b->procedure, "by-position") && strncmp(b->procedure, "patch-", 6) == 0 &&
        r->o.quick)
        return "left out by --quick";
    if (f && f->needs == ITS_NEURONS && (c->n_layer != N_LAYER || c->d_mlp != 3072))
        return "it needs a model of 12 layers with 3,072 neurons";
    if ((!f || f->needs == GPT2_SMALL) && (c->n_layer != N_LAYER || c->n_head != N_HEAD))
        return "it needs a model of 12 layers with 12 heads";
    if (f && f->needs == A_TOKENIZER && !attn_model_tokenizer(r->model))
        return "the model has no tokenizer";
    for (size_t i = 0; f && f->needs == A_TOKENIZER && i < b->n; i++)
        if (b->published[i] > (double)c->n_vocab - 0.5)
            return "it needs GPT-2's vocabulary";
    if (f && f->needs == A_TOKENIZER) /* the ids are bytes */
        return NULL;
    if (strcmp(b->procedure, "ov-eigenvalues") == 0 && c->d_head != 64)
        return "it needs heads of 64 dimensions";
    if ((!f || f->needs >= GPT2_SMALL) && c->n_vocab < 50257)
        return "it needs GPT-2's vocabulary";
    for (size_t i = 0; f && f->needs != ITS_NEURONS && i < b->n_ids; i++)
        if ((uint32_t)b->ids[i] >= c->n_vocab)
            return "it needs GPT-2's vocabulary";
    return too_long(r, b);
}

/* Writes an array of `ndim` dimensions, of values or of published numbers. */
static void out_nested(json_out *o, const char *key, const size_t *shape, int ndim,
                       const float *values, const double *published)
{
    size_t step = 1;
    for (int d = 1; d < ndim; d++)
        step *= shape[d];
    out_open(o, key, '[');
    for (size_t i = 0; i < shape[0]; i++)
        if (ndim > 1)
            out_nested(o, NULL, shape + 1, ndim - 1, values ? values + i * step : NULL,
                       published ? published + i * step : NULL);
        else if (values)
            out_f32(o, NULL, values[i]);
        else
            out_digits(o, NULL, published[i], 9);
    out_close(o, ']');
}

static void out_block(json_out *o, const block *b, const float *values, const char *reason)
{
    out_open(o, NULL, '{');
    out_word(o, "notebook", b->source);
    out_count(o, "cell", b->cell);
    out_word(o, "title", b->title);
    out_word(o, "procedure", b->procedure);
    out_digits(o, "tolerance", b->tolerance, 6);
    if (values)
        out_nested(o, "values", b->shape, b->ndim, values, NULL);
    else
        out_word(o, "reason", reason);
    if (values && find_data_set(b->procedure) < N_DATA_SETS) {
        out_open(o, "standard_errors", '[');
        for (size_t i = 0; i < b->n; i++)
            out_f32(o, NULL, values[b->n + i]);
        out_close(o, ']');
    }
    if (b->published)
        out_nested(o, "published", b->shape, b->ndim, NULL, b->published);
    out_close(o, '}');
}

/* How a block's values compare with the published ones. */
typedef struct agreement {
    size_t figures, agree;      /* of the published figures other than zero */
    size_t zeros, zeros_differ; /* of the others */
    double largest;             /* difference */
} agreement;

static agreement compare(const block *b, const float *values)
{
    agreement a = {0, 0, 0, 0, 0};
    for (size_t i = 0; i < b->n; i++) {
        const double difference = fabs((double)values[i] - b->published[i]);
        const size_t within = difference <= b->tolerance;
        if (is_zero(b, i)) {
            a.zeros++;
            a.zeros_differ += 1 - within;
        } else {
            a.figures++;
            a.agree += within;
        }
        a.largest = difference > a.largest || !(difference >= 0) ? difference : a.largest;
    }
    return a;
}

/* Prints the line of a block, its source and its procedure. */
static void report(run *r, const block *b, const float *values, const char *reason)
{
    agreement a = {0, 0, 0, 0, 0};
    int differs;
    if (values) {
        a = compare(b, values);
        differs = a.agree < a.figures || a.zeros_differ;
        r->n_blocks +=
            a.figures > 0; /* one whose figures are all zero proves nothing if it agrees */
        r->n_ok += a.figures > 0 && !differs;
        r->n_figures += a.figures;
        r->n_agree += a.agree;
        r->n_differ += (size_t)differs;
        printf("%-8s %5zu of %5zu within %.0e, at most %-8.2g %s\n",
               differs     ? "differs"
               : a.figures ? "ok"
                           : "-",
               a.agree, a.figures, b->tolerance, a.largest, b->title);
    } else {
        r->n_left++;
        printf("%-8s %5s    %5zu not computed: %s: %s\n", "-", "", b->n, reason, b->title);
    }
    printf("         %s", b->source);
    if (b->cell > 0)
        printf(", cell %zu", b->cell);
    printf("%s%s", values ? ": " : "", values ? b->procedure : "");
    if (a.zeros_differ)
        printf("; zeros: %zu, of which %zu differ", a.zeros, a.zeros_differ);
    else if (a.zeros)
        printf("; zeros: %zu", a.zeros);
    printf("\n");
    if (values && find_data_set(b->procedure) < N_DATA_SETS)
        for (size_t i = 0; i < b->n; i++)
            printf("         %.7g here, standard error %.2g; published: %.7g\n", (double)values[i],
                   (double)values[b->n + i], b->published[i]);
    fflush(stdout);
}

/* ---- the files of the weights ---- */

/* Prints a line for each file, and adds the list to the JSON. */
static int verify_files(run *r, json_out *o)
{
    char have[SHA256_HEX];
    size_t size;
    out_open(o, "files", '[');
    if (!r->o.files)
        printf("%-8s files not verified: give --files DIRECTORY, from which the model was made\n",
               "-");
    for (size_t i = 0; r->o.files && i < N_WEIGHTS_FILES; i++) {
        const weights_file *f = &weights_files[i];
        const char *path = arena_path(&r->ctx, &r->memory, r->o.files, f->name);
        if (!path || digest_of_file(&r->ctx, &r->memory, have, &size, path, f))
            return failed(&r->ctx);
        int same = size == f->size && strcmp(have, f->digest) == 0;
        r->n_wrong_files += !same;
        printf("%-8s %s: %s %s", same ? "ok" : "differs", f->name, f->in_git ? "git" : "SHA-256",
               have);
        if (!same)
            printf(" of %llu bytes; expected %s of %llu bytes", TOOLS_LLU(size), f->digest,
                   TOOLS_LLU(f->size));
        printf("\n         %s\n", WEIGHTS_SOURCE);
        out_open(o, NULL, '{');
        out_word(o, "name", f->name);
        out_word(o, f->in_git ? "git" : "sha256", have);
        out_word(o, "expected", f->digest);
        out_close(o, '}');
    }
    out_close(o, ']');
    return FINE;
}

static int reproduce_all(run *r, json_out *o)
{
    const double begin = system_seconds();
    out_open(o, NULL, '{');
    if (verify_files(r, o) != FINE)
        return failed(&r->ctx);
    out_open(o, "blocks", '[');
    for (size_t i = 0; i < r->blocks.n; i++) {
        const block *b = &r->blocks.at[i];
        const char *reason = reason_against(r, b);
        const float *values = NULL;
        progress_begin(&r->study.progress, "computing");
        values = reason ? NULL : figures_of(r, b, &reason);
        progress_end(&r->study.progress);
        if (!values && !reason)
            return failed(&r->ctx);
        report(r, b, values, reason);
        out_block(o, b, values, reason);
    }
    out_close(o, ']');
    out_close(o, '}');
    printf("%zu figures could be wrong, %zu agree; "
           "%zu of %zu blocks are ok, %zu were not computed; %.0f s\n",
           r->n_figures, r->n_agree, r->n_ok, r->n_blocks, r->n_left, system_seconds() - begin);
    if (r->n_left == r->blocks.n)
        return fail(FAILED,
                    "this model gives none of the figures: make gpt2 makes the one that does");
    return r->n_differ == 0 && r->n_wrong_files == 0 ? FINE : FAILED;
}

static int write_json(run *r, json_out *o)
{
    lens_new_file *file = NULL;
    attn_status status = lens_new_file_begin(&r->ctx, &file, r->o.json);
    if (!status && !out_line(o, (FILE *)lens_new_file_stream(file)))
        status = tool_fail(&r->ctx, ATTN_E_MEMORY, "no memory for the figures");
    return lens_new_file_end(&r->ctx, file, status) ? failed(&r->ctx) : FINE;
}

static int run_all(run *r)
{
    const char *const published = r->o.figures ? r->o.figures : "tools/reproduce/published.txt";
    json_out o = {NULL, 0, 0, 0, 0};
    int written = FINE,
        code = open_model(&r->ctx, &r->model, r->o.model, r->o.isa, r->o.skip_checksums);
    if (code != FINE)
        return code;
    r->study = (study){.ctx = &r->ctx, .memory = &r->memory, .raw = r->model};
    if (read_table(&r->ctx, &r->memory, &r->blocks, published) || begin_study(&r->study))
        return failed(&r->ctx);
    code = reproduce_all(r, &o);
    if (r->o.json && (code == FINE || r->ctx.status == ATTN_OK))
        written = write_json(r, &o);
    out_free(&o);
    return written != FINE ? written : code;
}

static int run_line(const program *self, arguments *given, void *state)
{
    run *const r = (run *)state;
    int code = take_words(self, given, &r->o.model, NULL, "MODEL.attn");
    if (code != FINE)
        return code;
    signal(SIGINT, on_interrupt);
    r->ctx.stop_flag = &interrupted;
    r->ctx.n_threads = (int)r->o.threads;
    code = run_all(r);
    attn_model_close(r->study.model);
    attn_model_close(r->model);
    arena_free(&r->memory);
    return code;
}

int main(int argc, char **argv)
{
    static run r;
    const program self = {
        table, sizeof table / sizeof table[0], 1, "give one model", &help, 1, NULL, NULL, NULL};
    return program_main(&self, argc, argv, &r, run_line);
}
