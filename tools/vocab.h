/* Vocabularies: vocab.json with merges.txt, or tokenizer.json, into the tokenizer section of a
 * .attn file.
 *
 * Those files spell a token's bytes with printable stand-ins: the 188 bytes that print as
 * themselves in Latin-1 stay, the other 68 become the characters from U+0100 on, in order (so a
 * space is U+0120). Merges are spelled the same way. The section has the bytes themselves and
 * merges as ids. Added tokens such as "<|endoftext|>" are literal text and take part in no merge;
 * they are the section's special tokens. */
#ifndef TOOLS_VOCAB_H
#define TOOLS_VOCAB_H

#include "json.h"

typedef struct vocab_token {
    const char *spelling; /* as in the source; NULL: no token has this id */
    size_t spelling_size;
    const char *bytes; /* NULL until vocab_finish */
    size_t size;
    int special; /* literal text, and in the list of special tokens */
} vocab_token;

typedef struct vocab {
    arena *memory;
    const char *name; /* of the source, for messages */
    vocab_token *tokens;
    size_t n_tokens;
    uint32_t (*merges)[3];
    size_t n_merges;
    name_table by_spelling;
    name_table by_parts; /* merges, by the bytes of their first two ids */
} vocab;

/* No file gets to ask for memory without bound: ids, which may have gaps, are below the first of
 * these, and there are no more merges. GPT-2 has 50257 tokens, and the file is a few megabytes. */
enum { VOCAB_MAX_TOKENS = 1 << 20, VOCAB_MAX_FILE = 1 << 26 };
#define VOCAB_END_OF_TEXT "<|endoftext|>"

TOOLS_FN attn_status vocab_init(attn_ctx *ctx, vocab *v, arena *memory, const char *name,
                                size_t n_tokens, size_t n_merges)
{
    memset(v, 0, sizeof *v);
    v->memory = memory;
    v->name = base_name(name);
    if (n_tokens > VOCAB_MAX_TOKENS || n_merges > VOCAB_MAX_TOKENS)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s: a vocabulary of %llu tokens and up to %llu merges; %d is the most "
                         "that there can be of either",
                         v->name, TOOLS_LLU(n_tokens), TOOLS_LLU(n_merges), (int)VOCAB_MAX_TOKENS);
    v->n_tokens = n_tokens;
    v->tokens = (vocab_token *)arena_alloc(ctx, memory, n_tokens, sizeof *v->tokens);
    v->merges = (uint32_t(*)[3])arena_alloc(ctx, memory, n_merges, sizeof *v->merges);
    if (!v->tokens || !v->merges)
        return ctx->status;
    return names_init(ctx, memory, &v->by_spelling, n_tokens)
               ? ctx->status
               : names_init(ctx, memory, &v->by_parts, n_merges);
}

/* Gives an id its spelling. Both must be new. */
TOOLS_FN attn_status vocab_add(attn_ctx *ctx, vocab *v, size_t id, const char *text, size_t size)
{
    vocab_token *token = &v->tokens[id];
    size_t other = id;
    shown a, b;
    if (token->spelling)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the tokens \"%s\" and \"%s\" both have id %llu",
                         v->name, show(a, token->spelling, token->spelling_size),
                         show(b, text, size), TOOLS_LLU(id));
    if (!names_add(&v->by_spelling, text, size, &other))
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the token \"%s\" has two ids, %llu and %llu",
                         v->name, show(a, text, size), TOOLS_LLU(other), TOOLS_LLU(id));
    token->spelling = text;
    token->spelling_size = size;
    return ATTN_OK;
}

