/* attn-convert, tried as a person uses it: what it refuses, what it makes, and checkpoints to damage.
 * Include this last, as command.h. */
#ifndef CONVERTING_H
#define CONVERTING_H

#include "tools/common/files.h"
#include "tools/write/model_file.h"
#include "command.h"
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIXTURES "tests/fixtures/convert/"
#define STORIES  "examples/tiny-stories"

static inline int exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

/* Whether a run left an unfinished file behind. */
static inline int leftovers(void)
{
    char path[512];
    DIR *dir;
    struct dirent *entry;
    int n = 0;
    snprintf(path, sizeof path, "%s", test_tmp(""));
    if (!CHECK((dir = opendir(path)) != NULL))
        return 1;
    while ((entry = readdir(dir)) != NULL)
        n += strstr(entry->d_name, ".part") != NULL;
    closedir(dir);
    return n;
}

/* attn-convert must exit with 1, say one line with this text, and leave nothing behind. */
static inline int refused(const char *input, const char *options, const char *text)
{
    char output[512];
    snprintf(output, sizeof output, "%s", test_tmp("refused.attn"));
    remove(output);
    int code = run(TEST_BUILD "/attn-convert '%s' %s %s", input, output, options);
    char *line = err;
    while (line && strncmp(line, "note: ", 6) == 0 && strchr(line, '\n'))
        line = strchr(line, '\n') + 1;
    return CHECKF(code == 1, "exit code %d, expected 1 for \"%s\": %s", code, text, err) &
           CHECKF(line && strncmp(line, "attn-convert: ", 14) == 0 && strstr(line, text) &&
                      strchr(line, '\n') == err + err_size - 1,
                  "said \"%s\", expected one line with \"%s\"", err, text) &
           CHECKF(!exists(output), "there is an output in spite of \"%s\"", text) &
           CHECKF(!leftovers(), "an unfinished file is left after \"%s\"", text);
}

/* Converts and opens. NULL after a failure. */
static inline attn_model *converted(const char *input, const char *options)
{
    attn_ctx ctx = ATTN_ZERO;
    attn_model *model = NULL;
    const char *const output = test_tmp("converted.attn");
    const int code = run(TEST_BUILD "/attn-convert '%s' %s %s", input, output, options);
    if (CHECKF(code == 0, "%s %s: exit code %d: %s", input, options, code, err))
        OK(&ctx, attn_model_open(&ctx, &model, output, NULL));
    CHECK(!leftovers());
    return model;
}

/* A copy of a checkpoint under a name of its own. */
static inline const char *copied(const char *input)
{
    static char path[512];
    snprintf(path, sizeof path, "%s", test_tmp("variant"));
    CHECK(run("rm -rf %s && cp -r %s %s && chmod -R u+w %s", path, input, path, path) == 0);
    return path;
}

static inline char *find_bytes(char *bytes, size_t size, const char *text)
{
    const size_t n = strlen(text);
    for (size_t i = 0; i + n <= size; i++)
        if (memcmp(bytes + i, text, n) == 0)
            return bytes + i;
    return NULL;
}

/* Replaces the first occurrence of a text in dir/file. In a safetensors file the text belongs to
 * the header, whose size is corrected. */
static inline void edit(const char *dir, const char *file, const char *find, const char *replace)
{
    char path[600], *made;
    const size_t n = strlen(find), m = strlen(replace);
    size_t size, head;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    char *bytes = (char *)test_read(path, &size);
    char *at = bytes ? find_bytes(bytes, size, find) : NULL;
    if (CHECKF(at != NULL, "%s holds no %s", path, find) &&
        CHECK((made = (char *)malloc(size + m)) != NULL)) {
        head = (size_t)(at - bytes);
        memcpy(made, bytes, head);
        memcpy(made + head, replace, m);
        memcpy(made + head + m, at + n, size - head - n);
        if (strstr(file, ".safetensors") && !strstr(file, ".json"))
            put_u64((unsigned char *)made, get_u64((unsigned char *)made) + m - n);
        test_write(path, made, size - n + m);
        free(made);
    }
    free(bytes);
}

/* A fresh copy with one edit. */
static inline const char *variant(const char *input, const char *file, const char *find,
                                  const char *replace)
{
    const char *dir = copied(input);
    edit(dir, file, find, replace);
    return dir;
}

/* A file of a directory. */
static inline void write_in(const char *dir, const char *file, const void *bytes, size_t size)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    test_write(path, bytes, size);
}

/* Edits of a file of a checkpoint, each of which must be refused with a text. */
typedef struct mistake {
    const char *find, *replace, *text;
} mistake;

static inline void refused_each(const char *input, const char *file, const char *options,
                                const mistake *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        refused(variant(input, file, all[i].find, all[i].replace), options, all[i].text);
}

/* A tensor of the model must hold exactly these numbers, in this order. */
static inline int same_values(const attn_model *model, const char *name, const float *want,
                              size_t count)
{
    attn_ctx ctx = ATTN_ZERO;
    attn_tensor t = ATTN_ZERO;
    int good = 1;
    if (!OK(&ctx, attn_model_tensor(&ctx, &t, model, name)))
        return 0;
    good = CHECKF(attn_count(t) == count, "%s has %zu numbers, expected %zu", name, attn_count(t),
                  count);
    for (size_t i = 0; i < count && good; i++) {
        const float got = ((const float *)t.data)[i];
        good = CHECKF(got == want[i], "%s, number %zu: %.9g, expected %.9g", name, i, (double)got,
                      (double)want[i]);
    }
    attn_tensor_free(&ctx, &t);
    attn_ctx_free(&ctx);
    return good;
}

/* Every tensor of a .ref file, and no other one. */
static inline void same_as_reference(const attn_model *model, const char *name)
{
    size_t size, at = 0, n = 0;
    char path[512];
    snprintf(path, sizeof path, FIXTURES "%s.ref", name);
    unsigned char *bytes = test_read(path, &size);
    if (!CHECKF(bytes != NULL, "cannot read %s", path))
        return;
    while (at + 72 <= size) {
        const size_t count = (size_t)get_u64(bytes + at + 64);
        float *want = (float *)malloc(count * sizeof(float));
        if (CHECK(want && count * 4 <= size - at - 72)) {
            memcpy(want, bytes + at + 72, count * 4);
            if (!same_values(model, (const char *)bytes + at, want, count))
                n = SIZE_MAX / 2;
        }
        free(want);
        at += 72 + 4 * count;
        n++;
    }
    CHECKF(n == model_n_tensors(model), "%s: %zu tensors, expected %zu", name,
           model_n_tensors(model), n);
    free(bytes);
}

/* Converts, and compares with a .ref file. The caller closes the model, which is NULL after a failure. */
static inline attn_model *converts_as(const char *reference, const char *input)
{
    attn_model *const model = converted(input, "");
    if (model)
        same_as_reference(model, reference);
    return model;
}

/* A GGUF file with another number so many bytes behind a text, and long enough to hold as much. */
static inline void refused_gguf(const char *text, size_t skip, uint64_t number, const char *message)
{
    const char *const path = test_tmp("variant.gguf");
    size_t size;
    unsigned char *gguf = test_read(FIXTURES "tiny.gguf", &size);
    char *at = gguf ? find_bytes((char *)gguf, size, text) : NULL;
    if (CHECK(at != NULL)) {
        put_u64((unsigned char *)at + skip, number);
        test_write(path, gguf, size);
        CHECK(truncate(path, 200000000) == 0);
        refused(path, "", message);
    }
    free(gguf);
}

#endif
