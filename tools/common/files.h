/* What every tool needs: messages, memory that is freed all at once, reading of small files, and a table of
 * strings. Plain C99: system.h has what depends on the operating system. */
#ifndef TOOLS_FILES_H
#define TOOLS_FILES_H

#include "system.h"
#include "attn.h"
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No warning for functions that a tool does not use. */
#if defined(__MINGW_PRINTF_FORMAT) /* C99's printf, not that of Microsoft's library */
#define TOOLS_FN           static __attribute__((unused))
#define TOOLS_PRINTF(a, b) __attribute__((format(__MINGW_PRINTF_FORMAT, a, b)))
#elif defined(__GNUC__)
#define TOOLS_FN           static __attribute__((unused))
#define TOOLS_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define TOOLS_FN static
#define TOOLS_PRINTF(a, b)
#endif

/* A variable of each thread, because a library answers several at a time. tcc has none, and makes programs. */
#if defined(__TINYC__) || !defined(__GNUC__)
#define TOOLS_THREAD static
#else
#define TOOLS_THREAD static __thread
#endif
#if defined(__GNUC__) /* small rather than fast */
#define TOOLS_COLD TOOLS_FN __attribute__((cold))
#else
#define TOOLS_COLD TOOLS_FN
#endif

#define TOOLS_LLU(x) ((unsigned long long)(x))

/* The size of a control character at text[i], which a terminal would obey rather than show; 0: there is
 * none. Those of ASCII take one byte, and U+0080 to U+009F take two in UTF-8, or are one byte that does
 * not continue a character. attn_fail follows the same
 * rule. */
TOOLS_FN size_t control_size(const char *text, size_t i, size_t size)
{
    const unsigned char *at = (const unsigned char *)text + i;
    const unsigned char before = i ? at[-1] : 0, next = i + 1 < size ? at[1] : 0;
    if (*at == 0xc2 && next >= 0x80 && next < 0xa0)
        return 2;
    return *at < 0x20 || *at == 0x7f || (before < 0x80 && *at >= 0x80 && *at < 0xa0);
}

/* Cuts a text to `room` bytes: its beginning and its end, with dots between them. */
TOOLS_FN void cut_middle(char *out, size_t room, const char *text)
{
    const size_t size = strlen(text), head = room / 3;
    size_t tail = size - (room - head - 4), n = head;
    while (n > 0 && (text[n] & 0xc0) == 0x80) /* not within a character of UTF-8 */
        n--;
    while ((text[tail] & 0xc0) == 0x80)
        tail++;
    memcpy(out, text, n);
    snprintf(out + n, room - n, "...%s", text + tail);
}

/* attn_fail, except that a message that is too long, because of a long path, loses its middle: the reason is
 * at its end. */
TOOLS_FN attn_status tool_fail(attn_ctx *ctx, attn_status status, const char *format, ...)
    TOOLS_PRINTF(3, 4);
TOOLS_FN attn_status tool_fail(attn_ctx *ctx, attn_status status, const char *format, ...)
{
    char cut[sizeof ctx->message], *whole = NULL;
    va_list args;
    va_start(args, format);
    int size = vsnprintf(cut, sizeof cut, format, args);
    va_end(args);
    if (size >= (int)sizeof cut && (whole = (char *)malloc((size_t)size + 1)) != NULL) {
        va_start(args, format);
        vsnprintf(whole, (size_t)size + 1, format, args);
        va_end(args);
        cut_middle(cut, sizeof cut, whole);
        free(whole);
    }
    return attn_fail(ctx, status, "%s", cut);
}
#ifdef __clang_analyzer__ /* it does not look into a function of any number of arguments */
#define tool_fail(ctx, status_, ...)                                                               \
    (tool_fail(ctx, status_, __VA_ARGS__), (ctx)->status = (status_))
#endif