/* One merge: two spellings. `where` and `number` name its place in messages ("line 7"). */
TOOLS_FN attn_status vocab_merge(attn_ctx *ctx, vocab *v, const char *left, size_t left_size,
                                 const char *right, size_t right_size, const char *file,
                                 const char *where, size_t number)
{
    uint32_t *merge = v->merges[v->n_merges];
    size_t part[2], other = number;
    const name_slot *joined;
    shown a, b;
    int i;
    for (i = 0; i < 2; i++) {
        const char *text = i ? right : left;
        size_t size = i ? right_size : left_size;
        if (!names_find(&v->by_spelling, text, size, &part[i]))
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s, %s %llu: \"%s\" is not a token of the vocabulary", file, where,
                             TOOLS_LLU(number), show(a, text, size));
        if (v->tokens[part[i]].special)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s, %s %llu: \"%s\" is a special token, and "
                             "those cannot be merged",
                             file, where, TOOLS_LLU(number), show(a, text, size));
    }
    joined = names_slot(&v->by_spelling, left, left_size, right, right_size);
    if (!joined->text)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s, %s %llu: \"%s\" and \"%s\" together are not a "
                         "token of the vocabulary",
                         file, where, TOOLS_LLU(number), show(a, left, left_size),
                         show(b, right, right_size));
    if (v->tokens[joined->value].special)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s, %s %llu makes \"%s\", a special token; those "
                         "cannot come from merges",
                         file, where, TOOLS_LLU(number), show(a, joined->text, joined->size));
    merge[0] = (uint32_t)part[0];
    merge[1] = (uint32_t)part[1];
    merge[2] = (uint32_t)joined->value;
    if (!names_add(&v->by_parts, (const char *)merge, 2 * sizeof *merge, &other))
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s, %s %llu: \"%s\" and \"%s\" are merged already, by %s %llu", file,
                         where, TOOLS_LLU(number), show(a, left, left_size),
                         show(b, right, right_size), where, TOOLS_LLU(other));
    v->n_merges++;
    return ATTN_OK;
}

/* "left right", one blank between them. */
TOOLS_FN attn_status vocab_merge_text(attn_ctx *ctx, vocab *v, const char *text, size_t size,
                                      const char *file, const char *where, size_t number)
{
    const char *blank = (const char *)memchr(text, ' ', size);
    size_t left = blank ? (size_t)(blank - text) : 0;
    shown a;
    if (left == 0 || left + 1 == size || memchr(blank + 1, ' ', size - left - 1))
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s, %s %llu: \"%s\" is not two tokens with a blank "
                         "between them",
                         file, where, TOOLS_LLU(number), show(a, text, size));
    return vocab_merge(ctx, v, text, left, blank + 1, size - left - 1, file, where, number);
}

/* The byte that a stand-in character means, or -1. */
TOOLS_FN int vocab_byte(unsigned long c)
{
    int byte;
    if ((c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255))
        return (int)c;
    if (c < 256 || c > 256 + 67)
        return -1;
    byte = (int)(c - 256); /* the 68 others: 0-32, 127-160 and 173 */
    return byte <= 32 ? byte : byte <= 66 ? byte - 33 + 127 : 173;
}

/* Replaces a token's stand-ins by the bytes that they mean. */
TOOLS_FN attn_status vocab_decode(attn_ctx *ctx, vocab *v, vocab_token *token)
{
    const unsigned char *p = (const unsigned char *)token->spelling;
    const unsigned char *end = p + token->spelling_size;
    char *out = (char *)arena_alloc(ctx, v->memory, token->spelling_size, 1);
    shown name;
    if (!out)
        return ctx->status;
    token->bytes = out;
    while (p < end) {
        unsigned long c = *p++;
        int byte;
        if (c >= 0xc2 && c < 0xe0 && p < end && (*p & 0xc0) == 0x80)
            c = (c & 31) << 6 | (*p++ & 63);
        else if (c >= 0x80)
            c = 0xffff; /* no stand-in is that long */
        if ((byte = vocab_byte(c)) < 0)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: the token %llu (\"%s\") has a character that "
                             "is none of GPT-2's stand-ins for bytes; is this a byte-level BPE?",
                             v->name, TOOLS_LLU(token - v->tokens),
                             show(name, token->spelling, token->spelling_size));
        *out++ = (char)byte;
    }
    token->size = (size_t)(out - token->bytes);
    return ATTN_OK;
}

