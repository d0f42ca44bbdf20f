/* Runs the fuzz targets without a fuzzer: on every file of the committed corpus, and on damaged
 * copies of it that are the same every time.
 *
 *     replay [MUTATIONS [STRIDE [TARGET [FILE]...]]]
 *
 * MUTATIONS (20) random ones of each file. Then, unless STRIDE is 0, every STRIDE-th (101st) of:
 * the file cut at each byte, each bit of it flipped, numbers that are too large or zero at each
 * byte. A call may take a gigabyte and twenty seconds of a processor. A failure ends the program; the
 * input is left in build/fuzz/input. */
#include "tests/support/test.h"
#include "fuzz.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

enum { LARGEST = 1 << 20 };

static uint32_t random_state;
static size_t below(size_t limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % limit;
}

static void call(int (*run)(const unsigned char *, size_t), const unsigned char *data, size_t size)
{
    unsigned char *exact = (unsigned char *)malloc(size ? size : 1); /* to see reads beyond it */
    FILE *file = fopen(TEST_BUILD "/fuzz/input", "wb");
    static const struct itimerval most = {{0, 0}, {20, 0}}, none = {{0, 0}, {0, 0}};
    if (!exact || !file) {
        fprintf(stderr, "replay: run this from the top, after make\n");
        exit(2);
    }
    memcpy(exact, data, size);
    fwrite(data, 1, size, file);
    fclose(file);
    setitimer(ITIMER_PROF, &most, NULL); /* SIGPROF kills the process after 20 s */
    run(exact, size);
    setitimer(ITIMER_PROF, &none, NULL);
    free(exact);
}

/* One to four changes: a bit, a byte that limits like, a number, a piece cut out, moved or cut. */
static size_t mutate(unsigned char *data, size_t size)
{
    static const unsigned char odd[] = {0, 1, 0x7F, 0x80, 0xFF, '"', '[', '{', '}', '0', '-'};
    size_t n = 1 + below(4), at, length;
    while (n-- && size > 0) {
        at = below(size);
        length = 1 + below(size - at < 16 ? size - at : 16);
        switch (below(6)) {
        case 0:
            data[at] ^= (unsigned char)(1 << below(8));
            break;
        case 1:
            data[at] = odd[below(sizeof odd)];
            break;
        case 2:
            memset(data + at, below(2) ? 0xFF : 0, length);
            break;
        case 3:
            memmove(data + at, data + at + length, size - at - length);
            size -= length;
            break;
        case 4:
            memmove(data + at, data + below(size - length + 1), length);
            break;
        default:
            size = below(8) ? size : at;
        }
    }
    return size;
}

/* Damage number `which`; 0 when there is no such number any more. */
static int damage(unsigned char *data, size_t *size, size_t which)
{
    static const unsigned char numbers[][8] = {{0},
                                               {1},
                                               {0, 0, 0, 0x80},
                                               {0xFF, 0xFF, 0xFF, 0x7F},
                                               {0, 0, 0, 0, 1},
                                               {0, 0, 0, 0, 0, 0, 0, 0x80},
                                               {255, 255, 255, 255, 255, 255, 255, 255}};
    const size_t n_numbers = sizeof numbers / sizeof *numbers;
    if (which < *size) {
        *size = which;
        return 1;
    }
    which -= *size;
    if (which < 8 * *size) {
        data[which / 8] ^= (unsigned char)(1 << which % 8);
        return 1;
    }
    which -= 8 * *size;
    if (*size < 8 || which >= 2 * n_numbers * (*size - 7))
        return 0;
    memcpy(data + which / (2 * n_numbers), numbers[which / 2 % n_numbers], which % 2 ? 4 : 8);
    return 1;
}

static size_t read_file(const char *path, unsigned char *data)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    size_t size = fread(data, 1, LARGEST, file);
    fclose(file);
    return size;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const unsigned char *, size_t);
    } targets[] = {{"attn", fuzz_attn},           {"huggingface", fuzz_huggingface},
                   {"pickle", fuzz_pickle},       {"gguf", fuzz_gguf},
                   {"llmc", fuzz_llmc},           {"vocab", fuzz_vocab},
                   {"tokenizer", fuzz_tokenizer}, {"session", fuzz_session},
                   {"sampler", fuzz_sampler},     {"hooks", fuzz_hooks},
                   {"lens", fuzz_lens},           {"surprisal", fuzz_surprisal}};
    static unsigned char data[LARGEST], changed[LARGEST];
    const long n_mutations = argc > 1 ? atol(argv[1]) : 20;
    const size_t stride = argc > 2 ? (size_t)atol(argv[2]) : 101;
    struct rlimit most = {1u << 30, 1u << 30};
    char path[1200], *names[1000];
    size_t i, size, which, after;
    int k;
    if (!TEST_SANITIZED)
        setrlimit(RLIMIT_AS, &most);
    for (i = 0; i < sizeof targets / sizeof *targets; i++) {
        long files = 0, runs = 0;
        int n = 0;
        struct dirent *entry;
        if (argc > 3 && strcmp(argv[3], targets[i].name) != 0)
            continue;
        for (k = 4; k < argc; k++)
            call(targets[i].run, data, read_file(argv[k], data));
        if (argc > 4)
            continue;
        snprintf(path, sizeof path, "tests/fuzz/corpus/%s", targets[i].name);
        DIR *directory = opendir(path);
        while (directory && n < 1000 && (entry = readdir(directory)) != NULL)
            if (entry->d_name[0] != '.' && (names[n] = (char *)malloc(256)) != NULL)
                snprintf(names[n++], 256, "%s", entry->d_name);
        if (directory)
            closedir(directory);
        qsort(names, (size_t)n, sizeof *names, by_name); /* the same order everywhere */
        random_state = 1;
        for (k = 0; k < n; k++, files++) {
            snprintf(path, sizeof path, "tests/fuzz/corpus/%s/%s", targets[i].name, names[k]);
            free(names[k]);
            size = read_file(path, data);
            call(targets[i].run, data, size);
            for (long m = 0; m < n_mutations; m++) {
                memcpy(changed, data, size);
                call(targets[i].run, changed, mutate(changed, size));
            }
            runs += 1 + n_mutations;
            for (which = 0; stride > 0; which += stride, runs++) {
                memcpy(changed, data, size);
                after = size;
                if (!damage(changed, &after, which))
                    break;
                call(targets[i].run, changed, after);
            }
        }
        printf("%-12s %4ld files, %7ld runs\n", targets[i].name, files, runs);
        if (files == 0)
            return 1;
    }
    return 0;
}
