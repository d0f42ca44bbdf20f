/* Sections first and memory: the time to the first token, and the memory of a model, measured in a
 * process of their own. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include "passes.h"

#if defined(__unix__) || defined(__APPLE__)
#include <spawn.h>
#include <sys/wait.h>
extern char **environ;
#define BENCH_CHILD
#endif

/* The resident bytes of this process without the pages of one file, or negative if unknown. The kernel
 * may have another path for the file than the user. */
static double resident_without(const char *path)
{
    FILE *const f = fopen("/proc/self/smaps", "r");
    char line[1024];
    double bytes = 0, kib;
    int counts = 1;
    if (!f)
        return -1;
    while (fgets(line, sizeof line, f)) {
        unsigned long from, to;
        int at = 0;
        /* NOLINTBEGIN(cert-err34-c): the kernel writes valid numbers */
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &from, &to, &at) == 2) {
            line[strcspn(line, "\n")] = 0;
            counts = !system_same_file(path, line + at);
        } else if (counts && sscanf(line, "Rss: %lf kB", &kib) == 1)
            bytes += 1024 * kib;
        /* NOLINTEND(cert-err34-c) */
    }
    fclose(f);
    return bytes;
}

/* bench --child FILE THREADS COUNT: opens a model and generates COUNT tokens, as a user's program does.
 * Prints "t" at the first token, and the memory that it used at the end. */
static int child(char **argv)
{
    attn_ctx ctx = ATTN_ZERO;
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_sampler *greedy = NULL;
    attn_token tokens[PROMPT];
    long n = strtol(argv[4], NULL, 10);
    size_t count = PROMPT;
    ctx.n_threads = (int)strtol(argv[3], NULL, 10);
    if (attn_model_open(&ctx, &model, argv[2], NULL) == ATTN_OK &&
        attn_session_new(&ctx, &session, model, NULL) == ATTN_OK)
        attn_sampler_new(&ctx, &greedy, attn_model_config(model)->n_vocab, NULL);
    for (size_t i = 0; i < PROMPT && !ctx.status; i++)
        tokens[i] = (int32_t)(i * 37 % attn_model_config(model)->n_vocab);
    for (; n > 0 && !ctx.status; n--) {
        if (attn_feed(&ctx, session, tokens, count) ||
            attn_sample(&ctx, &tokens[0], greedy, attn_session_logits(session), NULL, 0))
            break;
        if (count == PROMPT && (putchar('t'), fflush(stdout)))
            break;
        count = 1;
    }
    if (ctx.status)
        fprintf(stderr, "bench: %s\n", ctx.message);
    else
        printf(" %.0f\n", resident_without(argv[2]));
    attn_sampler_free(greedy);
    attn_session_free(session);
    attn_model_close(model);
    return ctx.status != ATTN_OK;
}

#ifdef BENCH_CHILD
/* The seconds from the start of a child to its first token, or negative after a failure. */
static double run_child(bench *b, int n_tokens, double *resident)
{
    char threads[16], count[16], text[64];
    char *words[6];
    posix_spawn_file_actions_t actions;
    double took = -1;
    size_t size = 0;
    ssize_t n;
    pid_t pid;
    int ends[2], status = 0;
    snprintf(threads, sizeof threads, "%d", b->ctx.n_threads);
    snprintf(count, sizeof count, "%d", n_tokens);
    words[0] = (char *)(uintptr_t)b->program;
    words[1] = (char *)(uintptr_t) "--child";
    words[2] = b->file;
    words[3] = threads;
    words[4] = count;
    words[5] = NULL;
    if (pipe(ends))
        return tool_fail_io(&b->ctx, "cannot make", "a pipe"), -1.0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    double start = clock_seconds(0);
    status = posix_spawnp(&pid, b->program, &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (status == 0) {
        while (size + 1 < sizeof text &&
               (n = read(ends[0], text + size, sizeof text - 1 - size)) > 0) {
            if (size == 0)
                took = clock_seconds(0) - start;
            size += (size_t)n;
        }
        text[size] = 0;
        if (resident)
            *resident = size > 1 ? strtod(text + 1, NULL) : -1;
        if (waitpid(pid, &status, 0) != pid || status != 0 || size < 2 || text[0] != 't')
            took = -1;
    }
    close(ends[0]);
    if (took < 0)
        tool_fail(&b->ctx, ATTN_E_IO, "a second process of %s failed", b->program);
    return took;
}

static double run_first(bench *b, void *arg)
{
    (void)arg;
    return run_child(b, 1, NULL);
}

static int section_first(bench *b)
{
    task t = new_task(b, FIRST, 1000, "ms", run_first, NULL);
    heading(b, "first token");
    if (too_short(b, PROMPT))
        return 1;
    snprintf(t.name, sizeof t.name, "process start, prompt of %d", PROMPT);
    t.by_time = 1;
    t.elsewhere = 1;
    t.needs = model_cost(b, PROMPT, (PROMPT + 1) / 2.0, 1);
    return measure(b, &t);
}

/* Returns MiB in place of seconds. */
static double run_memory(bench *b, void *arg)
{
    double resident = -1;
    (void)arg;
    if (run_child(b, 128, &resident) < 0)
        return -1;
    return resident / (1 << 20);
}

static int section_memory(bench *b)
{
    task t = new_task(b, MEMORY, 1, "MiB", run_memory, NULL);
    double resident = -1;
    size_t size = 0;
    heading(b, "memory beyond the weights' file");
    if (too_short(b, PROMPT + 128))
        return 1;
    b->ctx.n_threads = 1;
    if (run_child(b, 1, &resident) < 0)
        return 0;
    attn_session_size(&b->ctx, &size, b->model, NULL);
    if (resident < 0) {
        fprintf(b->table, "not measured: this system has no /proc/self/smaps\n");
        return 1;
    }
    snprintf(t.name, sizeof t.name, "resident after %d tokens", PROMPT + 128);
    t.by_time = 1;
    t.elsewhere = 1;
    if (!measure(b, &t))
        return 0;
    fprintf(b->table, "a session for all %u positions, touched as it fills: %.1f MiB\n",
            (unsigned)attn_model_config(b->model)->n_ctx, (double)size / (1 << 20));
    return 1;
}
#endif

#endif
