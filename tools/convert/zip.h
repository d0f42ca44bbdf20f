/* The members of a zip archive that are stored, not compressed, as PyTorch writes them:
 *
 *     each member:  "PK\3\4", 26 bytes, name, extra, data
 *     the list:     "PK\1\2" for each, with its size and where it begins
 *     the end:      "PK\5\6" with where the list begins; 0xFFFFFFFF there, and the true number stands in
 *                   "PK\6\6", to which "PK\6\7" points; of a member, in the list's extra field 1
 *
 * Numbers are little-endian. Everything that the archive says of itself is checked against its size. */
#ifndef TOOLS_ZIP_H
#define TOOLS_ZIP_H

#include "source.h"

typedef struct zip_member {
    const char *name; /* in the list, without a zero behind it */
    size_t name_size;
    uint64_t offset, size; /* of its data in the file */
} zip_member;

typedef struct zip_archive {
    source_file *file;
    zip_member *members;
    size_t n_members;
    name_table by_name;
} zip_archive;

TOOLS_COLD unsigned zip_u16(const unsigned char *p)
{
    return (unsigned)(p[0] | p[1] << 8);
}

TOOLS_COLD attn_status zip_broken(attn_ctx *ctx, const source_file *f, const char *what,
                                  uint64_t at)
{
    return tool_fail(ctx, ATTN_E_FORMAT, "%s: %s at byte %llu; was the file cut short?", f->name,
                     what, TOOLS_LLU(at));
}

/* Finds where the list begins, and how many bytes and members it has. */
TOOLS_COLD attn_status zip_end(attn_ctx *ctx, source *s, source_file *f, uint64_t *at,
                               uint64_t *size, uint64_t *n)
{
    enum { ZIP_END = 22, ZIP_FAR = 20, ZIP_FAR_END = 56 };
    const uint64_t most = f->size < sizeof s->raw ? f->size : sizeof s->raw;
    unsigned char *const raw = s->raw;
    if (f->size < ZIP_END || source_bytes(ctx, f, f->size - most, raw, (size_t)most))
        return ctx->status ? ctx->status : zip_broken(ctx, f, "no zip archive ends", f->size);
    size_t i = (size_t)most - ZIP_END;
    while (i > 0 && memcmp(raw + i, "PK\5\6", 4) != 0)
        i--;
    if (memcmp(raw + i, "PK\5\6", 4) != 0)
        return zip_broken(ctx, f, "the archive has no list of its members", f->size);
    *n = zip_u16(raw + i + 10);
    *size = get_u32(raw + i + 12);
    *at = get_u32(raw + i + 16);
    if (i >= ZIP_FAR && memcmp(raw + i - ZIP_FAR, "PK\6\7", 4) == 0) {
        unsigned char end[ZIP_FAR_END];
        const uint64_t place = get_u64(raw + i - ZIP_FAR + 8);
        if (place > f->size || f->size - place < ZIP_FAR_END ||
            source_bytes(ctx, f, place, end, ZIP_FAR_END) || memcmp(end, "PK\6\6", 4) != 0)
            return ctx->status ? ctx->status : zip_broken(ctx, f, "no end of a list", place);
        *n = get_u64(end + 32);
        *size = get_u64(end + 40);
        *at = get_u64(end + 48);
    }
    return *at <= f->size && *size <= f->size - *at && *size <= SOURCE_MAX_HEADER &&
                   *n <= *size / 46
               ? ATTN_OK
               : zip_broken(ctx, f, "the list of the archive's members does not fit", *at);
}

