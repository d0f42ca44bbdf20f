/* cc tools/attn-tokenize.c -I. -O2 -lm -o attn-tokenize
 *
 * Converts text to token ids and token ids to text. */

#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "tools/common/plain.h"
#include "tools/common/vocab_files.h"

#define PROGRAM "attn-tokenize"
#include "tools/common/program.h"

typedef struct options {
    const char *model, *text;
    int decode, exact, special;
} options;

static const struct option table[] = {
#define AT(member) offsetof(options, member), 0 /* no commands */
    {'m', "model", "PATH", TEXT, AT(model), NULL, "the model, if it is not the first word"},
    {'p', "prompt", "TEXT", TEXT, AT(text), NULL, "read this text instead of standard input"},
    {'d', "decode", NULL, FLAG, AT(decode), NULL,
     "turn token ids, separated by blanks or line breaks, into text"},
    {0, "exact", NULL, FLAG, AT(exact), NULL, EXACT_HELP},
    {0, "special", NULL, FLAG, AT(special), NULL,
     "special tokens such as <|endoftext|> in the text get their own ids"},
    PROGRAM_OPTIONS(0),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static const help_page help = {
    .usage = "attn-tokenize MODEL_OR_DIRECTORY [options] <INPUT >OUTPUT",
    .about =
        "Turns standard input into token ids on one line, separated by blanks: the ids of the prompt "
        "that gpt2 would read there. MODEL_OR_DIRECTORY is a .attn file with a tokenizer, "
        "or a directory that holds tokenizer.json, or vocab.json and merges.txt, or all three."};

/* A tokenizer, and what must outlive it: the model, or the section read from a directory. */
typedef struct opened {
    attn_model *model;
    unsigned char *section;
    attn_tokenizer *own;
    const attn_tokenizer *tokenizer;
} opened;

static attn_status open_tokenizer(attn_ctx *ctx, opened *o, const char *path)
{
    /* only the tokenizer is read; checking the weights would take long */
    const attn_model_desc desc = {.skip_checksums = 1};
    size_t size = 0;
    if (system_is_directory(path)) {
        if (vocab_read(ctx, path, &o->section, &size, stderr) ||
            attn_tokenizer_new(ctx, &o->own, o->section, size))
            return ctx->status;
        o->tokenizer = o->own;
        return ATTN_OK;
    }
    if (check_model_path(ctx, path) || attn_model_open(ctx, &o->model, path, &desc))
        return ctx->status;
    o->tokenizer = attn_model_tokenizer(o->model);
    if (!o->tokenizer)
        return tool_fail(ctx, ATTN_E_TOKENIZER,
                         "%s has no tokenizer; give a directory with vocab.json and merges.txt",
                         path);
    return ATTN_OK;
}

static attn_status encode(attn_ctx *ctx, const attn_tokenizer *tokenizer, int special,
                          const char *text, size_t size)
{
    attn_token *ids = (int32_t *)malloc((size + 1) * sizeof(int32_t)); /* read_input limits size */
    size_t n = size + 1;
    if (!ids)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory for %llu ids", TOOLS_LLU(size));
    if ((special ? attn_encode_special : attn_encode)(ctx, ids, &n, tokenizer, text, size) ==
        ATTN_OK) {
        for (size_t i = 0; i < n; i++)
            printf(i ? " %ld" : "%ld", (long)ids[i]);
        putchar('\n');
    }
    free(ids);
    return ctx->status;
}

/* Parses whole numbers separated by blanks, line breaks or commas. `ids` has room for one for every
 * two bytes of text, and one more. */
static attn_status parse_ids(attn_ctx *ctx, const char *text, size_t size, attn_token *ids,
                             size_t *n)
{
    static const char between[] = " \t\r\n,";
    size_t i = 0, start;
    shown word;
    for (*n = 0;; (*n)++) {
        int64_t id = 0;
        while (i < size && strchr(between, text[i]) && text[i])
            i++;
        if (i == size)
            return ATTN_OK;
        for (start = i; i < size && text[i] >= '0' && text[i] <= '9' && id <= INT32_MAX; i++)
            id = id * 10 + (text[i] - '0');
        if (i == start || id > INT32_MAX || (i < size && (!strchr(between, text[i]) || !text[i])))
            return tool_fail(ctx, ATTN_E_TOKEN,
                             "entry %llu of the input, \"%s\", is not a token id", TOOLS_LLU(*n),
                             show(word, text + start, strcspn(text + start, between)));
        ids[*n] = (int32_t)id;
    }
}

static attn_status decode(attn_ctx *ctx, const attn_tokenizer *tokenizer, const char *input,
                          size_t input_size)
{
    attn_token *ids = (int32_t *)malloc((input_size / 2 + 1) * sizeof(int32_t));
    char *text = NULL;
    size_t n = 0, size = 0;
    if (!ids)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory for %llu ids", TOOLS_LLU(input_size / 2));
    if (parse_ids(ctx, input, input_size, ids, &n) == ATTN_OK) {
        /* the first call gets the size of the text */
        if (attn_decode(ctx, NULL, &size, tokenizer, ids, n) == ATTN_OK &&
            (text = (char *)malloc(size + 1)) == NULL)
            tool_fail(ctx, ATTN_E_MEMORY, "no memory for %llu bytes of text", TOOLS_LLU(size));
        if (text && attn_decode(ctx, text, &size, tokenizer, ids, n) == ATTN_OK)
            fwrite(text, 1, size, stdout);
    }
    free(text);
    free(ids);
    return ctx->status;
}

/* Takes the text of --prompt, or reads all of standard input. */
static attn_status read_input(attn_ctx *ctx, arena *memory, const options *o, char **input,
                              size_t *size)
{
    static const char name[] = "standard input";
    attn_status status;
    if (!o->text) {
        announce_input(o->decode ? "token ids" : "the text");
        status = read_all(ctx, memory, stdin, name, SIZE_MAX / 16, input, size);
        return status ? status : to_plain_text(ctx, name, o->decode || o->exact, *input, size);
    }
    *size = strlen(o->text);
    *input = arena_text(ctx, memory, o->text, *size);
    return ctx->status;
}

static int run(const options *asked)
{
    attn_ctx ctx = ATTN_ZERO;
    opened o = ATTN_ZERO;
    arena memory = {NULL};
    char *input = NULL;
    size_t size = 0;
    system_binary(stdin);
    system_binary(stdout);
    if (open_tokenizer(&ctx, &o, asked->model) == ATTN_OK &&
        read_input(&ctx, &memory, asked, &input, &size) == ATTN_OK) {
        if (asked->decode)
            decode(&ctx, o.tokenizer, input, size);
        else
            encode(&ctx, o.tokenizer, asked->special, input, size);
    }
    int code = ctx.status ? fail_ctx(&ctx) : FINE;
    arena_free(&memory);
    attn_tokenizer_free(o.own);
    attn_model_close(o.model);
    free(o.section);
    attn_ctx_free(&ctx);
    return code;
}

static int run_line(const program *self, arguments *given, void *state)
{
    options *const o = (options *)state;
    const int code = take_words(self, given, &o->model, NULL, "MODEL.attn <TEXT");
    return code == FINE ? run(o) : code;
}

int main(int argc, char **argv)
{
    static options o;
    const program self = {
        table, N_OPTIONS, 1,   "the text comes from standard input, or from --prompt", &help, 1,
        NULL,  NULL,      NULL};
    return program_main(&self, argc, argv, &o, run_line);
}
