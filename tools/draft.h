/* A file that appears under its name only when it is complete. Until then it lies beside it as
 * NAME.PROCESS-0.part, so that whoever looks for NAME finds what was there before, or all of it. */
#ifndef TOOLS_DRAFT_H
#define TOOLS_DRAFT_H

#include "system.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct draft {
    FILE *file; /* to write to */
    const char *path;
    char *part; /* the name until then; NULL: written in place */
} draft;

/* A pipe or a device cannot be replaced, nor what the system calls an open file. */
SYSTEM_FN int draft_in_place(const char *path)
{
    return system_not_a_file(path) || strcmp(path, "/dev/stdout") == 0 ||
           strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/proc/", 6) == 0;
}

/* 0, or -1 with errno. What is there keeps its permissions. What lies in the draft's way is
 * somebody else's, or a link to it, and stays. `path` must outlive the draft. */
SYSTEM_FN int draft_open(draft *d, const char *path)
{
    const size_t size = strlen(path) + 40;
    int mode, i;
    d->file = NULL;
    d->path = path;
    d->part = NULL;
    if (draft_in_place(path)) {
        d->file = fopen(path, "wb");
        return d->file ? 0 : -1;
    }
    if (system_mode(path, &mode) != 0 || (d->part = (char *)malloc(size)) == NULL)
        return -1;
    errno = EEXIST;
    for (i = 0; i < 10 && !d->file && errno == EEXIST; i++) {
        snprintf(d->part, size, "%s.%lu-%d.part", path, system_process(), i);
        d->file = system_create(d->part, mode);
    }
    if (!d->file)
        free(d->part);
    return d->file ? 0 : -1;
}

/* Gives the file its name if `complete`, else removes it. 0, or -1 with errno; then too there is
 * no file of that name that was not there before. */
SYSTEM_FN int draft_close(draft *d, int complete)
{
    int failed = fclose(d->file) != 0, reason;
    if (d->part && complete && !failed)
        failed = system_replace(d->part, d->path) != 0;
    reason = errno;
    if (d->part && (failed || !complete))
        remove(d->part);
    free(d->part);
    errno = reason;
    return failed ? -1 : 0;
}

#endif
