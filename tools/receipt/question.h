/* Makes receipts of questions: --receipt of lens, surprisal and score. The run makes the digests of the answer's units
 * (tools/waist/units.h) while it answers; then the question, which is its settings by name, is written beside them. */
#ifndef TOOLS_RECEIPT_QUESTION_H
#define TOOLS_RECEIPT_QUESTION_H

#include "receipt.h"
#include "tools/waist/query.h"

/* >> Files ===================================================================================== */

/* A list of names. */
typedef struct receipt_names {
    attn_ctx *ctx;
    arena *memory;
    const char **at; /* [n] */
    size_t n, room;
} receipt_names;

/* Adds a name that does not begin with a point. */
TOOLS_FN void receipt_take_name(const char *name, void *user)
{
    receipt_names *const list = (receipt_names *)user;
    if (name[0] == '.')
        return;
    const char **const at = (const char **)answer_grown(list->ctx, list->memory, (void *)list->at,
                                                        list->n, &list->room, sizeof *at);
    list->at = at ? at : list->at;
    if (at)
        list->at[list->n++] = arena_text(list->ctx, list->memory, name, strlen(name));
}

TOOLS_FN int receipt_compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

TOOLS_FN attn_status receipt_add_file(attn_ctx *ctx, sha256 *to, const char *path)
{
    unsigned char bytes[1 << 14];
    size_t got;
    FILE *const file = open_input(ctx, path);
    if (!file)
        return ctx->status;
    while ((got = fread(bytes, 1, sizeof bytes, file)) > 0)
        sha256_add(to, bytes, got);
    if (ferror(file))
        tool_fail_io(ctx, "cannot read", path);
    fclose(file);
    return ctx->status;
}

/* hex [SHA256_HEX]: SHA-256 of a file; of a directory that of a line "NAME SHA-256" for each of its files and
 * directories, in the order of their bytes. Names that begin with a point do not count. */
TOOLS_FN attn_status receipt_path_digest(attn_ctx *ctx, arena *memory, char *hex, const char *path)
{
    receipt_names list = {ctx, memory, NULL, 0, 0};
    unsigned char digest[SHA256_SIZE];
    sha256 of;
    sha256_begin(&of);
    if (!system_is_directory(path))
        receipt_add_file(ctx, &of, path);
    else if (system_list(path, receipt_take_name, &list))
        tool_fail_io(ctx, "cannot read", path);
    if (list.n)
        qsort((void *)list.at, list.n, sizeof *list.at, receipt_compare_texts);
    for (size_t i = 0; i < list.n && !ctx->status; i++) {
        const char *const inner = arena_path(ctx, memory, path, list.at[i]);
        if (!inner || receipt_path_digest(ctx, memory, hex, inner))
            break;
        sha256_add(&of, list.at[i], strlen(list.at[i]));
        sha256_add(&of, " ", 1);
        sha256_add(&of, hex, SHA256_HEX - 1);
        sha256_add(&of, "\n", 1);
    }
    sha256_end(&of, digest);
    sha256_hex(hex, digest, SHA256_SIZE);
    return ctx->status;
}

/* >> Settings ================================================================================== */

/* What a program was asked, and what it made of it. */
typedef struct receipt_asked {
    const lens_asked *of;
    const char *command;
    const void *options;
    const char *file;     /* of the input, or NULL */
    const answer *answer; /* for the names of columns that are left out; or NULL */
} receipt_asked;

/* The program's input, as it is read. */
static sha256 receipt_input;
static int receipt_has_input;

/* An input_fn. */
TOOLS_FN void receipt_see_input(const char *bytes, size_t size)
{
    if (!receipt_has_input)
        sha256_begin(&receipt_input);
    receipt_has_input = 1;
    sha256_add(&receipt_input, bytes, size);
}

TOOLS_FN void receipt_add_setting(attn_ctx *ctx, arena *memory, receipt *r, const char *name,
                                  const char *value)
{
    receipt_setting *const s = &r->settings[r->n_settings];
    if (!value || r->n_settings + 2 >= (size_t)2 * MOST_OPTIONS)
        return;
    s->name = name;
    s->value = arena_text(ctx, memory, value, strlen(value));
    r->n_settings += s->value != NULL;
}

/* A text as an option of the command line takes it: set_option replaces \n, \t and \\. */
TOOLS_FN const char *receipt_escape(attn_ctx *ctx, arena *memory, const char *text)
{
    char *const out = (char *)arena_alloc(ctx, memory, 2 * strlen(text) + 1, 1), *to = out;
    for (; out && *text; text++) {
        const char *const found = strchr("\n\t\\", *text);
        if (found)
            *to++ = '\\';
        *to++ = (char)(found ? "nt\\"[*found == '\n' ? 0 : *found == '\t' ? 1 : 2] : *text);
    }
    return out;
}

/* Adds the SHA-256 of the file of a setting. */
TOOLS_FN void receipt_add_digest(attn_ctx *ctx, arena *memory, receipt *r, const char *name,
                                 const char *digest)
{
    receipt_setting *const file = &r->files[r->n_files];
    file->name = name;
    file->value = arena_text(ctx, memory, digest, SHA256_HEX - 1);
    r->n_files += file->value != NULL;
}

