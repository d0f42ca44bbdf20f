/* Shared by programs that read a text: opens a model, reads the text. A program defines its
 * word for the text before it includes this file:
 *
 *     #define INPUT "prompt"
 */
#ifndef TOOLS_PROMPT_H
#define TOOLS_PROMPT_H

#include "plain.h"
#include "program.h"

#define ISA_NAMES /* by attn_isa_kind */                                                           \
    "auto portable base avx2 avx512 neon avx512-vnni avx2-vnni neon-dot neon-i8mm"
#define ISA_HELP     "portable, base, avx2, avx2-vnni, avx512, avx512-vnni, neon, neon-dot or neon-i8mm"
#define RECEIPT_HELP "a receipt of the answer, for attn-verify"
#define THREADS      "0 256" /* attn.h starts no more */
enum { MAX_THREADS = 256 };

/* After a call of the library failed. A stop that the caller asked for leaves no status and no message. */
TOOLS_FN int failed(const attn_ctx *ctx)
{
    return !ctx->status || (ctx->stop_flag && *ctx->stop_flag) ? INTERRUPTED : fail_ctx(ctx);
}

/* After calls of which none may fail: the code of the first failure, or of a stop. */
TOOLS_FN int outcome(const attn_ctx *ctx)
{
    return ctx->status || (ctx->stop_flag && *ctx->stop_flag) ? failed(ctx) : FINE;
}

/* isa: an attn_isa_kind. */
TOOLS_FN int open_model(attn_ctx *ctx, attn_model **model, const char *path, int isa,
                        int skip_checksums)
{
    attn_model_desc desc = {0};
    size_t size;
    const char *name = name_at(ISA_NAMES, isa, &size);
    ctx->isa = (attn_isa_kind)isa;
    if (!attn_isa(ctx))
        return fail(FAILED,
                    "this processor or this build has no %.*s; leave --isa out for the best "
                    "that there is",
                    (int)size, name);
    desc.skip_checksums = skip_checksums;
    if (check_model_path(ctx, path) || open_verified(ctx, model, path, &desc))
        return failed(ctx);
    return FINE;
}

/* Appends the ids of a list to ids [*n], which must have room for one id per byte of the list. */
TOOLS_FN int read_ids(const attn_model *model, const char *option, const char *list,
                      attn_token *ids, size_t *n)
{
    const char *at, *const between = " ,\t\r\n";
    const long n_vocab = (long)attn_model_config(model)->n_vocab;
    for (at = list + strspn(list, between); *at; at += strspn(at, between)) {
        char *end;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (end == at || !strchr(between, *end) || errno || id < 0 || id > INT32_MAX)
            return fail(USAGE, "--%s: no token id at \"%.20s\"", option, at);
        if (id >= n_vocab)
            return fail(FAILED, "token %ld is not in the vocabulary of %ld", id, n_vocab);
        ids[(*n)++] = (int32_t)id;
        at = end;
    }
    return FINE;
}

/* Reads a whole file, or standard input (-), as a text by the rule of plain.h; with `exact` all bytes. */
TOOLS_FN int read_text(attn_ctx *ctx, arena *memory, const char *name, int exact,
                       const char **bytes, size_t *size)
{
    const size_t limit = (size_t)1 << 28;
    FILE *file = stdin;
    char *text = NULL;
    if (strcmp(name, "-") != 0) {
        announce_pipe(name);
        file = system_open(name, "rb");
    }
    if (!file)
        return fail(FAILED, "%s: %s", name, why(errno));
    if (file == stdin) {
        announce_input("the " INPUT);
        name = "standard input";
    }
    attn_status status = read_all(ctx, memory, file, name, limit, &text, size);
    if (file != stdin)
        fclose(file);
    *bytes = text;
    if (input_seen && !status)
        input_seen(text, *size);
    return status || to_plain_text(ctx, name, exact, text, size) ? failed(ctx) : FINE;
}

/* Refuses a word that is taken as a text although it is the name of a file. A word that may as well be one
 * of a text is taken as such, with a note. */
TOOLS_FN int check_text_word(const char *word)
{
    if (!word || strpbrk(word, " \t\n") || !system_exists(word) || system_is_directory(word))
        return FINE;
    if (strpbrk(word, "./\\"))
        return fail(USAGE,
                    "%s is a file: -f %s takes the text in it, -p %s takes its name as the text",
                    word, word, word);
    fprintf(stderr,
            "%s: note: \"%s\" is the text; -f %s takes the text in the file of that "
            "name\n",
            called, word, word);
    return FINE;
}

/* Where a text comes from: a word of the command line, a file, token ids, or only the beginning-of-text token.
 * If none of them is given, the text is read from standard input, and `missing` is the message if that is empty.
 * If `missing` is NULL, a text that is given may be empty. */
typedef struct text_source {
    const char *word, *path, *ids;
    const char *option; /* the name of the option that gave ids, for messages */
    int bos,
        special; /* begin with the beginning-of-text token; <|endoftext|> in the text is a token */
    int exact;   /* keep all bytes of a file: see plain.h */
    const char *missing;
    size_t
        size; /* of a word that is a line, not an argument: it may be "-" and hold zeros; else 0 */
} text_source;

TOOLS_FN int read_tokens(attn_ctx *ctx, arena *memory, const attn_model *model,
                         const char *model_path, const text_source *from, attn_token **ids,
                         size_t *n)
{
    const attn_config *config = attn_model_config(model);
    const attn_tokenizer *tokenizer = attn_model_tokenizer(model);
    const int is_piped = !from->word && !from->path && !from->ids && !from->bos;
    const int is_dash = from->word && !from->size && strcmp(from->word, "-") == 0;
    const char *path = is_piped || is_dash ? "-" : from->path, *bytes = from->word;
    size_t size = from->size ? from->size : bytes ? strlen(bytes) : 0, n_encoded = 0;
    int code = path ? read_text(ctx, memory, path, from->exact, &bytes, &size) : FINE;
    if (code != FINE)
        return code;
    if (is_piped && size == 0)
        return fail(USAGE, "%s", from->missing);
    if (bytes && !tokenizer)
        return fail(FAILED, "%s has no tokenizer: give the " INPUT " with --%s", model_path,
                    from->option);
    if (from->bos && config->bos < 0)
        return fail(FAILED, "%s has no beginning-of-text token for --bos", model_path);
    *ids = (int32_t *)arena_alloc(ctx, memory, size + (from->ids ? strlen(from->ids) : 0) + 2,
                                  sizeof **ids);
    if (!*ids)
        return failed(ctx);
    *n = 0;
    if (from->bos)
        (*ids)[(*n)++] = config->bos;
    if (from->ids && (code = read_ids(model, from->option, from->ids, *ids, n)) != FINE)
        return code;
    n_encoded = bytes ? size + 1 : 0;
    if (bytes && (from->special ? attn_encode_special : attn_encode)(ctx, *ids + *n, &n_encoded,
                                                                     tokenizer, bytes, size))
        return failed(ctx);
    *n += n_encoded;
    if (*n == 0 && from->missing)
        return fail(FAILED, "the " INPUT " is empty: give some text, or --bos to begin with "
                            "nothing");
    if (*n > config->n_ctx)
        return fail(FAILED,
                    "the " INPUT " has %zu tokens, but the model's context holds %u: give "
                    "less text",
                    *n, (unsigned)config->n_ctx);
    return FINE;
}

#endif
