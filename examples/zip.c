/* cc examples/zip.c -I. -O2 -fopenmp -lm -o zip
 *
 * A text in as many bytes as it surprises the model: an arithmetic coder on its probabilities.
 *
 *     zip MODEL.attn story.txt story.zip        compresses
 *     zip -d MODEL.attn story.zip story.txt     restores, with the same model, on any machine
 *
 * Both sides need the same probabilities, to the last bit, which attn.h promises for any two builds
 * and processors. The file: 8 bytes that say what it is; in 8 bytes each the checksum of what
 * follows, which model, the checksum of the text, the number of tokens; then the code. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "tools/write/model_file.h"
#include "tools/write/new_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { PIECE = 32, HEADER = 40, STEP = 1 << 20 };
enum { MOST_TOKENS = 1 << 26 }; /* of a vocabulary: the sum of its weights stays below 2^55 */
static const char magic[] = "attnzip1";

typedef struct bytes {
    unsigned char *at;
    size_t n, room;
} bytes;

typedef struct zip {
    attn_ctx ctx;
    attn_model *model;
    attn_session *session;
    size_t n_vocab;
    attn_token bos, *tokens; /* the first is bos */
    float *rows;             /* [PIECE, V]: logits of the tokens from `begin` to `end` */
    uint64_t *below;         /* [V + 1]: the sum of the weights of all smaller ids, as integers */
    size_t begin, end;
    bytes in, out;       /* the text and its code, or the other way round */
    size_t read;         /* bytes of the code that were taken */
    uint64_t low, range; /* the coder's interval; when restoring, low is the code less its begin */
} zip;

static int say(const char *what)
{
    fprintf(stderr, "zip: %s\n", what);
    return 0;
}

static int good(zip *z, attn_status status)
{
    return status == ATTN_OK || say(z->ctx.message);
}

static int more(bytes *b, size_t n)
{
    const size_t room = 2 * b->n + n + 64;
    if (b->room - b->n >= n)
        return 1;
    unsigned char *larger = b->n < SIZE_MAX / 8 ? (unsigned char *)realloc(b->at, room) : NULL;
    if (!larger)
        return say("no memory for more bytes");
    b->room = room;
    b->at = larger;
    return 1;
}

static void put(unsigned char *to, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(value >> 8 * i & 255);
}

static uint64_t get(const unsigned char *from)
{
    uint64_t value = 0;
    for (int i = 8; i-- > 0;)
        value = value << 8 | from[i];
    return value;
}

/* The logits from which token i of the text is predicted, of which `known` are known. Several rows
 * come from one pass where several tokens are known, with the same bits as one by one. A full
 * context begins again with the last half of its tokens. */
static float *logits_for(zip *z, size_t i, size_t known)
{
    const size_t capacity = attn_session_capacity(z->session), half = (capacity + 1) / 2;
    size_t room = capacity - attn_session_length(z->session);
    attn_feed_item item = {0};
    if (i < z->end)
        return z->rows + (i - z->begin) * z->n_vocab;
    if (room == 0) {
        room = capacity - half + 1;
        attn_session_truncate(&z->ctx, z->session, 0);
        if (half > 1)
            attn_feed(&z->ctx, z->session, z->tokens + i + 1 - half, half - 1);
    }
    item.session = z->session;
    item.tokens = z->tokens + i;
    item.n_tokens = known - i + 1 < room ? known - i + 1 : room;
    item.n_tokens = item.n_tokens < PIECE ? item.n_tokens : PIECE;
    item.logits = z->rows;
    attn_feed_batch(&z->ctx, &item, 1);
    if (!good(z, z->ctx.status)) /* of any of these calls */
        return NULL;
    z->begin = i;
    z->end = i + item.n_tokens;
    return z->rows;
}

/* below[]: the sums of weights of at least 1 and at most 2^28 + 1, as integers. */
static int weigh(zip *z, size_t i, size_t known)
{
    float *row = logits_for(z, i, known), most;
    attn_tensor x = attn_borrow(row, ATTN_F32, attn_shape1(z->n_vocab));
    size_t v;
    if (!row)
        return 0;
    for (most = row[0], v = 1; v < z->n_vocab; v++)
        most = row[v] > most ? row[v] : most;
    for (v = 0; v < z->n_vocab; v++)
        row[v] = row[v] - most;
    if (!good(z, attn_exp(&z->ctx, &x, x))) /* the library's own exp: the same bits everywhere */
        return 0;
    for (v = 0; v < z->n_vocab; v++) {
        if (!(row[v] >= 0 && row[v] <= 1))
            return say("this model's logits are not numbers");
        z->below[v + 1] = z->below[v] + (uint64_t)(row[v] * 268435456.0f) + 1;
    }
    return 1;
}