/* Adds a setting that differs from its default. */
TOOLS_FN void receipt_add_option(attn_ctx *ctx, arena *memory, receipt *r, const struct option *o,
                                 const void *options, const void *usual)
{
    const void *const at = (const char *)options + o->at, *const before =
                                                              (const char *)usual + o->at;
    const char *const text = o->kind == TEXT ? *(const char *const *)at : NULL, *name;
    char spelled[64] = "", hex[SHA256_HEX];
    size_t size;
    if (is_flag_of_callers(o)) {
        receipt_add_setting(ctx, memory, r, o->name,
                            text || (o->kind == FLAG && *(const int *)at) ? "true" : NULL);
        return;
    }
    for (size_t i = 0; o->kind == TEXTS && i < ((const text_list *)at)->n; i++)
        receipt_add_setting(ctx, memory, r, o->name,
                            receipt_escape(ctx, memory, ((const text_list *)at)->at[i]));
    if (o->kind == COUNT && *(const size_t *)at != *(const size_t *)before)
        snprintf(spelled, sizeof spelled, "%zu", *(const size_t *)at);
    else if (o->kind == NUMBER && memcmp(at, before, sizeof(float)) != 0)
        spell_number(spelled, (double)*(const float *)at, 9);
    else if (o->kind == CHOICE && *(const int *)at >= 0 &&
             *(const int *)at != *(const int *)before &&
             (name = name_at(o->takes, *(const int *)at, &size)))
        snprintf(spelled, sizeof spelled, "%.*s", (int)size, name);
    receipt_add_setting(ctx, memory, r, o->name, *spelled ? spelled : text);
    if (text && takes_path(o) && (system_exists(text) || system_is_directory(text)) &&
        !receipt_path_digest(ctx, memory, hex, text))
        receipt_add_digest(ctx, memory, r, o->name, hex);
}

/* Is a setting no part of the question? */
TOOLS_FN int receipt_forgets(const struct option *o)
{
    return (o->kind == OUTPUT && !is_flag_of_callers(o)) || o->kind == COLUMN ||
           strcmp(o->name, "state") == 0 || strcmp(o->name, "resume") == 0 ||
           strcmp(o->name, "file") == 0;
}

TOOLS_FN void receipt_add_options(attn_ctx *ctx, arena *memory, receipt *r, const receipt_asked *q)
{
    void *const usual = arena_alloc(ctx, memory, 1, q->of->run_size);
    const char *words, *about;
    int bits = 0, negated;
    size_t row = 0;
    for (size_t i = 0; (about = q->of->command(i, &bits, &words, &about)) != NULL; i++)
        if (strcmp(about, q->command) == 0)
            break;
    if (usual)
        q->of->set_defaults(usual);
    for (size_t k = 0; usual && k < q->of->n_options; k++) {
        const struct option *const o =
            find_setting(q->of, bits, q->of->table[k].name, &negated, &row);
        if (o && row == k && !receipt_forgets(o))
            receipt_add_option(ctx, memory, r, o, q->options, usual);
    }
}

/* >> The receipt =============================================================================== */

TOOLS_FN void receipt_add_input(attn_ctx *ctx, arena *memory, receipt *r, const char *path)
{
    unsigned char digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    if (!receipt_has_input)
        return;
    sha256_end(&receipt_input, digest);
    sha256_hex(hex, digest, SHA256_SIZE);
    receipt_add_setting(ctx, memory, r, "file", path ? path : "-");
    receipt_add_digest(ctx, memory, r, "file", hex);
}

/* Adds "TABLE.COLUMN" of columns that are no part of the digests. */
TOOLS_FN void receipt_add_left_out(attn_ctx *ctx, arena *memory, receipt *r, const answer *a)
{
    receipt_names list = {ctx, memory, NULL, 0, 0};
    char name[128];
    for (size_t i = 0; a && i < a->n_tables; i++)
        for (size_t k = 0; k < a->tables[i]->n_columns; k++)
            if (a->tables[i]->columns[k].is_inexact) {
                snprintf(name, sizeof name, "%.60s.%.60s", a->tables[i]->name,
                         a->tables[i]->columns[k].name);
                receipt_take_name(name, &list);
            }
    r->left_out = list.at;
    r->n_left_out = list.n;
}

/* Begins to watch the input. Checks that the kernels give the bits of a receipt. */
TOOLS_FN int receipt_begin(attn_ctx *ctx, int isa)
{
    ctx->isa = (attn_isa_kind)isa;
    const char *name = attn_isa(ctx);
    input_seen = receipt_see_input;
    return name && strchr(name, '(')
               ? fail(USAGE, "--receipt: %s does not compute a receipt's bits: add --isa portable",
                      name)
               : FINE;
}

/* Writes the receipt of a question that was answered. */
TOOLS_FN int receipt_of_question(attn_ctx *ctx, const receipt_asked *q, answer_units *units,
                                 const attn_model *model, const char *model_path, const char *path)
{
    arena memory = {NULL};
    receipt r;
    receipt_identity identity;
    memset(&r, 0, sizeof r);
    r.kind = RECEIPT_QUESTION;
    r.command = q->command;
    r.settings =
        (receipt_setting *)arena_alloc(ctx, &memory, (size_t)2 * MOST_OPTIONS, sizeof *r.settings);
    r.files = (receipt_setting *)arena_alloc(ctx, &memory, MOST_OPTIONS, sizeof *r.files);
    if (r.settings && r.files && !receipt_model_digest(ctx, &identity, model, model_path)) {
        receipt_of_model(&r, &identity);
        r.version = RECEIPT_VERSION;
        receipt_add_options(ctx, &memory, &r, q);
        receipt_add_input(ctx, &memory, &r, q->file);
        receipt_add_left_out(ctx, &memory, &r, q->answer);
        r.n_blocks = units_root(units, r.root);
        r.units = (size_t)units->n;
        r.blocks = (unsigned char *)units->blocks.text;
        if (!r.n_blocks)
            tool_fail(ctx, ATTN_E_ARGUMENT, "--receipt: the answer has no rows");
        if (!ctx->status)
            receipt_write(ctx, path, &r);
    }
    arena_free(&memory);
    return ctx->status ? failed(ctx) : FINE;
}

#endif
