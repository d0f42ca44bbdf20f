/* Writes activations as a data set of Hugging Face's datasets, which SAELens reads as cached activations: in
 * one directory data-00000-of-00001.arrow, dataset_info.json and state.json.
 *
 * The .arrow file is Arrow's stream: a schema, record batches, an end. Each is a FlatBuffer and a body of
 * buffers. A column of an activation is a list of lists of f32 [context, width], of the type that datasets
 * calls Array2D; the column token_ids is a list of `context` i32. */
#ifndef LENS_ARROW_H
#define LENS_ARROW_H

#include "tools/common/digest.h"
#include "tools/common/json_out.h"
#include "run.h"

/* ---- FlatBuffers ----
 *
 * They are built from the end, so that offsets, which point forward, are known. A position is its distance
 * from the end. */

enum { FLAT_SLOTS = 8 };
typedef struct flat {
    unsigned char *bytes; /* [room]; the last `used` are made */
    size_t room, used;
    size_t slot[FLAT_SLOTS], start; /* of the table that is being made: positions, 0 if absent */
    int failed;
} flat;

/* `size` bytes more, which are zero. */
static unsigned char *flat_grow(flat *f, size_t size)
{
    const size_t need = f->used + size, larger = 2 * f->room + need + 1024;
    unsigned char *bytes;
    if (size == 0 || f->failed)
        return NULL;
    if (need > f->room) {
        bytes = (unsigned char *)calloc(1, larger);
        if (!bytes) {
            f->failed = 1;
            return NULL;
        }
        if (f->used)
            memcpy(bytes + larger - f->used, f->bytes + f->room - f->used, f->used);
        free(f->bytes);
        f->bytes = bytes;
        f->room = larger;
    }
    f->used = need;
    memset(f->bytes + f->room - f->used, 0, size);
    return f->bytes + f->room - f->used;
}

/* Aligns what follows: after `more` bytes, the position is a multiple of `align`. */
static void flat_align(flat *f, size_t align, size_t more)
{
    flat_grow(f, (align - (f->used + more) % align) % align);
}

static void flat_number(flat *f, uint64_t value, size_t size)
{
    unsigned char number[8], *at;
    flat_align(f, size, 0);
    put_u64(number, value);
    at = flat_grow(f, size);
    if (at)
        memcpy(at, number, size);
}

/* An offset to something that was made. */
static void flat_offset(flat *f, size_t position)
{
    flat_align(f, 4, 0);
    flat_number(f, f->used + 4 - position, 4);
}

static size_t flat_text(flat *f, const char *text)
{
    const size_t n = strlen(text);
    unsigned char *at;
    flat_align(f, 4, n + 1);
    at = flat_grow(f, n + 1);
    if (at)
        memcpy(at, text, n);
    flat_number(f, n, 4);
    return f->used;
}

static size_t flat_list(flat *f, const size_t *positions, size_t n)
{
    size_t i;
    flat_align(f, 4, 4 * n);
    for (i = n; i-- > 0;)
        flat_offset(f, positions[i]);
    flat_number(f, n, 4);
    return f->used;
}

/* A list of pairs of 64-bit numbers. */
static size_t flat_pairs(flat *f, const uint64_t (*pairs)[2], size_t n)
{
    size_t i;
    flat_align(f, 8, 0);
    for (i = n; i-- > 0;) {
        flat_number(f, pairs[i][1], 8);
        flat_number(f, pairs[i][0], 8);
    }
    flat_number(f, n, 4);
    return f->used;
}

static void flat_begin(flat *f)
{
    memset(f->slot, 0, sizeof f->slot);
    f->start = f->used;
}

static void flat_field(flat *f, size_t slot, uint64_t value, size_t size)
{
    flat_number(f, value, size);
    f->slot[slot] = f->used;
}

static void flat_link(flat *f, size_t slot, size_t position)
{
    flat_offset(f, position);
    f->slot[slot] = f->used;
}

/* Ends a table: gives its position. */
static size_t flat_end(flat *f)
{
    size_t n = FLAT_SLOTS, i, table;
    unsigned char *at;
    while (n > 0 && f->slot[n - 1] == 0)
        n--;
    flat_number(f, 0, 4);
    table = f->used;
    for (i = n; i-- > 0;)
        flat_number(f, f->slot[i] ? table - f->slot[i] : 0, 2);
    flat_number(f, table - f->start, 2);
    flat_number(f, 4 + 2 * n, 2);
    at = f->failed ? NULL : f->bytes + f->room - table;
    if (at)
        put_u32(at, (uint32_t)(f->used - table));
    return table;
}

/* ---- messages ---- */

typedef struct arrow_column {
    const char *name;
    size_t width;
} arrow_column;

typedef struct arrow_file {
    FILE *file;
    uint64_t size, checksum;
    const arrow_column *columns; /* [n]: activations; token_ids follows them */
    size_t n, context;
} arrow_file;

enum { ARROW_SCHEMA = 1, ARROW_BATCH = 3, ARROW_V5 = 4 };
enum { ARROW_INT = 2, ARROW_FLOAT = 3, ARROW_LIST = 12, ARROW_FIXED_LIST = 16 };

