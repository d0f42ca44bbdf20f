/* Files that appear whole or not at all. Uses attn.h's public API only.
 *
 *     lens_new_file *file = NULL;
 *     attn_status status = lens_new_file_begin(&ctx, &file, path);
 *     if (status == ATTN_OK)
 *         fprintf((FILE *)lens_new_file_stream(file), "...");
 *     status = lens_new_file_end(&ctx, file, status);
 */
#ifndef LENS_NEW_FILE_H
#define LENS_NEW_FILE_H

#include "base.h"
#include "wide.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#include <sys/stat.h>
#elif defined(__unix__) || defined(__APPLE__) || defined(__wasi__)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

/* Buffer of a new file, in bytes: a large page of most processors. That of a pipe. */
#define LENS_NEW_FILE_BLOCK ((size_t)2 << 20)
#define LENS_IO_BLOCK       ((size_t)1 << 20)

#define LENS_TRY(call)                                                                             \
    do {                                                                                           \
        const attn_status tried_ = (call);                                                         \
        if (tried_ != ATTN_OK)                                                                     \
            return tried_;                                                                         \
    } while (0)
#define LENS_REFUSE_IF(ctx, condition, ...)                                                        \
    do {                                                                                           \
        if (condition)                                                                             \
            return attn_fail(ctx, __VA_ARGS__);                                                    \
    } while (0)

/* A path for messages: the last 100 bytes of a long one, so that the reason fits too. */
LENS_FN const char *lens_shown_path(const char *path)
{
    const size_t n = strlen(path);
    if (n > 100)
        path += n - 100;
    while (n > 100 && (*path & 0xc0) == 0x80) /* the middle of a character in UTF-8 */
        path++;
    return path;
}

LENS_FN attn_status lens_fail_io(attn_ctx *ctx, const char *path, const char *what, int error)
{
    return attn_fail(ctx, ATTN_E_IO, "%s: %s: %s", lens_shown_path(path), what,
                     error ? strerror(error) : "the system gave no reason");
}

enum { LENS_MOST_PATH = 4096 };

/* lens_follow_links: the name at which a chain of symbolic links ends; no file need have it. Names under
 * /dev and /proc end it, since they may lead to an open file. Returns 0 with errno if it cannot.
 *
 * lens_may_replace: can a new file replace the old one? *mode gets the permissions of the old
 * file, or -1 for the usual ones.
 *
 * lens_create makes an empty file. Returns 1; 0 if there is one; -1 with errno if it cannot. If
 * the file will get permissions (mode >= 0), only this user can open it until then.
 *
 * lens_replace renames a file over another one and sets its permissions. Returns 0 with errno if
 * it cannot.
 *
 * lens_sync waits until the bytes of a file are on the disk. Returns 0 with errno if it cannot. */

