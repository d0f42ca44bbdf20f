/* Paths on Windows: UTF-8 in programs, UTF-16 in the system's calls. Needs no other header. */
#ifndef LENS_WIDE_H
#define LENS_WIDE_H

#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The path in UTF-16, which the caller frees; NULL on failure, with errno. A path near the old limit of 260
 * characters becomes absolute, with the prefix that lifts the limit. */
static inline wchar_t *lens_wide_path(const char *path)
{
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    wchar_t *const wide = n > 0 ? (wchar_t *)malloc((size_t)n * sizeof *wide) : NULL, *full;
    errno = n > 0 ? ENOMEM : EINVAL;
    if (wide)
        MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, n);
    if (!wide || n < 248 || wide[0] == L'\\')
        return wide;
    DWORD length = GetFullPathNameW(wide, 0, NULL, NULL);
    full = length > 0 ? (wchar_t *)malloc(((size_t)length + 4) * sizeof *full) : NULL;
    if (full) {
        memcpy(full, L"\\\\?\\", 4 * sizeof *full);
        GetFullPathNameW(wide, length, full + 4, NULL);
    }
    free(wide);
    return full;
}

/* FILE_ATTRIBUTE_..., or INVALID_FILE_ATTRIBUTES if nothing has that path. */
static inline DWORD lens_attributes(const char *path)
{
    wchar_t *const wide = lens_wide_path(path);
    const DWORD attributes = wide ? GetFileAttributesW(wide) : INVALID_FILE_ATTRIBUTES;
    free(wide);
    return attributes;
}
#endif

#endif
