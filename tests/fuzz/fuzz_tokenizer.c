/* The tokenizer. The first byte picks a vocabulary: that of the included model, or merges and
 * special tokens that the next bytes make, and whether texts get a blank; the rest is text, or pieces of text to be repeated, so
 * that words become long. Decoding must give the text back, from
 * whole and from pieces; the ids must be those of a slow, plain program below, which knows GPT-2's
 * rules but only some of Unicode: text beyond that is only taken there and back. */
#include "tools/common/files.h"
#include "fuzz.h"

enum { MOST_TEXT = 12000, MOST_TOKENS = 4096, MOST_MERGES = 2048, MOST_SPECIAL = 8 };

typedef struct vocabulary {
    attn_tokenizer *tokenizer;
    unsigned char *section;
    uint32_t merges[MOST_MERGES][3];
    size_t n_merges;
    size_t first[MOST_TOKENS], next[MOST_MERGES]; /* ranks of the merges that begin with a token */
    int32_t special[MOST_SPECIAL];
    size_t n_special;
    int32_t of_byte[256];
    unsigned adds_blank;
} vocabulary;

UNTRACED static int is_special(const vocabulary *v, int32_t id)
{
    size_t i = 0;
    while (i < v->n_special && v->special[i] != id)
        i++;
    return i < v->n_special;
}

UNTRACED static int any_special(const vocabulary *v, const int32_t *ids, size_t n)
{
    while (n > 0 && !is_special(v, ids[n - 1]))
        n--;
    return n > 0;
}

static void open_vocabulary(vocabulary *v, const unsigned char *section, size_t size)
{
    const size_t n_tokens = get_u32(section);
    const unsigned char *merges = section + 16 + 4 * n_tokens;
    attn_ctx ctx;
    size_t n;
    memset(&ctx, 0, sizeof ctx);
    if (attn_tokenizer_new(&ctx, &v->tokenizer, section, size) != ATTN_OK)
        fprintf(stderr, "%s\n", ctx.message);
    MUST(v->tokenizer);
    v->n_merges = get_u32(section + 4);
    MUST(v->n_merges <= MOST_MERGES);
    v->n_special = get_u32(section + 8) & 0xffff;
    MUST(v->n_special <= MOST_SPECIAL && n_tokens <= MOST_TOKENS);
    for (size_t i = 0; i < 3 * v->n_merges; i++)
        v->merges[i / 3][i % 3] = get_u32(merges + 4 * i);
    for (size_t i = 0; i < v->n_special; i++)
        v->special[i] = (int32_t)get_u32(merges + 12 * v->n_merges + 4 * i);
    for (size_t i = 0; i < n_tokens; i++)
        v->first[i] = v->n_merges; /* none */
    for (size_t i = v->n_merges; i-- > 0;) {
        v->next[i] = v->first[v->merges[i][0]];
        v->first[v->merges[i][0]] = i;
    }
    for (size_t i = n_tokens; i-- > 0;) {
        const char *bytes = attn_token_bytes(&n, v->tokenizer, (int32_t)i);
        if (bytes && n == 1 && !is_special(v, (int32_t)i))
            v->of_byte[(unsigned char)bytes[0]] = (int32_t)i;
    }
}

static const vocabulary *included(void)
{
    static vocabulary v;
    if (!v.tokenizer) {
        FILE *file = fopen(TEST_BUILD "/tiny-stories.attn", "rb");
        unsigned char header[256];
        if (!file || fread(header, 1, 256, file) != 256) {
            fprintf(stderr, "no tiny-stories.attn: run make first\n");
            exit(2);
        }
        size_t size = get_u32(header + 104);
        v.section = (unsigned char *)malloc(size);
        MUST(v.section && fseek(file, (long)get_u32(header + 96), SEEK_SET) == 0);
        MUST(fread(v.section, 1, size, file) == size);
        fclose(file);
        open_vocabulary(&v, v.section, size);
    }
    return &v;
}

/* Bytes, merges of two earlier tokens each (a pair that was there or is too long is left out), and
 * special tokens: bytes of their own, after what an earlier one or a merged token begins with. */
