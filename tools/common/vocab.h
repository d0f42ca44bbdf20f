/* Vocabularies: makes the tokenizer section of a .attn file from tokens with their ids, and merges.
 *
 * Files spell the bytes of a token with printable characters: the 188 bytes that are printable in Latin-1
 * stay, and the other 68 become the characters from U+0100 on, in order (a space is U+0120). Merges are
 * spelled in the same way. The section has the bytes themselves, and merges as ids. Added tokens such as
 * "<|endoftext|>" are literal text and take part in no merge; they are the section's special tokens. The
 * tokens of a vocabulary of characters are characters, without merges. vocab_files.h reads the files of a
 * directory. */
#ifndef TOOLS_VOCAB_H
#define TOOLS_VOCAB_H

#include "json.h"

typedef struct vocab_token {
    const char *spelling; /* as in the source; NULL: no token has this id */
    size_t spelling_size;
    const char *file;  /* the file that gave it its id */
    const char *bytes; /* NULL until vocab_finish */
    size_t size;
    int special;            /* literal text, and in the list of special tokens */
    int said;               /* what files say about it: see vocab_files.h */
    const char *special_by; /* the file that makes it special, if one does */
} vocab_token;

/* What a vocabulary's files ask for and attn.h does not do, so that its user must know it. */
typedef struct vocab_note {
    struct vocab_note *next;
    const char *text;
} vocab_note;

typedef struct vocab {
    arena *memory;
    const char *name; /* of the file that is read, for messages */
    vocab_token *tokens;
    size_t n_tokens;
    uint32_t (*merges)[3];
    size_t n_merges;
    name_table by_spelling;
    name_table by_parts;             /* merges, by the bytes of their first two ids */
    attn_token bos, eos;             /* the tokens that a file names so, or -1 */
    const char *bos_file, *eos_file; /* that file */
    int32_t first;                   /* the token that a file puts before every text, or -1 */
    int32_t unknown; /* the token for bytes without a token; -1: such bytes are left out of texts */
    int lacks;       /* a byte has no token */
    int characters;  /* the tokens are characters, and spelled as such */
    int adds_blank;  /* in front of texts */
    const char *odd_rule; /* an unsupported rule for bytes without a token; NULL: none */
    vocab_note *notes;
} vocab;

/* Limits, so that no file can ask for unbounded memory: ids, which may have gaps, are below the first one,
 * and it is also the largest number of merges. GPT-2 has 50257 tokens, and its file a few megabytes. */
enum { VOCAB_MAX_TOKENS = 1 << 20, VOCAB_MAX_FILE = 1 << 26 };
#define VOCAB_END_OF_TEXT "<|endoftext|>"

/* Bits of the section's number of special tokens: see "The file format" in attn.h. */
enum { VOCAB_LACKS = 1 << 16, VOCAB_HAS_UNKNOWN = 1 << 17, VOCAB_CHARACTERS = 1 << 18 };
enum { VOCAB_ADDS_BLANK = 1 << 19 };

TOOLS_FN attn_status vocab_init(attn_ctx *ctx, vocab *v, arena *memory, const char *name,
                                size_t n_tokens, size_t n_merges)
{
    memset(v, 0, sizeof *v);
    v->memory = memory;
    v->bos = v->eos = v->first = v->unknown = -1;
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

/* Adds a token: an id and its spelling, which must both be new. */
TOOLS_FN attn_status vocab_add(attn_ctx *ctx, vocab *v, size_t id, const char *text, size_t size)
{
    vocab_token *token = &v->tokens[id];
    size_t other = id;
    shown a, b;
    const char *elsewhere;
    if (token->spelling) {
        elsewhere = token->file == v->name ? NULL : token->file;
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s: the tokens \"%s\"%s%s and \"%s\" both have id %llu", v->name,
                         show(a, token->spelling, token->spelling_size), elsewhere ? " of " : "",
                         elsewhere ? elsewhere : "", show(b, text, size), TOOLS_LLU(id));
    }
    if (!names_add(&v->by_spelling, text, size, &other)) {
        elsewhere = v->tokens[other].file == v->name ? NULL : v->tokens[other].file;
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the token \"%s\" has two ids, %llu%s%s and %llu",
                         v->name, show(a, text, size), TOOLS_LLU(other), elsewhere ? " in " : "",
                         elsewhere ? elsewhere : "", TOOLS_LLU(id));
    }
    token->spelling = text;
    token->spelling_size = size;
    token->file = v->name;
    return ATTN_OK;
}

