/* lens record --lines: activations of many texts.
 *
 * The texts are the lines of a file, or the files of a folder sorted by name. The rows of all texts follow
 * each other in shards, DIRECTORY/00001.safetensors and so on. A shard has a tensor for each activation, the
 * tokens in "ids", and in "line" the number of the line (or file) that each row comes from.
 *
 * DIRECTORY/index.jsonl has an entry for each shard with its lines and rows, for each file with its name, and
 * for each refused text with the reason. A shard gets its name when it is complete, and then its entry is
 * written. So --resume continues after the last entry. Digests of the model and of each shard's texts
 * prevent it from continuing with other ones. If a shard is missing, it and all later ones are made again.
 *
 * With --shuffle there are no shards, but one file of each activation with all rows in random order (cmd_shuffle.h). */
#ifndef LENS_CMD_SHARDS_H
#define LENS_CMD_SHARDS_H

#include "tools/lens/save.h"
#include "tools/common/json.h"
#include "tools/common/lines.h"
#include "cmd_shuffle.h"
#include "findings.h"

/* A shard's entry in an existing index: its last line, and the digest of its texts. */
typedef struct old_shard {
    uint64_t last_line;
    digest_shown texts;
} old_shard;

typedef struct corpus {
    line_reader lines;
    json_out listing;   /* names of everything in the folder, each with a zero after it */
    const char **files; /* [n_files]: the names of its files, in order; NULL: the texts are lines */
    size_t n_files;
    uint64_t line; /* the number of the latest text */
    FILE *index;
    char path[1024];
    attn_record *record;
    void *memory;          /* of the record, for one text */
    size_t n;              /* number of activations; "ids" and "line" follow them */
    attn_tensor *values;   /* [n + 2]: of a shard */
    const char **names;    /* [n + 2] */
    size_t capacity, rows; /* of a shard */
    uint64_t last_line;    /* the last line in a shard */
    uint64_t n_shards;
    uint64_t texts; /* digest of the texts since the last shard */
    old_shard *old; /* [n_old] */
    size_t n_old, n_same;
    json_out waiting;   /* entries of texts, written before the next shard's entry */
    shuffle *shuffle;   /* with --shuffle; otherwise NULL */
    uint64_t n_refused; /* texts in this run */
    char first_reason[512];
} corpus;

enum {
    MAX_SHARD = 1 << 26, /* bytes, unless one text takes more */
    MAX_WAITING = 1 << 22
};

/* Allocates the rows of a shard. One token is fed to find the width of each activation. */
static int make_shard(lens *l, corpus *c)
{
    const size_t n_ctx = l->config->n_ctx;
    const attn_token id = 0;
    attn_shape shape;
    size_t width = 2 * sizeof(float);
    c->n = attn_record_n_activations(c->record);
    c->values = (attn_tensor *)allocate(l, c->n + 2, sizeof *c->values);
    c->names = (const char **)allocate(l, c->n + 2, sizeof *c->names);
    if (!c->values || !c->names || attn_feed(&l->ctx, l->session, &id, 1))
        return failed(&l->ctx);
    for (size_t i = 0; i < c->n; i++) {
        c->names[i] = attn_record_name(c->record, i);
        if (lens_ends_in(c->names[i], "attn.hook_pattern") ||
            lens_ends_in(c->names[i], "hook_attn_scores"))
            return fail(FAILED, "%s has no row for each position: record it text by text",
                        c->names[i]);
        if (attn_record_get(&l->ctx, &c->values[i], c->record, c->names[i]))
            return failed(&l->ctx);
        width += attn_count(c->values[i]) * sizeof(float);
    }
    c->capacity = l->o.rows && !c->shuffle ? l->o.rows : MAX_SHARD / width;
    c->capacity = c->capacity > n_ctx ? c->capacity : n_ctx;
    if (c->shuffle && shuffle_begin(l, c->shuffle, c->names, c->values, c->n) != FINE)
        return FAILED;
    if (c->shuffle) { /* whole entries, and at least one of them */
        const size_t context = c->shuffle->context;
        c->capacity = (c->capacity + context - 1) / context * context;
        if (c->capacity > INT32_MAX / width)
            return fail(FAILED, "--rows %zu: an entry of the data set would be too large", context);
    }
    for (size_t i = 0; i < c->n + 2; i++) {
        shape.ndim = i < c->n ? c->values[i].ndim : 1;
        memcpy(shape.dim, c->values[i].shape, sizeof shape.dim);
        shape.dim[0] = c->capacity;
        memset(&c->values[i], 0, sizeof c->values[i]);
        if (attn_zeros(&l->ctx, &c->values[i], i < c->n ? ATTN_F32 : ATTN_I32, shape))
            return failed(&l->ctx);
    }
    c->names[c->n] = "ids";
    c->names[c->n + 1] = "line";
    return attn_session_truncate(&l->ctx, l->session, 0) ? failed(&l->ctx) : FINE;
}

