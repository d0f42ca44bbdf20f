/* lens record --lines --shuffle: the rows of all texts in one random order.
 *
 * Two passes over the disk. In the first, each row goes to one of 1,024 buckets, drawn at random; a bucket's
 * rows are written to rows.part in blocks. In the second, one bucket after the other is read and its rows
 * are put into random order. Every order of all rows is equally likely. The order follows from the seed and
 * the number of rows alone, and the numbers have the same bits on every machine, so the files do too.
 *
 * Memory: a block for each bucket (64 MiB together, unless one row takes more), the largest bucket (about a
 * 1,024th of all rows), a batch of the output (64 MiB), and 24 bytes for each block on the disk. Disk: the
 * rows twice until rows.part is removed. */
#ifndef LENS_CMD_SHUFFLE_H
#define LENS_CMD_SHUFFLE_H

#include "arrow.h"

enum { BUCKETS = 1024, BLOCK_SIZE = 1 << 16 };
#define ARROW_NAME "data-00000-of-00001.arrow"

/* Rows of one bucket in the file. */
typedef struct row_block {
    uint64_t at;
    size_t next; /* 1 + the index of the bucket's next block; 0: none */
} row_block;

typedef struct bucket {
    size_t rows, held;  /* all, and those of them that are in its buffer */
    size_t first, last; /* 1 + the index of a block; 0: none */
} bucket;

typedef struct shuffle {
    attn_rng rng;
    FILE *file; /* rows.part */
    const char *path;
    uint64_t size, n_rows, memory; /* size of the file; the most memory */
    size_t row, block_rows,
        context;            /* bytes of a row; rows of a block and of an entry of the output */
    unsigned char *buffers; /* [BUCKETS, block_rows, row] */
    bucket buckets[BUCKETS];
    row_block *blocks; /* [n_blocks] */
    size_t n_blocks;
    arrow_file out;
} shuffle;

/* Begins with the activations of `names` [n], whose rows are like those of `values`. */
static int shuffle_begin(lens *l, shuffle *s, const char *const *names, const attn_tensor *values,
                         size_t n)
{
    arrow_column *columns = (arrow_column *)allocate(l, n, sizeof *columns);
    size_t i;
    if (!columns)
        return failed(&l->ctx);
    attn_rng_seed(&s->rng, (uint64_t)l->o.shuffle);
    s->context = l->o.rows ? l->o.rows : l->config->n_ctx;
    s->row = sizeof(int32_t);
    for (i = 0; i < n; i++) {
        columns[i].name = names[i];
        columns[i].width = attn_count(values[i]) / values[i].shape[0];
        s->row += columns[i].width * sizeof(float);
    }
    s->out.columns = columns;
    s->out.n = n;
    s->out.context = s->context;
    s->block_rows = s->row < BLOCK_SIZE ? BLOCK_SIZE / s->row : 1;
    s->path = keep(l, "%s/rows.part", l->o.output);
    if (s->row < SIZE_MAX / BUCKETS / s->block_rows)
        s->buffers = (unsigned char *)malloc(s->block_rows * s->row * BUCKETS);
    if (!s->buffers)
        return fail(FAILED, "no memory for %d buckets of %zu bytes", (int)BUCKETS,
                    s->block_rows * s->row);
    s->file = system_open(s->path, "wb+");
    return s->file ? FINE : fail(FAILED, "%s: %s", s->path, why(errno));
}

static void shuffle_free(shuffle *s)
{
    if (s->file)
        fclose(s->file);
    if (s->file)
        system_remove(s->path);
    free(s->buffers);
    free(s->blocks);
}

/* Writes the rows in a bucket's buffer as a block. */
static int write_block(shuffle *s, bucket *b, const unsigned char *rows)
{
    const size_t room =
        s->n_blocks & (s->n_blocks - 1) ? 0 : 2 * s->n_blocks + 1; /* at powers of 2 */
    row_block *larger = room ? (row_block *)realloc(s->blocks, room * sizeof *larger) : s->blocks;
    if (!larger)
        return fail(FAILED, "no memory for the places of the rows of %s", s->path);
    s->blocks = larger;
    s->blocks[s->n_blocks].at = s->size;
    s->blocks[s->n_blocks].next = 0;
    s->n_blocks++;
    if (b->last)
        s->blocks[b->last - 1].next = s->n_blocks;
    else
        b->first = s->n_blocks;
    b->last = s->n_blocks;
    if (fwrite(rows, s->row, b->held, s->file) != b->held)
        return fail(FAILED, "%s: %s", s->path, why(errno));
    s->size += (uint64_t)b->held * s->row;
    b->held = 0;
    return FINE;
}

/* Puts rows into their buckets. values [n + 1]: of the activations, then the ids. */
static int scatter_rows(shuffle *s, const attn_tensor *values, size_t n_rows)
{
    size_t t, i;
    for (t = 0; t < n_rows; t++) {
        const size_t which = attn_rng_u32(&s->rng) % BUCKETS;
        bucket *b = &s->buckets[which];
        unsigned char *rows = s->buffers + which * s->block_rows * s->row;
        unsigned char *at = rows + b->held * s->row;
        memcpy(at, (const int32_t *)values[s->out.n].data + t, sizeof(int32_t));
        at += sizeof(int32_t);
        for (i = 0; i < s->out.n; i++) {
            const size_t width = s->out.columns[i].width;
            memcpy(at, (const float *)values[i].data + t * width, width * sizeof(float));
            at += width * sizeof(float);
        }
        b->rows++;
        s->n_rows++;
        if (++b->held == s->block_rows && write_block(s, b, rows) != FINE)
            return FAILED;
    }
    return FINE;
}