/* " by added_tokens.json", or nothing. */
TOOLS_FN const char *vocab_special_by(shown out, const vocab_token *token)
{
    snprintf(out, sizeof(shown), "%s%s", token->special_by ? " by " : "",
             token->special_by ? token->special_by : "");
    return out;
}

/* Adds a merge of two spellings. `where` and `number` are its place, for messages ("line 7"). */
TOOLS_FN attn_status vocab_merge(attn_ctx *ctx, vocab *v, const char *left, size_t left_size,
                                 const char *right, size_t right_size, const char *file,
                                 const char *where, size_t number)
{
    uint32_t *merge = v->merges[v->n_merges];
    size_t part[2], other = number;
    shown a, b, by;
    for (int i = 0; i < 2; i++) {
        const char *text = i ? right : left;
        size_t size = i ? right_size : left_size;
        if (!names_find(&v->by_spelling, text, size, &part[i]))
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s, %s %llu: \"%s\" is not a token of the vocabulary", file, where,
                             TOOLS_LLU(number), show(a, text, size));
        if (v->tokens[part[i]].special)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s, %s %llu: \"%s\" is a special token%s, and those cannot be merged",
                             file, where, TOOLS_LLU(number), show(a, text, size),
                             vocab_special_by(by, &v->tokens[part[i]]));
    }
    const name_slot *joined = names_slot(&v->by_spelling, left, left_size, right, right_size);
    if (!joined->text)
        return tool_fail(
            ctx, ATTN_E_FORMAT,
            "%s, %s %llu: \"%s\" and \"%s\" together are not a token of the vocabulary", file,
            where, TOOLS_LLU(number), show(a, left, left_size), show(b, right, right_size));
    if (v->tokens[joined->value].special)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s, %s %llu makes \"%s\", a special token%s; "
                         "those cannot come from merges",
                         file, where, TOOLS_LLU(number), show(a, joined->text, joined->size),
                         vocab_special_by(by, &v->tokens[joined->value]));
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

/* Adds a merge that is spelled "left right", with one blank. */
TOOLS_FN attn_status vocab_merge_text(attn_ctx *ctx, vocab *v, const char *text, size_t size,
                                      const char *file, const char *where, size_t number)
{
    const char *blank = (const char *)memchr(text, ' ', size);
    size_t left = blank ? (size_t)(blank - text) : 0;
    shown a;
    if (left == 0 || left + 1 == size || memchr(blank + 1, ' ', size - left - 1))
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s, %s %llu: \"%s\" is not two tokens with a blank between them", file,
                         where, TOOLS_LLU(number), show(a, text, size));
    return vocab_merge(ctx, v, text, left, blank + 1, size - left - 1, file, where, number);
}

/* The byte that a character of a spelling means, or -1. */
TOOLS_FN int vocab_byte(unsigned long c)
{
    if ((c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255))
        return (int)c;
    if (c < 256 || c > 256 + 67)
        return -1;
    int byte = (int)(c - 256); /* the 68 others: 0-32, 127-160 and 173 */
    return byte <= 32 ? byte : byte <= 66 ? byte - 33 + 127 : 173;
}

/* The byte that the character at *p means, or -1. Moves *p to the next character. */
TOOLS_FN int vocab_next_byte(const unsigned char **p, const unsigned char *end)
{
    unsigned long c = *(*p)++;
    if (c >= 0xc2 && c < 0xe0 && *p < end && (**p & 0xc0) == 0x80)
        c = (c & 31) << 6 | (*(*p)++ & 63);
    else if (c >= 0x80)
        c = 0xffff; /* no such character is that long */
    return vocab_byte(c);
}

/* Replaces a token's spelling by its bytes. */
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
        const int byte = vocab_next_byte(&p, end);
        if (byte < 0)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: the token %llu (\"%s\") has a character that is none of GPT-2's "
                             "stand-ins for bytes; is it a special one, to be named in "
                             "special_tokens_map.json, or no byte-level BPE?",
                             v->name, TOOLS_LLU(token - v->tokens),
                             show(name, token->spelling, token->spelling_size));
        *out++ = (char)byte;
    }
    token->size = (size_t)(out - token->bytes);
    return ATTN_OK;
}