static void made(vocabulary *v, input *in)
{
    unsigned char bytes[16384], *p;
    uint32_t start[600], end[600], merges[64][3];
    size_t n_tokens = 256, n_merges = 0, at = 256, i, count = take(in);
    size_t n_special = count / 64;
    count %= 64;
    for (i = 0; i < 256; i++) {
        bytes[i] = (unsigned char)i;
        start[i] = (uint32_t)i;
        end[i] = (uint32_t)i + 1;
    }
    while (count-- > 0) {
        size_t left = take(in), right = take(in), token;
        left = left >= 128 ? 256 + left % 128 : left; /* letters, or what was merged before */
        right = right >= 128 ? 256 + right % 128 : right;
        if (left >= n_tokens || right >= n_tokens)
            continue;
        size_t n = end[left] - start[left] + end[right] - start[right];
        for (i = 0; i < n_merges && (merges[i][0] != left || merges[i][1] != right);)
            i++;
        if (i < n_merges || n > 200)
            continue;
        memcpy(bytes + at, bytes + start[left], end[left] - start[left]);
        memcpy(bytes + at + end[left] - start[left], bytes + start[right],
               end[right] - start[right]);
        for (token = 0; token < n_tokens; token++) /* several ways may lead to one token */
            if (end[token] - start[token] == n && memcmp(bytes + start[token], bytes + at, n) == 0)
                break;
        if (token == n_tokens) {
            start[n_tokens] = (uint32_t)at;
            at += n;
            end[n_tokens++] = (uint32_t)at;
        }
        merges[n_merges][0] = (uint32_t)left;
        merges[n_merges][1] = (uint32_t)right;
        merges[n_merges++][2] = (uint32_t)token;
    }
    for (i = 0; i < n_special; i++, n_tokens++) {
        const size_t like = n_tokens - 1 - take(in) % 16, before = take(in), own = before / 16 % 8;
        size_t n = end[like] - start[like], k;
        n = n < before % 16 ? n : before % 16;
        start[n_tokens] = (uint32_t)at;
        memcpy(bytes + at, bytes + start[like], n);
        for (at += n, k = 0; k < own || n + k <= v->adds_blank; k++)
            bytes[at++] = (unsigned char)take(in);
        end[n_tokens] = (uint32_t)at;
    }
    v->section = p = (unsigned char *)malloc(16 + 4 * (n_tokens + n_special) + 12 * n_merges + at);
    MUST(p);
    put_u32(p, (uint32_t)n_tokens);
    put_u32(p + 4, (uint32_t)n_merges);
    put_u32(p + 8, (uint32_t)n_special | v->adds_blank << 19);
    put_u32(p + 12, (uint32_t)at);
    p += 16;
    for (i = 0; i < n_tokens; i++, p += 4)
        put_u32(p, end[i]);
    for (i = 0; i < 3 * n_merges; i++, p += 4)
        put_u32(p, merges[i / 3][i % 3]);
    for (i = 0; i < n_special; i++, p += 4)
        put_u32(p, (uint32_t)(n_tokens - 1 - i)); /* listed backwards: see special_at */
    memcpy(p, bytes, at);
    open_vocabulary(v, v->section, (size_t)(p + at - v->section));
}

/* ---- the plain program ---- */

enum kind { SPACE, LETTER, DIGIT, OTHER, UNKNOWN };

UNTRACED static enum kind kind_of(uint32_t c)
{
    if ((c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || (c >= 0x2000 && c <= 0x200A) ||
        c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000)
        return SPACE;
    if ((c | 32) >= 'a' && (c | 32) <= 'z')
        return LETTER;
    if (c >= '0' && c <= '9')
        return DIGIT;
    if (c < 0x80)
        return OTHER;
    if (c == 0xAA || c == 0xB5 || c == 0xBA ||
        (c >= 0xC0 && c <= 0x24F && c != 0xD7 && c != 0xF7) || (c >= 0x391 && c <= 0x3A1) ||
        (c >= 0x410 && c <= 0x44F) || (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0xAC00 && c <= 0xD7A3))
        return LETTER;
    if (c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE) ||
        (c >= 0x660 && c <= 0x669) || (c >= 0x2160 && c <= 0x2182))
        return DIGIT;
    if (c <= 0xBF || c == 0xD7 || c == 0xF7 || (c >= 0x300 && c <= 0x36F) ||
        (c >= 0x2010 && c <= 0x2027) || (c >= 0x1F300 && c <= 0x1F5FF))
        return OTHER;
    return UNKNOWN;
}