static int fail_index(const corpus *c)
{
    return fail(FAILED, "%s: %s", c->path, why(errno));
}

/* attn.h's checksum of a file; 0 if it cannot be read. */
static uint64_t checksum_of(const char *path)
{
    enum { BLOCK = 1 << 20 };
    unsigned char *const block = (unsigned char *)malloc(BLOCK);
    FILE *file = system_open(path, "rb");
    uint64_t sum = 0;
    size_t n;
    while (file && block && (n = fread(block, 1, BLOCK, file)) > 0)
        sum = model_checksum(sum, block, n);
    if (file)
        fclose(file);
    free(block);
    return sum;
}

/* Writes the entries of the texts that wait. */
static void end_waiting(corpus *c)
{
    if (c->waiting.size)
        fwrite(c->waiting.text, 1, c->waiting.size, c->index);
    c->waiting.size = 0;
}

/* Writes the shard and its entry. */
static int write_shard(lens *l, corpus *c, uint64_t last)
{
    json_out entry = {NULL, 0, 0, 0, 0};
    digest_shown digest;
    char name[32];
    snprintf(name, sizeof name, "%05llu.safetensors", TOOLS_LLU(c->n_shards + 1));
    const char *path = keep(l, "%s/%s", l->o.output, name);
    for (size_t i = 0; i < c->n + 2; i++)
        c->values[i].shape[0] = c->rows;
    if (c->rows && lens_save(&l->ctx, path, c->names, c->values, c->n + 2))
        return failed(&l->ctx);
    for (size_t i = 0; i < c->n + 2; i++)
        c->values[i].shape[0] = c->capacity;
    end_waiting(c);
    out_open(&entry, NULL, '{');
    if (c->rows)
        out_word(&entry, "file", name);
    else
        out_null(&entry, "file");
    out_count(&entry, "first_line", c->last_line + 1);
    out_count(&entry, "last_line", last);
    out_word(&entry, "texts", show_digest(digest, c->texts));
    out_count(&entry, "rows", c->rows);
    out_count(&entry, "bytes", c->rows ? file_bytes(path) : 0);
    out_word(&entry, "checksum", show_digest(digest, c->rows ? checksum_of(path) : 0));
    out_close(&entry, '}');
    out_line(&entry, c->index);
    out_free(&entry);
    c->n_shards += c->rows > 0;
    return fflush(c->index) ? fail_index(c) : FINE;
}

/* Ends a shard; with --shuffle, puts its rows into the buckets. `last` is the last line that was read. */
static int end_shard(lens *l, corpus *c, uint64_t last)
{
    if (c->rows == 0 && c->waiting.size == 0)
        return FINE;
    if (c->waiting.failed)
        return fail(FAILED, "no memory for the entries of %s", c->path);
    if (c->shuffle)
        end_waiting(c);
    const int code =
        c->shuffle ? scatter_rows(c->shuffle, c->values, c->rows) : write_shard(l, c, last);
    c->last_line = last;
    c->texts = DIGEST_START;
    c->rows = 0;
    return code;
}

