/* What the targets share that read files: a directory, files in it, and inputs of several parts. A
 * target includes its program or headers first, which ask the system for POSIX. */
#ifndef FUZZ_FILES_H
#define FUZZ_FILES_H

#include "fuzz.h"
#include <dirent.h>
#include <signal.h>

/* A directory of files, and the files. */
static inline void drop_directory(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    char file[1024];
    while (dir && (entry = readdir(dir)) != NULL) {
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            remove(file);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

/* What is left of targets that something ended: directories whose process is gone. */
static inline void drop_leavings(const char *parent)
{
    DIR *dir = opendir(parent);
    struct dirent *entry;
    char path[512];
    while (dir && (entry = readdir(dir)) != NULL)
        if (strncmp(entry->d_name, "attn-fuzz.", 10) == 0 &&
            kill((pid_t)strtol(entry->d_name + 10, NULL, 10), 0) != 0 && errno == ESRCH) {
            snprintf(path, sizeof path, "%s/%s", parent, entry->d_name);
            drop_directory(path);
        }
    if (dir)
        closedir(dir);
}

static inline void drop_place(void);

/* A directory of our own, in memory where there is such a place. */
static inline const char *place(void)
{
    static char path[64];
    const char *parent = TEST_BUILD "/fuzz";
    if (!path[0]) {
        if (system_is_directory("/dev/shm"))
            parent = "/dev/shm";
        drop_leavings(parent);
        snprintf(path, sizeof path, "%s/attn-fuzz.%lu", parent, system_process());
        mkdir(path, 0700);
        atexit(drop_place);
    }
    return path;
}

static inline void put_file(const char *name, const void *data, size_t size, uint64_t padded)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", place(), name);
    FILE *file = fopen(path, "wb");
    MUST(file && fwrite(data, 1, size, file) == size);
    MUST(fclose(file) == 0 && (padded <= size || truncate(path, (off_t)padded) == 0));
}

static inline void drop_file(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", place(), name);
    remove(path);
}

static inline void drop_place(void)
{
    drop_directory(place());
}

/* Takes the next part of the input. A line "%%%" separates the parts. */
static inline input next_part(input *in)
{
    static const char line[] = "\n%%%\n";
    const size_t n = sizeof line - 1;
    input piece = *in;
    for (size_t i = 0; i + n <= in->size; i++)
        if (memcmp(in->data + i, line, n) == 0) {
            piece.size = i;
            in->data += i + n;
            in->size -= i + n;
            return piece;
        }
    in->data += in->size;
    in->size = 0;
    return piece;
}

#endif
