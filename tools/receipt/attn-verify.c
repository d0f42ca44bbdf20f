/* sh tools/lens/program/draw/embed.sh >lens_embedded.h && cc tools/receipt/attn-verify.c -I. -O2 -fopenmp -lm -o attn-verify
 *                                                          (without -fopenmp: one thread)
 *
 * Verifies receipts: computes again what another machine computed, and compares every bit. gpt2,
 * lens, surprisal and score make them (--receipt). */

#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "attn-verify"
#define INPUT   "text"
#include "tools/common/interrupt.h"
#include "tools/common/prompt.h"
#include "tools/receipt/ask.h"
#include "tools/waist/programs.h"

typedef struct options {
    const char *model, *input, *seed, *sample;
    size_t threads;
    int isa, skip_checksums, quiet;
} options;

static const struct option table[] = {
#define FROM(member) offsetof(options, member), 0 /* no commands */
    {'m', "model", "FILE", TEXT, FROM(model), NULL, "the model, if it is not the first word"},
    {0, "input", "FILE", TEXT, FROM(input), NULL, "what a question had as standard input"},
    {0, "sample", "SHARE", TEXT, FROM(sample), NULL,
     "of answers about many texts, compute only so many blocks of 64, as 1% or 0.01"},
    {0, "seed", "SEED", TEXT, FROM(seed), NULL, "which blocks (default: the receipt decides)"},
    {'t', "threads", "COUNT", COUNT, FROM(threads), THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, FROM(isa), ISA_NAMES, ISA_HELP},
    {0, "skip-checksums", NULL, FLAG, FROM(skip_checksums), NULL,
     "open without verifying the file"},
    {'q', "quiet", NULL, FLAG, FROM(quiet), NULL, "print nothing of receipts that hold"},
    PROGRAM_OPTIONS(0),
};
enum { N_VERIFY_OPTIONS = sizeof table / sizeof table[0] };

static const help_page help = {
    NULL,
    NULL,
    "attn-verify MODEL.attn RECEIPT... [options]\n"
    "attn-verify MODEL.attn RECEIPT ANSWER [options]",
    "Verifies receipts. A receipt says that this model, with these settings, "
    "draws these tokens from logits with these bits, or gives this answer to a question; "
    "the program computes that again. With ANSWER, a file of the answer (CSV, JSON or .npz), it "
    "names the first row and column that differ. "
    "Any build on any processor can verify the receipt of any other, in one pass over the text. "
    "Exit code 0: all receipts hold; 1: one does not, "
    "and the first position, or the units, that differ are printed; 2: one could not be checked; "
    "3, with --quiet: all hold, but one of version 1, which does not cover the tokenizer.\n\n"
    "A receipt proves which model and settings give a text. "
    "It does not prove when or by whom it was computed, nor that nobody tried other seeds before.",
    0,
    NULL,
    "gpt2 model.attn \"Once upon\" --receipt story.json\n"
    "attn-verify model.attn story.json"};

enum { NOT_ALL = 3 }; /* the exit code */

typedef struct run {
    options o;
    attn_ctx ctx;
    arena memory;
    attn_model *model;
    receipt_identity identity; /* of the opened model */
    double share;              /* of --sample */
} run;

/* Opens the model, with the portable kernels if those of this processor do not round as the contract
 * says. */
static int open_exact(run *r)
{
    r->ctx.isa = (attn_isa_kind)r->o.isa;
    const char *name = attn_isa(&r->ctx);
    if (name && strchr(name, '(') && r->o.isa != ATTN_ISA_AUTO)
        return fail(USAGE, "--isa: %s does not give the bits of a receipt; use portable", name);
    if (name && strchr(name, '('))
        r->o.isa = ATTN_ISA_PORTABLE;
    r->ctx.n_threads = (int)r->o.threads;
    int code = open_model(&r->ctx, &r->model, r->o.model, r->o.isa, r->o.skip_checksums);
    if (code == FINE && receipt_model_digest(&r->ctx, &r->identity, r->model, r->o.model))
        code = failed(&r->ctx);
    return code;
}

/* >> Verifying ================================================================================= */

/* Prints what tokens spell as a JSON string, which changes no terminal. */
static void print_tokens(run *r, const char *before, const attn_token *ids, size_t n)
{
    const attn_tokenizer *const tokenizer = attn_model_tokenizer(r->model);
    json_out told = {NULL, 0, 0, 0, 0};
    size_t size = 0;
    attn_decode(&r->ctx, NULL, &size, tokenizer, ids, n);
    char *const text = (char *)arena_alloc(&r->ctx, &r->memory, size + 1, 1);
    if (text && attn_decode(&r->ctx, text, &size, tokenizer, ids, n) == ATTN_OK)
        out_text(&told, NULL, text, size);
    printf("%s%.*s", before, (int)told.size, told.size ? told.text : "");
    out_free(&told);
}

static int print_model(const char *path, const char *words, const char *name,
                       const char *checkpoint)
{
    shown safe;
    return printf("%s: %s %s, checkpoint %.64s\n", path, words,
                  name ? show(safe, name, strlen(name)) : "without a name",
                  checkpoint ? checkpoint : "unknown");
}