/* The interval [low, low + range) begins as all numbers of 64 bits and becomes the part that belongs
 * to each token. Its first byte goes out whenever the range has less than 2^56 left. */
static void shift_out(zip *z)
{
    z->out.at[z->out.n++] = (unsigned char)(z->low >> 56);
    z->low <<= 8;
}

/* Adds to low; what it carries goes into the bytes that are out. */
static void raise_low(zip *z, uint64_t by)
{
    size_t i = z->out.n;
    z->low += by;
    if (z->low < by)
        while (++z->out.at[--i] == 0)
            continue;
}

static int encode_token(zip *z, size_t token)
{
    const uint64_t unit = z->range / z->below[z->n_vocab];
    if (!more(&z->out, 8)) /* the range has at least 1 left, so at most 7 bytes go out */
        return 0;
    raise_low(z, unit * z->below[token]);
    z->range = unit * (z->below[token + 1] - z->below[token]);
    for (; z->range < (uint64_t)1 << 56; z->range <<= 8)
        shift_out(z);
    return 1;
}

static void shift_in(zip *z)
{
    z->low = z->low << 8 | (z->read < z->in.n ? z->in.at[z->read] : 0);
    z->read++;
}

static int decode_token(zip *z, attn_token *token)
{
    const uint64_t unit = z->range / z->below[z->n_vocab], target = z->low / unit;
    size_t first = 0, last = z->n_vocab, middle;
    if (target >= z->below[z->n_vocab] || z->read > z->in.n + 8)
        return say("the code is damaged");
    while (last - first > 1) {
        middle = first + (last - first) / 2;
        if (z->below[middle] <= target)
            first = middle;
        else
            last = middle;
    }
    z->low -= unit * z->below[first];
    for (z->range = unit * (z->below[last] - z->below[first]); z->range < (uint64_t)1 << 56;
         z->range <<= 8)
        shift_in(z);
    *token = (int32_t)first;
    return 1;
}

static int read_file(bytes *b, const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t got = 1;
    if (!file)
        return say("the input cannot be opened; is the path right?");
    for (; got > 0 && more(b, STEP); b->n += got)
        got = fread(b->at + b->n, 1, STEP, file);
    got += ferror(file) != 0;
    fclose(file);
    return got == 0 || say("the input cannot be read");
}

/* The file takes its name when it is whole: a full disk leaves an older one as it was. */
static int write_file(zip *z, const bytes *b, const char *path)
{
    lens_new_file *file;
    if (!good(z, lens_new_file_begin(&z->ctx, &file, path)))
        return 0;
    if (b->n > 0)
        fwrite(b->at, 1, b->n, (FILE *)lens_new_file_stream(file));
    return good(z, lens_new_file_end(&z->ctx, file, ATTN_OK));
}

/* Says which model it is, by the checksums of its tensors. */
static uint64_t fingerprint(zip *z)
{
    const size_t n = model_n_tensors(z->model);
    uint64_t sum = attn_model_config(z->model)->n_head;
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ model_tensor_at(z->model, i).checksum) * 0x9E3779B97F4A7C15u;
    return sum;
}

/* Are the tokens the text? Not if the vocabulary lacks some of its bytes. */
static int spells(zip *z, size_t n)
{
    size_t i, size, at = 0;
    for (i = 1; i <= n; i++, at += size) {
        const char *spelled = attn_token_bytes(&size, attn_model_tokenizer(z->model), z->tokens[i]);
        if (!spelled || size > z->in.n - at || memcmp(spelled, z->in.at + at, size) != 0)
            break;
    }
    return (i > n && at == z->in.n) || say("this model's vocabulary cannot spell the whole text");
}

