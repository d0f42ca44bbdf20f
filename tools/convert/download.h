/* `checkpoint` as a question of callers in the process (tools/waist/query.h), which needs no model: which files of a
 * repository make a GPT-2, and which of them a folder has. Callers transfer bytes, and ask again until all are complete.
 *
 * `listing` is the hub's answer to api/models/NAME/revision/REVISION?blobs=true. The table `files` has for each file its
 * name, its bytes, how many of them are `here`, and whether it is complete. Those that are on the way are in FILE.part.
 * Once that has all bytes, it becomes FILE if its SHA-256 is the one that the hub names, and else it is removed, with a
 * note. (The hub names none of small files.) The fact `commit` is the one that all of this is about. */
#ifndef CONVERT_DOWNLOAD_H
#define CONVERT_DOWNLOAD_H

#include "huggingface.h"
#include "tools/waist/query.h"

typedef struct download_options {
    const char *listing, *folder;
} download_options;

typedef struct download_run {
    download_options o;
    attn_ctx ctx;
    arena memory;
    answer answer;
    source s; /* the file of which a sum is made */
    json_value *root;
} download_run;

static const struct option download_settings[] = {
    {0, "listing", "JSON", TEXT, offsetof(download_options, listing), 1, NULL, "the hub's list"},
    {0, "folder", "DIR", TEXT, offsetof(download_options, folder), 1, NULL, "where the files go"}};

/* Files with weights by how their names begin and end, the best first. Of a repository those of one row count, and
 * shards with their index. */
static const struct {
    const char *begin, *end, *index;
} download_weights[] = {{"model.safetensors", "model.safetensors", NULL},
                        {"model-", ".safetensors", "model.safetensors.index.json"},
                        {"pytorch_model.bin", "pytorch_model.bin", NULL},
                        {"pytorch_model-", ".bin", "pytorch_model.bin.index.json"},
                        {"adapter_model.", "adapter_model.safetensors", NULL},
                        {"adapter_model.", "adapter_model.bin", NULL}};
enum { N_DOWNLOAD_WEIGHTS = COUNT_OF(download_weights), DOWNLOAD_BESIDE, DOWNLOAD_NOT };

/* The row of a file in download_weights; DOWNLOAD_BESIDE: the converter reads it whatever the weights are; else DOWNLOAD_NOT. */
static int download_kind(const char *name)
{
    static const char *const more[] = {"README.md", "adapter_config.json"};
    int i = 0, beside = 0;
    while (i < N_DOWNLOAD_WEIGHTS &&
           !(strncmp(name, download_weights[i].begin, strlen(download_weights[i].begin)) == 0 &&
             lens_ends_in(name, download_weights[i].end)) &&
           !(download_weights[i].index && strcmp(name, download_weights[i].index) == 0))
        i++;
    for (size_t k = 0; k < COUNT_OF(hf_files) + COUNT_OF(more); k++)
        beside |= strcmp(name, k < COUNT_OF(more) ? more[k] : hf_files[k - COUNT_OF(more)]) == 0;
    return strpbrk(name, "/\\:")    ? DOWNLOAD_NOT
           : i < N_DOWNLOAD_WEIGHTS ? i
           : beside                 ? DOWNLOAD_BESIDE
                                    : DOWNLOAD_NOT;
}

/* Takes a file whose bytes are all in FILE.part, or removes it. */
static int take_download(download_run *r, const char *part, const char *path, const json_value *sum)
{
    char made[SHA256_HEX];
    const json_value *const hex = json_get(sum, "sha256");
    int is_right = 1;
    if (hex) {
        if (source_open(&r->ctx, &r->s, part))
            card_sum(&r->ctx, &r->s, made);
        source_close(&r->s);
        is_right = !r->ctx.status && json_is(hex, made);
    }
    if (r->ctx.status)
        return 0;
    if (!is_right) {
        answer_note(&r->answer, arena_words(&r->ctx, &r->memory,
                                            "%s has all bytes, but not the SHA-256 that the hub "
                                            "names: it starts over",
                                            base_name(path)));
        lens_remove(part);
        return 0;
    }
    if (!lens_replace(part, path, -1))
        tool_fail_io(&r->ctx, "cannot write", path);
    return !r->ctx.status;
}