/* Feeds a text and copies its rows into the shard. */
static int feed_text(lens *l, corpus *c, const attn_token *ids, size_t n)
{
    if (attn_session_truncate(&l->ctx, l->session, 0) || attn_feed(&l->ctx, l->session, ids, n))
        return failed(&l->ctx);
    for (size_t i = 0; i < c->n; i++) {
        attn_tensor value = {0}, place = attn_slice(c->values[i], 0, c->rows, n);
        if (attn_record_get(&l->ctx, &value, c->record, c->names[i]) ||
            attn_copy(&l->ctx, &place, value))
            return failed(&l->ctx);
    }
    for (size_t t = 0; t < n; t++) {
        ((int32_t *)c->values[c->n].data)[c->rows + t] = ids[t];
        ((int32_t *)c->values[c->n + 1].data)[c->rows + t] = (int32_t)c->line;
    }
    c->rows += n;
    return FINE;
}

/* Allocates the ids of `size` bytes, and writes the beginning-of-text token if --bos asks for it. */
static int begin_ids(lens *l, arena *memory, size_t size, lens_text *to)
{
    to->ids = (int32_t *)arena_alloc(&l->ctx, memory, size + 2, sizeof *to->ids);
    if (to->ids && l->o.bos)
        to->ids[to->n++] = l->config->bos;
    return to->ids != NULL;
}

static void append_words(lens *l, const char *words, size_t size, lens_text *to)
{
    size_t n = size + 1;
    if ((l->o.special ? attn_encode_special : attn_encode)(&l->ctx, to->ids + to->n, &n,
                                                           l->tokenizer, words, size) == ATTN_OK)
        to->n += n;
}

/* The ids of a line's text. */
static void read_line(lens *l, arena *memory, uint64_t number, char *line, size_t size,
                      lens_text *to)
{
    const json_value *v;
    json_value *root = NULL;
    uint64_t id;
    size_t i;
    if (json_parse_at(&l->ctx, "input", (size_t)number, line, size, &root) != ATTN_OK)
        return;
    const json_value *words = json_get(root, "text");
    const json_value *list = json_get(root, "ids");
    if (!words == !list || (words && words->kind != JSON_STRING) ||
        (list && list->kind != JSON_ARRAY))
        tool_fail(&l->ctx, ATTN_E_FORMAT, "expected a \"text\", or a list of \"ids\"");
    else if (begin_ids(l, memory, size, to) && words)
        append_words(l, words->text, words->size, to);
    for (i = 0, v = list ? list + 1 : NULL; v && !l->ctx.status && i < list->size;
         i++, v += v->span)
        if (json_u64(v, &id) && id < l->config->n_vocab)
            to->ids[to->n++] = (int32_t)id;
        else
            tool_fail(&l->ctx, ATTN_E_TOKEN, "ids[%zu] is not in the vocabulary of %u", i,
                      (unsigned)l->config->n_vocab);
    free(root);
}

/* Reads a file of the folder, as a text by the rule of plain.h; NULL if it cannot be read. */
static char *read_words(lens *l, arena *memory, const char *name, size_t *size)
{
    const char *const path = arena_path(&l->ctx, memory, l->o.lines, name);
    char *words = NULL;
    return path && !read_bytes(&l->ctx, memory, path, MAX_LINE, &words, size) &&
                   !to_plain_text(&l->ctx, path, l->o.exact, words, size)
               ? words
               : NULL;
}

/* The ids of a file. */
static void read_text_file(lens *l, arena *memory, const char *name, char *words, size_t size,
                           lens_text *to)
{
    const char *const path = arena_path(&l->ctx, memory, l->o.lines, name);
    size_t length;
    uint32_t code;
    if (!path)
        return;
    for (size_t at = 0; at < size; at += length) {
        length = utf8_length((const unsigned char *)words + at, size - at, &code);
        if (length == 0) {
            tool_fail(&l->ctx, ATTN_E_FORMAT, "%s: byte %zu is not UTF-8", path, at + 1);
            return;
        }
    }
    if (begin_ids(l, memory, size, to))
        append_words(l, words, size, to);
}