#if defined(_WIN32)
#define lens_follow_links(to, path) (snprintf(to, LENS_MOST_PATH, "%s", path) < LENS_MOST_PATH)
LENS_FN FILE *lens_open(const char *path, const char *mode)
{
    wchar_t *const wide = lens_wide_path(path);
    FILE *const file = wide ? _wfopen(wide, *mode == 'r' ? L"rb" : L"wb") : NULL;
    free(wide);
    return file;
}
LENS_FN int lens_may_replace(const char *path, int *mode)
{
    const DWORD there = lens_attributes(path);
    *mode = -1;
    return there == INVALID_FILE_ATTRIBUTES ||
           !(there & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_DEVICE | FILE_ATTRIBUTE_READONLY));
}
LENS_FN int lens_create(const char *path, int mode)
{
    wchar_t *const wide = lens_wide_path(path);
    const int file =
        wide ? _wopen(wide, _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY, _S_IREAD | _S_IWRITE) : -1;
    (void)mode;
    free(wide);
    if (file < 0)
        return errno == EEXIST ? 0 : -1;
    _close(file);
    return 1;
}
LENS_FN int lens_replace(const char *from, const char *to, int mode)
{
    wchar_t *const old_name = lens_wide_path(from), *const new_name = lens_wide_path(to);
    const int good =
        old_name && new_name && MoveFileExW(old_name, new_name, MOVEFILE_REPLACE_EXISTING);
    (void)mode;
    free(old_name);
    free(new_name);
    if (!good)
        errno = EBUSY;
    return good;
}
LENS_FN int lens_sync(const char *path)
{
    wchar_t *const wide = lens_wide_path(path);
    const int file = wide ? _wopen(wide, _O_WRONLY | _O_BINARY) : -1;
    const int good = file >= 0 && _commit(file) == 0;
    if (file >= 0)
        _close(file);
    free(wide);
    return good;
}
LENS_FN void lens_remove(const char *path)
{
    wchar_t *const wide = lens_wide_path(path);
    if (wide)
        _wremove(wide);
    free(wide);
}
#elif defined(__unix__) || defined(__APPLE__) || defined(__wasi__)
#if defined(__STRICT_ANSI__) && !defined(__cplusplus)
/* -std=c99 hides unistd.h's */
int fsync(int);                                 /* NOLINT(readability-redundant-declaration) */
ssize_t readlink(const char *, char *, size_t); /* NOLINT(readability-redundant-declaration) */
#endif
/* /dev/stderr and such paths lead to an open file. */
LENS_FN int lens_is_system_path(const char *path)
{
    return (strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0) ||
           strncmp(path, "/proc/", 6) == 0;
}
LENS_FN int lens_follow_links(char to[LENS_MOST_PATH], const char *path)
{
    char link[LENS_MOST_PATH];
    size_t kept = 0; /* of the old name: the directory, before a relative one */
    ssize_t n = snprintf(to, LENS_MOST_PATH, "%s", path);
    int hops;
    for (hops = 0; hops < 40 && n >= 0 && kept + (size_t)n < LENS_MOST_PATH; hops++) {
        n = lens_is_system_path(to) ? -1 : readlink(to, link, sizeof link - 1);
        if (n < 0)
            return 1;
        const char *slash = link[0] == '/' ? NULL : strrchr(to, '/');
        kept = slash ? (size_t)(slash + 1 - to) : 0;
        link[n] = 0;
        snprintf(to + kept, LENS_MOST_PATH - kept, "%s", link);
    }
    errno = hops < 40 ? ENAMETOOLONG : ELOOP;
    return 0;
}
LENS_FN int lens_may_replace(const char *path, int *mode)
{
    struct stat there;
    *mode = -1;
    if (lens_is_system_path(path))
        return 0;
    if (stat(path, &there) != 0)
        return 1;
    *mode = (int)there.st_mode & 0777;
    return S_ISREG(there.st_mode) && access(path, W_OK) == 0;
}
LENS_FN int lens_create(const char *path, int mode)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL, mode < 0 ? 0666 : 0600);
    if (file < 0)
        return errno == EEXIST ? 0 : -1;
    close(file);
    return 1;
}
/* A file that is mounted by itself, as into a container, cannot be replaced: it gets the bytes. */
LENS_FN int lens_write_over(const char *from, const char *to)
{
    char block[1 << 14];
    FILE *const in = fopen(from, "rb"), *const out = in ? fopen(to, "wb") : NULL;
    int good = out != NULL;
    size_t n;
    while (good && (n = fread(block, 1, sizeof block, in)) > 0)
        good = fwrite(block, 1, n, out) == n;
    good = good && !ferror(in);
    if (out && fclose(out) != 0)
        good = 0;
    if (in)
        fclose(in);
    return good && remove(from) == 0;
}
LENS_FN int lens_replace(const char *from, const char *to, int mode)
{
#ifdef __wasi__ /* its files have no permissions */
    (void)mode;
#else
    if (mode >= 0)
        chmod(from, (mode_t)mode);
#endif
    return rename(from, to) == 0 || (errno == EBUSY && lens_write_over(from, to));
}
LENS_FN int lens_sync(const char *path)
{
    const int file = open(path, O_WRONLY);
    int good = file >= 0 && fsync(file) == 0, reason = errno;
    if (file >= 0 && (reason == EINVAL || reason == ENOSYS || reason == EOPNOTSUPP))
        good = 1; /* a file system that cannot: close tells of lost bytes */
    if (file >= 0)
        close(file);
    errno = reason;
    return good;
}
#define lens_remove(path) remove(path)
#else /* standard C cannot tell what kind of file a path is: each is written in place */
#define lens_follow_links(to, path)  (snprintf(to, LENS_MOST_PATH, "%s", path) < LENS_MOST_PATH)
#define lens_may_replace(path, mode) (*(mode) = -1, 0)
#define lens_create(path, mode)      (-1)
#define lens_replace(from, to, mode) 0
#define lens_sync(path)              1
#define lens_remove(path)            remove(path)
#endif

/* A file that appears whole or not at all. You write to its stream. Until the end the bytes are in
 * the file PATH.00.part (or another number), or attn.00.part beside it if the name is very long.
 * After ATTN_E_IO an older file is still there. The new file gets the permissions of the older one.
 * A symbolic link stays, and the file that it leads to is replaced. Written in place are devices,
 * pipes, open files under /dev or /proc, files in a directory that takes no new ones, files that
 * are mounted by themselves, and all files on systems that are neither POSIX nor Windows. There is
 * no fsync. */
typedef struct lens_new_file {
    FILE *stream;
    char *path;
    char *part; /* the path until it is whole; "" if the file is written in place */
    int mode;   /* permissions of the finished file, or -1 */
} lens_new_file;