/* Adds a file to the table. */
static void add_download(download_run *r, answer_table *t, size_t row, const char *name,
                         const json_value *v)
{
    char *const path = arena_path(&r->ctx, &r->memory, r->o.folder, name);
    char *const part = path ? arena_words(&r->ctx, &r->memory, "%s.part", path) : NULL;
    uint64_t size = 0, here;
    if (!part)
        return;
    if (!json_u64(json_get(v, "size"), &size)) {
        tool_fail(&r->ctx, ATTN_E_FORMAT, "the hub's list has no size of %s", name);
        return;
    }
    int is_complete = system_exists(path);
    here = file_bytes(is_complete ? path : part);
    if (!is_complete && here > size)
        lens_remove(part);
    if (!is_complete && here == size && system_exists(part))
        is_complete = take_download(r, part, path, json_get(v, "lfs"));
    if (!is_complete && here >= size)
        here = 0;
    answer_put(&r->answer, t, row, name, (double)size, (double)here, is_complete);
}

static int list_downloads(download_run *r)
{
    const json_value *const list = json_get(r->root, "siblings"), *v, *name;
    const size_t n = list && list->kind == JSON_ARRAY ? list->size : 0;
    answer_table *const t = answer_add(&r->answer, "files");
    const char **const names =
        (const char **)arena_alloc(&r->ctx, &r->memory, n + 1, sizeof *names);
    int best = N_DOWNLOAD_WEIGHTS, kind;
    size_t row = 0, counts[DOWNLOAD_NOT + 1] = {0};
    v = list + (n > 0);
    for (size_t i = 0; names && i < n; i++, v += v->span) {
        name = json_get(v, "rfilename");
        if (!name || name->kind != JSON_STRING || json_has_zero(name) ||
            !(names[i] = arena_text(&r->ctx, &r->memory, name->text, name->size)))
            continue;
        counts[kind = download_kind(names[i])]++;
        best = kind < best ? kind : best;
    }
    if (best == N_DOWNLOAD_WEIGHTS)
        return fail(FAILED, "the repository has no weights that attn.h reads: expected "
                            "model.safetensors or pytorch_model.bin, or shards with their index");
    answer_rows(t, counts[best] + counts[DOWNLOAD_BESIDE]);
    answer_add_columns(&r->answer, t, "file:s | bytes here complete:b");
    v = list + 1;
    for (size_t i = 0; i < n && !r->ctx.status; i++, v += v->span) {
        kind = names[i] ? download_kind(names[i]) : DOWNLOAD_NOT;
        if (kind == best || kind == DOWNLOAD_BESIDE)
            add_download(r, t, row++, names[i], v);
    }
    return outcome(&r->ctx);
}

static int download_answer_query(void *run, lens_query *q)
{
    download_run *const r = (download_run *)run;
    const json_value *commit;
    char *text;
    int code;
    take_settings(&r->ctx, &q->ctx);
    r->answer.ctx = &r->ctx;
    r->answer.memory = &r->memory;
    q->answer = &r->answer;
    if (!r->o.listing || !r->o.folder)
        return fail(USAGE, "checkpoint needs a listing and a folder");
    text = arena_text(&r->ctx, &r->memory, r->o.listing, strlen(r->o.listing));
    if (text && json_parse(&r->ctx, "the hub's list", text, strlen(text), &r->root) == ATTN_OK) {
        const char **const at = answer_texts(&r->answer, answer_facts(&r->answer), CELLS, "commit");
        commit = json_get(r->root, "sha");
        if (at && commit && commit->kind == JSON_STRING)
            *at = arena_text(&r->ctx, &r->memory, commit->text, commit->size);
    }
    code = r->ctx.status ? failed(&r->ctx) : list_downloads(r);
    q->ctx.status = r->ctx.status;
    return code;
}

static const char *download_command_at(size_t i, int *bits, const char **words, const char **about)
{
    *bits = 1;
    *words = "listing folder";
    *about = "which files of a repository make a model, and which are here";
    return i ? NULL : "checkpoint";
}

static void download_set_defaults(void *options)
{
    (void)options;
}

static void download_end_query(void *run)
{
    download_run *const r = (download_run *)run;
    free(r->root);
    attn_ctx_free(&r->ctx);
    arena_free(&r->memory);
}

static const lens_asked asked_download = {"checkpoint",
                                          download_settings,
                                          COUNT_OF(download_settings),
                                          download_command_at,
                                          sizeof(download_run),
                                          offsetof(download_run, o),
                                          download_set_defaults,
                                          download_answer_query,
                                          NULL,
                                          NULL,
                                          NULL,
                                          download_end_query,
                                          1};

#endif
