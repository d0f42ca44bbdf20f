/* The program's file of vectors (--vectors-file): an array [rows, width] for each activation, written row by row. It is
 * FILE.part until it is whole, and has its whole size from the beginning. The vector of a row is written before the row,
 * so that --resume finds it. */
#ifndef SURPRISAL_VECTOR_FILE_H
#define SURPRISAL_VECTOR_FILE_H

#include "output.h"
#include "tools/lens/save.h"

typedef struct vector_file {
    char *part, *target; /* FILE.part, and FILE behind its links */
    FILE *file;
    const char **names;      /* [n_parts] */
    attn_tensor *values;     /* [n_parts]: without elements */
    uint64_t *begins;        /* [n_parts]: the place of the first element */
    lens_zip_entry *entries; /* [n_parts], of a .npz */
    uint16_t *halves;        /* [width] */
    uint32_t crc_table[256];
    uint64_t size;
    int is_npz;
} vector_file;

/* What is said of --vectors, --vectors-file, --pooling and --dtype together. */
static int check_vector_usage(const surprisal_options *o)
{
    const char *const path = o->vectors_file;
    if (!path != (o->vectors.n == 0))
        return fail(USAGE, "--vectors and --vectors-file need each other: an activation, and where "
                           "its vectors go");
    if (!path && (o->pooling || o->dtype))
        return fail(USAGE, "--pooling and --dtype are for --vectors");
    if (path && !lens_ends_in(path, ".npz") && !lens_ends_in(path, ".safetensors"))
        return fail(USAGE, "--vectors-file %s: its name must end in .npz or .safetensors", path);
    if (path && system_exists(path))
        return fail(FAILED,
                    "--vectors-file %s: there is such a file: remove it, or write elsewhere", path);
    return FINE;
}

static int fail_vectors(const vector_file *v)
{
    return fail(FAILED, "cannot write %s: %s", v->part, why(errno));
}

/* >> Around the elements ======================================================================= */

/* Without a file, `out` counts the bytes. */
static void out_frame(vector_file *v, lens_out *out, size_t n)
{
    lens_out count = ATTN_ZERO;
    unsigned char header[128];
    attn_shape shape;
    if (!v->is_npz) {
        lens_out_safetensors_header(&count, v->names, v->values, n);
        lens_out_number(out, count.n, 8);
        lens_out_safetensors_header(out, v->names, v->values, n);
    }
    for (size_t i = 0; i < n; i++) {
        if (v->is_npz) {
            v->entries[i].offset = (uint32_t)out->n;
            v->entries[i].size = (uint32_t)(sizeof header + lens_tensor_bytes(v->values[i]));
            shape.ndim = 2;
            memcpy(shape.dim, v->values[i].shape, sizeof shape.dim);
            lens_npy_header(header, v->values[i].dtype, shape);
            lens_out_zip_entry(out, v->names[i], v->entries[i], 0);
            lens_out_bytes(out, header, sizeof header);
        }
        v->begins[i] = out->n;
        out->n += lens_tensor_bytes(v->values[i]);
        if (out->file && system_seek(out->file, out->n) != 0)
            return;
    }
    if (v->is_npz)
        lens_out_zip_end(out, v->entries, v->names, n);
}

/* Writes all but the elements, and the pooling behind them, which --resume compares. */
static int write_frame(const surprisal_run *r, vector_file *v)
{
    lens_out out = {.file = v->file};
    if (system_seek(v->file, 0) != 0)
        return fail_vectors(v);
    out_frame(v, &out, r->n_parts);
    lens_out_number(&out, (uint64_t)r->o.pooling, 1);
    return fflush(v->file) || ferror(v->file) ? fail_vectors(v) : FINE;
}

/* Is the file as long as this run's, with the same pooling? */
static int is_same_frame(const surprisal_run *r, const vector_file *v)
{
    uint64_t size = 0;
    return system_size(v->file, &size) == 0 && size == v->size + 1 &&
           system_seek(v->file, v->size) == 0 && fgetc(v->file) == r->o.pooling;
}

/* The checksum of bytes of the file, which follow those of `crc`. */
static uint32_t crc_of_file(const vector_file *v, uint64_t begin, uint64_t size)
{
    static unsigned char block[1 << 16];
    lens_out count = {.crc_table = v->crc_table};
    size_t n = 1;
    for (n = system_seek(v->file, begin) == 0; n > 0 && count.n < size;) {
        const uint64_t left = size - count.n;
        n = fread(block, 1, left < sizeof block ? (size_t)left : sizeof block, v->file);
        lens_out_bytes(&count, block, n);
    }
    return count.crc;
}

/* >> Rows ====================================================================================== */

/* Writes the elements of a row. Without a file, `out` makes their checksum. */
static void out_vector(const surprisal_run *r, const vector_file *v, size_t i, lens_out *out)
{
    const vector_part *const part = &r->parts_of_vector[i];
    const int half = v->values[i].dtype == ATTN_F16;
    for (size_t k = 0; half && k < part->width; k++)
        v->halves[k] = attn_f16_from_f32(r->pooled[part->begin + k]);
    lens_out_elements(out, attn_borrow(half ? (void *)v->halves : r->pooled + part->begin,
                                       v->values[i].dtype, attn_shape1(part->width)));
}