/* Begins the entry of a text: its number and, if it is a file, its name. */
static void open_entry(const corpus *c, json_out *o, uint64_t line)
{
    out_open(o, NULL, '{');
    out_count(o, "line", line);
    if (c->files)
        out_word(o, "id", c->files[line - 1]);
}

/* Keeps an entry for a file or a refused line, until the next shard's entry is written. */
static void add_entry(lens *l, corpus *c)
{
    json_out *const o = &c->waiting;
    if (!c->files && !l->ctx.status)
        return;
    open_entry(c, o, c->line);
    if (l->ctx.status)
        out_word(o, "error", l->ctx.message);
    out_close(o, '}');
    out_bytes(o, "\n", 1);
    o->follows = 0;
    l->ctx.status = ATTN_OK;
}

/* Adds a text (a line, or the file of this name) to the shard; or to the index the reason why it is refused. */
static int add_text(lens *l, corpus *c, line_status status, const char *line, size_t size)
{
    arena memory = {NULL};
    lens_text words = {0};
    size_t n_bytes = status == LINE_TOO_LONG ? 0 : size;
    int code = FINE;
    char *copy = c->files ? read_words(l, &memory, line, &n_bytes)
                          : arena_text(&l->ctx, &memory, line, n_bytes);
    const uint64_t texts = digest_text(c->texts, copy, copy ? n_bytes : 0);
    const uint64_t first = digest_text(DIGEST_START, copy, copy ? n_bytes : 0);
    if (status == LINE_TOO_LONG)
        tool_fail(&l->ctx, ATTN_E_SPACE, "the line is longer than %d bytes", (int)MAX_LINE);
    else if (copy && c->files)
        read_text_file(l, &memory, line, copy, n_bytes, &words);
    else if (copy)
        read_line(l, &memory, c->line, copy, size, &words);
    if (!l->ctx.status && (words.n == 0 || words.n > l->config->n_ctx))
        tool_fail(&l->ctx, ATTN_E_CONTEXT, "the text has %zu tokens; expected 1 to %u", words.n,
                  (unsigned)l->config->n_ctx);
    int refused = l->ctx.status != ATTN_OK;
    if (refused && c->n_refused++ == 0)
        snprintf(c->first_reason, sizeof c->first_reason, "%s", message_of(&l->ctx));
    int ends = !refused && words.n > c->capacity - c->rows;
    if (ends)
        code = end_shard(l, c, c->line - 1);
    c->texts = ends ? first : texts;
    if (code == FINE)
        add_entry(l, c);
    if (code == FINE && !refused)
        code = feed_text(l, c, words.ids, words.n);
    if (code == FINE && c->waiting.size > MAX_WAITING)
        code = end_shard(l, c, c->line);
    arena_free(&memory);
    return code;
}

/* The first entry of the index, about all shards. */
static void put_header(lens *l, const corpus *c, uint64_t model, json_out *o)
{
    digest_shown digest;
    out_open(o, NULL, '{');
    out_word(o, "model", base_name(l->model_path));
    out_word(o, "weights", show_digest(digest, model));
    out_flag(o, "bos", l->o.bos);
    if (c->files)
        out_flag(o, "folder", 1);
    if (c->shuffle)
        out_count(o, "shuffle", l->o.shuffle);
    out_open(o, "activations", '[');
    for (size_t i = 0; i < c->n; i++)
        out_word(o, NULL, c->names[i]);
    out_close(o, ']');
    out_close(o, '}');
}

/* Does the entry of a file's number name another file than the folder has now? */
static int is_other_file(const corpus *c, const json_value *entry, const char *line, size_t size)
{
    json_out expected = {NULL, 0, 0, 0, 0};
    uint64_t number;
    int other = 0;
    if (c->files && json_u64(json_get(entry, "line"), &number)) {
        if (number > 0 && number <= c->n_files)
            open_entry(c, &expected, number);
        other = !expected.text || size < expected.size ||
                memcmp(line, expected.text, expected.size) != 0;
    }
    out_free(&expected);
    return other;
}