/* After the last token and merge: bytes for spellings, and what must hold of the whole. */
TOOLS_FN attn_status vocab_finish(attn_ctx *ctx, vocab *v)
{
    name_table by_bytes;
    size_t i, other;
    shown name;
    char byte;
    if (names_init(ctx, v->memory, &by_bytes, v->n_tokens))
        return ctx->status;
    for (i = 0; i < v->n_tokens; i++) {
        vocab_token *token = &v->tokens[i];
        if (!token->spelling)
            continue;
        if (token->special) {
            token->bytes = token->spelling;
            token->size = token->spelling_size;
        } else if (vocab_decode(ctx, v, token)) {
            return ctx->status;
        }
        other = i;
        if (token->size && !names_add(&by_bytes, token->bytes, token->size, &other))
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: the tokens %llu and %llu are the same bytes "
                             "(\"%s\")",
                             v->name, TOOLS_LLU(other), TOOLS_LLU(i),
                             show(name, token->spelling, token->spelling_size));
    }
    for (i = 0; i < 256; i++) {
        byte = (char)(unsigned char)i;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a vocabulary that was read */
        if (!names_find(&by_bytes, &byte, 1, &other) || v->tokens[other].special)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: no token for the byte %02x alone; a "
                             "byte-level vocabulary has one for each of the 256",
                             v->name, (unsigned)i);
    }
    return ATTN_OK;
}

/* The id of "<|endoftext|>", or -1. */
TOOLS_FN int32_t vocab_end_of_text(const vocab *v)
{
    size_t id;
    int found = names_find(&v->by_spelling, VOCAB_END_OF_TEXT, strlen(VOCAB_END_OF_TEXT), &id);
    return found && id < v->n_tokens && v->tokens[id].special ? (int32_t)id : -1;
}

/* The section with room for n_tokens ids (at least as many as the vocabulary has). */
TOOLS_FN attn_status vocab_section(attn_ctx *ctx, const vocab *v, size_t n_tokens,
                                   unsigned char **section, size_t *size)
{
    size_t i, n_special = 0, end = 0;
    uint64_t n_bytes = 0, total;
    unsigned char *ends, *merges, *specials, *bytes;
    *section = NULL;
    for (i = 0; i < v->n_tokens; i++) {
        n_bytes += v->tokens[i].size;
        n_special += v->tokens[i].special && v->tokens[i].size;
    }
    if (n_bytes > UINT32_MAX || n_tokens > INT32_MAX || v->n_merges > INT32_MAX)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the vocabulary is larger than 4 GB", v->name);
    total = 16 + 4 * (uint64_t)n_tokens + 12 * (uint64_t)v->n_merges + 4 * (uint64_t)n_special +
            n_bytes;
    ends = total <= SIZE_MAX ? (unsigned char *)calloc(1, (size_t)total) : NULL;
    if (!ends)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory for the tokenizer (%llu bytes)",
                         TOOLS_LLU(total));
    *section = ends;
    *size = (size_t)total;
    put_u32(ends, (uint32_t)n_tokens);
    put_u32(ends + 4, (uint32_t)v->n_merges);
    put_u32(ends + 8, (uint32_t)n_special);
    put_u32(ends + 12, (uint32_t)n_bytes);
    ends += 16;
    merges = ends + 4 * n_tokens;
    specials = merges + 12 * v->n_merges;
    bytes = specials + 4 * n_special;
    for (i = 0; i < n_tokens; i++) {
        const vocab_token *token = i < v->n_tokens ? &v->tokens[i] : NULL;
        if (token && token->size) {
            memcpy(bytes + end, token->bytes, token->size);
            end += token->size;
            if (token->special) {
                put_u32(specials, (uint32_t)i);
                specials += 4;
            }
        }
        put_u32(ends + 4 * i, (uint32_t)end);
    }
    for (i = 0; i < v->n_merges; i++, merges += 12) {
        put_u32(merges, v->merges[i][0]);
        put_u32(merges + 4, v->merges[i][1]);
        put_u32(merges + 8, v->merges[i][2]);
    }
    return ATTN_OK;
}

/* >> The two spellings of a vocabulary on disk ================================================= */

/* An object from spellings to ids: the largest id plus one. */
TOOLS_FN attn_status vocab_count(attn_ctx *ctx, const char *file, const json_value *object,
                                 size_t *n_tokens)
{
    const json_value *m;
    uint64_t id;
    size_t i;
    shown name;
    if (!object || object->kind != JSON_OBJECT || object->size == 0)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s: no vocabulary: expected an object from tokens to "
                         "ids",
                         base_name(file));
    for (m = object + 1, i = 0; i < object->size; i++, m += m->span) {
        if (!json_u64(m, &id) || id >= VOCAB_MAX_TOKENS)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: the id of \"%s\" is not a whole number below "
                             "%d",
                             base_name(file), show(name, m->key, m->key_size),
                             (int)VOCAB_MAX_TOKENS);
        if (id >= *n_tokens)
            *n_tokens = (size_t)id + 1;
    }
    return ATTN_OK;
}