/* A name from a file, for messages: control characters become \xNN, and a long name is cut. Returns `out`. */
typedef char shown[64];
TOOLS_FN const char *show(shown out, const char *text, size_t size)
{
    size_t n = 0, control = 0; /* control: remaining bytes of a control character */
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        control = control > 1 ? control - 1 : control_size(text, i, size);
        if (n + 8 > sizeof(shown)) {
            memcpy(out + n, "...", 3);
            n += 3;
            break;
        }
        if (control == 0)
            out[n++] = (char)c;
        else
            n += (size_t)snprintf(out + n, 5, "\\x%02x", (unsigned)c);
    }
    out[n] = 0;
    return out;
}

/* The C library's words for an errno value. */
TOOLS_FN const char *system_word(int error)
{
    return error ? strerror(error) : "the system gave no reason";
}

/* Why the latest call of the system failed. */
TOOLS_FN const char *reason(void)
{
    return system_word(errno);
}

/* "cannot open a/b.json: No such file or directory" */
TOOLS_FN attn_status tool_fail_io(attn_ctx *ctx, const char *what, const char *path)
{
    return tool_fail(ctx, ATTN_E_IO, "%s %s: %s", what, path, reason());
}

/* The last part of a path, for messages. */
TOOLS_FN const char *base_name(const char *path)
{
    const char *p, *base = path;
    for (p = path; *p; p++)
        if ((*p == '/' || *p == '\\') && p[1])
            base = p + 1;
    return base;
}

/* An arena is a chain of blocks that live until arena_free. Start with a zeroed one. */
typedef union arena_block {
    union arena_block *next;
    double align_double;
    uint64_t align_u64;
} arena_block;
typedef struct arena {
    arena_block *blocks;
} arena;

/* `count` zeroed elements of `size` bytes. */
TOOLS_FN void *arena_alloc(attn_ctx *ctx, arena *memory, size_t count, size_t size)
{
    arena_block *block = NULL;
    if (size == 0 || count <= (SIZE_MAX - sizeof(arena_block)) / size)
        block = (arena_block *)calloc(1, sizeof(arena_block) + count * size);
    if (!block) {
        tool_fail(ctx, ATTN_E_MEMORY, "no memory for %llu times %llu bytes", TOOLS_LLU(count),
                  TOOLS_LLU(size));
        return NULL;
    }
    block->next = memory->blocks;
    memory->blocks = block;
    return block + 1;
}

TOOLS_FN void arena_free(arena *memory)
{
    while (memory->blocks) {
        arena_block *next = memory->blocks->next;
        free(memory->blocks);
        memory->blocks = next;
    }
}

/* A copy with a zero behind it. */
TOOLS_FN char *arena_text(attn_ctx *ctx, arena *memory, const char *text, size_t size)
{
    char *copy = (char *)arena_alloc(ctx, memory, size + 1, 1);
    if (copy && size)
        memcpy(copy, text, size);
    return copy;
}

/* Formats a text that lives as long as the arena. */
TOOLS_FN char *arena_words_of(attn_ctx *ctx, arena *memory, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *const text = (char *)arena_alloc(ctx, memory, (size_t)size + 1, 1);
    if (text)
        vsnprintf(text, (size_t)size + 1, format, args);
    return text;
}

TOOLS_FN char *arena_words(attn_ctx *ctx, arena *memory, const char *format, ...)
    TOOLS_PRINTF(3, 4);
TOOLS_FN char *arena_words(attn_ctx *ctx, arena *memory, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *const text = arena_words_of(ctx, memory, format, args);
    va_end(args);
    return text;
}

/* "directory/name". */
TOOLS_FN char *arena_path(attn_ctx *ctx, arena *memory, const char *directory, const char *name)
{
    size_t n = strlen(directory), m = strlen(name);
    char *path = (char *)arena_alloc(ctx, memory, n + m + 2, 1);
    if (path)
        snprintf(path, n + m + 2, "%s%s%s", directory, n && directory[n - 1] == '/' ? "" : "/",
                 name);
    return path;
}