/* Refuses a special token for this byte: texts contain special tokens only on request. */
TOOLS_FN attn_status vocab_check_byte(attn_ctx *ctx, const vocab *v, int byte)
{
    shown name, by;
    for (size_t i = 0; i < v->n_tokens; i++) {
        const vocab_token *t = &v->tokens[i];
        const unsigned char *p = (const unsigned char *)t->spelling;
        if (!p || !t->special || t->spelling_size == 0)
            continue;
        const unsigned char *end = p + t->spelling_size;
        if (vocab_next_byte(&p, end) == byte && p == end)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: \"%s\" (id %llu) is a special token%s, but texts need it for the "
                             "byte %02x; name another token there",
                             v->name, show(name, t->spelling, t->spelling_size), TOOLS_LLU(i),
                             vocab_special_by(by, t), (unsigned)byte);
    }
    return ATTN_OK;
}

TOOLS_FN void vocab_say(attn_ctx *ctx, vocab *v, const char *format, ...) TOOLS_PRINTF(3, 4);
TOOLS_FN void vocab_say(attn_ctx *ctx, vocab *v, const char *format, ...)
{
    vocab_note *note = (vocab_note *)arena_alloc(ctx, v->memory, 1, sizeof *note), **end;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (end = &v->notes; *end; end = &(*end)->next)
        continue;
    if (note && (note->text = arena_text(ctx, v->memory, text, strlen(text))) != NULL)
        *end = note;
}

/* Handles bytes or characters without a token: texts have the unknown token for each, or nothing, as with
 * Hugging Face's tokenizers. */
TOOLS_FN attn_status vocab_check_bytes(attn_ctx *ctx, vocab *v, const name_table *by_bytes)
{
    size_t other, n = 0, first = 0;
    shown name;
    char becomes[100] = "is left out of texts";
    for (size_t i = 0; i < 256 && !v->characters; i++) {
        const char byte = (char)(unsigned char)i;
        if (names_find(by_bytes, &byte, 1, &other))
            continue;
        if (vocab_check_byte(ctx, v, (int)i))
            return ctx->status;
        first = n++ ? first : i;
    }
    v->lacks = n > 0 || v->characters;
    if (!v->lacks)
        return ATTN_OK;
    if (v->odd_rule)
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "%s: no token for the byte %02x, and %s is true for those that have none, "
                         "which attn.h does not do; set it to false if your texts do without them",
                         v->name, (unsigned)first, v->odd_rule);
    if (v->unknown >= 0)
        snprintf(becomes, sizeof becomes, "becomes \"%s\" (id %ld)",
                 show(name, v->tokens[v->unknown].spelling, v->tokens[v->unknown].spelling_size),
                 (long)v->unknown);
    if (v->characters)
        vocab_say(ctx, v, "the tokens are characters; any other %s", becomes);
    else
        vocab_say(ctx, v, "%llu of the 256 bytes have no token, %02x first: such a byte %s",
                  TOOLS_LLU(n), (unsigned)first, becomes);
    return ctx->status;
}

/* After the last token and merge: turns spellings into bytes, and checks the whole vocabulary. */
TOOLS_FN attn_status vocab_finish(attn_ctx *ctx, vocab *v)
{
    name_table by_bytes;
    size_t other;
    shown name;
    if (names_init(ctx, v->memory, &by_bytes, v->n_tokens))
        return ctx->status;
    if (v->unknown >= 0)
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it is one of the tokens */
        v->tokens[v->unknown].special = 1;
    for (size_t i = 0; i < v->n_tokens; i++) {
        vocab_token *token = &v->tokens[i];
        if (!token->spelling)
            continue;
        if (token->special || v->characters) {
            token->bytes = token->spelling;
            token->size = token->spelling_size;
        } else if (vocab_decode(ctx, v, token)) {
            return ctx->status;
        }
        other =
            i; /* a special token may have the bytes of an ordinary one, because it is found differently */
        if (token->size && !token->special &&
            !names_add(&by_bytes, token->bytes, token->size, &other))
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: the tokens %llu and %llu are the same bytes (\"%s\")", v->name,
                             TOOLS_LLU(other), TOOLS_LLU(i),
                             show(name, token->spelling, token->spelling_size));
    }
    return vocab_check_bytes(ctx, v, &by_bytes);
}

/* Notes what files put around a text and the caller must add. `where`: the file with a chat template, which
 * is a program in its own language; NULL if there is none. */
