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
    return ctx->status
               ? ctx->status
               : tool_fail(ctx, ATTN_E_FORMAT, "%s: %s at byte %llu; was the file cut short?",
                           f->name, what, TOOLS_LLU(at));
}

/* Are there `size` bytes at `offset`, which begin with these four? */
TOOLS_COLD int zip_has(attn_ctx *ctx, source_file *f, uint64_t offset, unsigned char *bytes,
                       size_t size, const char *first)
{
    return offset <= f->size && size <= f->size - offset &&
           source_bytes(ctx, f, offset, bytes, size) == ATTN_OK && memcmp(bytes, first, 4) == 0;
}

/* Finds where the list begins, and how many bytes and members it has. */
TOOLS_COLD attn_status zip_end(attn_ctx *ctx, source *s, source_file *f, uint64_t *at,
                               uint64_t *size, uint64_t *n)
{
    enum { ZIP_END = 22, ZIP_FAR = 20, ZIP_FAR_END = 56 };
    const uint64_t most = f->size < sizeof s->raw ? f->size : sizeof s->raw;
    unsigned char *const raw = s->raw, end[ZIP_FAR_END];
    size_t i = (size_t)most < ZIP_END ? 0 : (size_t)most - ZIP_END;
    if (most < ZIP_END || source_bytes(ctx, f, f->size - most, raw, (size_t)most))
        return zip_broken(ctx, f, "no zip archive ends", f->size);
    while (i > 0 && memcmp(raw + i, "PK\5\6", 4) != 0)
        i--;
    *n = zip_u16(raw + i + 10);
    *size = get_u32(raw + i + 12);
    *at = get_u32(raw + i + 16);
    if (i >= ZIP_FAR && memcmp(raw + i - ZIP_FAR, "PK\6\7", 4) == 0) {
        const uint64_t place = get_u64(raw + i - ZIP_FAR + 8);
        if (!zip_has(ctx, f, place, end, sizeof end, "PK\6\6"))
            return zip_broken(ctx, f, "no end of a list", place);
        *n = get_u64(end + 32);
        *size = get_u64(end + 40);
        *at = get_u64(end + 48);
    }
    return memcmp(raw + i, "PK\5\6", 4) == 0 && *at <= f->size && *size <= f->size - *at &&
                   *size <= SOURCE_MAX_HEADER && *n <= *size / 46
               ? ATTN_OK
               : zip_broken(ctx, f, "the archive has no list of its members", f->size);
}

/* Takes from the extra field the numbers for which the list has 0xFFFFFFFF. */
TOOLS_COLD void zip_far(const unsigned char *extra, size_t size, uint64_t *numbers[3])
{
    for (size_t all; size >= 4 && (all = 4 + zip_u16(extra + 2)) <= size; extra += all, size -= all)
        for (size_t i = 0, at = 4; zip_u16(extra) == 1 && i < 3 && at + 8 <= all; i++)
            if (*numbers[i] == 0xFFFFFFFF) {
                *numbers[i] = get_u64(extra + at);
                at += 8;
            }
}

/* Reads the entry at `p` of the list, which has `left` bytes more. Returns its bytes; 0 after a message. */
TOOLS_COLD size_t zip_entry(attn_ctx *ctx, source_file *f, zip_member *m, const unsigned char *p,
                            size_t left)
{
    unsigned char head[30];
    const size_t name = left < 46 ? 0 : zip_u16(p + 28), extra = left < 46 ? 0 : zip_u16(p + 30);
    const size_t used = 46 + name + extra + (left < 46 ? 0 : zip_u16(p + 32));
    shown shown_name;
    if (used > left || memcmp(p, "PK\1\2", 4) != 0) {
        zip_broken(ctx, f, "the list of members breaks off", m->offset);
        return 0;
    }
    uint64_t packed = get_u32(p + 20), *numbers[3] = {&m->size, &packed, &m->offset};
    m->size = get_u32(p + 24);
    m->offset = get_u32(p + 42);
    m->name = (const char *)p + 46;
    m->name_size = name;
    zip_far(p + 46 + name, extra, numbers);
    if (zip_u16(p + 10) != 0)
        tool_fail(ctx, ATTN_E_UNSUPPORTED, "%s: %s is compressed; PyTorch stores it as it is",
                  f->name, show(shown_name, m->name, name));
    else if (zip_has(ctx, f, m->offset, head, sizeof head, "PK\3\4"))
        m->offset += sizeof head + zip_u16(head + 26) + zip_u16(head + 28);
    else
        zip_broken(ctx, f, "no member begins", m->offset);
    if (!ctx->status && (m->offset > f->size || m->size > f->size - m->offset))
        zip_broken(ctx, f, "a member does not fit", m->offset);
    return ctx->status ? 0 : used;
}

TOOLS_COLD attn_status zip_open(attn_ctx *ctx, source *s, zip_archive *z, source_file *f)
{
    uint64_t at = 0, size = 0, n = 0;
    if (zip_end(ctx, s, f, &at, &size, &n))
        return ctx->status;
    unsigned char *const list = (unsigned char *)arena_alloc(ctx, &s->memory, (size_t)size + 1, 1);
    z->members = (zip_member *)arena_alloc(ctx, &s->memory, (size_t)n + 1, sizeof *z->members);
    if (!list || !z->members || source_bytes(ctx, f, at, list, (size_t)size) ||
        names_init(ctx, &s->memory, &z->by_name, (size_t)n))
        return ctx->status;
    for (size_t done = 0, i = 0, used; i < n; done += used, i = ++z->n_members) {
        zip_member *const m = &z->members[i];
        m->offset = at + done;
        if ((used = zip_entry(ctx, f, m, list + done, (size_t)size - done)) == 0)
            return ctx->status;
        names_add(&z->by_name, m->name, m->name_size, &i);
    }
    return ATTN_OK;
}

/* The member of this name in a folder; NULL: there is none. */
TOOLS_COLD const zip_member *zip_find(const zip_archive *z, const char *folder, const char *name,
                                      size_t size)
{
    const name_slot *const slot =
        z->n_members ? names_slot(&z->by_name, folder, strlen(folder), name, size) : NULL;
    return slot && slot->text ? &z->members[slot->value] : NULL;
}

#endif
