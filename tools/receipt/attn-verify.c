/* cc tools/receipt/attn-verify.c -I. -O2 -fopenmp -lm -o attn-verify    (without -fopenmp: one thread)
 *
 * Verifies receipts: computes again what another machine computed, and compares every bit. It also
 * makes receipts of losses and of activations; gpt2 --receipt makes those of generated texts. */

#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "attn-verify"
#define INPUT   "text"
#include "tools/common/prompt.h"
#include "tools/receipt/verify.h"

typedef struct options {
    const char *model, *text, *file, *ids, *output;
    text_list activations;
    size_t threads;
    int score, isa, exact, special, bos, f16_cache, skip_checksums, quiet;
} options;

static const struct option table[] = {
#define AT(member) offsetof(options, member), 0 /* no commands */
    {'m', "model", "FILE", TEXT, AT(model), NULL, "the model, if it is not the first word"},
    {0, "score", NULL, FLAG, AT(score), NULL, "make a receipt of the losses of a text"},
    {0, "activations", "NAME", TEXTS, AT(activations), NULL,
     "make a receipt of the activations of this name or pattern, as 'blocks.*.hook_resid_post'; "
     "may be given several times"},
    {'o', "output", "FILE", OUTPUT, AT(output), NULL, "the receipt to make"},
    {'p', "prompt", "TEXT", TEXT, AT(text), NULL, "make it of this text"},
    {'f', "file", "FILE", TEXT, AT(file), NULL, "... of the text in FILE (-: standard input)"},
    {0, "exact", NULL, FLAG, AT(exact), NULL, EXACT_HELP},
    {0, "ids", "IDS", TEXT, AT(ids), NULL, "... of these token ids: \"464 995\""},
    {0, "bos", NULL, FLAG, AT(bos), NULL, "begin with the beginning-of-text token"},
    {0, "special", NULL, FLAG, AT(special), NULL, "<|endoftext|> in the text is a token"},
    {0, "f16-cache", NULL, FLAG, AT(f16_cache), NULL, "round keys and values to half the bytes"},
    {'t', "threads", "COUNT", COUNT, AT(threads), THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, AT(isa), ISA_NAMES, ISA_HELP},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), NULL, "open without verifying the file"},
    {'q', "quiet", NULL, FLAG, AT(quiet), NULL, "print nothing of receipts that hold"},
    PROGRAM_OPTIONS(0),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static const help_page help = {
    NULL,
    NULL,
    "attn-verify MODEL.attn RECEIPT... [options]\n"
    "attn-verify MODEL.attn --score -p TEXT -o RECEIPT\n"
    "attn-verify MODEL.attn --activations NAME -p TEXT -o RECEIPT",
    "Verifies receipts. A receipt says that this model, with these settings, "
    "draws these tokens from logits with these bits; the program computes that again. "
    "Any build on any processor can verify the receipt of any other, in one pass over the text. "
    "Exit code 0: all receipts hold; 1: one does not, "
    "and the first position that differs is printed; 2: one could not be checked; "
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
    receipt made;
} run;

/* Opens the model, with the portable kernels if those of this processor do not round as the contract
 * says. */
static int open_exact(run *r)
{
    const char *name;
    int code;
    r->ctx.isa = (attn_isa_kind)r->o.isa;
    name = attn_isa(&r->ctx);
    if (name && strchr(name, '(') && r->o.isa != ATTN_ISA_AUTO)
        return fail(USAGE, "--isa: %s does not give the bits of a receipt; use portable", name);
    if (name && strchr(name, '('))
        r->o.isa = ATTN_ISA_PORTABLE;
    r->ctx.n_threads = (int)r->o.threads;
    code = open_model(&r->ctx, &r->model, r->o.model, r->o.isa, r->o.skip_checksums);
    if (code == FINE && receipt_model_digest(&r->ctx, &r->identity, r->model, r->o.model))
        code = failed(&r->ctx);
    return code;
}

/* >> Verifying ================================================================================= */

static void print_held(const char *path, const receipt *r, const receipt_findings *found)
{
    if (r->kind == RECEIPT_TEXT)
        printf("%s: holds: %zu tokens drawn after %zu, %s\n", path, r->n_ids, r->n_prompt,
               attn_stop_reason_name(r->ended));
    else if (r->kind == RECEIPT_SCORE)
        printf("%s: holds: the losses of %zu tokens\n", path, r->n_ids - 1);
    else
        printf("%s: holds: %zu activations of %zu tokens\n", path, r->n_values, r->n_ids);
    if (r->name || r->checkpoint)
        printf("%s: of the model %s, checkpoint %s\n", path, r->name ? r->name : "without a name",
               r->checkpoint ? r->checkpoint : "unknown");
    if (found->text[0])
        printf("%s: %s\n", path, found->text);
}

