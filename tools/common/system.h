/* What the tools need beyond C99, for POSIX and Windows. It stands before the system's headers, which it
 * asks for POSIX and for 64-bit file offsets. */
#ifndef TOOLS_SYSTEM_H
#define TOOLS_SYSTEM_H

#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* as attn.h, which may come later */
#endif

#include <errno.h>
#if defined(__GLIBC__) &&                                                                          \
    (!defined(__USE_XOPEN2K8) || !(defined(__LP64__) || defined(__USE_FILE_OFFSET64)))
#error include tools/common/system.h, or the header that needs it, before the others: it asks for POSIX
#endif
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/types.h>
#include <sys/stat.h>

#if defined(__GNUC__)
#define SYSTEM_FN static __attribute__((unused))
#else
#define SYSTEM_FN static
#endif

/* Where a program prints, from system_begin on. A library has no terminal: both stay NULL there, and its code names no
 * stream, which R refuses. */
SYSTEM_FN FILE *system_out, *system_errors;

#ifdef _WIN32
#include "tools/write/wide.h"
#include <shellapi.h>
#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <stdlib.h>

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

/* Sets up a console: it obeys colour sequences, and receives whole characters of UTF-8. */
SYSTEM_FN void system_prepare_console(FILE *file)
{
    const HANDLE console = (HANDLE)_get_osfhandle(_fileno(file));
    DWORD mode;
    if (!GetConsoleMode(console, &mode))
        return;
    SetConsoleMode(console, mode | 4); /* ENABLE_VIRTUAL_TERMINAL_PROCESSING */
    _setmode(_fileno(file), _O_BINARY);
    setvbuf(file, NULL, _IOFBF, 4096);
}

/* Replaces the arguments by UTF-8, for any code page of the system, and sets up a console for UTF-8. They
 * are never freed. Without memory the arguments stay unchanged. */
SYSTEM_FN void system_begin(int *argc, char ***argv)
{
    wchar_t **const wide = CommandLineToArgvW(GetCommandLineW(), argc);
    char **const texts = wide ? (char **)calloc((size_t)*argc + 1, sizeof *texts) : NULL;
    system_out = stdout;
    system_errors = stderr;
    SetConsoleOutputCP(CP_UTF8);
    system_prepare_console(stdout);
    system_prepare_console(stderr);
    for (int i = 0; texts && i < *argc; i++) {
        const int n = WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, NULL, 0, NULL, NULL);
        texts[i] = (char *)malloc((size_t)n + 1);
        if (!texts[i])
            return;
        WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, texts[i], n, NULL, NULL);
    }
    if (texts)
        *argv = texts;
    LocalFree(wide);
}

SYSTEM_FN FILE *system_open(const char *path, const char *mode)
{
    wchar_t *const wide = lens_wide_path(path), *const how = lens_wide_path(mode);
    FILE *const file = wide && how ? _wfopen(wide, how) : NULL;
    free(wide);
    free(how);
    return file;
}

SYSTEM_FN int system_is_directory(const char *path)
{
    const DWORD a = lens_attributes(path);
    return a != INVALID_FILE_ATTRIBUTES && (a & FILE_ATTRIBUTE_DIRECTORY) != 0;
}

SYSTEM_FN int system_make_directory(const char *path)
{
    wchar_t *const wide = lens_wide_path(path);
    const int made = wide && CreateDirectoryW(wide, NULL);
    errno = GetLastError() == ERROR_ALREADY_EXISTS ? EEXIST : ENOENT;
    free(wide);
    return made ? 0 : -1;
}

SYSTEM_FN void system_remove(const char *path)
{
    wchar_t *const wide = lens_wide_path(path);
    if (wide && !DeleteFileW(wide))
        RemoveDirectoryW(wide);
    free(wide);
}

/* Calls `take` with each name in a directory, in any order. -1: errno has the reason. */
SYSTEM_FN int system_list(const char *directory, void (*take)(const char *name, void *user),
                          void *user)
{
    const size_t n = strlen(directory);
    char name[3 * MAX_PATH], *const pattern = (char *)malloc(n + 3);
    WIN32_FIND_DATAW entry;
    errno = ENOMEM;
    if (!pattern)
        return -1;
    memcpy(pattern, directory, n);
    memcpy(pattern + n, "/*", 3);
    wchar_t *wide = lens_wide_path(pattern);
    HANDLE search = wide ? FindFirstFileW(wide, &entry) : INVALID_HANDLE_VALUE;
    free(pattern);
    free(wide);
    errno = ENOENT;
    if (search == INVALID_HANDLE_VALUE)
        return -1;
    do {
        if (WideCharToMultiByte(CP_UTF8, 0, entry.cFileName, -1, name, sizeof name, NULL, NULL) > 0)
            take(name, user);
    } while (FindNextFileW(search, &entry));
    errno = GetLastError() == ERROR_NO_MORE_FILES ? 0 : EIO;
    FindClose(search);
    return errno ? -1 : 0;
}

