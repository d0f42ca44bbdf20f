/* attn-info: what a .attn file holds, and whether it is whole.
 *
 *     cc -O2 -I.. attn-info.c -o attn-info -lm
 */
#include "system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "files.h"

static const char usage[] =
    "usage: attn-info FILE.attn\n"
    "\n"
    "Prints the configuration, the tokenizer's counts and the tensors of a .attn\n"
    "file, after checking all of it, checksums included.\n"
    "Exit status: 0 the file is whole, 1 it is not, 2 wrong usage.\n";

static void print_token(const char *what, int32_t id, const attn_tokenizer *tokenizer)
{
    size_t size = 0;
    const char *bytes = id >= 0 && tokenizer ? attn_token_bytes(tokenizer, id, &size) : NULL;
    shown text;
    if (id < 0)
        printf("  %-20s none\n", what);
    else if (bytes)
        printf("  %-20s %ld  %s\n", what, (long)id, show(text, bytes, size));
    else
        printf("  %-20s %ld\n", what, (long)id);
}

static void print_config(const attn_model *model)
{
    const attn_config *c = attn_model_config(model);
    const attn_tokenizer *tokenizer = attn_model_tokenizer(model);
    printf("configuration\n");
    printf("  %-20s %lu\n", "layers", (unsigned long)c->n_layer);
    printf("  %-20s %lu of %lu\n", "heads", (unsigned long)c->n_head, (unsigned long)c->d_head);
    printf("  %-20s %lu\n", "d_model", (unsigned long)c->d_model);
    printf("  %-20s %lu\n", "d_mlp", (unsigned long)c->d_mlp);
    printf("  %-20s %lu\n", "context", (unsigned long)c->n_ctx);
    printf("  %-20s %lu\n", "vocabulary", (unsigned long)c->n_vocab);
    printf("  %-20s %g\n", "layer norm epsilon", (double)c->ln_eps);
    printf("  %-20s %s\n", "unembedding", c->tied ? "tied to the embedding" : "of its own");
    print_token("beginning of text", c->bos, tokenizer);
    print_token("end of text", c->eos, tokenizer);
}

/* Counts from the file's own tokenizer section; the model has checked it. */
static attn_status print_tokenizer(attn_ctx *ctx, const char *path)
{
    unsigned char header[256], counts[16];
    FILE *file = system_open(path, "rb");
    uint64_t offset = 0;
    int good = file && fread(header, 1, sizeof header, file) == sizeof header;
    if (good) {
        offset = get_u64(header + 96);
        good = offset == 0 || (system_seek(file, offset) == 0 &&
                               fread(counts, 1, sizeof counts, file) == sizeof counts);
    }
    if (file)
        fclose(file);
    if (!good)
        return tool_fail_io(ctx, "cannot read", path);
    if (offset)
        printf("\ntokenizer\n  %-20s %lu\n  %-20s %lu\n  %-20s %lu\n", "tokens",
               (unsigned long)get_u32(counts), "merges", (unsigned long)get_u32(counts + 4),
               "special tokens", (unsigned long)get_u32(counts + 8));
    else
        printf("\ntokenizer\n  none\n");
    return ATTN_OK;
}

static attn_status print_tensors(attn_ctx *ctx, const attn_model *model)
{
    const size_t n = attn_model_n_tensors(model);
    uint64_t parameters = 0, bytes = 0;
    static const char *const dtypes[] = {"f32", "f16", "i32", "q8", "q4"};
    attn_tensor_info t = {NULL, ATTN_F32, 0, 0, {0, 0}, 0, 0, 0};
    char shape[64];
    size_t i;
    printf("\n%-28s %-16s %-5s %-7s %14s %14s  %s\n", "tensor", "shape", "type", "layout", "offset",
           "bytes", "checksum");
    for (i = 0; i < n; i++) {
        if (attn_model_tensor_info(ctx, model, i, &t)) /* cover: there are n */
            return ctx->status;
        if (t.ndim == 1)
            snprintf(shape, sizeof shape, "[%llu]", TOOLS_LLU(t.shape[0]));
        else
            snprintf(shape, sizeof shape, "[%llu, %llu]", TOOLS_LLU(t.shape[0]),
                     TOOLS_LLU(t.shape[1]));
        printf("%-28s %-16s %-5s %-7s %14llu %14llu  %016llx\n", t.name, shape, dtypes[t.dtype],
               t.panels ? "panels" : "rows", TOOLS_LLU(t.offset), TOOLS_LLU(t.size),
               TOOLS_LLU(t.checksum));
        parameters += t.shape[0] * (t.ndim == 1 ? 1 : t.shape[1]);
        bytes += t.size;
    }
    printf("\n%llu parameters in %llu tensors, %llu bytes; all checksums hold\n",
           TOOLS_LLU(parameters), TOOLS_LLU(n), TOOLS_LLU(bytes));
    return ATTN_OK;
}

int main(int argc, char **argv)
{
    attn_ctx ctx;
    attn_model *model = NULL;
    FILE *file;
    attn_status status;
    system_utf8(&argc, &argv);
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc != 2 || argv[1][0] == '-') {
        fputs(usage, stderr);
        return 2;
    }
    memset(&ctx, 0, sizeof ctx);
    file = open_input(&ctx, argv[1]); /* which is read twice: a pipe will not do */
    if (file)
        fclose(file);
    status = file ? attn_model_open(&ctx, &model, argv[1], NULL) : ctx.status;
    if (status == ATTN_OK) {
        print_config(model);
        status = print_tokenizer(&ctx, argv[1]);
        if (status == ATTN_OK)
            status = print_tensors(&ctx, model);
    }
    if (!status && (fflush(stdout) || ferror(stdout)))
        status = tool_fail_io(&ctx, "cannot write to", "standard output");
    if (status)
        fprintf(stderr, "attn-info: %s\n", ctx.message);
    attn_model_close(model);
    attn_ctx_free(&ctx);
    return status ? 1 : 0;
}
