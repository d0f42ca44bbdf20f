/* The converter, from files to a file: whatever the input, it says what is wrong or writes a model
 * that attn_model_open takes. */
#define main convert_main
#include "tools/attn-convert.c"
#undef main
#include "fuzz.h"

static void drop_place(void);

/* A directory of our own, in memory where there is such a place. */
static const char *place(void)
{
    static char path[64];
    if (!path[0]) {
        snprintf(path, sizeof path, "%s/attn-fuzz.%lu",
                 system_is_directory("/dev/shm") ? "/dev/shm" : TEST_BUILD "/fuzz",
                 system_process());
        mkdir(path, 0700);
        atexit(drop_place);
    }
    return path;
}

static void put_file(const char *name, const void *data, size_t size, uint64_t padded)
{
    char path[128];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", place(), name);
    file = fopen(path, "wb");
    MUST(file && fwrite(data, 1, size, file) == size);
    MUST(fclose(file) == 0 && (padded <= size || truncate(path, (off_t)padded) == 0));
}

static void drop_file(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", place(), name);
    remove(path);
}

static void drop_place(void)
{
    static const char *const names[] = {"config.json",    "model.safetensors", "vocab.json",
                                        "tokenizer.json", "merges.txt",        "in"};
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++)
        drop_file(names[i]);
    rmdir(place());
}

/* Converts place()/name; the answer must be a sentence, or a file that opens. */
static void convert_one(const char *name, int has_vocab, int dtype)
{
    char in[128], out[128];
    source *s = (source *)calloc(1, sizeof *s);
    attn_model *model = NULL;
    attn_ctx ctx;
    options o;
    memset(&ctx, 0, sizeof ctx);
    ctx.n_threads = 1;
    memset(&o, 0, sizeof o);
    snprintf(in, sizeof in, "%s/%s", place(), name);
    snprintf(out, sizeof out, "%s/out.attn", place());
    o.input = in;
    o.output = out;
    o.no_tokenizer = !has_vocab;
    o.dtype = dtype;
    MUST(s);
    if (convert(&ctx, s, &o) == ATTN_OK) {
        if (attn_model_open(&ctx, &model, out, NULL) != ATTN_OK)
            fprintf(stderr, "%s\n", ctx.message);
        MUST(model);
        attn_model_close(model);
    } else {
        MUST(ctx.message[0] && !system_exists(out));
    }
    source_close(s);
    free(s);
    attn_ctx_free(&ctx);
    remove(out);
}

/* Parts of the input are divided by this line; the next piece, and what is left behind it. */
static input next_part(input *in)
{
    static const char line[] = "\n%%%\n";
    const size_t n = sizeof line - 1;
    input piece = *in;
    size_t i;
    for (i = 0; i + n <= in->size; i++)
        if (memcmp(in->data + i, line, n) == 0) {
            piece.size = i;
            in->data += i + n;
            in->size -= i + n;
            return piece;
        }
    in->data += in->size;
    in->size = 0;
    return piece;
}

/* --dtype of the output: f32, f16, q8, q4 or none. */
static int dtype_of(unsigned choice)
{
    static const int dtypes[] = {-1, ATTN_F32, ATTN_F16, ATTN_Q8, ATTN_Q4};
    return dtypes[choice % 5];
}

/* Two bytes: kilobytes of weights, output type. Then config.json, the header of the safetensors,
 * and perhaps tokenizer.json. The weights are zeros. */
int fuzz_huggingface(const unsigned char *data, size_t size)
{
    input in = {NULL, 0}, piece;
    unsigned char *header;
    const uint64_t padded = size ? 1024u * data[0] : 0;
    const int dtype = dtype_of(size > 1 ? data[1] : 0);
    size_t n;
    in.data = data + (size < 2 ? size : 2);
    in.size = size < 2 ? 0 : size - 2;
    piece = next_part(&in);
    put_file("config.json", piece.data, piece.size, 0);
    piece = next_part(&in);
    n = (piece.size + 7) / 8 * 8;
    header = (unsigned char *)malloc(n + 8);
    MUST(header);
    put_u64(header, n);
    memset(header + 8, ' ', n);
    memcpy(header + 8, piece.data, piece.size);
    put_file("model.safetensors", header, n + 8, n + 8 + padded);
    free(header);
    if (in.size)
        put_file("tokenizer.json", in.data, in.size, 0);
    convert_one("", in.size > 0, dtype);
    drop_file("tokenizer.json");
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

/* One byte, then the 8 numbers that matter of the header. The file is made as large as they ask
 * for, if that is little. */
int fuzz_llmc(const unsigned char *data, size_t size)
{
    unsigned char header[LLMC_HEADER];
    uint64_t count, bytes, layer;
    input in;
    size_t i;
    if (size < 1)
        return 0;
    in.data = data + 1;
    in.size = size - 1;
    memset(header, 0, sizeof header);
    for (i = 0; i < 8; i++)
        put_u32(header + 4 * i, take32(&in));
    layer = get_u32(header + 24);
    count = layer > 4096 ? 1 << 20 : (12 * layer * layer + 13 * layer) * get_u32(header + 16);
    count += ((uint64_t)get_u32(header + 28) + get_u32(header + 8) + 2) * layer;
    bytes = sizeof header + count * (get_u32(header + 4) == 3 ? 4 : 2);
    put_file("in", header, sizeof header, bytes < 1 << 20 ? bytes - data[0] % 2 : 4096);
    convert_one("in", 0, dtype_of(data[0] / 2u));
    return 0;
}

/* One piece: tokenizer.json. Two: vocab.json and merges.txt. What is read must make a tokenizer. */
int fuzz_vocab(const unsigned char *data, size_t size)
{
    static const char text[] = "abcab  they're 12\xC3\xA9\xFF";
    unsigned char *section = NULL;
    attn_tokenizer *tokenizer = NULL;
    attn_ctx ctx;
    input in = {NULL, 0}, piece;
    size_t n = 0, n_back = 0;
    int32_t ids[64];
    char back[64];
    in.data = data;
    in.size = size;
    piece = next_part(&in);
    put_file(in.size ? "vocab.json" : "tokenizer.json", piece.data, piece.size, 0);
    if (in.size)
        put_file("merges.txt", in.data, in.size, 0);
    memset(&ctx, 0, sizeof ctx);
    ctx.n_threads = 1;
    if (vocab_read(&ctx, place(), &section, &n) == ATTN_OK) {
        if (attn_tokenizer_new(&ctx, &tokenizer, section, n) != ATTN_OK)
            fprintf(stderr, "%s\n", ctx.message);
        MUST(tokenizer);
        MUST(attn_encode(&ctx, tokenizer, text, sizeof text - 1, 0, ids, 64, &n) == ATTN_OK);
        MUST(attn_decode(&ctx, tokenizer, ids, n, back, 64, &n_back) == ATTN_OK);
        MUST(n_back == sizeof text - 1 && memcmp(back, text, n_back) == 0);
        attn_tokenizer_free(tokenizer);
    } else {
        MUST(ctx.message[0]);
    }
    free(section);
    attn_ctx_free(&ctx);
    drop_file("vocab.json");
    drop_file("merges.txt");
    drop_file("tokenizer.json");
    return 0;
}