TOOLS_FN attn_status vocab_add_all(attn_ctx *ctx, vocab *v, const json_value *object)
{
    const json_value *m;
    uint64_t id;
    size_t i;
    for (m = object + 1, i = 0; i < object->size; i++, m += m->span)
        if (json_u64(m, &id) && vocab_add(ctx, v, (size_t)id, m->key, m->key_size))
            return ctx->status;
    return ATTN_OK;
}

/* An added token may repeat one of the vocabulary, or be a new one. */
TOOLS_FN attn_status vocab_add_special(attn_ctx *ctx, vocab *v, size_t id, const char *text,
                                       size_t size)
{
    vocab_token *token = &v->tokens[id];
    int same =
        token->spelling && token->spelling_size == size && memcmp(token->spelling, text, size) == 0;
    if (!same && vocab_add(ctx, v, id, text, size))
        return ctx->status;
    token->special = 1;
    return ATTN_OK;
}

/* merges.txt: one merge a line, behind an optional line "#version: ...". */
TOOLS_FN attn_status vocab_read_merges(attn_ctx *ctx, vocab *v, const char *text, size_t size,
                                       const char *file)
{
    const char *p = text, *end = text + size, *next;
    size_t line;
    for (line = 1; p < end; line++, p = next + 1) {
        size_t n;
        next = (const char *)memchr(p, '\n', (size_t)(end - p));
        if (!next)
            next = end;
        n = (size_t)(next - p);
        if (n && p[n - 1] == '\r')
            n--;
        if (n == 0 || (line == 1 && n >= 8 && memcmp(p, "#version", 8) == 0))
            continue;
        if (vocab_merge_text(ctx, v, p, n, file, "line", line))
            return ctx->status;
    }
    return ATTN_OK;
}

TOOLS_FN size_t count_lines(const char *text, size_t size)
{
    size_t i, n = 1;
    for (i = 0; i < size; i++)
        n += text[i] == '\n';
    return n;
}

/* vocab.json and merges.txt; added_tokens.json if there is one. */
TOOLS_FN attn_status vocab_load_pair(attn_ctx *ctx, vocab *v, arena *memory, const char *dir)
{
    char *vocab_path = arena_path(ctx, memory, dir, "vocab.json");
    char *merges_path = arena_path(ctx, memory, dir, "merges.txt");
    char *added_path = arena_path(ctx, memory, dir, "added_tokens.json");
    char *text = NULL, *merges = NULL, *added_text = NULL;
    size_t size = 0, merges_size = 0, added_size = 0, n_tokens = 0, i, id;
    json_value *root = NULL, *added = NULL;
    const json_value *m;
    if (!vocab_path || !merges_path || !added_path)
        return ctx->status;
    if (!system_exists(merges_path))
        return tool_fail(ctx, ATTN_E_IO, "there is a vocab.json but no merges.txt in %s", dir);
    if (read_file(ctx, memory, merges_path, VOCAB_MAX_FILE, &merges, &merges_size) ||
        read_file(ctx, memory, vocab_path, VOCAB_MAX_FILE, &text, &size) ||
        json_parse(ctx, vocab_path, text, size, &root) ||
        vocab_count(ctx, vocab_path, root, &n_tokens))
        goto done;
    if (system_exists(added_path) &&
        (read_file(ctx, memory, added_path, VOCAB_MAX_FILE, &added_text, &added_size) ||
         json_parse(ctx, added_path, added_text, added_size, &added)))
        goto done;
    if (added && (added->kind != JSON_OBJECT || added->size) &&
        vocab_count(ctx, added_path, added, &n_tokens))
        goto done;
    if (vocab_init(ctx, v, memory, vocab_path, n_tokens, count_lines(merges, merges_size)) ||
        vocab_add_all(ctx, v, root))
        goto done;
    if (names_find(&v->by_spelling, VOCAB_END_OF_TEXT, strlen(VOCAB_END_OF_TEXT), &id))
        v->tokens[id].special = 1;
    for (m = added ? added + 1 : NULL, i = 0; added && i < added->size; i++, m += m->span) {
        uint64_t number;
        if (json_u64(m, &number) && vocab_add_special(ctx, v, (size_t)number, m->key, m->key_size))
            goto done;
    }
    if (vocab_read_merges(ctx, v, merges, merges_size, "merges.txt") == ATTN_OK && v->n_merges == 0)
        tool_fail(ctx, ATTN_E_FORMAT, "merges.txt has no merges");
done:
    free(root); /* keys point into the text, not into the tree */
    free(added);
    return ctx->status;
}