/* Is the shard of an entry there, and as it was written? (Older entries have no size or no checksum.) */
static int has_shard(lens *l, arena *memory, const json_value *entry)
{
    const json_value *const file = json_get(entry, "file");
    const json_value *const sum = json_get(entry, "checksum");
    digest_shown digest;
    uint64_t size = 0;
    const char *name =
        file->kind == JSON_STRING ? arena_text(&l->ctx, memory, file->text, file->size) : NULL;
    const char *path = name ? arena_path(&l->ctx, memory, l->o.output, name) : NULL;
    if (file->kind != JSON_STRING || !path)
        return file->kind != JSON_STRING;
    if (!(json_u64(json_get(entry, "bytes"), &size) ? file_bytes(path) == size
                                                    : system_exists(path)))
        return 0;
    if (!sum || json_is(sum, show_digest(digest, checksum_of(path))))
        return 1;
    tell(l, "note: %s has changed since it was written, and is made again", path);
    return 0;
}

/* Keeps the entry of a shard, to compare its digest with the texts. */
static int keep_old(lens *l, corpus *c, const json_value *root, uint64_t last)
{
    const json_value *const texts = json_get(root, "texts");
    const size_t room = c->n_old & (c->n_old - 1) ? 0 : 2 * c->n_old + 1; /* full at powers of 2 */
    old_shard *larger = room ? (old_shard *)realloc(c->old, room * sizeof *larger) : c->old;
    if (!larger)
        return fail(FAILED, "no memory for the entries of %s", c->path);
    c->old = larger;
    memset(&c->old[c->n_old], 0, sizeof *larger);
    c->old[c->n_old].last_line = last;
    if (texts && texts->kind == JSON_STRING && texts->size < sizeof(digest_shown))
        memcpy(c->old[c->n_old].texts, texts->text, texts->size);
    c->n_old++;
    return outcome(&l->ctx);
}

/* Reads an entry of the index. *last becomes the last line of its shard, 0 if it is not a shard's entry.
 * *is_gone becomes 1 if the shard is not there. */
static int read_entry(lens *l, corpus *c, uint64_t number, const char *line, size_t size,
                      uint64_t *last, int *is_gone)
{
    arena memory = {NULL};
    json_value *root = NULL;
    const json_value *file;
    int code = FINE;
    char *const copy = arena_text(&l->ctx, &memory, line, size);
    *last = 0;
    if (!copy || json_parse_at(&l->ctx, c->path, (size_t)number, copy, size, &root))
        code = failed(&l->ctx);
    else if (is_other_file(c, root, line, size))
        code = fail(FAILED, "--resume: since %s was made, the files of %s have changed", c->path,
                    l->o.lines);
    else if ((file = json_get(root, "file")) != NULL &&
             json_u64(json_get(root, "last_line"), last)) {
        *is_gone = !has_shard(l, &memory, root);
        if (!*is_gone && (code = keep_old(l, c, root, *last)) == FINE)
            c->n_shards += file->kind == JSON_STRING;
    }
    free(root);
    arena_free(&memory);
    return code;
}

/* Reads an existing index, whose header must equal ours. Cuts off the entries after the last shard's entry,
 * and all entries from the first missing shard on. */
static int read_index(lens *l, corpus *c, const json_out *header)
{
    line_reader old = {0};
    const char *line = "";
    size_t size = 0;
    uint64_t end = 0, last = 0;
    int code = FINE, is_gone = 0;
    old.file = c->index;
    while (code == FINE && lines_next(&old, 1, &line, &size) == LINE_READ) {
        if (old.n_lines == 1 && (size != header->size || memcmp(line, header->text, size) != 0))
            code = fail(FAILED,
                        "--resume: %s was made with another model, --bos or activations, or a "
                        "folder in place of lines",
                        c->path);
        else if (old.at_end && old.start == old.end && old.buffer[old.end - 1] != '\n')
            break; /* half an entry */
        else if (old.n_lines > 1)
            code = read_entry(l, c, old.n_lines, line, size, &last, &is_gone);
        if (is_gone)
            break;
        if (old.n_lines == 1 || last > c->last_line) {
            end = old.n_bytes;
            c->last_line = last;
        }
    }
    lines_free(&old);
    if (code == FINE && (system_cut(c->index, end) != 0 || system_seek(c->index, end) != 0))
        return fail_index(c);
    return code;
}