/* One character of good UTF-8; 0 bytes if there is none. */
UNTRACED static size_t character(const unsigned char *p, size_t size, uint32_t *c)
{
    const size_t n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    *c = n == 1 ? p[0] : n == 2 ? p[0] & 31 : n == 3 ? p[0] & 15 : p[0] & 7;
    if (n == 0 || n > size || p[0] > 0xF4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        *c = *c << 6 | (p[i] & 63);
    }
    return *c < least[n] || *c > 0x10FFFF || (*c >= 0xD800 && *c <= 0xDFFF) ? 0 : n;
}

typedef struct letter {
    uint32_t c;
    enum kind kind;
    size_t at; /* in the text */
} letter;

/* Where the piece that begins at letter i ends, by the alternatives of GPT-2's pattern in order:
 * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
UNTRACED static size_t piece_end(const letter *l, size_t n, size_t i)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    size_t j, first = l[i].c == ' ' && i + 1 < n && l[i + 1].kind != SPACE ? i + 1 : i;
    for (size_t k = 0; l[i].c == '\'' && k < 7; k++) {
        for (j = 0; endings[k][j] && i + 1 + j < n && l[i + 1 + j].c == (uint32_t)endings[k][j];)
            j++;
        if (!endings[k][j])
            return i + 1 + j;
    }
    for (j = first; j < n && l[j].kind == l[first].kind;)
        j++;
    if (l[first].kind != SPACE || j == n || j == i + 1)
        return j;
    return j - 1;
}

/* The rank of a pair's merge; n_merges if it has none. */
UNTRACED static size_t rank_of(const vocabulary *v, int32_t left, int32_t right)
{
    size_t k = v->first[left];
    while (k < v->n_merges && v->merges[k][1] != (uint32_t)right)
        k = v->next[k];
    return k;
}

/* Merges the best pair everywhere, from left to right, until there is none. */
UNTRACED static size_t merge(const vocabulary *v, int32_t *ids, size_t n)
{
    for (;;) {
        size_t best = v->n_merges, to = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const size_t rank = rank_of(v, ids[i], ids[i + 1]);
            best = rank < best ? rank : best;
        }
        if (best == v->n_merges)
            return n;
        for (size_t i = 0; i < n; to++) {
            const int joined = i + 1 < n && v->merges[best][0] == (uint32_t)ids[i] &&
                               v->merges[best][1] == (uint32_t)ids[i + 1];
            ids[to] = joined ? (int32_t)v->merges[best][2] : ids[i];
            i += joined ? 2 : 1;
        }
        n = to;
    }
}

/* The number of ids; -1 for text that this program does not know enough about. */
UNTRACED static long plain_part(const vocabulary *v, const unsigned char *text, size_t size,
                                int32_t *ids)
{
    static letter l[MOST_TEXT + 2];
    static unsigned char spaced[MOST_TEXT + 1] = " ";
    size_t n = 0, at, last, used, n_ids = 0;
    if (v->adds_blank && size > 0 && *text != ' ') {
        memcpy(spaced + 1, text, size++);
        text = spaced;
    }
    for (at = 0; at < size; at += used, n++) {
        used = character(text + at, size - at, &l[n].c);
        l[n].kind = used ? kind_of(l[n].c) : UNKNOWN;
        l[n].at = at;
        if (l[n].kind == UNKNOWN)
            return -1;
    }
    l[n].at = size;
    for (size_t i = 0; i < n; i = last) {
        size_t count = 0;
        last = piece_end(l, n, i);
        for (at = l[i].at; at < l[last].at; at++)
            ids[n_ids + count++] = v->of_byte[text[at]];
        n_ids += merge(v, ids + n_ids, count);
    }
    return (long)n_ids;
}

/* The longest special token that the text begins with, its size (0: none) and its id; of equal ones
 * the first in the list. */
UNTRACED static size_t special_at(const vocabulary *v, const unsigned char *text, size_t size,
                                  int32_t *id)
{
    size_t longest = 0, n;
    for (size_t i = 0; i < v->n_special; i++) {
        const char *bytes = attn_token_bytes(&n, v->tokenizer, v->special[i]);
        if (n > longest && n <= size && memcmp(bytes, text, n) == 0) {
            longest = n;
            *id = v->special[i];
        }
    }
    return longest;
}