/* The number of bytes of a file; 0 if it cannot be opened, or path is NULL. */
TOOLS_FN uint64_t file_bytes(const char *path)
{
    FILE *const file = path ? system_open(path, "rb") : NULL;
    uint64_t size = 0;
    if (file && system_size(file, &size))
        size = 0;
    if (file)
        fclose(file);
    return size;
}

/* Opens a file that is read more than once or from the middle, so pipes and devices are refused. NULL after
 * a message. */
TOOLS_FN FILE *open_input(attn_ctx *ctx, const char *path)
{
    static const char pointer[] = "version https://git-lfs";
    char start[sizeof pointer - 1];
    const char *what = system_not_a_file(path);
    FILE *file = what ? NULL : system_open(path, "rb");
    if (what)
        tool_fail(ctx, ATTN_E_IO, "%s is %s, where a file is needed", path, what);
    else if (!file)
        tool_fail_io(ctx, "cannot open", path);
    else if (fread(start, 1, sizeof start, file) == sizeof start &&
             memcmp(start, pointer, sizeof start) == 0)
        tool_fail(ctx, ATTN_E_FORMAT,
                  "%s is not the file but a note of Git LFS that stands for it; `git lfs pull` "
                  "fetches the file",
                  path);
    if (file && (ctx->status || fseek(file, 0, SEEK_SET))) {
        if (!ctx->status)
            tool_fail_io(ctx, "cannot read", path);
        fclose(file);
        file = NULL;
    }
    return file;
}

/* Reads all of a stream, which may be a pipe. A zero follows the bytes. */
/* Sees the bytes of a program's input before it reads them. NULL: nobody asks. */
TOOLS_FN void (*input_seen)(const char *bytes, size_t size);

TOOLS_FN attn_status read_all(attn_ctx *ctx, arena *memory, FILE *file, const char *name,
                              size_t limit, char **bytes, size_t *size)
{
    size_t capacity = 1 << 16, n = 0, got;
    char *buffer = (char *)malloc(capacity), *larger;
    attn_status status = ATTN_OK;
    while (buffer && n <= limit && (got = system_fread(buffer + n, capacity - n, file)) > 0) {
        n += got;
        if (capacity - n < 16) {
            larger = capacity <= SIZE_MAX / 2 ? (char *)realloc(buffer, capacity * 2) : NULL;
            if (!larger)
                free(buffer);
            buffer = larger;
            capacity *= 2;
        }
    }
    if (!buffer)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory to read %s", name);
    *bytes = NULL;
    *size = n;
    if (ferror(file))
        status = tool_fail_io(ctx, "cannot read", name);
    else if (n > limit)
        status = tool_fail(ctx, ATTN_E_FORMAT,
                           "%s is larger than %llu bytes, the most that such a file can be here",
                           name, TOOLS_LLU(limit));
    else if ((*bytes = arena_text(ctx, memory, buffer, n)) == NULL)
        status = ATTN_E_MEMORY; /* arena_text said so */
    free(buffer);
    return status;
}

/* Number of bytes of the byte order mark at the beginning of a text; 0 if there is none. */
TOOLS_FN size_t order_mark_size(const char *text, size_t size)
{
    return text && size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* Editors and shells of Windows write UTF-16. Its byte order mark is not valid UTF-8. */
#define UTF16_ADVICE                                                                               \
    "is UTF-16, where UTF-8 is needed: save it as UTF-8 (iconv -f UTF-16 -t UTF-8 converts it)"

TOOLS_FN int is_utf16(const char *text, size_t size)
{
    return size >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0);
}

/* Reads all bytes of a small file. */
TOOLS_FN attn_status read_bytes(attn_ctx *ctx, arena *memory, const char *path, size_t limit,
                                char **bytes, size_t *size)
{
    FILE *file = open_input(ctx, path);
    *size = 0;
    if (!file)
        return ctx->status;
    attn_status status = read_all(ctx, memory, file, path, limit, bytes, size);
    fclose(file);
    if (status == ATTN_OK && *size == 0)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s is empty", path);
    return status;
}