/* A system_list callback. */
static void add_name(const char *name, void *names)
{
    out_bytes((json_out *)names, name, strlen(name) + 1);
}

/* A system_list callback: keeps the names of unfinished shards, which a killed run leaves. */
static void add_unfinished(const char *name, void *names)
{
    const size_t digits = strspn(name, "0123456789");
    const char *const end = name + digits;
    if (digits >= 5 && strncmp(end, ".safetensors.", 13) == 0 &&
        strspn(end + 13, "0123456789") == 2 && strcmp(end + 15, ".part") == 0)
        add_name(name, names);
}

static int remove_unfinished(lens *l)
{
    json_out names = {NULL, 0, 0, 0, 0};
    arena memory = {NULL};
    const char *path;
    const int listed = system_list(l->o.output, add_unfinished, &names) == 0;
    for (size_t at = 0; at < names.size; at += strlen(names.text + at) + 1)
        if ((path = arena_path(&l->ctx, &memory, l->o.output, names.text + at)) != NULL)
            system_remove(path);
    arena_free(&memory);
    out_free(&names);
    return listed ? FINE : fail(FAILED, "%s: %s", l->o.output, why(errno));
}

static int open_index(lens *l, corpus *c)
{
    json_out header = {NULL, 0, 0, 0, 0};
    uint64_t size = 0;
    int code = FINE;
    const char *kind = system_not_a_file(l->o.output);
    if (!system_exists(l->o.output))
        return fail(FAILED, "there is no directory %s: make it first (mkdir)", l->o.output);
    if (!kind || strcmp(kind, "a directory") != 0)
        return fail(FAILED, "%s is not a directory: the shards need one", l->o.output);
    put_header(l, c, digest_model(l->model), &header);
    snprintf(c->path, sizeof c->path, "%s/index.jsonl", l->o.output);
    c->index = system_exists(c->path) ? system_open(c->path, "rb+") : system_open(c->path, "wb");
    if (!c->index)
        code = fail(FAILED, "%s: %s", c->path, why(errno));
    else if (!system_take(c->index))
        code = fail(FAILED, "%s: another process writes there", c->path);
    else if (system_size(c->index, &size) == 0 && size > 0 && !l->o.resume)
        code = fail(FAILED, "%s is there already: --resume goes on; or choose another directory",
                    c->path);
    else if (size > 0)
        code = read_index(l, c, &header);
    if (code == FINE && l->o.resume)
        code = remove_unfinished(l);
    if (code == FINE && c->last_line == 0 && c->n_shards == 0 &&
        (system_cut(c->index, 0) != 0 || system_seek(c->index, 0) != 0 ||
         !out_line(&header, c->index) || fflush(c->index)))
        code = fail_index(c);
    out_free(&header);
    return code;
}

/* The next line, or the name of the next file. */
static line_status next_text(corpus *c, const char **line, size_t *size)
{
    if (c->files && c->line == c->n_files)
        return LINE_END;
    if (c->files) {
        *line = c->files[c->line++];
        *size = strlen(*line);
        return LINE_READ;
    }
    line_status status = lines_next(&c->lines, 1, line, size);
    c->line = c->lines.n_lines;
    return status;
}

/* The share of the texts that was read; 0 if it is unknown. */
static double share_read(const corpus *c)
{
    uint64_t all = 0;
    if (c->files)
        return (double)c->line / (double)c->n_files;
    return system_size(c->lines.file, &all) == 0 && all ? (double)c->lines.n_bytes / (double)all
                                                        : 0;
}

