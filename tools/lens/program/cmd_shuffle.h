/* lens record --lines --shuffle: the rows of all texts in one random order.
 *
 * Two passes over the disk. In the first, each row goes to one of 1,024 buckets, drawn at random; a bucket's
 * rows are written to rows.part in blocks. In the second, one bucket after the other is read and its rows
 * are put into random order. Every order of all rows is equally likely. The order follows from the seed and
 * the number of rows alone, and the numbers have the same bits on every machine, so the files do too.
 *
 * Memory: a block for each bucket (64 MiB together, unless one row takes more), the largest bucket (about a
 * 1,024th of all rows), a batch of the output (64 MiB), and 24 bytes for each block on the disk. Disk: the
 * rows twice until rows.part is removed.
 *
 * The output is a file for each activation, NAME.npy [entries, context, width], and token_ids.npy [entries, context]. */
#ifndef LENS_CMD_SHUFFLE_H
#define LENS_CMD_SHUFFLE_H

#include "run.h"
#include "tools/common/digest.h"
#include "tools/common/json_out.h"
#include "tools/lens/save.h"

enum { BUCKETS = 1024, BLOCK_SIZE = 1 << 16 };

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
    size_t n;              /* activations */
    size_t *widths;        /* [n + 1]: of their rows; 1 for the ids */
    const char **names;    /* [n + 1]: of the files */
    lens_new_file **files; /* [n + 1] */
    lens_out *out;         /* [n + 1] */
} shuffle;

/* Begins with the activations of `names` [n], whose rows are like those of `values`. */
static int shuffle_begin(lens *l, shuffle *s, const char *const *names, const attn_tensor *values,
                         size_t n)
{
    s->n = n;
    s->widths = (size_t *)allocate(l, n + 1, sizeof *s->widths);
    s->names = (const char **)allocate(l, n + 1, sizeof *s->names);
    s->files = (lens_new_file **)allocate(l, n + 1, sizeof(void *));
    s->out = (lens_out *)allocate(l, n + 1, sizeof *s->out);
    if (l->ctx.status)
        return failed(&l->ctx);
    attn_rng_seed(&s->rng, (uint64_t)l->o.shuffle);
    s->context = l->o.rows ? l->o.rows : l->config->n_ctx;
    s->row = sizeof(int32_t);
    for (size_t i = 0; i < n; i++) {
        s->widths[i] = attn_count(values[i]) / values[i].shape[0];
        s->names[i] = keep(l, "%s.npy", names[i]);
        s->row += s->widths[i] * sizeof(float);
    }
    s->widths[n] = 1;
    s->names[n] = "token_ids.npy";
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
    for (size_t t = 0; t < n_rows; t++) {
        const size_t which = attn_rng_u32(&s->rng) % BUCKETS;
        bucket *b = &s->buckets[which];
        unsigned char *rows = s->buffers + which * s->block_rows * s->row;
        unsigned char *at = rows + b->held * s->row;
        memcpy(at, (const int32_t *)values[s->n].data + t, sizeof(int32_t));
        at += sizeof(int32_t);
        for (size_t i = 0; i < s->n; i++) {
            const size_t width = s->widths[i];
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
    size_t next;
    for (size_t i = b->first; i; i = next) {
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
    size_t j, other;
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t i = n; i > 1; i--) {
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
    memcpy((int32_t *)values[s->n].data + t, row, sizeof(int32_t));
    row += sizeof(int32_t);
    for (size_t i = 0; i < s->n; i++) {
        const size_t size = s->widths[i] * sizeof(float);
        memcpy((unsigned char *)values[i].data + t * size, row, size);
        row += size;
    }
}

/* Appends entries to the files. */
static void write_entries(shuffle *s, const attn_tensor *values, size_t n)
{
    for (size_t i = 0; n && i <= s->n; i++)
        lens_out_elements(&s->out[i], attn_slice(values[i], 0, 0, n * s->context));
}

/* Writes all rows in their order. `capacity` rows fit into values. */
static int write_order(lens *l, shuffle *s, const attn_tensor *values, size_t capacity)
{
    size_t most = 1, filled = 0;
    int code = FINE;
    for (size_t which = 0; which < BUCKETS; which++)
        most = s->buckets[which].rows > most ? s->buckets[which].rows : most;
    unsigned char *rows = most < SIZE_MAX / s->row ? (unsigned char *)malloc(most * s->row) : NULL;
    size_t *const order = (size_t *)malloc(most * sizeof *order);
    s->memory = (uint64_t)s->block_rows * s->row * BUCKETS + (uint64_t)capacity * s->row +
                (uint64_t)most * (s->row + sizeof *order) + 2 * s->n_blocks * sizeof *s->blocks;
    if (!rows || !order)
        code = fail(FAILED, "no memory for a bucket of %zu rows", most);
    begin_progress(l, "rows in order");
    for (size_t which = 0; which < BUCKETS && code == FINE; which++) {
        const size_t n = s->buckets[which].rows;
        if ((code = was_stopped(l) ? INTERRUPTED : read_bucket(s, which, rows)) == FINE)
            draw_order(s, order, n);
        for (size_t i = 0; i < n && code == FINE; i++) {
            place_row(s, values, filled++, rows + order[i] * s->row);
            if (filled == capacity) {
                write_entries(s, values, filled / s->context);
                filled = 0;
            }
        }
        if (so_far((double)(which + 1) / BUCKETS, l) && code == FINE)
            code = INTERRUPTED;
    }
    end_progress(l);
    write_entries(s, values, filled / s->context);
    free(rows);
    free(order);
    return code;
}

/* Begins file i with its header. */
static attn_status begin_file(lens *l, shuffle *s, size_t i)
{
    const size_t n = (size_t)(s->n_rows / s->context);
    unsigned char header[128];
    const attn_status status =
        lens_new_file_begin(&l->ctx, &s->files[i], keep(l, "%s/%s", l->o.output, s->names[i]));
    if (status != ATTN_OK)
        return status;
    s->out[i].file = (FILE *)lens_new_file_stream(s->files[i]);
    lens_npy_header(header, i < s->n ? ATTN_F32 : ATTN_I32,
                    i < s->n ? attn_shape3(n, s->context, s->widths[i])
                             : attn_shape2(n, s->context));
    lens_out_bytes(&s->out[i], header, sizeof header);
    return ATTN_OK;
}

/* Writes the files. */
static int gather_rows(lens *l, shuffle *s, const attn_tensor *values, size_t capacity)
{
    attn_status status = ATTN_OK;
    int code = FINE;
    for (size_t i = 0; i <= s->n && status == ATTN_OK; i++)
        status = begin_file(l, s, i);
    if (status == ATTN_OK)
        code = write_order(l, s, values, capacity);
    if (code != FINE)
        status = ATTN_STOPPED;
    for (size_t i = 0; i <= s->n; i++)
        if (s->files[i])
            status = lens_new_file_end(&l->ctx, s->files[i], status);
    return code == FINE && status ? failed(&l->ctx) : code;
}

#endif
