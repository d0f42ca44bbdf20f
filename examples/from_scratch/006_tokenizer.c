/* Notebook 006: text to tokens and back by byte-level byte-pair encoding, and how a vocabulary is learned.
 *
 *     make && cc examples/from_scratch/006_tokenizer.c -I. -O2 -lm -o 006 && ./006
 *
 * A model has a row for each token, so tokens are a finite list. GPT-2's begin with the 256 bytes, which
 * write any text, and go on with what stood together most often. An id is a rank: the smaller, the
 * earlier it was learned. A text is cut into pieces first, a word with the blank before it. In each piece
 * the two neighbours whose union has the smallest rank are joined, until no union is a token. In NumPy:
 * examples/python/notebooks/tokenizer.ipynb.
 *
 * Exercise: in join_all, let the largest rank win: write > in place of <. Does the text still come back,
 * and which of the checks below will fail? The answer is at the end.
 *
 * In the notebook   in attn.h                                   in the engine
 *   vocabulary      attn_token_bytes (>>api-tokenizer)          attn__token_start (>>tokenizer)
 *   PATTERN         -                                           attn__word_end (>>tokenizer)
 *   encode          attn_encode (>>api-tokenizer)               attn__merge_short (>>tokenizer)
 *   decode          attn_decode (>>api-tokenizer)               -
 */
#include "notebook.h"

enum { LONGEST = 1024, MOST_MERGES = 10, WORDS = 4 };

/* The id of a token's bytes; -1 if they are none. The engine has a table for pairs of ids instead. */
static attn_token find(const attn_tokenizer *t, const char *bytes, size_t size)
{
    attn_token id;
    for (id = 0; id < (attn_token)attn_tokenizer_n_tokens(t); id++) {
        size_t length;
        const char *token = attn_token_bytes(&length, t, id);
        if (length == size && memcmp(token, bytes, size) == 0 && !attn_tokenizer_is_special(t, id))
            return id;
    }
    return -1;
}

/* Bytes of other characters than ASCII's count as letters here; the engine knows all of Unicode. */
static char kind(char byte)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (byte == 0)
        return 'e';
    if (strchr(" \t\n\v\f\r", byte))
        return 'b';
    if (byte >= '0' && byte <= '9')
        return 'n';
    return strchr(letters, byte) || (unsigned char)byte >= 0x80 ? 'l' : 's';
}

/* The length of a text's first piece: an ending such as 's; letters, digits or signs with a blank before
 * them; or blanks, but for the last one if something follows. */
static size_t cut(const char *text)
{
    static const char *const endings[] = {"'s", "'t", "'d", "'m", "'ll", "'ve", "'re"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (strncmp(text, endings[i], strlen(endings[i])) == 0)
            return strlen(endings[i]);
    if (text[0] == ' ' && kind(text[1]) != 'b' && text[1])
        n = 1;
    char first = kind(text[n]);
    while (kind(text[n]) == first)
        n++;
    return first == 'b' && n > 1 && text[n] ? n - 1 : n;
}

static void show_parts(const char *piece, const size_t *ends, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%s%.*s", i ? " | " : "  ", (int)(ends[i] - (i ? ends[i - 1] : 0)),
               piece + (i ? ends[i - 1] : 0));
    printf("\n");
}

/* Joins a piece's neighbours as long as a union is a token. ends[i]: where part i of n ends. Gives the
 * number of parts that are left. */
static size_t join_all(const attn_tokenizer *t, const char *piece, size_t *ends, size_t n, int loud)
{
    for (;;) {
        attn_token best = -1;
        size_t at = 0;
        if (loud)
            show_parts(piece, ends, n);
        for (size_t i = 0; i + 1 < n; i++) {
            const size_t start = i ? ends[i - 1] : 0;
            const attn_token rank = find(t, piece + start, ends[i + 1] - start);
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                at = i;
            }
        }
        if (best < 0)
            return n;
        memmove(ends + at, ends + at + 1, (n - at - 1) * sizeof *ends);
        n--;
    }
}

/* The ids of a text of fewer than LONGEST bytes; their number. */
static size_t encode(const attn_tokenizer *t, const char *text, attn_token *ids, int loud)
{
    size_t n_ids = 0, n, ends[LONGEST];
    for (; *text; text += n) {
        const size_t size = n = cut(text);
        for (size_t i = 0; i < size; i++)
            ends[i] = i + 1;
        size_t parts = join_all(t, text, ends, size, loud);
        for (size_t i = 0; i < parts; i++) {
            const size_t start = i ? ends[i - 1] : 0;
            ids[n_ids++] = find(t, text + start, ends[i] - start);
        }
    }
    return n_ids;
}