SYSTEM_FN int system_exists(const char *path)
{
    return lens_attributes(path) != INVALID_FILE_ATTRIBUTES ||
           (GetLastError() != ERROR_FILE_NOT_FOUND && GetLastError() != ERROR_PATH_NOT_FOUND);
}
SYSTEM_FN const char *system_not_a_file(const char *path)
{
    return system_is_directory(path) ? "a directory" : NULL;
}
/* Compares names: file systems of Windows have no other common identity. */
SYSTEM_FN int system_same_file(const char *a, const char *b)
{
    wchar_t *const wide_a = lens_wide_path(a), *const wide_b = lens_wide_path(b);
    wchar_t *const x = wide_a ? _wfullpath(NULL, wide_a, 0) : NULL;
    wchar_t *const y = wide_b ? _wfullpath(NULL, wide_b, 0) : NULL;
    const int same = x && y && _wcsicmp(x, y) == 0 && system_exists(a);
    free(wide_a);
    free(wide_b);
    free(x);
    free(y);
    return same;
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

/* Reads a line, or a part of it, from a console as UTF-8. (The C library would read the console's code
 * page.) Ctrl-Z at the beginning of a line ends the input. 0: the end, or Ctrl-C; -1: the file is not a
 * console. */
SYSTEM_FN long system_read_console(FILE *file, void *bytes, size_t size)
{
    const HANDLE console = (HANDLE)_get_osfhandle(_fileno(file));
    const DWORD most = size / 3 < 512 ? (DWORD)(size / 3) : 512; /* three bytes each at the most */
    wchar_t wide[512];
    DWORD mode, n = 0, one = 0;
    if (most < 3 || !GetConsoleMode(console, &mode))
        return -1;
    fflush(stdout);
    fflush(stderr);
    if (!ReadConsoleW(console, wide, most - 1, &n, NULL) || n == 0 || wide[0] == 26) {
        if (n == 0)
            Sleep(
                100); /* let the handler of Ctrl-C, which Windows runs in another thread, run first */
        return 0;
    }
    if ((wide[n - 1] == L'\r' || (wide[n - 1] & 0xFC00) == 0xD800) && /* half of a pair */
        ReadConsoleW(console, wide + n, 1, &one, NULL))
        n += one;
    if (n > 1 && wide[n - 2] == L'\r' && wide[n - 1] == L'\n')
        wide[--n - 1] = L'\n';
    return WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, (char *)bytes, (int)size, NULL, NULL);
}

/* Reads at most `size` bytes, as soon as there are some (fread waits for all). 0: the end; negative: an
 * error. */
SYSTEM_FN long system_read(FILE *file, void *bytes, unsigned size)
{
    const long n = system_read_console(file, bytes, size);
    return n >= 0 ? n : _read(_fileno(file), bytes, size);
}

/* fread of bytes, also from a console. */
SYSTEM_FN size_t system_fread(void *bytes, size_t size, FILE *file)
{
    const long n = system_read_console(file, bytes, size);
    return n >= 0 ? (size_t)n : fread(bytes, 1, size, file);
}

/* fgets, also from a console. */
SYSTEM_FN char *system_fgets(char *line, int size, FILE *file)
{
    const long n = system_read_console(file, line, (size_t)size - 1);
    if (n < 0)
        return fgets(line, size, file);
    line[n] = 0;
    return n > 0 ? line : NULL;
}

/* Is there input, so that system_read does not wait? */
SYSTEM_FN int system_is_ready(FILE *file)
{
    const HANDLE handle = (HANDLE)_get_osfhandle(_fileno(file));
    DWORD n = 0;
    return GetFileType(handle) != FILE_TYPE_PIPE ||
           !PeekNamedPipe(handle, NULL, 0, NULL, &n, NULL) || n > 0;
}

/* Cuts a file that is open for writing to `size` bytes. */
SYSTEM_FN int system_cut(FILE *file, uint64_t size)
{
    return _chsize_s(_fileno(file), (long long)size) == 0 ? 0 : -1;
}