/* Reads the rows of a bucket, in the order in which they came. */
static int read_bucket(shuffle *s, size_t which, unsigned char *rows)
{
    const bucket *b = &s->buckets[which];
    size_t i, next;
    for (i = b->first; i; i = next) {
        next = s->blocks[i - 1].next;
        if (system_seek(s->file, s->blocks[i - 1].at) ||
            fread(rows, s->row, s->block_rows, s->file) != s->block_rows)
            return fail(FAILED, "cannot read %s: %s", s->path, why(errno));
        rows += s->block_rows * s->row;
    }
    memcpy(rows, s->buffers + which * s->block_rows * s->row, b->held * s->row);
    return FINE;
}

/* A random order of n rows (Fisher and Yates). */
static void draw_order(shuffle *s, size_t *order, size_t n)
{
    size_t i, j, other;
    for (i = 0; i < n; i++)
        order[i] = i;
    for (i = n; i > 1; i--) {
        j = (size_t)((uint64_t)attn_rng_u32(&s->rng) * i >> 32);
        other = order[j];
        order[j] = order[i - 1];
        order[i - 1] = other;
    }
}

/* Copies a row to row t of the output's columns. */
static void place_row(const shuffle *s, const attn_tensor *values, size_t t,
                      const unsigned char *row)
{
    size_t i;
    memcpy((int32_t *)values[s->out.n].data + t, row, sizeof(int32_t));
    row += sizeof(int32_t);
    for (i = 0; i < s->out.n; i++) {
        const size_t size = s->out.columns[i].width * sizeof(float);
        memcpy((unsigned char *)values[i].data + t * size, row, size);
        row += size;
    }
}

/* Writes all rows in their order. `capacity` rows fit into values. */
static int write_order(lens *l, shuffle *s, const attn_tensor *values, size_t capacity)
{
    size_t most = 1, which, i, filled = 0, *order;
    unsigned char *rows;
    progress bar;
    int code = arrow_begin(l, &s->out);
    for (which = 0; which < BUCKETS; which++)
        most = s->buckets[which].rows > most ? s->buckets[which].rows : most;
    rows = most < SIZE_MAX / s->row ? (unsigned char *)malloc(most * s->row) : NULL;
    order = (size_t *)malloc(most * sizeof *order);
    s->memory = (uint64_t)s->block_rows * s->row * BUCKETS + (uint64_t)capacity * s->row +
                (uint64_t)most * (s->row + sizeof *order) + 2 * s->n_blocks * sizeof *s->blocks;
    if (!rows || !order)
        code = fail(FAILED, "no memory for a bucket of %zu rows", most);
    progress_begin(&bar, "rows in order");
    for (which = 0; which < BUCKETS && code == FINE; which++) {
        const size_t n = s->buckets[which].rows;
        if ((code = interrupted ? INTERRUPTED : read_bucket(s, which, rows)) == FINE)
            draw_order(s, order, n);
        for (i = 0; i < n && code == FINE; i++) {
            place_row(s, values, filled++, rows + order[i] * s->row);
            if (filled == capacity) {
                code = arrow_batch(l, &s->out, values, filled / s->context);
                filled = 0;
            }
        }
        progress_at(&bar, (double)(which + 1) / BUCKETS);
    }
    progress_end(&bar);
    if (code == FINE && filled >= s->context)
        code = arrow_batch(l, &s->out, values, filled / s->context);
    arrow_end(&s->out);
    free(rows);
    free(order);
    return code;
}

/* Writes one line of JSON into a file of the output. */
static int write_beside(lens *l, const shuffle *s, const char *name,
                        void (*fill)(const arrow_file *a, json_out *o))
{
    json_out o = {NULL, 0, 0, 0, 0};
    lens_new_file *file = NULL;
    attn_status status = lens_new_file_begin(&l->ctx, &file, keep(l, "%s/%s", l->o.output, name));
    fill(&s->out, &o);
    if (!status && !out_line(&o, (FILE *)lens_new_file_stream(file)))
        status = tool_fail(&l->ctx, ATTN_E_MEMORY, "no memory for %s", name);
    out_free(&o);
    return lens_new_file_end(&l->ctx, file, status) ? failed(&l->ctx) : FINE;
}

/* Writes the data set. */
static int gather_rows(lens *l, shuffle *s, const attn_tensor *values, size_t capacity)
{
    lens_new_file *file = NULL;
    attn_status status =
        lens_new_file_begin(&l->ctx, &file, keep(l, "%s/" ARROW_NAME, l->o.output));
    int code = FINE;
    if (!status) {
        s->out.file = (FILE *)lens_new_file_stream(file);
        code = write_order(l, s, values, capacity);
        status = code == FINE ? ATTN_OK : ATTN_STOPPED;
    }
    status = lens_new_file_end(&l->ctx, file, status);
    if (code != FINE || status)
        return code != FINE ? code : failed(&l->ctx);
    code = write_beside(l, s, "dataset_info.json", arrow_info);
    return code == FINE ? write_beside(l, s, "state.json", arrow_state) : code;
}

#endif