static int compress(zip *z)
{
    size_t n = z->in.n + 1, i;
    z->tokens = (int32_t *)calloc(n + 1, sizeof *z->tokens);
    if (!z->tokens || !more(&z->out, HEADER + 1))
        return say("no memory for the tokens");
    if (!good(z, attn_encode(&z->ctx, z->tokens + 1, &n, attn_model_tokenizer(z->model),
                             (const char *)z->in.at, z->in.n)) ||
        !spells(z, n))
        return 0;
    z->tokens[0] = z->bos;
    for (z->out.n = HEADER, i = 0; i < n; i++) {
        if (!weigh(z, i, n - 1) || !encode_token(z, (size_t)z->tokens[i + 1]))
            return 0;
    }
    if (!more(&z->out, 1))
        return 0;
    raise_low(z, ((uint64_t)1 << 56) - 1); /* one byte more tells a number of the interval */
    shift_out(z);
    memcpy(z->out.at, magic, 8);
    put(z->out.at + 16, fingerprint(z));
    put(z->out.at + 24, model_checksum(0, z->in.at, z->in.n));
    put(z->out.at + 32, n);
    put(z->out.at + 8, model_checksum(0, z->out.at + 16, z->out.n - 16));
    return 1;
}

static int restore(zip *z)
{
    bytes *text = &z->out;
    const unsigned char *head = z->in.at;
    const char *spelled;
    size_t i, size;
    if (z->in.n < HEADER || memcmp(head, magic, 8) != 0)
        return say("the input is not a file that this program made");
    if (get(head + 8) != model_checksum(0, head + 16, z->in.n - 16))
        return say("the input is damaged or cut off: its checksum differs");
    if (get(head + 16) != fingerprint(z))
        return say("the input was made with another model");
    size_t n = (size_t)get(head + 32);
    for (z->read = HEADER, i = 0; i < 8; i++)
        shift_in(z);
    if (n >= SIZE_MAX / 4 - 1 || !(z->tokens = (int32_t *)malloc((n + 1) * sizeof *z->tokens)))
        return say("no memory for the tokens");
    for (z->tokens[0] = z->bos, i = 1; i <= n; i++) {
        if (!weigh(z, i - 1, i - 1) || !decode_token(z, &z->tokens[i]))
            return 0;
        spelled = attn_token_bytes(&size, attn_model_tokenizer(z->model), z->tokens[i]);
        if (!spelled || !more(text, size))
            return say("the code is damaged");
        memcpy(text->at + text->n, spelled, size);
        text->n += size;
    }
    return model_checksum(0, text->at, text->n) == get(head + 24) ||
           say("the restored text is not the one that was compressed");
}

static int run(zip *z, int restores, char **paths)
{
    if (attn_isa(&z->ctx) && strchr(attn_isa(&z->ctx), '(')) /* without a fused multiply-add */
        z->ctx.isa = ATTN_ISA_PORTABLE;
    if (!good(z, attn_model_open(&z->ctx, &z->model, paths[0], NULL)) ||
        !good(z, attn_session_new(&z->ctx, &z->session, z->model, NULL)))
        return 0;
    z->n_vocab = attn_model_config(z->model)->n_vocab;
    if (z->n_vocab > MOST_TOKENS)
        return say("the vocabulary is too large");
    if (strcmp(paths[2], paths[0]) == 0 || strcmp(paths[2], paths[1]) == 0)
        return say("the output would overwrite the model or the input");
    z->bos = attn_model_config(z->model)->bos > 0 ? attn_model_config(z->model)->bos : 0;
    z->rows = (float *)calloc(PIECE * z->n_vocab, sizeof *z->rows);
    z->below = (uint64_t *)calloc(z->n_vocab + 1, sizeof *z->below);
    z->range = UINT64_MAX;
    int done = z->rows && z->below ? 1 : say("no memory for the logits");
    done = done && read_file(&z->in, paths[1]);
    done = done && (restores ? restore(z) : compress(z));
    return done && write_file(z, &z->out, paths[2]);
}

int main(int argc, char **argv)
{
    static zip z;
    const int restores = argc > 1 && strcmp(argv[1], "-d") == 0;
    if (argc != 4 + restores)
        return fprintf(stderr, "usage: zip [-d] MODEL.attn IN OUT\n"), 2;
    const int done = run(&z, restores, argv + 1 + restores);
    free(z.in.at), free(z.out.at), free(z.tokens), free(z.rows), free(z.below);
    attn_session_free(z.session);
    attn_model_close(z.model);
    return !done;
}