/* Takes a file that is open for writing for this process, until it ends. 0: another one has it. */
SYSTEM_FN int system_take(FILE *file)
{
    return LockFile((HANDLE)_get_osfhandle(_fileno(file)), 0, 0x40000000, 1, 0) != 0;
}

/* Width of a terminal; 0: the file is not a terminal. */
SYSTEM_FN int system_columns(FILE *file)
{
    CONSOLE_SCREEN_BUFFER_INFO info;
    return GetConsoleScreenBufferInfo((HANDLE)_get_osfhandle(_fileno(file)), &info)
               ? info.srWindow.Right - info.srWindow.Left + 1
               : 0;
}

#else
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
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

/* The arguments need no change: they are UTF-8, or any bytes. */
/* NOLINTNEXTLINE(readability-non-const-parameter): Windows replaces them */
SYSTEM_FN void system_begin(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    system_out = stdout;
    system_errors = stderr;
#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN); /* a file that becomes too large then gives the error EFBIG */
#endif
}

SYSTEM_FN FILE *system_open(const char *path, const char *mode)
{
    return fopen(path, mode);
}

SYSTEM_FN int system_is_directory(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

SYSTEM_FN int system_make_directory(const char *path)
{
    return mkdir(path, 0777);
}

/* Removes a file or an empty directory. */
SYSTEM_FN void system_remove(const char *path)
{
    remove(path);
}

/* Calls `take` with each name in a directory, in any order. -1: errno has the reason. */
SYSTEM_FN int system_list(const char *directory, void (*take)(const char *name, void *user),
                          void *user)
{
    DIR *const entries = opendir(directory);
    const struct dirent *entry;
    if (!entries)
        return -1;
    for (errno = 0; (entry = readdir(entries)) != NULL; errno = 0)
        take(entry->d_name, user);
    int error = errno;
    closedir(entries);
    errno = error;
    return error ? -1 : 0;
}

/* A path that cannot be examined counts as existing: opening it will give the reason. */
SYSTEM_FN int system_exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* What a path is, for messages: "a pipe" and so on. NULL for a plain file or a link to one, and if there is
 * nothing. It does not open the path, because opening a pipe waits for the other end. */
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

SYSTEM_FN int system_is_terminal(FILE *file)
{
    return isatty(fileno(file));
}
/* Width of a terminal; 0: the file is not a terminal, or the width is unknown. */
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

/* Reads at most `size` bytes, as soon as there are some (fread waits for all). 0: the end; negative: an
 * error. */
SYSTEM_FN long system_read(FILE *file, void *bytes, unsigned size)
{
    return (long)read(fileno(file), bytes, size);
}

/* On Windows these two read UTF-8 from a console. */
SYSTEM_FN size_t system_fread(void *bytes, size_t size, FILE *file)
{
    return fread(bytes, 1, size, file);
}
SYSTEM_FN char *system_fgets(char *line, int size, FILE *file)
{
    return fgets(line, size, file);
}

/* Is there input, so that system_read does not wait? */
SYSTEM_FN int system_is_ready(FILE *file)
{
    struct pollfd one;
    one.fd = fileno(file);
    one.events = POLLIN;
    one.revents = 0;
    return poll(&one, 1, 0) != 0;
}

/* Cuts a file that is open for writing to `size` bytes. */
SYSTEM_FN int system_cut(FILE *file, uint64_t size)
{
    return ftruncate(fileno(file), (off_t)size);
}

/* Takes a file that is open for writing for this process, until it ends or closes the file. 0: another one
 * has it. A file system without locks gives it to each. */
SYSTEM_FN int system_take(FILE *file)
{
#ifdef F_SETLK
    struct flock whole;
    memset(&whole, 0, sizeof whole);
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    return fcntl(fileno(file), F_SETLK, &whole) == 0 || (errno != EACCES && errno != EAGAIN);
#else
    (void)file; /* WebAssembly: one program has the files */
    return 1;
#endif
}

/* Streams are always binary here. */
SYSTEM_FN void system_binary(FILE *file)
{
    (void)file;
}
SYSTEM_FN unsigned long system_process(void)
{
    return (unsigned long)getpid();
}
#endif

/* Seconds since an unknown moment, from a monotonic clock if there is one. */
SYSTEM_FN double system_seconds(void)
{
#if defined(_WIN32)
    LARGE_INTEGER now, rate; /* GetTickCount64 counts steps of 16 ms */
    if (QueryPerformanceCounter(&now) && QueryPerformanceFrequency(&rate))
        return (double)now.QuadPart / (double)rate.QuadPart;
#elif defined(CLOCK_MONOTONIC)
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) == 0)
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
    return (double)time(NULL);
}