/* Skips a text that a shard holds. The texts of a shard must have the digest in its entry. */
static int check_text(lens *l, corpus *c, const char *line, size_t size)
{
    const old_shard *const shard = &c->old[c->n_same];
    arena memory = {NULL};
    digest_shown digest;
    size_t n_bytes = size;
    const char *words = c->files ? read_words(l, &memory, line, &n_bytes) : line;
    c->texts = digest_text(c->texts, words, words ? n_bytes : 0);
    l->ctx.status = ATTN_OK; /* the index has the reason why it could not be read */
    arena_free(&memory);
    if (c->line < shard->last_line)
        return FINE;
    show_digest(digest, c->texts);
    c->texts = DIGEST_START;
    c->n_same++;
    return !shard->texts[0] || strcmp(shard->texts, digest) == 0
               ? FINE
               : fail(FAILED,
                      "--resume: a text among those up to number %llu of %s has changed since %s "
                      "was made; record all of them again, into another directory",
                      TOOLS_LLU(c->line), l->o.lines, c->path);
}

/* Records every text after the last one in a shard. */
static int record_texts(lens *l, corpus *c)
{
    const char *line = "";
    size_t size = 0;
    line_status status = LINE_READ;
    int code = FINE;
    begin_progress(l, "texts");
    while (code == FINE && status != LINE_END) {
        status = next_text(c, &line, &size);
        if (was_stopped(l) || (share_read(c) > 0 && so_far(share_read(c), l)))
            code = INTERRUPTED;
        else if (status == LINE_FAILED)
            code = fail(FAILED, "%s: %s", l->o.lines, lines_why(&c->lines));
        else if (status == LINE_READ || status == LINE_TOO_LONG)
            code = c->line > c->last_line
                       ? add_text(l, c, status, line, size)
                       : check_text(l, c, line, status == LINE_TOO_LONG ? 0 : size);
    }
    end_progress(l);
    if (code == FINE && c->line < c->last_line)
        return fail(FAILED, "--resume: %s has %llu texts, but %s tells of %llu", l->o.lines,
                    TOOLS_LLU(c->line), c->path, TOOLS_LLU(c->last_line));
    return code == FINE ? end_shard(l, c, c->line) : code;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the files of the folder, without those in subfolders. */
static int list_files(lens *l, corpus *c)
{
    size_t n = 0;
    if (system_list(l->o.lines, add_name, &c->listing) != 0)
        return fail(FAILED, "%s: %s", l->o.lines, why(errno));
    if (c->listing.failed)
        return fail(FAILED, "no memory for the names of the files of %s", l->o.lines);
    if (!l->tokenizer)
        return fail(FAILED, "%s has no tokenizer: give the texts as lines with \"ids\"",
                    l->model_path);
    for (size_t at = 0; at < c->listing.size; at++)
        n += c->listing.text[at] == 0;
    if (!(c->files = (const char **)allocate(l, n, sizeof *c->files)))
        return failed(&l->ctx);
    for (size_t at = 0; at < c->listing.size; at += strlen(c->listing.text + at) + 1) {
        arena memory = {NULL};
        const char *path = arena_path(&l->ctx, &memory, l->o.lines, c->listing.text + at);
        if (path && !system_not_a_file(path))
            c->files[c->n_files++] = c->listing.text + at;
        arena_free(&memory);
    }
    qsort(c->files, c->n_files, sizeof *c->files, compare_names);
    return outcome(&l->ctx);
}

static int open_texts(lens *l, corpus *c)
{
    if (system_is_directory(l->o.lines))
        return list_files(l, c);
    if (strcmp(l->o.lines, "-") != 0)
        announce_pipe(l->o.lines);
    c->lines.file = strcmp(l->o.lines, "-") == 0 ? stdin : system_open(l->o.lines, "rb");
    return c->lines.file ? FINE : fail(FAILED, "%s: %s", l->o.lines, why(errno));
}

/* The files of a shuffle, and their entries. */
static int end_shuffle(lens *l, corpus *c)
{
    shuffle *s = c->shuffle;
    json_out entry = {NULL, 0, 0, 0, 0};
    digest_shown digest;
    int code;
    if (s->n_rows < s->context)
        return fail(FAILED, "the texts have %llu tokens, but an entry of the data set %zu (--rows)",
                    TOOLS_LLU(s->n_rows), s->context);
    if ((code = gather_rows(l, s, c->values, c->capacity)) != FINE)
        return code;
    for (size_t i = 0; i <= s->n; i++) {
        const char *const path = keep(l, "%s/%s", l->o.output, s->names[i]);
        out_open(&entry, NULL, '{');
        out_word(&entry, "file", s->names[i]);
        out_count(&entry, "rows", s->n_rows / s->context * s->context);
        out_count(&entry, "context", s->context);
        out_count(&entry, "left_out", s->n_rows % s->context);
        out_count(&entry, "bytes", file_bytes(path));
        out_word(&entry, "checksum", show_digest(digest, checksum_of(path)));
        out_close(&entry, '}');
        out_line(&entry, c->index);
    }
    out_free(&entry);
    tell_written(l, keep(l, "%llu rows in random order, %llu entries of %zu%s; %.0f MiB of memory",
                         TOOLS_LLU(s->n_rows), TOOLS_LLU(s->n_rows / s->context), s->context,
                         s->n_rows % s->context ? ", the rows that fill none left out" : "",
                         (double)s->memory / 1048576));
    return fflush(c->index) ? fail_index(c) : FINE;
}

/* Fails if nothing was recorded: the file or its keys are probably others. */
static int check_recorded(const lens *l, const corpus *c)
{
    if (c->line == 0)
        return fail(FAILED, "there are no texts in %s", l->o.lines);
    if (c->n_shards == 0 && !(c->shuffle && c->shuffle->n_rows > 0))
        return fail(FAILED, "no text of %s could be recorded, of %llu. The first reason: %s",
                    l->o.lines, TOOLS_LLU(c->line), c->first_reason);
    if (c->n_refused > 0)
        tell(l, "note: %llu of %llu texts were refused; %s has the reasons",
             TOOLS_LLU(c->n_refused), TOOLS_LLU(c->line), c->path);
    return FINE;
}

static int run_corpus(lens *l)
{
    shuffle mixed;
    corpus c;
    attn_record_desc desc = {0};
    int code;
    memset(&c, 0, sizeof c);
    memset(&mixed, 0, sizeof mixed);
    c.shuffle = l->o.shuffle == not_given ? NULL : &mixed;
    c.texts = DIGEST_START;
    desc.names = l->o.names.at;
    desc.n_names = l->o.names.n;
    l->text.n = l->config->n_ctx;
    if ((code = make_session(l, 0)) != FINE)
        return code;
    code = open_texts(l, &c);
    if (code == FINE && attn_record_size(&l->ctx, &desc.memory_size, l->model, &desc))
        code = failed(&l->ctx);
    if (code == FINE && (!(c.memory = desc.memory = allocate(l, desc.memory_size, 1)) ||
                         attn_record_new(&l->ctx, &c.record, l->session, &desc)))
        code = failed(&l->ctx);
    if (code == FINE && (code = make_shard(l, &c)) == FINE && (code = open_index(l, &c)) == FINE)
        code = record_texts(l, &c);
    if (code == FINE)
        code = check_recorded(l, &c);
    if (code == FINE && c.shuffle)
        code = end_shuffle(l, &c);
    shuffle_free(&mixed);
    if (c.index && fclose(c.index) != 0 && code == FINE)
        code = fail_index(&c);
    facts(l, "directory:s n_texts:z n_refused:z", l->o.output, (size_t)c.line, (size_t)c.n_refused);
    attn_record_free(c.record);
    lines_free(&c.lines);
    out_free(&c.listing);
    out_free(&c.waiting);
    free(c.old);
    return code;
}

#endif