/* Special tokens from left to right, if they count, and the text between them. */
UNTRACED static long plain(const vocabulary *v, const unsigned char *text, size_t size,
                           int with_special, int32_t *ids)
{
    size_t begin = 0, at = 0, found;
    long n = 0, more;
    while (at <= size) {
        int32_t id = 0;
        found = with_special ? special_at(v, text + at, size - at, &id) : 0;
        if (found == 0 && at < size) {
            at++;
            continue;
        }
        more = plain_part(v, text + begin, at - begin, ids + n);
        if (more < 0)
            return -1;
        n += more;
        if (at == size)
            break;
        ids[n++] = id;
        begin = at += found;
    }
    return n;
}

/* The text: the input as it is, or pieces of it, each after how long it is and how often it comes
 * (from 128 on, in steps of 128). */
static size_t take_text(input *in, int repeated, unsigned char *text)
{
    size_t n = 0, times, length;
    if (!repeated) {
        n = in->size < 600 ? in->size : 600;
        memcpy(text, in->data, n);
        return n;
    }
    while (in->size > 0) {
        length = take(in) % 32;
        times = take(in);
        times = times < 128 ? times : (times - 127) * 128;
        length = length < in->size ? length : in->size;
        for (; times > 0 && n + length <= MOST_TEXT && length > 0; times--, n += length)
            memcpy(text + n, in->data, length);
        in->data += length;
        in->size -= length;
    }
    return n;
}

/* What attn_utf8_push makes of the text, in pieces of n bytes. */
static size_t push(const char *text, size_t size, size_t n, char *out)
{
    attn_utf8 state;
    size_t written = 0;
    memset(&state, 0, sizeof state);
    for (size_t at = 0; at < size; at += n)
        written += attn_utf8_push(out + written, &state, text + at, size - at < n ? size - at : n);
    return written + attn_utf8_push(out + written, &state, NULL, 0);
}

UNTRACED static int is_utf8(const unsigned char *text, size_t size)
{
    size_t at = 0, n = 1;
    uint32_t c;
    for (; at < size && n > 0; at += n)
        n = character(text + at, size - at, &c);
    return n > 0;
}

/* Text to ids, which must be the plain program's, and back. */
static void there_and_back(const vocabulary *v, const unsigned char *text, size_t size,
                           int with_special)
{
    static char back[2 * MOST_TEXT];
    static int32_t ids[MOST_TEXT + 1], want[MOST_TEXT + 1];
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    size_t n = size + v->adds_blank;
    MUST((with_special ? attn_encode_special : attn_encode)(&ctx, ids, &n, v->tokenizer,
                                                            (const char *)text, size) == ATTN_OK);
    size_t n_back = sizeof back;
    MUST(attn_decode(&ctx, back, &n_back, v->tokenizer, ids, n) == ATTN_OK);
    MUST(v->adds_blank ? n_back >= size : n_back == size && memcmp(back, text, n_back) == 0);
    long n_want = plain(v, text, size, with_special, want);
    if (n_want >= 0)
        MUST((size_t)n_want == n && memcmp(ids, want, n * sizeof *ids) == 0);
    MUST(with_special || !any_special(v, ids, n));
}

int fuzz_tokenizer(const unsigned char *data, size_t size)
{
    static char whole[3 * MOST_TEXT + 64], pieces[3 * MOST_TEXT + 64];
    static unsigned char text[MOST_TEXT];
    static vocabulary own;
    const vocabulary *v = &own;
    input in;
    const unsigned kind = size ? data[0] : 0;
    in.data = data;
    in.size = size;
    take(&in);
    own.tokenizer = NULL;
    own.section = NULL;
    own.adds_blank = kind / 64 % 2;
    if (kind % 2 == 0)
        v = included();
    else
        made(&own, &in);
    size_t n_text = take_text(&in, kind / 2 % 2, text);
    if (n_text < 1000 || kind / 4 % 2 == 0) /* long text goes one way only, or it takes too long */
        there_and_back(v, text, n_text, 0);
    if (n_text < 1000 || kind / 4 % 2 == 1)
        there_and_back(v, text, n_text, 1);
    size_t n = push((const char *)text, n_text, n_text ? n_text : 1, whole);
    MUST(push((const char *)text, n_text, 1 + kind / 8 % 5, pieces) == n);
    MUST(memcmp(whole, pieces, n) == 0);
    if (is_utf8(text, n_text))
        MUST(n == n_text && memcmp(whole, text, n) == 0);
    attn_tokenizer_free(own.tokenizer);
    free(own.section);
    return 0;
}
