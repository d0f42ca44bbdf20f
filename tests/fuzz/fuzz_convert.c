/* The converter, from files to a file: whatever the input, it says what is wrong or writes a model
 * that attn_model_open takes. */
#define PROGRAM "attn-convert"
#define INPUT   "checkpoint"
#include "tools/common/system.h"
#include "tools/convert/settings.h"
#include "fuzz_files.h"

/* Converts place()/name; the answer must be a sentence, or a file that opens. */
static void convert_one(const char *name, int has_vocab, int dtype)
{
    char in[128], out[128];
    conversion *c = (conversion *)calloc(1, sizeof *c);
    attn_model *model = NULL;
    MUST(c);
    snprintf(in, sizeof in, "%s/%s", place(), name);
    snprintf(out, sizeof out, "%s/out.attn", place());
    c->ctx.n_threads = 1;
    c->o.input = in;
    c->o.output = out;
    c->o.no_tokenizer = !has_vocab;
    c->o.dtype = dtype;
    if (convert(c) == ATTN_OK) {
        if (attn_model_open(&c->ctx, &model, out, NULL) != ATTN_OK)
            fprintf(stderr, "%s\n", c->ctx.message);
        MUST(model);
        attn_model_close(model);
    } else {
        /* the input is small: what asks for more memory than there is asks for too much */
        MUST(c->ctx.status != ATTN_E_MEMORY && c->ctx.message[0] && !system_exists(out));
    }
    end_conversion(c);
    free(c);
    remove(out);
}

/* --dtype of the output: none, or one of its names. */
static int dtype_of(unsigned choice)
{
    return (int)(choice % 5) - 1;
}

/* A safetensors file of this header and some kilobytes of zeros. */
static void put_weights(const char *name, input text, uint64_t padded)
{
    const size_t n = (text.size + 7) / 8 * 8;
    unsigned char *header = (unsigned char *)malloc(n + 8);
    MUST(header);
    put_u64(header, n);
    memset(header + 8, ' ', n);
    memcpy(header + 8, text.data, text.size);
    put_file(name, header, n + 8, n + 8 + padded);
    free(header);
}

/* Two bytes: kilobytes of weights, output type. Then config.json, the header of the safetensors,
 * and perhaps tokenizer.json. With an index behind that, the header is that of the shard "a", and
 * the next that of "b". The weights are zeros. */
int fuzz_huggingface(const unsigned char *data, size_t size)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "tokenizer.json", "a", "b"};
    input in = {NULL, 0};
    const uint64_t padded = size ? 1024u * data[0] : 0;
    const int dtype = dtype_of(size > 1 ? data[1] : 0);
    in.data = data + (size < 2 ? size : 2);
    in.size = size < 2 ? 0 : size - 2;
    input piece = next_part(&in);
    put_file("config.json", piece.data, piece.size, 0);
    input header = next_part(&in);
    input tokenizer = next_part(&in);
    if (tokenizer.size)
        put_file("tokenizer.json", tokenizer.data, tokenizer.size, 0);
    piece = next_part(&in);
    put_weights(piece.size ? "a" : "model.safetensors", header, padded);
    if (piece.size)
        put_file("model.safetensors.index.json", piece.data, piece.size, 0);
    if (in.size)
        put_weights("b", in, padded);
    convert_one("", tokenizer.size > 0, dtype);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        drop_file(names[i]);
    return 0;
}

/* Kilobytes of zeros to be added, output type, then the file. */
int fuzz_gguf(const unsigned char *data, size_t size)
{
    if (size < 2)
        return 0;
    put_file("in", data + 2, size - 2, (uint64_t)(size - 2) + 1024u * data[0]);
    convert_one("in", 1, dtype_of(data[1]));
    return 0;
}

/* The same for a file of torch.save, which most runs read without converting it. */
int fuzz_pickle(const unsigned char *data, size_t size)
{
    char path[128];
    source *const s = (source *)calloc(1, sizeof *s);
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    MUST(s);
    if (size < 2 || data[1] % 16 == 1) {
        fuzz_gguf(data, size);
    } else {
        snprintf(path, sizeof path, "%s/in", place());
        put_file("in", data + 2, size - 2, (uint64_t)(size - 2) + 1024u * data[0]);
        MUST(hf_open_file(&ctx, s, path) == ATTN_OK ||
             (ctx.status != ATTN_E_MEMORY && ctx.message[0]));
    }
    source_close(s);
    free(s);
    attn_ctx_free(&ctx);
    return 0;
}