/* Takes the sizes of the extra field that stand there because the list has 0xFFFFFFFF. */
TOOLS_COLD void zip_far(const unsigned char *extra, size_t size, uint64_t *numbers[3])
{
    while (size >= 4 && zip_u16(extra + 2) <= size - 4) {
        size_t left = zip_u16(extra + 2);
        if (zip_u16(extra) == 1)
            for (const unsigned char *p = extra + 4; left >= 8; p += 8, left -= 8) {
                int i = 0;
                while (i < 3 && *numbers[i] != 0xFFFFFFFF)
                    i++;
                if (i < 3)
                    *numbers[i] = get_u64(p);
            }
        size -= 4 + zip_u16(extra + 2);
        extra += 4 + zip_u16(extra + 2);
    }
}

/* Reads the entry at `p` of the list, which has `left` bytes more; *used: those of the entry. */
TOOLS_COLD attn_status zip_entry(attn_ctx *ctx, source_file *f, zip_member *m,
                                 const unsigned char *p, size_t left, size_t *used)
{
    unsigned char head[30];
    if (left < 46 || memcmp(p, "PK\1\2", 4) != 0)
        return zip_broken(ctx, f, "the list of members breaks off", m->offset);
    const size_t name = zip_u16(p + 28), extra = zip_u16(p + 30);
    *used = 46 + name + extra + zip_u16(p + 32);
    if (*used > left)
        return zip_broken(ctx, f, "the list of members breaks off", m->offset);
    uint64_t packed = get_u32(p + 20);
    m->size = get_u32(p + 24);
    m->offset = get_u32(p + 42);
    m->name = (const char *)p + 46;
    m->name_size = name;
    uint64_t *far_numbers[3] = {&m->size, &packed, &m->offset};
    zip_far(p + 46 + name, extra, far_numbers);
    shown shown_name;
    if (zip_u16(p + 10) != 0)
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "%s: %s is compressed; PyTorch stores it as it is", f->name,
                         show(shown_name, m->name, name));
    if (m->offset > f->size || f->size - m->offset < sizeof head ||
        source_bytes(ctx, f, m->offset, head, sizeof head) || memcmp(head, "PK\3\4", 4) != 0)
        return ctx->status ? ctx->status : zip_broken(ctx, f, "no member begins", m->offset);
    m->offset += sizeof head + zip_u16(head + 26) + zip_u16(head + 28);
    return m->offset <= f->size && m->size <= f->size - m->offset
               ? ATTN_OK
               : zip_broken(ctx, f, "a member does not fit", m->offset);
}

TOOLS_COLD attn_status zip_open(attn_ctx *ctx, source *s, zip_archive *z, source_file *f)
{
    uint64_t at = 0, size = 0, n = 0;
    size_t done = 0, used = 0;
    z->file = f;
    if (zip_end(ctx, s, f, &at, &size, &n))
        return ctx->status;
    unsigned char *const list = (unsigned char *)arena_alloc(ctx, &s->memory, (size_t)size + 1, 1);
    z->members = (zip_member *)arena_alloc(ctx, &s->memory, (size_t)n + 1, sizeof *z->members);
    if (!list || !z->members || source_bytes(ctx, f, at, list, (size_t)size) ||
        names_init(ctx, &s->memory, &z->by_name, (size_t)n))
        return ctx->status;
    for (; z->n_members < n; z->n_members++, done += used) {
        zip_member *const m = &z->members[z->n_members];
        size_t number = z->n_members;
        m->offset = at + done;
        if (zip_entry(ctx, f, m, list + done, (size_t)size - done, &used))
            return ctx->status;
        names_add(&z->by_name, m->name, m->name_size, &number);
    }
    return ATTN_OK;
}

/* The member of this name behind a prefix; NULL: there is none. */
TOOLS_COLD const zip_member *zip_find(const zip_archive *z, const char *prefix, size_t prefix_size,
                                      const char *name, size_t name_size)
{
    char path[512];
    size_t number = 0;
    if (prefix_size + name_size > sizeof path)
        return NULL;
    memcpy(path, prefix, prefix_size);
    memcpy(path + prefix_size, name, name_size);
    return names_find(&z->by_name, path, prefix_size + name_size, &number) ? &z->members[number]
                                                                           : NULL;
}

#endif