/* A number that differs from run to run, so that no file can be made for it. It is not a secret from
 * somebody who can look into the process. */
SYSTEM_FN uint64_t system_seed(void)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t seed = (uint64_t)time(NULL);
    seed = (seed ^ (uint64_t)clock()) * odd;
    seed = (seed ^ seed >> 32 ^ (uint64_t)system_process()) * odd;
    seed = (seed ^ seed >> 32 ^ (uint64_t)(uintptr_t)&seed) * odd;
    return seed ^ seed >> 32;
}

#ifdef _WIN32
SYSTEM_FN void system_catch(void (*handler)(int))
{
    signal(SIGINT, handler);
    signal(SIGTERM, handler);
}
#else
static void (*system_handler)(int);

/* A signal that the system sends for an error of the program must end it: the same instruction would fail
 * again after the handler. */
SYSTEM_FN void system_on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code > 0 && (number == SIGSEGV || number == SIGBUS || number == SIGFPE ||
                              number == SIGILL || number == SIGTRAP || number == SIGSYS))
        signal(number, SIG_DFL);
    else
        system_handler(number);
}

/* Installs `handler` for every signal that would end the program while it writes a file, except those that
 * are ignored (as nohup ignores SIGHUP) or caught (as a sanitizer catches SIGSEGV). SIGKILL cannot be
 * caught. */
SYSTEM_FN void system_catch(void (*handler)(int))
{
    static const int harmless[] = {SIGCHLD,  SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG,
#ifdef SIGWINCH
                                   SIGWINCH,
#endif
#ifdef SIGINFO
                                   SIGINFO,
#endif
                                   SIGKILL};
#ifdef SIGRTMAX
    const int last = SIGRTMAX;
#else
    const int last = 31;
#endif
    struct sigaction action, present;
    size_t i;
    int number;
    system_handler = handler;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_sigaction = system_on_signal;
    action.sa_flags = SA_SIGINFO;
    for (number = 1; number <= last; number++) {
        for (i = 0; i < sizeof harmless / sizeof harmless[0] && harmless[i] != number; i++)
            continue;
        if (i == sizeof harmless / sizeof harmless[0] && sigaction(number, NULL, &present) == 0 &&
            !(present.sa_flags & SA_SIGINFO) && present.sa_handler == SIG_DFL)
            sigaction(number, &action, NULL);
    }
}
#endif

/* Installs `handler` for every later Ctrl-C. A read that waits for input then fails with EINTR, so that the
 * program can answer. (Windows removes the handler each time.) */
SYSTEM_FN void system_on_interrupt(void (*handler)(int))
{
#ifdef _WIN32
    signal(SIGINT, handler);
#else
    struct sigaction action;
    action.sa_handler = handler;
    action.sa_flags = 0;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
#endif
}

/* Ends the program by this signal, so that its parent sees it. */
SYSTEM_FN void system_end_by(int number)
{
    signal(number, SIG_DFL);
    raise(number);
}

/* >> The decimal point ========================================================================= */

#ifdef _WIN32
#include <locale.h>
typedef struct system_locale {
    int mode;
    char name[128];
} system_locale;
#elif !defined(__wasm__)
#include <locale.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif
typedef struct system_locale {
    locale_t before, plain;
} system_locale;
#else
typedef int system_locale;
#endif

/* Numbers of this thread have a point, whatever setlocale says, until system_restore_numbers. */
SYSTEM_FN system_locale system_plain_numbers(void)
{
#ifdef _WIN32
    system_locale l;
    l.mode = _configthreadlocale(_ENABLE_PER_THREAD_LOCALE);
    snprintf(l.name, sizeof l.name, "%s", setlocale(LC_NUMERIC, NULL));
    setlocale(LC_NUMERIC, "C");
    return l;
#elif !defined(__wasm__)
    system_locale l;
    l.plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    l.before = l.plain ? uselocale(l.plain) : (locale_t)0;
    return l;
#else
    return 0;
#endif
}

SYSTEM_FN void system_restore_numbers(system_locale l)
{
#ifdef _WIN32
    setlocale(LC_NUMERIC, l.name);
    _configthreadlocale(l.mode);
#elif !defined(__wasm__)
    if (l.plain) {
        uselocale(l.before);
        freelocale(l.plain);
    }
#else
    (void)l;
#endif
}

#endif