static void arrow_bytes(arrow_file *a, const void *bytes, size_t size)
{
    if (size == 0)
        return;
    fwrite(bytes, 1, size, a->file);
    a->checksum = model_checksum(a->checksum, bytes, size);
    a->size += size;
}

static void arrow_pad(arrow_file *a)
{
    static const unsigned char zeros[8] = {0};
    arrow_bytes(a, zeros, (8 - a->size % 8) % 8);
}

/* Writes 32-bit numbers in the byte order of Arrow. */
static void arrow_words(arrow_file *a, const void *words, size_t n)
{
    unsigned char bytes[4096];
    const unsigned char *at = (const unsigned char *)words;
    size_t i, m;
    uint32_t word;
    for (; n > 0; n -= m, at += 4 * m) {
        m = n < sizeof bytes / 4 ? n : sizeof bytes / 4;
        for (i = 0; i < m; i++) {
            memcpy(&word, at + 4 * i, 4);
            put_u32(bytes + 4 * i, word);
        }
        arrow_bytes(a, bytes, 4 * m);
    }
}

/* Writes n + 1 offsets: 0, step, 2 step ... */
static void arrow_offsets(arrow_file *a, size_t n, size_t step)
{
    size_t i;
    for (i = 0; i <= n; i++) {
        const uint32_t offset = (uint32_t)(i * step);
        arrow_words(a, &offset, 1);
    }
    arrow_pad(a);
}

/* Writes a message whose header is made, in front of its body. */
static int arrow_message(lens *l, arrow_file *a, flat *f, uint64_t kind, size_t header,
                         uint64_t body)
{
    unsigned char number[4];
    size_t root;
    flat_begin(f);
    flat_field(f, 3, body, 8);
    flat_link(f, 2, header);
    flat_field(f, 0, ARROW_V5, 2);
    flat_field(f, 1, kind, 1);
    root = flat_end(f);
    flat_align(f, 8, 4);
    flat_offset(f, root);
    if (f->failed)
        return fail(FAILED, "no memory to write %s", l->o.output);
    put_u32(number, 0xFFFFFFFFu);
    arrow_bytes(a, number, 4);
    put_u32(number, (uint32_t)f->used);
    arrow_bytes(a, number, 4);
    arrow_bytes(a, f->bytes + f->room - f->used, f->used);
    return FINE;
}

/* A field without children, of f32 or i32. */
static size_t arrow_leaf(flat *f, int is_float)
{
    size_t type, name, children = flat_list(f, NULL, 0);
    flat_begin(f);
    if (is_float)
        flat_field(f, 0, 1, 2); /* single precision */
    else
        flat_field(f, 0, 32, 4);
    if (!is_float)
        flat_field(f, 1, 1, 1); /* signed */
    type = flat_end(f);
    name = flat_text(f, "item");
    flat_begin(f);
    flat_link(f, 0, name);
    flat_link(f, 3, type);
    flat_link(f, 5, children);
    flat_field(f, 1, 1, 1);
    flat_field(f, 2, is_float ? ARROW_FLOAT : ARROW_INT, 1);
    return flat_end(f);
}

/* A list of another field, of a fixed size unless it is 0. `more`: a list of keys and values, or 0. */
static size_t arrow_list(flat *f, const char *name, size_t child, size_t size, size_t more)
{
    size_t type, text, children = flat_list(f, &child, 1);
    flat_begin(f);
    if (size)
        flat_field(f, 0, size, 4);
    type = flat_end(f);
    text = flat_text(f, name);
    flat_begin(f);
    flat_link(f, 0, text);
    flat_link(f, 3, type);
    flat_link(f, 5, children);
    if (more)
        flat_link(f, 6, more);
    flat_field(f, 1, 1, 1);
    flat_field(f, 2, size ? ARROW_FIXED_LIST : ARROW_LIST, 1);
    return flat_end(f);
}

static size_t arrow_pair(flat *f, const char *key, const char *value)
{
    const size_t k = flat_text(f, key), v = flat_text(f, value);
    flat_begin(f);
    flat_link(f, 0, k);
    flat_link(f, 1, v);
    return flat_end(f);
}

/* Begins the file with the schema. */
static int arrow_begin(lens *l, arrow_file *a)
{
    flat f = {NULL, 0, 0, {0}, 0, 0};
    size_t *fields = (size_t *)allocate(l, a->n + 1, sizeof *fields), list, schema, i;
    char shape[96];
    int code;
    if (!fields)
        return failed(&l->ctx);
    for (i = 0; i < a->n; i++) {
        size_t pairs[2], inner = arrow_list(&f, "item", arrow_leaf(&f, 1), 0, 0);
        snprintf(shape, sizeof shape, "[[%zu, %zu], \"float32\"]", a->context, a->columns[i].width);
        pairs[0] = arrow_pair(&f, "ARROW:extension:metadata", shape);
        pairs[1] = arrow_pair(&f, "ARROW:extension:name",
                              "datasets.features.features.Array2DExtensionType");
        fields[i] = arrow_list(&f, a->columns[i].name, inner, 0, flat_list(&f, pairs, 2));
    }
    fields[a->n] = arrow_list(&f, "token_ids", arrow_leaf(&f, 0), a->context, 0);
    list = flat_list(&f, fields, a->n + 1);
    flat_begin(&f);
    flat_link(&f, 1, list);
    schema = flat_end(&f);
    code = arrow_message(l, a, &f, ARROW_SCHEMA, schema, 0);
    free(f.bytes);
    return code;
}