TOOLS_FN attn_status vocab_note_around(attn_ctx *ctx, vocab *v, const char *where)
{
    shown name;
    if (where)
        vocab_say(ctx, v,
                  "%s has a chat template, which attn.h does not apply: write a conversation into "
                  "the prompt as the template does, and give --special for its special tokens",
                  where);
    if (v->first >= 0)
        vocab_say(ctx, v,
                  "texts shall begin with \"%s\" (id %ld): "
                  "give --bos, or set attn_generate_desc.prepend_bos",
                  show(name, v->tokens[v->first].spelling, v->tokens[v->first].spelling_size),
                  (long)v->first);
    return ctx->status;
}

/* Prints the notes. */
TOOLS_FN void vocab_print_notes(const vocab *v, FILE *file)
{
    const vocab_note *note;
    for (note = v->notes; note; note = note->next)
        fprintf(file, "note: %s\n", note->text);
}

/* The id of "<|endoftext|>", or -1. */
TOOLS_FN int32_t vocab_end_of_text(const vocab *v)
{
    size_t id;
    int found = v->n_tokens > 0 &&
                names_find(&v->by_spelling, VOCAB_END_OF_TEXT, strlen(VOCAB_END_OF_TEXT), &id);
    return found && id < v->n_tokens && v->tokens[id].special ? (int32_t)id : -1;
}

/* Makes the section, for n_tokens ids (at least those of the vocabulary). */
TOOLS_FN attn_status vocab_section(attn_ctx *ctx, const vocab *v, size_t n_tokens,
                                   unsigned char **section, size_t *size)
{
    size_t n_special = 0, end = 0;
    uint64_t n_bytes = 0;
    const int has_unknown = v->lacks && v->unknown >= 0 && (size_t)v->unknown < v->n_tokens;
    *section = NULL;
    for (size_t i = 0; i < v->n_tokens; i++) {
        n_bytes += v->tokens[i].size;
        n_special += v->tokens[i].special && v->tokens[i].size;
    }
    if (n_special > 65535)
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "%s: %zu added and special tokens; at most 65535 can be kept", v->name,
                         n_special);
    if (n_bytes > UINT32_MAX || n_tokens > INT32_MAX || v->n_merges > INT32_MAX)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the vocabulary is larger than 4 GB", v->name);
    uint64_t total = 16 + 4 * (uint64_t)n_tokens + 12 * (uint64_t)v->n_merges +
                     4 * (uint64_t)n_special + n_bytes;
    unsigned char *ends = total <= SIZE_MAX ? (unsigned char *)calloc(1, (size_t)total) : NULL;
    if (!ends)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory for the tokenizer (%llu bytes)",
                         TOOLS_LLU(total));
    *section = ends;
    *size = (size_t)total;
    put_u32(ends, (uint32_t)n_tokens);
    put_u32(ends + 4, (uint32_t)v->n_merges);
    put_u32(ends + 8, (uint32_t)n_special | (v->lacks ? VOCAB_LACKS : 0) |
                          (has_unknown ? VOCAB_HAS_UNKNOWN : 0) |
                          (v->characters ? VOCAB_CHARACTERS : 0) |
                          (v->adds_blank ? VOCAB_ADDS_BLANK : 0));
    put_u32(ends + 12, (uint32_t)n_bytes);
    ends += 16;
    unsigned char *merges = ends + 4 * n_tokens;
    unsigned char *specials = merges + 12 * v->n_merges;
    unsigned char *bytes = specials + 4 * n_special;
    if (has_unknown) { /* it precedes the others */
        put_u32(specials, (uint32_t)v->unknown);
        specials += 4;
    }
    for (size_t i = 0; i < n_tokens; i++) {
        const vocab_token *token = i < v->n_tokens ? &v->tokens[i] : NULL;
        if (token && token->size) {
            memcpy(bytes + end, token->bytes, token->size);
            end += token->size;
            if (token->special && !(has_unknown && (int64_t)i == v->unknown)) {
                put_u32(specials, (uint32_t)i);
                specials += 4;
            }
        }
        put_u32(ends + 4 * i, (uint32_t)end);
    }
    for (size_t i = 0; i < v->n_merges; i++, merges += 12) {
        put_u32(merges, v->merges[i][0]);
        put_u32(merges + 4, v->merges[i][1]);
        put_u32(merges + 8, v->merges[i][2]);
    }
    return ATTN_OK;
}

#endif