/* A vector_fn. The last row that an earlier run wrote is compared. */
static int take_vector(surprisal_run *r, uint64_t row)
{
    output *const to = (output *)r->user;
    vector_file *const v = to->vectors;
    for (size_t i = 0; i < r->n_parts; i++) {
        const uint64_t size = lens_tensor_bytes(v->values[i]) / r->n_rows;
        lens_out out = ATTN_ZERO;
        if (r->n_records == r->skip && r->skip > 0) {
            out.crc_table = v->crc_table;
            out_vector(r, v, i, &out);
            if (out.crc != crc_of_file(v, v->begins[i] + row * size, size))
                return to->code = fail(FAILED,
                                       "--resume: %s has other vectors for row %llu: it was made "
                                       "with another model or other options",
                                       v->part, TOOLS_LLU(row + 1));
        }
        out.file = v->file;
        if (system_seek(v->file, v->begins[i] + row * size) != 0)
            return to->code = fail_vectors(v);
        out_vector(r, v, i, &out);
    }
    return fflush(v->file) || ferror(v->file) ? to->code = fail_vectors(v) : 0;
}

/* >> The file ================================================================================== */

static attn_status plan_vectors(surprisal_run *r, vector_file *v, const surprisal_options *o)
{
    char target[LENS_MOST_PATH];
    if (!lens_follow_links(target, o->vectors_file))
        return tool_fail_io(&r->ctx, "cannot write", o->vectors_file);
    const size_t n = r->n_parts, length = strlen(target) + sizeof ".part";
    lens_out count = ATTN_ZERO;
    v->target = arena_text(&r->ctx, &r->memory, target, strlen(target));
    v->part = (char *)arena_alloc(&r->ctx, &r->memory, length, 1);
    v->names = (const char **)arena_alloc(&r->ctx, &r->memory, n, sizeof *v->names);
    v->values = (attn_tensor *)arena_alloc(&r->ctx, &r->memory, n, sizeof *v->values);
    v->begins = (uint64_t *)arena_alloc(&r->ctx, &r->memory, n, sizeof *v->begins);
    v->entries = (lens_zip_entry *)arena_alloc(&r->ctx, &r->memory, n, sizeof *v->entries);
    v->halves = (uint16_t *)arena_alloc(&r->ctx, &r->memory, r->width, sizeof *v->halves);
    if (!v->target || !v->part || !v->names || !v->values || !v->begins || !v->entries ||
        !v->halves)
        return r->ctx.status;
    snprintf(v->part, length, "%s.part", target);
    v->is_npz = lens_ends_in(o->vectors_file, ".npz");
    lens_crc_table(v->crc_table);
    for (size_t i = 0; i < n; i++) {
        attn_tensor *const x = &v->values[i];
        v->names[i] = r->parts_of_vector[i].name;
        x->ndim = 2;
        x->dtype = o->dtype ? ATTN_F16 : ATTN_F32;
        x->shape[0] = (size_t)r->n_rows;
        x->shape[1] = r->parts_of_vector[i].width;
        x->shape[2] = x->shape[3] = 1;
    }
    out_frame(v, &count, n);
    v->size = count.n;
    return lens_check_save(&r->ctx, v->names, v->values, n, v->is_npz);
}

/* Opens FILE.part, where --resume goes on if the rows have a part too. */
static int open_vectors(surprisal_run *r, vector_file *v, output *to)
{
    if (r->n_parts == 0)
        return FINE;
    if (plan_vectors(r, v, to->o))
        return fail_run(r);
    int is_old = system_exists(v->part);
    if (is_old && !to->o->resume)
        return fail_part(v->part);
    if (!is_old) /* without vectors the rows are made again, and compared */
        r->skip = to->kept_at = 0;
    v->file = system_open(v->part, r->skip > 0 ? "rb+" : "wb+");
    if (!v->file)
        return fail(FAILED, "%s: %s", v->part, why(errno));
    if (r->skip > 0 && !is_same_frame(r, v))
        return fail(FAILED, "--resume: %s was made with other options or other texts", v->part);
    r->vector_fn = take_vector;
    to->vectors = v;
    return write_frame(r, v);
}

/* Completes what is around the elements. */
static int end_vectors(const surprisal_run *r, vector_file *v, int code)
{
    for (size_t i = 0; code == FINE && v->is_npz && i < r->n_parts; i++)
        v->entries[i].crc = crc_of_file(v, v->begins[i] - 128, v->entries[i].size);
    return code == FINE && v->file ? write_frame(r, v) : code;
}

/* Gives a whole file its name, after the rows have theirs: --resume needs the pooling as long as they have not. */
static int name_vectors(const vector_file *v, int code)
{
    if (!v->file)
        return code;
    if (code == FINE && system_cut(v->file, v->size) != 0)
        code = fail_vectors(v);
    if (fclose(v->file) != 0 && code == FINE)
        code = fail_vectors(v);
    return code == FINE && !lens_replace(v->part, v->target, -1)
               ? fail(FAILED, "cannot rename %s to %s: %s", v->part, v->target, why(errno))
               : code;
}

#endif
