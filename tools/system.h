/* Everything the tools need that C99 does not have, for POSIX and Windows. Include it before any
 * other header: it asks the system for 64-bit file offsets. */
#ifndef TOOLS_SYSTEM_H
#define TOOLS_SYSTEM_H

#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <sys/types.h>
#include <sys/stat.h>

#if defined(__GNUC__)
#define SYSTEM_FN static __attribute__((unused))
#else
#define SYSTEM_FN static
#endif

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <stdlib.h>
#include <string.h>

SYSTEM_FN int system_seek(FILE *file, uint64_t offset)
{
    return _fseeki64(file, (long long)offset, SEEK_SET);
}

SYSTEM_FN int system_size(FILE *file, uint64_t *size)
{
    struct _stat64 s;
    if (_fstat64(_fileno(file), &s) != 0)
        return -1;
    *size = (uint64_t)s.st_size;
    return 0;
}

SYSTEM_FN int system_is_directory(const char *path)
{
    DWORD a = GetFileAttributesA(path);
    return a != INVALID_FILE_ATTRIBUTES && (a & FILE_ATTRIBUTE_DIRECTORY) != 0;
}

SYSTEM_FN int system_exists(const char *path)
{
    return GetFileAttributesA(path) != INVALID_FILE_ATTRIBUTES ||
           (GetLastError() != ERROR_FILE_NOT_FOUND && GetLastError() != ERROR_PATH_NOT_FOUND);
}
SYSTEM_FN const char *system_not_a_file(const char *path)
{
    return system_is_directory(path) ? "a directory" : NULL;
}
/* By name, for what else there is to go by is not the same on all file systems here. */
SYSTEM_FN int system_same_file(const char *a, const char *b)
{
    char x[_MAX_PATH], y[_MAX_PATH];
    return _fullpath(x, a, sizeof x) && _fullpath(y, b, sizeof y) && _stricmp(x, y) == 0 &&
           system_exists(a);
}
SYSTEM_FN int system_sync(FILE *file)
{
    return fflush(file) ? -1 : _commit(_fileno(file));
}
SYSTEM_FN int system_is_terminal(FILE *file)
{
    return _isatty(_fileno(file));
}
SYSTEM_FN void system_binary(FILE *file)
{
    _setmode(_fileno(file), _O_BINARY);
}
SYSTEM_FN unsigned long system_process(void)
{
    return (unsigned long)_getpid();
}

SYSTEM_FN int system_replace(const char *from, const char *to)
{
    return MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING) ? 0 : -1;
}

SYSTEM_FN int system_mode(const char *path, int *mode)
{
    *mode = -1;
    return system_exists(path) ? _access(path, 2) : 0;
}
SYSTEM_FN FILE *system_create(const char *path, int mode)
{
    const int number =
        _open(path, _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY, _S_IREAD | _S_IWRITE);
    (void)mode;
    return number < 0 ? NULL : _fdopen(number, "wb");
}

/* How wide a terminal is; 0: this is none. */
SYSTEM_FN int system_columns(FILE *file)
{
    CONSOLE_SCREEN_BUFFER_INFO info;
    return GetConsoleScreenBufferInfo((HANDLE)_get_osfhandle(_fileno(file)), &info)
               ? info.srWindow.Right - info.srWindow.Left + 1
               : 0;
}

#else
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

SYSTEM_FN int system_seek(FILE *file, uint64_t offset)
{
    return fseeko(file, (off_t)offset, SEEK_SET);
}

SYSTEM_FN int system_size(FILE *file, uint64_t *size)
{
    struct stat s;
    if (fstat(fileno(file), &s) != 0 || s.st_size < 0)
        return -1;
    *size = (uint64_t)s.st_size;
    return 0;
}

SYSTEM_FN int system_is_directory(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* What cannot be looked at exists: opening it will tell why. */
SYSTEM_FN int system_exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* NULL for a plain file (or a link to one), and if there is nothing; else what messages call it.
 * Opening a pipe to find out would wait for somebody at its other end. */
SYSTEM_FN const char *system_not_a_file(const char *path)
{
    struct stat s;
    if (stat(path, &s) != 0 || S_ISREG(s.st_mode))
        return NULL;
    return S_ISDIR(s.st_mode)                         ? "a directory"
           : S_ISFIFO(s.st_mode)                      ? "a pipe"
           : S_ISCHR(s.st_mode) || S_ISBLK(s.st_mode) ? "a device"
                                                      : "no plain file";
}

SYSTEM_FN int system_same_file(const char *a, const char *b)
{
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

/* The bytes are on the disk when this returns 0. */
SYSTEM_FN int system_sync(FILE *file)
{
    return fflush(file) ? -1 : fsync(fileno(file));
}
SYSTEM_FN int system_is_terminal(FILE *file)
{
    return isatty(fileno(file));
}
/* How wide a terminal is; 0: this is none, or it does not say. */
SYSTEM_FN int system_columns(FILE *file)
{
#ifdef TIOCGWINSZ
    struct winsize size;
    if (ioctl(fileno(file), TIOCGWINSZ, &size) == 0)
        return size.ws_col;
#endif
    (void)file;
    return 0;
}
/* Streams are born binary here. */
SYSTEM_FN void system_binary(FILE *file)
{
    (void)file;
}
SYSTEM_FN unsigned long system_process(void)
{
    return (unsigned long)getpid();
}
/* Renames, over an older file of that name if there is one. */
SYSTEM_FN int system_replace(const char *from, const char *to)
{
    return rename(from, to);
}

/* The permissions of a file that is there and may be written, or -1 for the usual ones if there is
 * none. 0, or -1 with errno. */
SYSTEM_FN int system_mode(const char *path, int *mode)
{
    struct stat s;
    *mode = -1;
    if (stat(path, &s) != 0)
        return 0;
    *mode = (int)s.st_mode & 0777;
    return access(path, W_OK);
}
/* A file to write to that was not there before, with these permissions. NULL, with errno, if there
 * is one. */
SYSTEM_FN FILE *system_create(const char *path, int mode)
{
    const int number = open(path, O_WRONLY | O_CREAT | O_EXCL, mode < 0 ? 0666 : 0600);
    FILE *file = number < 0 ? NULL : fdopen(number, "wb");
    if (number >= 0 && mode >= 0)
        (void)fchmod(number, (mode_t)mode);
    if (number >= 0 && !file) {
        close(number);
        remove(path);
    }
    return file;
}
#endif

/* Seconds from some moment on, which no change of the clock moves where there is such a clock. */
SYSTEM_FN double system_seconds(void)
{
#if defined(_WIN32)
    return (double)GetTickCount64() / 1000;
#elif defined(CLOCK_MONOTONIC)
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) == 0)
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
    return (double)time(NULL);
}

/* A number that differs from run to run, so that no file can have been made for it. It is no secret
 * to anybody who looks into the process. */
SYSTEM_FN uint64_t system_seed(void)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t seed = (uint64_t)time(NULL);
    seed = (seed ^ (uint64_t)clock()) * odd;
    seed = (seed ^ seed >> 32 ^ (uint64_t)system_process()) * odd;
    seed = (seed ^ seed >> 32 ^ (uint64_t)(uintptr_t)&seed) * odd;
    return seed ^ seed >> 32;
}

#endif
