/* cc tools/attn-info.c -I. -O2 -lm -o attn-info
 *
 * Lists what a .attn file holds, and checks that it is intact. */

#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "tools/write/model_file.h"
#define PROGRAM "attn-info"
#include "tools/common/program.h"

typedef struct options {
    const char *model;
} options;

static const struct option table[] = {
#define AT(member) offsetof(options, member), 0 /* no commands */
    {'m', "model", "FILE", TEXT, AT(model), NULL, "the file, if it is not the first word"},
    PROGRAM_OPTIONS(0),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static const help_page help = {
    .usage = "attn-info FILE.attn [options]",
    .about =
        "Prints what a .attn file says of its model, the configuration, "
        "the tokenizer's counts and the tensors, after checking all of it, checksums included. "
        "A narrow terminal gets fewer columns."};

static void print_token(const char *what, attn_token id, const attn_tokenizer *tokenizer)
{
    size_t size = 0;
    const char *bytes = id >= 0 && tokenizer ? attn_token_bytes(&size, tokenizer, id) : NULL;
    shown text;
    if (id < 0)
        printf("  %-18s none\n", what);
    else if (bytes)
        printf("  %-18s %ld  %s\n", what, (long)id, show(text, bytes, size));
    else
        printf("  %-18s %ld\n", what, (long)id);
}

/* Prints a text in UTF-8 without control characters behind a label, in lines as wide as the terminal. */
static void print_text(const char *label, const char *text)
{
    enum { BEFORE = 21 };
    const int room = line_columns(stdout), most = room > BEFORE + 8 ? room - BEFORE : 0;
    int n = 0;
    printf("  %-18s ", label);
    for (; *text; text++) {
        n += ((unsigned char)*text & 0xC0) != 0x80; /* characters */
        if (most > 0 && n > most) {
            printf("\n%*s", (int)BEFORE, "");
            n = 1;
        }
        putchar(*text);
    }
    putchar('\n');
}

/* What the file says of its model. */
static void print_meta(const attn_model *model)
{
    const char *key = model_next_key(model, NULL);
    if (!key)
        return;
    printf("model\n");
    for (; key; key = model_next_key(model, key))
        print_text(key, attn_model_meta(model, key));
    printf("\n");
}

static void print_config(const attn_model *model)
{
    static const char *const act_fns[] = {"gelu, by tanh", "gelu, by erf", "relu", "silu"};
    const attn_config *c = attn_model_config(model);
    const attn_tokenizer *tokenizer = attn_model_tokenizer(model);
    printf("configuration\n");
    printf("  %-18s %zu\n", "layers", c->n_layer);
    printf("  %-18s %zu of %zu\n", "heads", c->n_head, c->d_head);
    printf("  %-18s %zu\n", "d_model", c->d_model);
    printf("  %-18s %zu\n", "d_mlp", c->d_mlp);
    printf("  %-18s %zu\n", "context", c->n_ctx);
    printf("  %-18s %zu\n", "vocabulary", c->n_vocab);
    printf("  %-18s %g\n", "layer norm epsilon", (double)c->ln_eps);
    printf("  %-18s %s\n", "activation", act_fns[c->act_fn]);
    printf("  %-18s %s%s\n", "scores", c->unscaled_attn ? "not scaled" : "over sqrt(d_head)",
           c->scale_attn_by_inverse_layer_idx ? ", over layer + 1" : "");
    printf("  %-18s %s%s\n", "unembedding", c->tied ? "tied to embedding" : "of its own",
           c->has_b_U ? ", with a bias" : "");
    print_token("beginning of text", c->bos, tokenizer);
    print_token("end of text", c->eos, tokenizer);
    for (uint32_t i = 0; i < c->n_more_eos; i++)
        print_token("or", c->more_eos[i], tokenizer);
}

/* Reads the counts in the tokenizer section, which attn_model_open has checked. */
static void print_tokenizer(const attn_model *model)
{
    const unsigned char *const section =
        (const unsigned char *)model_tokenizer_section(NULL, model);
    if (section)
        printf("\ntokenizer\n  %-18s %lu\n  %-18s %lu\n  %-18s %lu\n%s", "tokens",
               (unsigned long)get_u32(section), "merges", (unsigned long)get_u32(section + 4),
               "special tokens", (unsigned long)get_u32(section + 8) & 0xffff,
               get_u32(section + 8) & 1u << 19 ? "  texts get a blank in front\n" : "");
    else
        printf("\ntokenizer\n  none\n");
}

/* The widths of the first two columns, and which of the columns after "type" fit on a line. */
typedef struct columns {
    int name, shape;
    int layout, bytes, rest;
} columns;

static columns find_columns(void)
{
    const int room = line_columns(stdout);
    columns c;
    c.name = room && room < 52 ? 19 : 28;
    c.shape = room && room < 52 ? 13 : 16;
    c.layout = c.bytes = !room || room >= 75;
    c.rest = !room || room >= 108;
    return c;
}

static void print_heading(columns c)
{
    printf("\n%-*s %-*s %-5s", c.name, "tensor", c.shape, "shape", "type");
    if (c.layout)
        printf(" %-7s", "layout");
    if (c.rest)
        printf(" %14s", "offset");
    if (c.bytes)
        printf(" %14s", "bytes");
    printf(c.rest ? "  checksum\n" : "\n");
}

static void print_tensor(columns c, const model_tensor *t)
{
    static const char *const dtypes[] = {"f32", "f16", "i32", "q8", "q4"};
    char shape[64];
    if (t->ndim == 1)
        snprintf(shape, sizeof shape, "[%llu]", TOOLS_LLU(t->shape[0]));
    else
        snprintf(shape, sizeof shape, "[%llu, %llu]", TOOLS_LLU(t->shape[0]),
                 TOOLS_LLU(t->shape[1]));
    printf("%-*s %-*s %-5s", c.name, t->name, c.shape, shape, dtypes[t->dtype]);
    if (c.layout)
        printf(" %-7s", t->panels ? "panels" : "rows");
    if (c.rest)
        printf(" %14llu", TOOLS_LLU(t->offset));
    if (c.bytes)
        printf(" %14llu", TOOLS_LLU(t->size));
    if (c.rest)
        printf("  %016llx", TOOLS_LLU(t->checksum));
    printf("\n");
}

static void print_tensors(const attn_model *model)
{
    const size_t n = model_n_tensors(model);
    const columns c = find_columns();
    uint64_t parameters = 0, bytes = 0;
    print_heading(c);
    for (size_t i = 0; i < n; i++) {
        const model_tensor t = model_tensor_at(model, i);
        print_tensor(c, &t);
        parameters += t.shape[0] * (t.ndim == 1 ? 1 : t.shape[1]);
        bytes += t.size;
    }
    printf("\n%llu parameters in %llu tensors,%s%llu bytes; all checksums hold\n",
           TOOLS_LLU(parameters), TOOLS_LLU(n), c.layout ? " " : "\n", TOOLS_LLU(bytes));
}

/* One checksum over those of all tensors, and the memory that a session takes besides the file. */
static attn_status print_sums(attn_ctx *ctx, const attn_model *model)
{
    unsigned char sum[8];
    uint64_t all = 0;
    size_t workspace, session;
    attn_session_desc desc = ATTN_ZERO;
    for (size_t i = 0; i < model_n_tensors(model); i++) {
        const uint64_t one = model_tensor_at(model, i).checksum;
        for (size_t j = 0; j < 8; j++)
            sum[j] = (unsigned char)(one >> 8 * j);
        all = model_checksum(all, sum, sizeof sum);
    }
    /* The size of a session includes the workspace that it makes, so that is subtracted. */
    if (attn_workspace_size(ctx, &workspace, model, NULL) ||
        attn_session_size(ctx, &session, model, &desc))
        return ctx->status;
    printf("checksum of all  %016llx\n", TOOLS_LLU(all));
    printf("a session takes  %.1f MB\n", (double)(session - workspace) / 1e6);
    printf("its workspace    %.1f MB\n", (double)workspace / 1e6);
    return ATTN_OK;
}

static int run(const char *path)
{
    attn_ctx ctx = ATTN_ZERO;
    attn_model *model = NULL;
    attn_status status = check_model_path(&ctx, path);
    if (status == ATTN_OK)
        status = open_verified(&ctx, &model, path, NULL);
    if (status == ATTN_OK) {
        print_meta(model);
        print_config(model);
        print_tokenizer(model);
        print_tensors(model);
        status = print_sums(&ctx, model);
    }
    int code = status ? fail_ctx(&ctx) : FINE;
    attn_model_close(model);
    attn_ctx_free(&ctx);
    return code;
}

static int run_line(const program *self, arguments *given, void *state)
{
    options *const o = (options *)state;
    const int code = take_words(self, given, &o->model, NULL, "FILE.attn");
    return code == FINE ? run(o->model) : code;
}

int main(int argc, char **argv)
{
    static options o;
    const program self = {table, N_OPTIONS, 1, "one file at a time", &help, 1, NULL, NULL, NULL};
    return program_main(&self, argc, argv, &o, run_line);
}