TOOLS_FN attn_status vocab_refuse(attn_ctx *ctx, const char *what)
{
    return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                     "tokenizer.json: %s; only GPT-2's byte-level BPE is "
                     "supported",
                     what);
}

/* What tokenizer.json may ask for beyond GPT-2's rules is refused: text would get other ids. */
TOOLS_FN attn_status vocab_check_rules(attn_ctx *ctx, const json_value *root)
{
    const json_value *model = json_get(root, "model"), *normalizer = json_get(root, "normalizer");
    const json_value *split = json_get(root, "pre_tokenizer"), *v;
    if (!model || model->kind != JSON_OBJECT)
        return tool_fail(ctx, ATTN_E_FORMAT, "tokenizer.json has no object \"model\"");
    if ((v = json_get(model, "type")) != NULL && !json_is(v, "BPE"))
        return vocab_refuse(ctx, "its model is not BPE");
    if (normalizer && normalizer->kind != JSON_NULL)
        return vocab_refuse(ctx, "it has a normalizer");
    if (!split || !json_is(json_get(split, "type"), "ByteLevel"))
        return vocab_refuse(ctx, "its pre_tokenizer is not ByteLevel");
    if ((v = json_get(split, "add_prefix_space")) != NULL && v->kind == JSON_TRUE)
        return vocab_refuse(ctx, "add_prefix_space is true");
    if ((v = json_get(split, "use_regex")) != NULL && v->kind == JSON_FALSE)
        return vocab_refuse(ctx, "use_regex is false");
    if ((v = json_get(model, "ignore_merges")) != NULL && v->kind == JSON_TRUE)
        return vocab_refuse(ctx, "ignore_merges is true");
    if ((v = json_get(model, "byte_fallback")) != NULL && v->kind == JSON_TRUE)
        return vocab_refuse(ctx, "byte_fallback is true");
    if ((v = json_get(model, "continuing_subword_prefix")) != NULL && v->size)
        return vocab_refuse(ctx, "it has a continuing_subword_prefix");
    if ((v = json_get(model, "end_of_word_suffix")) != NULL && v->size)
        return vocab_refuse(ctx, "it has an end_of_word_suffix");
    return ATTN_OK;
}

/* "added_tokens": [{"id": 50256, "content": "<|endoftext|>", ...}, ...] */
TOOLS_FN attn_status vocab_added(attn_ctx *ctx, vocab *v, const json_value *list, size_t *n_tokens)
{
    const json_value *m = list ? list + 1 : NULL, *content;
    uint64_t id;
    size_t i;
    if (!list)
        return ATTN_OK;
    if (list->kind != JSON_ARRAY)
        return tool_fail(ctx, ATTN_E_FORMAT, "tokenizer.json: added_tokens is not a list");
    for (i = 0; i < list->size; i++, m += m->span) {
        content = json_get(m, "content");
        if (!json_u64(json_get(m, "id"), &id) || id >= VOCAB_MAX_TOKENS || !content ||
            content->kind != JSON_STRING || content->size == 0)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "tokenizer.json: entry %llu of added_tokens has "
                             "no usable id and content",
                             TOOLS_LLU(i));
        if (n_tokens && id >= *n_tokens)
            *n_tokens = (size_t)id + 1;
        if (v && vocab_add_special(ctx, v, (size_t)id, content->text, content->size))
            return ctx->status;
    }
    return ATTN_OK;
}