#ifndef _WIN32
LENS_FN FILE *lens_open(const char *path, const char *mode)
{
    return fopen(path, mode);
}
#endif

/* Creates the file `part` beside the path, with the first free number. Returns what lens_create
 * returned. */
LENS_FN int lens_new_file_create(lens_new_file *file)
{
    size_t length = strlen(file->path), name = length;
    int made = 0;
    while (name > 0 && file->path[name - 1] != '/' && file->path[name - 1] != '\\')
        name--;
    memcpy(file->part, file->path, length);
    if (length - name > 240) { /* a name has 255 bytes at most */
        length = name + 4;
        memcpy(file->part + name, "attn", 4);
    }
    for (int i = 0; i < 100 && made == 0; i++) {
        memcpy(file->part + length, ".00.part", sizeof ".00.part");
        file->part[length + 1] = (char)('0' + i / 10);
        file->part[length + 2] = (char)('0' + i % 10);
        made = lens_create(file->part, file->mode);
    }
    return made;
}

/* Begins a new file; lens_new_file_end must end it, even after a failed write. ATTN_E_IO if the
 * directory cannot be written to; *file is NULL on failure. */
/* Paths that lead to a pipe, a device or an open file are written in place. All writes but the last
 * have the size of the buffer, so Linux keeps the file in large pages: a model that was just
 * written opens twice as fast, and generates about 5 % faster when it is mapped. */
LENS_FN attn_status lens_new_file_begin(attn_ctx *ctx, lens_new_file **file, const char *path)
{
    char target[LENS_MOST_PATH];
    size_t length = path ? strlen(path) : 0;
    lens_new_file *d;
    int made = 1;
    LENS_REFUSE_IF(ctx, !file, ATTN_E_ARGUMENT,
                   "lens_new_file_begin: no place for the new file given");
    *file = NULL;
    LENS_REFUSE_IF(ctx, length == 0, ATTN_E_ARGUMENT, "lens_new_file_begin: no path was given");
    if (!lens_follow_links(target, path))
        return lens_fail_io(ctx, path, "cannot be written", errno);
    path = target;
    length = strlen(path);
    d = (lens_new_file *)attn_alloc(
        ctx, 1, sizeof *d + LENS_NEW_FILE_BLOCK + 2 * length + sizeof "attn.00.part" + 1,
        "a new file");
    if (!d)
        return ATTN_E_MEMORY;
    d->path = (char *)(d + 1) + LENS_NEW_FILE_BLOCK;
    memcpy(d->path, path, length + 1);
    d->part = d->path + length + 1;
    if (lens_may_replace(path, &d->mode))
        made = lens_new_file_create(d);
    if (made < 0 && (errno == EACCES || errno == EPERM || errno == EROFS)) {
        d->part[0] = 0; /* no file can be made beside it */
        made = 1;
    }
    if (made == 1)
        d->stream = lens_open(d->part[0] ? d->part : path, "wb");
    if (d->stream) { /* the buffer is behind *d; a pipe has a smaller one, for which readers wait */
        setvbuf(d->stream, (char *)(d + 1), _IOFBF,
                d->part[0] ? LENS_NEW_FILE_BLOCK : LENS_IO_BLOCK);
        *file = d;
        return ATTN_OK;
    }
    int reason = errno;
    if (made == 1 && d->part[0])
        lens_remove(d->part);
    attn_free(d);
    return made == 0 ? attn_fail(ctx, ATTN_E_IO,
                                 "%s: 100 unfinished ones exist, from %s.00.part on; if no program "
                                 "writes to them, remove them",
                                 lens_shown_path(path), lens_shown_path(path))
                     : lens_fail_io(ctx, path, "cannot be written", reason);
}

/* The stream to write to. Do not close it. */
LENS_FN FILE *lens_new_file_stream(lens_new_file *file)
{
    return file ? file->stream : NULL;
}

/* Closes and frees *file. If `status` is ATTN_OK and everything was written, the file takes its
 * name; else it is removed. Returns `status`, or the failure of writing, closing or renaming. NULL
 * is fine. */
LENS_FN attn_status lens_new_file_end(attn_ctx *ctx, lens_new_file *file, attn_status status)
{
    int reason = errno;
    if (!file)
        return status;
    int is_apart = file->part[0] != 0;
    int written = !ferror(file->stream);
    if (fclose(file->stream) != 0 && written) {
        reason = errno;
        written = 0;
    }
    if (status == ATTN_OK && !written)
        status = lens_fail_io(ctx, file->path, "writing failed", reason);
    if (status == ATTN_OK && is_apart && !lens_replace(file->part, file->path, file->mode))
        status = lens_fail_io(ctx, file->path, "the finished file cannot take its place", errno);
    if (is_apart && status != ATTN_OK)
        lens_remove(file->part);
    attn_free(file);
    return status;
}

#endif