static uint64_t arrow_padded(uint64_t size)
{
    return (size + 7) / 8 * 8;
}

/* Writes `entries` entries. values [n + 1]: of each column rows of its width, then the token ids. */
static int arrow_batch(lens *l, arrow_file *a, const attn_tensor *values, size_t entries)
{
    const size_t rows = entries * a->context, n_nodes = 3 * a->n + 2, n_buffers = 6 * a->n + 3;
    uint64_t(*nodes)[2] = (uint64_t(*)[2])allocate(l, n_nodes + n_buffers, sizeof *nodes);
    uint64_t(*buffers)[2] = nodes ? nodes + n_nodes : NULL, body = 0, sizes[6] = {0};
    flat f = {NULL, 0, 0, {0}, 0, 0};
    size_t i, k, node = 0, buffer = 0, header, list[2];
    int code;
    if (!nodes)
        return failed(&l->ctx);
    for (i = 0; i <= a->n; i++) {
        const int is_ids = i == a->n;
        const uint64_t width = is_ids ? 1 : a->columns[i].width;
        nodes[node++][0] = entries;
        nodes[node++][0] = rows;
        if (!is_ids)
            nodes[node++][0] = rows * width;
        sizes[1] = is_ids ? 0 : 4 * ((uint64_t)entries + 1); /* the others are of validity: empty */
        sizes[3] = 4 * ((uint64_t)rows + 1);
        sizes[is_ids ? 2 : 5] = 4 * rows * width;
        for (k = 0; k < (is_ids ? 3u : 6u); k++, buffer++) {
            buffers[buffer][0] = body;
            buffers[buffer][1] = sizes[k];
            body += arrow_padded(sizes[k]);
        }
    }
    list[1] = flat_pairs(&f, (const uint64_t(*)[2])buffers, n_buffers);
    list[0] = flat_pairs(&f, (const uint64_t(*)[2])nodes, n_nodes);
    flat_begin(&f);
    flat_field(&f, 0, entries, 8);
    flat_link(&f, 1, list[0]);
    flat_link(&f, 2, list[1]);
    header = flat_end(&f);
    code = arrow_message(l, a, &f, ARROW_BATCH, header, body);
    free(f.bytes);
    for (i = 0; i < a->n && code == FINE; i++) {
        arrow_offsets(a, entries, a->context);
        arrow_offsets(a, rows, a->columns[i].width);
        arrow_words(a, values[i].data, rows * a->columns[i].width);
        arrow_pad(a);
    }
    arrow_words(a, values[a->n].data, rows);
    arrow_pad(a);
    return code;
}

static void arrow_end(arrow_file *a)
{
    static const unsigned char end[8] = {0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0};
    arrow_bytes(a, end, sizeof end);
}

/* ---- beside it ---- */

/* dataset_info.json: the type of each column. */
static void arrow_info(const arrow_file *a, json_out *o)
{
    size_t i;
    out_open(o, NULL, '{');
    out_word(o, "citation", "");
    out_word(o, "description", "activations in random order, by attn.h's lens record --shuffle");
    out_open(o, "features", '{');
    for (i = 0; i < a->n; i++) {
        out_open(o, a->columns[i].name, '{');
        out_open(o, "shape", '[');
        out_count(o, NULL, a->context);
        out_count(o, NULL, a->columns[i].width);
        out_close(o, ']');
        out_word(o, "dtype", "float32");
        out_word(o, "_type", "Array2D");
        out_close(o, '}');
    }
    out_open(o, "token_ids", '{');
    out_open(o, "feature", '{');
    out_word(o, "dtype", "int32");
    out_word(o, "_type", "Value");
    out_close(o, '}');
    out_count(o, "length", a->context);
    out_word(o, "_type", "Sequence");
    out_close(o, '}');
    out_close(o, '}');
    out_word(o, "homepage", "");
    out_word(o, "license", "");
    out_close(o, '}');
}

/* state.json: the files, and a name for what they hold. */
static void arrow_state(const arrow_file *a, json_out *o)
{
    digest_shown fingerprint;
    out_open(o, NULL, '{');
    out_open(o, "_data_files", '[');
    out_open(o, NULL, '{');
    out_word(o, "filename", "data-00000-of-00001.arrow");
    out_close(o, '}');
    out_close(o, ']');
    out_word(o, "_fingerprint", show_digest(fingerprint, a->checksum));
    out_null(o, "_format_columns");
    out_open(o, "_format_kwargs", '{');
    out_close(o, '}');
    out_null(o, "_format_type");
    out_flag(o, "_output_all_columns", 0);
    out_null(o, "_split");
    out_close(o, '}');
}

#endif