/* Our ids and the library's, and the text again. */
static void compare(attn_ctx *ctx, const attn_tokenizer *t, const char *text)
{
    attn_token ours[LONGEST], theirs[LONGEST];
    size_t n = encode(t, text, ours, 0), n_theirs = LONGEST, size, length = 0;
    char back[LONGEST];
    if (attn_encode(ctx, theirs, &n_theirs, t, text, strlen(text)))
        return;
    for (size_t i = 0; i < n; i++) {
        const char *token = attn_token_bytes(&size, t, ours[i]);
        memcpy(back + length, token, size);
        length += size;
    }
    printf("  %3d bytes, %3d tokens: %s; %s\n", (int)strlen(text), (int)n,
           check(n == n_theirs && memcmp(ours, theirs, n * sizeof *ours) == 0) ? "the library's ids"
                                                                               : "OTHER IDS",
           check(length == strlen(text) && memcmp(back, text, length) == 0) ? "the text comes back"
                                                                            : "ANOTHER TEXT");
}

/* Learning is counting: the pair that is most frequent within words becomes a token. Four words and how
 * often they come, as in the paper that proposed it for translation (Sennrich et al. 2016). */
static void learn(void)
{
    static const char *const words[WORDS] = {" low", " lower", " newest", " widest"};
    static const int often[WORDS] = {5, 2, 6, 3};
    char tokens[256 + MOST_MERGES][16] = {{0}}, pair[16];
    int parts[WORDS][16], n[WORDS], i;
    for (i = 1; i < 256; i++)
        tokens[i][0] = (char)i;
    for (int w = 0; w < WORDS; w++)
        for (i = 0, n[w] = (int)strlen(words[w]); i < n[w]; i++)
            parts[w][i] = (unsigned char)words[w][i];
    for (int merge = 0; merge < MOST_MERGES; merge++) {
        int most = 0, left = 0, right = 0;
        for (int w = 0; w < WORDS; w++)
            for (i = 0; i + 1 < n[w]; i++) {
                int count = 0;
                for (int v = 0; v < WORDS; v++)
                    for (int j = 0; j + 1 < n[v]; j++)
                        if (parts[v][j] == parts[w][i] && parts[v][j + 1] == parts[w][i + 1])
                            count += often[v];
                if (count > most) { /* of equal pairs the first */
                    most = count;
                    left = parts[w][i];
                    right = parts[w][i + 1];
                }
            }
        snprintf(pair, sizeof pair, "%.7s%.7s", tokens[left], tokens[right]);
        memcpy(tokens[256 + merge], pair, sizeof pair);
        printf("  \"%s\" %d times\n", pair, most);
        for (int w = 0; w < WORDS; w++)
            for (i = 0; i + 1 < n[w]; i++)
                if (parts[w][i] == left && parts[w][i + 1] == right) {
                    parts[w][i] = 256 + merge;
                    memmove(parts[w] + i + 1, parts[w] + i + 2,
                            (size_t)(n[w] - i - 2) * sizeof(int));
                    n[w]--;
                }
    }
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : BUILD "/tiny-stories.attn";
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_token ids[LONGEST];
    size_t n = LONGEST;

    if (attn_model_open(&ctx, &model, path, NULL) ||
        attn_encode(&ctx, ids, &n, attn_model_tokenizer(model), "", 0)) /* is there a tokenizer? */
        return finish(&ctx);
    const attn_tokenizer *t = attn_model_tokenizer(model);
    printf("The first tokens after the 256 bytes:");
    for (int id = 256; id < 266; id++) {
        size_t size;
        const char *token = attn_token_bytes(&size, t, id);
        printf(" \"%.*s\"", (int)size, token);
    }
    printf("\n\nFrom the bytes of \" elephant\" to its tokens:\n");
    encode(t, " elephant", ids, 1);

    printf("\nThe library says the same:\n");
    compare(&ctx, t, "Once upon a time, there was a little girl named Lily.");
    compare(&ctx, t, "\"She's 12 years old,\" he said;  they'll  see\n\n\tit all!");
    compare(&ctx, t, "na\xc3\xafve caf\xc3\xa9, \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e");
    compare(&ctx, t, "aaaaaaaa    _x_ 'tis ''ll ");

    printf(
        "\nTen merges, learned from \"low\" five times, \"lower\" twice, \"newest\" six times and\n"
        "\"widest\" three times:\n");
    learn();
    attn_model_close(model);
    return finish(&ctx);
}

/* Answer to the exercise: every text comes back, because decoding joins bytes, and the parts of a text are
 * the text however it was cut. But the ids of the first two are others: the model was trained on one way to
 * cut, and meets strange tokens with any other. In the last two hardly anything can be joined. */