/* Gives the exit code. With --quiet a receipt that does not cover all has one of its own, because nothing says it. */
static int verify_file(run *r, const char *path)
{
    receipt_findings found = {{0}};
    receipt told;
    const receipt_verdict verdict =
        receipt_verify_file(&r->ctx, &found, &told, &r->memory, r->model, &r->identity, path);
    if (verdict == RECEIPT_FAILED)
        failed(&r->ctx);
    else if (verdict == RECEIPT_DIFFERS)
        printf("%s: differs: %s\n", path, found.text);
    else if (!r->o.quiet)
        print_held(path, &told, &found);
    else if (found.text[0])
        return NOT_ALL;
    return (int)verdict;
}

/* >> Making ==================================================================================== */

static int make_receipt(run *r)
{
    const text_source from = {
        NULL,     r->o.file,    r->o.ids,   "ids",
        r->o.bos, r->o.special, r->o.exact, "no text given: --prompt, --file or --ids",
        0};
    text_source source = from;
    receipt *made = &r->made;
    int code;
    source.word = r->o.text;
    code =
        read_tokens(&r->ctx, &r->memory, r->model, r->o.model, &source, &made->ids, &made->n_ids);
    if (code != FINE)
        return code;
    if (r->o.score && made->n_ids < 2)
        return fail(FAILED, "the text has one token; expected at least 2, to predict one of them");
    receipt_of_model(made, &r->identity);
    made->kind = r->o.score ? RECEIPT_SCORE : RECEIPT_ACTIVATIONS;
    made->cache_dtype = r->o.f16_cache ? ATTN_F16 : ATTN_F32;
    if ((r->o.score ? receipt_score(&r->ctx, made, &r->memory, r->model)
                    : receipt_watch(&r->ctx, made, &r->memory, r->model, r->o.activations.at,
                                    r->o.activations.n)) ||
        receipt_write(&r->ctx, r->o.output, made))
        return failed(&r->ctx);
    return FINE;
}

/* >> The command line ========================================================================== */

static int check_usage(const options *o, const arguments *given)
{
    const int makes = o->score || o->activations.n > 0;
    if (!o->model)
        return fail(USAGE, "no model given: attn-verify MODEL.attn RECEIPT (--help tells more)");
    if (o->score && o->activations.n > 0)
        return fail(USAGE, "--score and --activations make two receipts: give one of them");
    if (makes && !o->output)
        return fail(USAGE, "no place for the receipt given: -o FILE");
    if (makes && given->n_words > 1)
        return refuse_word(given->words[1], "give the text with --prompt, --file or --ids");
    if (makes && !o->text + !o->file + !o->ids < 2)
        return fail(USAGE, "give one text: with --prompt, --file or --ids");
    if (!makes && (o->text || o->file || o->ids || o->output))
        return fail(USAGE, "to make a receipt of a text, give --score or --activations, too");
    return FINE;
}

/* Verifies the receipts that the words from `next` on name. Gives the worst of their exit codes. */
static int verify_all(run *r, const arguments *given, size_t next)
{
    int worst = RECEIPT_HOLDS, code;
    for (; next < given->n_words && !interrupted; next++) {
        code = verify_file(r, given->words[next]);
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
    if ((code = check_usage(&r->o, given)) != FINE)
        return code;
    if (!r->o.output && next >= given->n_words)
        return fail(USAGE, "no receipt given: attn-verify MODEL.attn RECEIPT (--help tells more)");
    signal(SIGINT, on_interrupt);
    code = open_exact(r);
    if (code == FAILED && !r->o.output)
        code = RECEIPT_FAILED;
    else if (code == FINE)
        code = r->o.output ? make_receipt(r) : verify_all(r, given, next);
    attn_model_close(r->model);
    arena_free(&r->memory);
    return code == FINE && interrupted ? INTERRUPTED : code;
}

int main(int argc, char **argv)
{
    static run r;
    const program self = {table, N_OPTIONS, 64, "64 are the most at once", &help, 1, NULL};
    return program_main(&self, argc, argv, &r, run_line);
}