/* "merges": ["a b", ...] or [["a", "b"], ...] */
TOOLS_FN attn_status vocab_merge_list(attn_ctx *ctx, vocab *v, const json_value *list)
{
    const json_value *m = list + 1, *left, *right;
    size_t i;
    for (i = 0; i < list->size; i++, m += m->span) {
        left = m + 1;
        right = m->kind == JSON_ARRAY && m->size == 2 ? left + left->span : NULL;
        if (m->kind == JSON_STRING) {
            if (vocab_merge_text(ctx, v, m->text, m->size, "tokenizer.json", "merge", i))
                return ctx->status;
        } else if (right && left->kind == JSON_STRING && right->kind == JSON_STRING) {
            if (vocab_merge(ctx, v, left->text, left->size, right->text, right->size,
                            "tokenizer.json", "merge", i))
                return ctx->status;
        } else {
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "tokenizer.json, merge %llu is neither a string "
                             "\"a b\" nor a pair [\"a\", \"b\"]",
                             TOOLS_LLU(i));
        }
    }
    return ATTN_OK;
}

TOOLS_FN attn_status vocab_load_json(attn_ctx *ctx, vocab *v, arena *memory, const char *path)
{
    const json_value *model, *tokens, *merges, *added;
    json_value *root = NULL;
    size_t size, n_tokens = 0;
    char *text;
    if (read_file(ctx, memory, path, VOCAB_MAX_FILE, &text, &size) ||
        json_parse(ctx, path, text, size, &root) || vocab_check_rules(ctx, root))
        goto done;
    model = json_get(root, "model");
    tokens = json_get(model, "vocab");
    merges = json_get(model, "merges");
    added = json_get(root, "added_tokens");
    if (!merges || merges->kind != JSON_ARRAY) {
        tool_fail(ctx, ATTN_E_FORMAT, "tokenizer.json: its model has no list \"merges\"");
        goto done;
    }
    if (vocab_count(ctx, path, tokens, &n_tokens))
        goto done;
    if (vocab_added(ctx, NULL, added, &n_tokens) ||
        vocab_init(ctx, v, memory, path, n_tokens, merges->size) || vocab_add_all(ctx, v, tokens) ||
        vocab_added(ctx, v, added, NULL))
        goto done;
    vocab_merge_list(ctx, v, merges);
done:
    free(root);
    return ctx->status;
}

/* Reads the vocabulary of a directory. ATTN_E_TOKENIZER if it holds none. ctx->status must be
 * ATTN_OK before. */
TOOLS_FN attn_status vocab_load(attn_ctx *ctx, vocab *v, arena *memory, const char *dir)
{
    char *pair = arena_path(ctx, memory, dir, "vocab.json");
    char *merges = arena_path(ctx, memory, dir, "merges.txt");
    char *whole = arena_path(ctx, memory, dir, "tokenizer.json");
    if (!pair || !merges || !whole)
        return ctx->status;
    v->memory = memory;
    if (system_exists(pair))
        vocab_load_pair(ctx, v, memory, dir);
    else if (system_exists(whole))
        vocab_load_json(ctx, v, memory, whole);
    else if (system_exists(merges))
        tool_fail(ctx, ATTN_E_IO, "there is a merges.txt but no vocab.json in %s", dir);
    else if (!system_is_directory(dir))
        tool_fail(ctx, ATTN_E_IO, "there is no directory %s", dir);
    else
        tool_fail(ctx, ATTN_E_TOKENIZER,
                  "neither vocab.json with merges.txt nor tokenizer.json in %s", dir);
    return ctx->status ? ctx->status : vocab_finish(ctx, v);
}

/* The same, straight to a tokenizer section from malloc. */
TOOLS_FN attn_status vocab_read(attn_ctx *ctx, const char *dir, unsigned char **section,
                                size_t *size)
{
    arena memory = {NULL};
    vocab v;
    attn_status before = ctx->status, status;
    memset(&v, 0, sizeof v);
    *section = NULL;
    ctx->status = ATTN_OK;
    status = vocab_load(ctx, &v, &memory, dir);
    if (status == ATTN_OK)
        status = vocab_section(ctx, &v, v.n_tokens, section, size);
    if (status == ATTN_OK)
        ctx->status = before;
    arena_free(&memory);
    return status;
}

#endif
