/* Makes calls of the system fail: loaded before a program (LD_PRELOAD), it fails call number
 * $FAULT_AT of all calls that the program itself makes to the functions below, and at the end
 * leaves the number of calls in the file $FAULT_COUNT. With FAULT_ON=1 all later calls fail too,
 * as they would on a full disk; with FAULT_REMOVE=1 files that should be removed stay, as far as it
 * goes by these rules; with FAULT_SIGNAL the program gets that signal instead, and the call does
 * its work. Linux with glibc; tests/suites/faults uses it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);

static uintptr_t first, last; /* where the program itself lies */
static long calls, fault_at = -1;
static int ready, goes_on, files_stay, signal_number;

static int find_program(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size, (void)user;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            const uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            if (!first || start < first)
                first = start;
            if (start + info->dlpi_phdr[i].p_memsz > last)
                last = start + info->dlpi_phdr[i].p_memsz;
        }
    return 1; /* the program comes first; no more */
}

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAULT_AT");
    dl_iterate_phdr(find_program, NULL);
    fault_at = at ? atol(at) : -1;
    goes_on = getenv("FAULT_ON") != NULL;
    files_stay = getenv("FAULT_REMOVE") != NULL;
    signal_number = getenv("FAULT_SIGNAL") ? atoi(getenv("FAULT_SIGNAL")) : 0;
    ready = 1;
}

__attribute__((destructor)) static void end(void)
{
    const char *name = getenv("FAULT_COUNT");
    FILE *file;
    ready = 0;
    if (name && (file = fopen(name, "w")) != NULL) {
        fprintf(file, "%ld\n", calls);
        fclose(file);
    }
}

/* Is it this call's turn? `from` is where it returns to. */
static int fails(const void *from, int reason)
{
    if (!ready || (uintptr_t)from < first || (uintptr_t)from >= last)
        return 0;
    long call = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (fault_at < 0 || call < fault_at || (call > fault_at && !goes_on))
        return 0;
    if (signal_number) {
        raise(signal_number);
        return 0;
    }
    errno = reason;
    return 1;
}
#define FAILS(reason) fails(__builtin_return_address(0), reason)

/* The function of that name in the next library, as type `real`. */
#define NEXT(name)                                                                                 \
    static real next;                                                                              \
    if (!next)                                                                                     \
    *(void **)&next = dlsym(RTLD_NEXT, name)

void *malloc(size_t size)
{
    return FAILS(ENOMEM) ? NULL : __libc_malloc(size);
}
void *calloc(size_t count, size_t size)
{
    return FAILS(ENOMEM) ? NULL : __libc_calloc(count, size);
}
void *realloc(void *block, size_t size)
{
    return FAILS(ENOMEM) ? NULL : __libc_realloc(block, size);
}

static FILE *open_stream(const char *path, const char *mode, const char *name)
{
    typedef FILE *(*real)(const char *, const char *);
    real next;
    *(void **)&next = dlsym(RTLD_NEXT, name);
    return next(path, mode);
}
FILE *fopen(const char *path, const char *mode)
{
    return FAILS(EMFILE) ? NULL : open_stream(path, mode, "fopen");
}
FILE *fopen64(const char *path, const char *mode)
{
    return FAILS(EMFILE) ? NULL : open_stream(path, mode, "fopen64");
}

/* The permissions of a file that open makes come after its flags. */
#define RIGHTS(flags, rights)                                                                      \
    if ((flags)&O_CREAT) {                                                                         \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        (rights) = va_arg(rest, int);                                                              \
        va_end(rest);                                                                              \
    }
int open(const char *path, int flags, ...)
{
    typedef int (*real)(const char *, int, ...);
    int rights = 0;
    NEXT("open");
    RIGHTS(flags, rights)
    return FAILS(EMFILE) ? -1 : next(path, flags, rights);
}
int open64(const char *path, int flags, ...)
{
    typedef int (*real)(const char *, int, ...);
    int rights = 0;
    NEXT("open64");
    RIGHTS(flags, rights)
    return FAILS(EMFILE) ? -1 : next(path, flags, rights);
}

int access(const char *path, int rights)
{
    typedef int (*real)(const char *, int);
    NEXT("access");
    return FAILS(EACCES) ? -1 : next(path, rights);
}
int chmod(const char *path, mode_t rights)
{
    typedef int (*real)(const char *, mode_t);
    NEXT("chmod");
    return FAILS(EPERM) ? -1 : next(path, rights);
}

int fchmod(int file, mode_t rights)
{
    typedef int (*real)(int, mode_t);
    NEXT("fchmod");
    return FAILS(EPERM) ? -1 : next(file, rights);
}