static int is_alike(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static void print_held(run *r, const char *path, const receipt *told, const receipt_findings *found)
{
    const size_t n_prompt = told->text.n_prompt;
    if (told->kind == RECEIPT_TEXT)
        printf("%s: holds: %zu tokens drawn after %zu, %s\n", path, told->text.n_ids, n_prompt,
               attn_stop_reason_name(told->text.ended));
    else if (told->kind == RECEIPT_SCORE)
        printf("%s: holds: the losses of %zu tokens\n", path, told->text.n_ids - 1);
    else if (told->kind == RECEIPT_ACTIVATIONS)
        printf("%s: holds: %zu activations of %zu tokens\n", path, told->n_activations,
               told->text.n_ids);
    else
        printf("%s: holds: the answer of %s, %zu units in %zu blocks\n", path, told->command,
               told->units, told->n_blocks);
    if (told->kind == RECEIPT_TEXT && attn_model_tokenizer(r->model)) {
        printf("%s: ", path);
        print_tokens(r, "after ", told->text.prompt, n_prompt);
        print_tokens(r, ": ", told->text.ids, told->text.n_ids);
        printf("\n");
    }
    if (told->name || told->checkpoint) { /* quoted, which nothing proves */
        print_model(path, "of the model", r->identity.name, r->identity.checkpoint);
        if (!is_alike(told->name, r->identity.name) ||
            !is_alike(told->checkpoint, r->identity.checkpoint))
            print_model(path, "the weights are the same, but the receipt says", told->name,
                        told->checkpoint);
    }
    if (found->text[0])
        printf("%s: %s\n", path, found->text);
}

/* Gives the exit code. With --quiet a receipt that does not cover all has one of its own, because nothing says it. */
static int verify_file(run *r, const char *path, const char *kept)
{
    const receipt_how how = {r->o.input, kept, r->share, r->o.seed};
    receipt_findings found = {{0}};
    receipt told = ATTN_ZERO;
    const receipt_verdict verdict =
        receipt_check_file(&r->ctx, &found, &told, &r->memory, r->model, &r->identity, path, &how);
    if (verdict == RECEIPT_FAILED)
        failed(&r->ctx);
    else if (verdict == RECEIPT_DIFFERS)
        printf("%s: differs: %s\n", path, found.text);
    else if (!r->o.quiet)
        print_held(r, path, &told, &found);
    else if (found.text[0])
        return NOT_ALL;
    return (int)verdict;
}

/* >> The command line ========================================================================== */

/* Is a file a receipt? One that cannot be read counts, so that its name is in a message. */
static int is_receipt(const char *path)
{
    static const char begin[] = "{\"receipt\"";
    char text[sizeof begin] = "";
    FILE *const file = system_open(path, "rb");
    const int is_one = !file || (fread(text, 1, sizeof begin - 1, file) == sizeof begin - 1 &&
                                 strcmp(text, begin) == 0);
    if (file)
        fclose(file);
    return is_one;
}

/* Reads --sample, as 1% or 0.01. */
static int read_share(run *r)
{
    char *end = NULL;
    if (!r->o.sample)
        return FINE;
    r->share = number_at(r->o.sample, &end);
    r->share /= *end == '%' ? 100 : 1;
    end += *end == '%';
    return r->share > 0 && r->share <= 1 && !*end
               ? FINE
               : fail(USAGE, "--sample: \"%s\" is not a share, as 1%% or 0.01", r->o.sample);
}

/* Verifies the receipts that the words from `next` on name. Gives the worst of their exit codes. */
static int verify_all(run *r, const arguments *given, size_t next)
{
    int worst = RECEIPT_HOLDS, code;
    for (; next < given->n_words && !interrupted; next++) {
        const char *const path = given->words[next];
        const int has_answer = next + 1 < given->n_words && !is_receipt(given->words[next + 1]);
        code = verify_file(r, path, has_answer ? given->words[next + 1] : NULL);
        next += (size_t)has_answer;
        if (worst == RECEIPT_HOLDS || (code != NOT_ALL && (worst == NOT_ALL || code > worst)))
            worst = code;
    }
    return interrupted ? INTERRUPTED : worst;
}

static int run_line(const program *self, arguments *given, void *state)
{
    run *const r = (run *)state;
    size_t next = 0;
    int code;
    (void)self;
    r->o.model = option_or_word(r->o.model, given, &next);
    if (next < given->n_words)
        swap_model(&r->o.model, &given->words[next]);
    if (!r->o.model)
        return fail(USAGE, "no model given: attn-verify MODEL.attn RECEIPT (--help tells more)");
    if ((code = read_share(r)) != FINE)
        return code;
    if (next >= given->n_words)
        return fail(USAGE, "no receipt given: attn-verify MODEL.attn RECEIPT (--help tells more)");
    signal(SIGINT, on_interrupt);
    code = open_exact(r);
    if (code == FAILED)
        code = RECEIPT_FAILED;
    else if (code == FINE)
        code = verify_all(r, given, next);
    attn_model_close(r->model);
    arena_free(&r->memory);
    return code == FINE && interrupted ? INTERRUPTED : code;
}

int main(int argc, char **argv)
{
    static run r;
    const program self = {
        table, N_VERIFY_OPTIONS, 64, "64 are the most at once", &help, 1, NULL, NULL, NULL};
    return program_main(&self, argc, argv, &r, run_line);
}