/* One byte, then the 8 numbers that matter of the header. The file is made as large as they ask
 * for, if that is little. */
int fuzz_llmc(const unsigned char *data, size_t size)
{
    unsigned char header[LLMC_HEADER];
    input in;
    if (size < 1)
        return 0;
    in.data = data + 1;
    in.size = size - 1;
    memset(header, 0, sizeof header);
    for (size_t i = 0; i < 8; i++)
        put_u32(header + 4 * i, take32(&in));
    uint64_t layer = get_u32(header + 24);
    uint64_t count =
        layer > 4096 ? 1 << 20 : (12 * layer * layer + 13 * layer) * get_u32(header + 16);
    count += ((uint64_t)get_u32(header + 28) + get_u32(header + 8) + 2) * layer;
    uint64_t bytes = sizeof header + count * (get_u32(header + 4) == 3 ? 4 : 2);
    put_file("in", header, sizeof header, bytes < 1 << 20 ? bytes - data[0] % 2 : 4096);
    convert_one("in", 0, dtype_of(data[0] / 2u));
    return 0;
}

/* Whether each byte of a text comes back alone when it is encoded alone. A vocabulary may lack bytes: texts
 * leave them out, or hold unk_token for them. */
static int has_all_bytes(attn_ctx *ctx, const attn_tokenizer *tokenizer, const char *text,
                         size_t size)
{
    int32_t id;
    char back[8];
    for (size_t i = 0; i < size && !attn_tokenizer_adds_blank(tokenizer); i++) {
        size_t n = 1, n_back = sizeof back;
        MUST(attn_encode(ctx, &id, &n, tokenizer, text + i, 1) == ATTN_OK);
        if (n != 1 || attn_decode(ctx, back, &n_back, tokenizer, &id, n) || n_back != 1 ||
            back[0] != text[i]) {
            ctx->status = ATTN_OK;
            return 0;
        }
    }
    return !attn_tokenizer_adds_blank(tokenizer);
}

/* One piece: tokenizer.json. Two: vocab.json and merges.txt. Then, each where it is: added_tokens.json,
 * tokenizer_config.json, special_tokens_map.json, tokenizer.json beside them. What is read must make
 * a tokenizer. */
int fuzz_vocab(const unsigned char *data, size_t size)
{
    static const char text[] = "abcab  they're 12\xC3\xA9\xFF";
    static const char *const names[] = {"vocab.json",
                                        "merges.txt",
                                        "added_tokens.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "tokenizer.json"};
    const size_t n_names = sizeof names / sizeof names[0];
    unsigned char *section = NULL;
    attn_tokenizer *tokenizer = NULL;
    input in = {NULL, 0}, piece;
    size_t n = 0, n_back = 0;
    int32_t ids[64];
    static char back[sizeof text * 12000]; /* a spelling is at most an input of libFuzzer long */
    in.data = data;
    in.size = size;
    for (size_t i = 0; i < n_names && (i == 0 || in.size); i++) {
        piece = next_part(&in);
        put_file(i == 0 && !in.size ? "tokenizer.json" : names[i], piece.data, piece.size, 0);
    }
    attn_ctx ctx = {.n_threads = 1};
    if (vocab_read(&ctx, place(), &section, &n, NULL) == ATTN_OK) {
        if (attn_tokenizer_new(&ctx, &tokenizer, section, n) != ATTN_OK)
            fprintf(stderr, "%s\n", ctx.message);
        MUST(tokenizer);
        n = 64;
        MUST(attn_encode(&ctx, ids, &n, tokenizer, text, sizeof text - 1) == ATTN_OK);
        n_back = sizeof back;
        MUST(attn_decode(&ctx, back, &n_back, tokenizer, ids, n) == ATTN_OK);
        MUST(!has_all_bytes(&ctx, tokenizer, text, sizeof text - 1) ||
             (n_back == sizeof text - 1 && memcmp(back, text, n_back) == 0));
        attn_tokenizer_free(tokenizer);
    } else {
        MUST(ctx.status != ATTN_E_MEMORY && ctx.message[0]);
    }
    free(section);
    attn_ctx_free(&ctx);
    for (size_t i = 0; i < n_names; i++)
        drop_file(names[i]);
    return 0;
}