/* Its memory comes from the C library's own malloc. What reads and writes is the file of clang's
 * counters (make coverage): they lock it before this call, and would keep it locked after a
 * failure. */
FILE *fdopen(int file, const char *mode)
{
    typedef FILE *(*real)(int, const char *);
    NEXT("fdopen");
    return !strchr(mode, '+') && FAILS(ENOMEM) ? NULL : next(file, mode);
}

void *mmap(void *at, size_t size, int rights, int flags, int file, off_t offset)
{
    typedef void *(*real)(void *, size_t, int, int, int, off_t);
    NEXT("mmap");
    return FAILS(ENODEV) ? MAP_FAILED : next(at, size, rights, flags, file, offset);
}
void *mmap64(void *at, size_t size, int rights, int flags, int file, off64_t offset)
{
    typedef void *(*real)(void *, size_t, int, int, int, off64_t);
    NEXT("mmap64");
    return FAILS(ENODEV) ? MAP_FAILED : next(at, size, rights, flags, file, offset);
}

int stat(const char *path, struct stat *s)
{
    typedef int (*real)(const char *, struct stat *);
    NEXT("stat");
    return FAILS(EIO) ? -1 : next(path, s);
}
int stat64(const char *path, struct stat64 *s)
{
    typedef int (*real)(const char *, struct stat64 *);
    NEXT("stat64");
    return FAILS(EIO) ? -1 : next(path, s);
}
int fstat(int file, struct stat *s)
{
    typedef int (*real)(int, struct stat *);
    NEXT("fstat");
    return FAILS(EIO) ? -1 : next(file, s);
}
int fstat64(int file, struct stat64 *s)
{
    typedef int (*real)(int, struct stat64 *);
    NEXT("fstat64");
    return FAILS(EIO) ? -1 : next(file, s);
}

enum { STREAM_ERROR = 0x20 }; /* glibc's mark for ferror() */

size_t fread(void *to, size_t size, size_t count, FILE *file)
{
    typedef size_t (*real)(void *, size_t, size_t, FILE *);
    NEXT("fread");
    if (FAILS(EIO)) {
        file->_flags |= STREAM_ERROR;
        return 0;
    }
    return next(to, size, count, file);
}
size_t fwrite(const void *from, size_t size, size_t count, FILE *file)
{
    typedef size_t (*real)(const void *, size_t, size_t, FILE *);
    NEXT("fwrite");
    if (file != stderr && FAILS(ENOSPC)) { /* messages are seen */
        file->_flags |= STREAM_ERROR;
        return 0;
    }
    return next(from, size, count, file);
}

int fseek(FILE *file, long offset, int whence)
{
    typedef int (*real)(FILE *, long, int);
    NEXT("fseek");
    return FAILS(EIO) ? -1 : next(file, offset, whence);
}
int fseeko(FILE *file, off_t offset, int whence)
{
    typedef int (*real)(FILE *, off_t, int);
    NEXT("fseeko");
    return FAILS(EIO) ? -1 : next(file, offset, whence);
}
int fseeko64(FILE *file, off64_t offset, int whence)
{
    typedef int (*real)(FILE *, off64_t, int);
    NEXT("fseeko64");
    return FAILS(EIO) ? -1 : next(file, offset, whence);
}
int fflush(FILE *file)
{
    typedef int (*real)(FILE *);
    NEXT("fflush");
    return FAILS(ENOSPC) ? EOF : next(file);
}
int fclose(FILE *file)
{
    typedef int (*real)(FILE *);
    const int failed = FAILS(ENOSPC);
    NEXT("fclose");
    if (failed)
        __fpurge(file); /* what was still to be written is lost */
    return next(file) || failed ? EOF : 0;
}
int fsync(int file)
{
    typedef int (*real)(int);
    const char *unable = getenv("FAULT_FSYNC"); /* the errno of a file system without fsync */
    NEXT("fsync");
    if (unable) {
        errno = atoi(unable);
        return -1;
    }
    return FAILS(EIO) ? -1 : next(file);
}
int rename(const char *from, const char *to)
{
    typedef int (*real)(const char *, const char *);
    NEXT("rename");
    return FAILS(EACCES) ? -1 : next(from, to);
}
int remove(const char *path)
{
    typedef int (*real)(const char *);
    NEXT("remove");
    return files_stay && FAILS(EACCES) ? -1 : next(path);
}
int unlink(const char *path)
{
    typedef int (*real)(const char *);
    NEXT("unlink");
    return files_stay && FAILS(EACCES) ? -1 : next(path);
}