/* Reads a small file whole: configurations and vocabularies, not weights. A person may have edited it, so a
 * byte order mark before the text is left out. */
TOOLS_FN attn_status read_file(attn_ctx *ctx, arena *memory, const char *path, size_t limit,
                               char **text, size_t *size)
{
    *text = NULL;
    *size = 0;
    if (read_bytes(ctx, memory, path, limit, text, size))
        return ctx->status;
    if (is_utf16(*text, *size))
        return tool_fail(ctx, ATTN_E_FORMAT, "%s " UTF16_ADVICE, path);
    size_t mark = order_mark_size(*text, *size);
    *text += mark;
    *size -= mark;
    return ATTN_OK;
}

/* A table from strings to numbers: open addressing, at most half full, for a known number of strings, which
 * it does not copy. The strings come from files. A hostile file could hold many strings with the same hash,
 * so the hash depends on a seed that differs in each run. Nothing else depends on the seed. */
typedef struct name_slot {
    const char *text;
    size_t size;
    size_t value;
} name_slot;
typedef struct name_table {
    name_slot *slots;
    size_t mask;
    uint64_t seed;
} name_table;

TOOLS_FN attn_status names_init(attn_ctx *ctx, arena *memory, name_table *table, size_t count)
{
    size_t n = 16;
    while (n / 2 < count && n <= SIZE_MAX / 2)
        n *= 2;
    table->mask = n - 1;
    table->seed = system_seed();
    table->slots = (name_slot *)arena_alloc(ctx, memory, n, sizeof(name_slot));
    return table->slots ? ATTN_OK : ctx->status;
}

/* FNV-like. Folding the upper half into the lower one after each byte makes collisions of two strings depend
 * on all of the seed; with the product only, strings that collide for one seed would collide for most seeds. */
TOOLS_FN uint64_t names_hash(uint64_t hash, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ (unsigned char)text[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

/* The slot where the string a, continued by b, is or would be. */
TOOLS_FN name_slot *names_slot(const name_table *table, const char *a, size_t n, const char *b,
                               size_t m)
{
    size_t i = (size_t)names_hash(names_hash(table->seed, a, n), b, m) & table->mask;
    for (;; i = (i + 1) & table->mask) {
        name_slot *slot = &table->slots[i];
        if (!slot->text)
            return slot;
        if (slot->size == n + m && memcmp(slot->text, a, n) == 0 &&
            (m == 0 || memcmp(slot->text + n, b, m) == 0))
            return slot;
    }
}

/* 1 if the string was there; *value is then its number. */
TOOLS_FN int names_find(const name_table *table, const char *text, size_t size, size_t *value)
{
    const name_slot *slot = names_slot(table, text, size, NULL, 0);
    if (slot->text)
        *value = slot->value;
    return slot->text != NULL;
}

/* 0 if the string was there already; *value is then its number, else the table keeps *value. */
TOOLS_FN int names_add(name_table *table, const char *text, size_t size, size_t *value)
{
    name_slot *slot = names_slot(table, text, size, NULL, 0);
    if (slot->text) {
        *value = slot->value;
        return 0;
    }
    slot->text = text;
    slot->size = size;
    slot->value = *value;
    return 1;
}

/* Little-endian numbers, byte by byte, whatever the host. */
TOOLS_FN uint32_t get_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

TOOLS_FN uint64_t get_u64(const unsigned char *p)
{
    return (uint64_t)get_u32(p) | (uint64_t)get_u32(p + 4) << 32;
}

TOOLS_FN void put_u32(unsigned char *p, uint32_t value)
{
    p[0] = (unsigned char)(value & 255);
    p[1] = (unsigned char)(value >> 8 & 255);
    p[2] = (unsigned char)(value >> 16 & 255);
    p[3] = (unsigned char)(value >> 24);
}

TOOLS_FN void put_u64(unsigned char *p, uint64_t value)
{
    put_u32(p, (uint32_t)(value & 0xffffffffu));
    put_u32(p + 4, (uint32_t)(value >> 32));
}

#endif
