/* lens edges --exact --state FILE: what has been computed, so that a run that was stopped can be continued. The
 * file, in the byte order of the machine that wrote it (a machine of the other order refuses it):
 *
 *     u64 [8]       EXACT_MAGIC; digests of the model, of the pairs of texts, of their metrics and of the
 *                   edits; 1 for nodes or 0 for edges; the number of effects; the number of pairs that are done
 *     f32 [2]       the sums of both texts' metrics over these pairs
 *     f32 [n]       the sums of the effects over these pairs
 *     f32 [n]       the effects of the next pair
 *     u8 [n]        1 where an effect of the next pair has been computed
 *     u64           model_checksum of all before it */
#ifndef LENS_EXACT_FILE_H
#define LENS_EXACT_FILE_H

#include "cmd_patch.h"
#include "tools/common/digest.h"
#include "tools/lens/exact.h"

#define EXACT_MAGIC 0x3173746365666665u /* "effects1" */

typedef struct exact_file {
    lens *l;
    uint64_t words[8];
    lens_exact_state state;
    size_t n;     /* effects */
    double saved; /* when the file was written */
} exact_file;

/* Adds a number to a digest, whatever the size of its type. */
static uint64_t digest_number(uint64_t digest, uint64_t number)
{
    unsigned char bytes[8];
    put_u64(bytes, number);
    return digest_bytes(digest, bytes, sizeof bytes);
}

static uint64_t digest_numbers(uint64_t digest, const uint64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        digest = digest_number(digest, numbers[i]);
    return digest;
}

static uint64_t digest_tokens(uint64_t digest, const attn_token *tokens, size_t n)
{
    digest = digest_number(digest, n);
    for (size_t i = 0; i < n; i++)
        digest = digest_number(digest, (uint64_t)tokens[i]);
    return digest;
}

static uint64_t digest_edit(uint64_t digest, const attn_edit *e)
{
    const size_t n = e->value.data ? attn_count(e->value) : 0;
    const uint64_t numbers[6] = {(uint64_t)e->kind, e->first,   e->count,
                                 e->first_head,     e->n_heads, n};
    digest = digest_numbers(digest_text(digest, e->name, strlen(e->name)), numbers, 6);
    return digest_bytes(digest, e->value.data, n * sizeof(float)); /* edits.h makes dense values */
}

/* What the file must have been made for. */
static void fill_words(exact_file *f, const patching *p)
{
    const attn_config *const c = f->l->config;
    uint64_t numbers[4] = {0};
    f->words[0] = EXACT_MAGIC;
    f->words[1] = digest_model(f->l->model);
    numbers[0] = (uint64_t)c->act_fn;
    numbers[1] = (uint64_t)c->unscaled_attn;
    numbers[2] = (uint64_t)c->scale_attn_by_inverse_layer_idx;
    memcpy(&numbers[3], &c->ln_eps, sizeof c->ln_eps);
    f->words[1] = digest_numbers(f->words[1], numbers, 4);
    f->words[2] = f->words[3] = f->words[4] = DIGEST_START;
    for (size_t i = 0; i < p->n_pairs; i++) {
        const lens_pair *const pair = &p->pairs[i];
        const attn_token *const against = lens_metric_against(&pair->metric);
        numbers[0] = (uint64_t)pair->metric.kind;
        numbers[1] = pair->metric.from_end;
        numbers[2] = (uint64_t)pair->metric.token;
        numbers[3] = against ? (uint64_t)*against : 0;
        f->words[2] = digest_tokens(f->words[2], pair->clean, pair->n_tokens);
        f->words[2] = digest_tokens(f->words[2], pair->corrupted, pair->n_tokens);
        f->words[3] = digest_numbers(f->words[3], numbers, 4);
    }
    for (size_t i = 0; i < f->l->n_edits; i++)
        f->words[4] = digest_edit(f->words[4], &f->l->edits[i]);
    f->words[5] = (uint64_t)f->l->o.of_nodes;
    f->words[6] = f->n;
}

/* Writes, or reads, what follows the words, and adds it to the checksum. */
static int move_state(exact_file *f, FILE *file, int saves, uint64_t *sum)
{
    lens_exact_state *const s = &f->state;
    void *const parts[4] = {&s->sum, s->sums, s->values, s->done};
    const size_t sizes[4] = {sizeof s->sum, f->n * sizeof(float), f->n * sizeof(float), f->n};
    for (int i = 0; i < 4; i++) {
        size_t moved;
        if (saves)
            moved = fwrite(parts[i], 1, sizes[i], file);
        else
            moved = fread(parts[i], 1, sizes[i], file);
        if (moved < sizes[i])
            return 0;
        *sum = model_checksum(*sum, parts[i], sizes[i]);
    }
    return 1;
}

static attn_status save_state(exact_file *f)
{
    lens_new_file *made = NULL;
    attn_ctx ctx = ATTN_ZERO; /* that of the run may hold a stop */
    attn_status status = lens_new_file_begin(&ctx, &made, f->l->o.state);
    uint64_t sum;
    if (status == ATTN_OK) {
        FILE *const file = (FILE *)lens_new_file_stream(made);
        f->words[7] = f->state.n_pairs;
        sum = model_checksum(0, f->words, sizeof f->words);
        fwrite(f->words, 1, sizeof f->words, file);
        move_state(f, file, 1, &sum);
        fwrite(&sum, 1, sizeof sum, file);
        status = lens_new_file_end(&ctx, made, ATTN_OK); /* reports what failed to be written */
    }
    if (status != ATTN_OK)
        tool_fail(&f->l->ctx, status, "--state: %s", ctx.message);
    attn_ctx_free(&ctx);
    f->saved = system_seconds();
    return status;
}

/* Says what a file was made for, if that is something else. */
static attn_status check_words(const exact_file *f, const uint64_t found[8])
{
    static const char *const others[] = {"with another model", "for other texts",
                                         "for another answer (--token, --against)",
                                         "with other edits", "for the other --of"};
    const char *const path = f->l->o.state;
    if (found[0] != EXACT_MAGIC)
        return tool_fail(&f->l->ctx, ATTN_E_FORMAT,
                         "--resume: %s is not a file of --state of this machine", path);
    for (int i = 1; i < 6; i++)
        if (found[i] != f->words[i])
            return tool_fail(&f->l->ctx, ATTN_E_ARGUMENT, "--resume: %s was made %s", path,
                             others[i - 1]);
    return ATTN_OK;
}

static attn_status load_state(exact_file *f, size_t n_pairs)
{
    const char *const path = f->l->o.state;
    FILE *const file = system_open(path, "rb");
    uint64_t found[8] = {0}, told;
    if (!file)
        return tool_fail_io(&f->l->ctx, "--resume: cannot open", path);
    if (fread(found, 1, sizeof found, file) < sizeof found)
        found[0] = 0;
    attn_status status = check_words(f, found);
    uint64_t sum = model_checksum(0, found, sizeof found);
    if (status == ATTN_OK &&
        (!move_state(f, file, 0, &sum) || fread(&told, 1, sizeof told, file) < sizeof told ||
         told != sum || fgetc(file) != EOF || found[6] != f->n || found[7] > n_pairs))
        status = tool_fail(&f->l->ctx, ATTN_E_CHECKSUM,
                           "--resume: %s is damaged: begin again with another file", path);
    f->state.n_pairs = (size_t)found[7];
    fclose(file);
    return status;
}

/* Prepares the state, and reads it with --resume. */
static attn_status begin_state(lens *l, exact_file *f, const patching *p)
{
    const size_t n = lens_exact_count(l->model, l->o.of_nodes), size = 2 * sizeof(float) + 1;
    float *const numbers = (float *)allocate(l, n, size);
    if (!numbers)
        return l->ctx.status;
    memset(numbers, 0, n * size);
    f->l = l;
    f->n = n;
    f->saved = system_seconds();
    f->state.sums = numbers;
    f->state.values = numbers + n;
    f->state.done = (unsigned char *)(numbers + 2 * n);
    fill_words(f, p);
    if (l->o.resume)
        return load_state(f, p->n_pairs);
    if (l->o.state && system_exists(l->o.state))
        return tool_fail(&l->ctx, ATTN_E_ARGUMENT,
                         "%s is there already: --resume continues it; or choose another file",
                         l->o.state);
    return ATTN_OK;
}

/* An attn_progress_fn: tells of the progress, and writes the file twice a minute. */
static int exact_so_far(double done, void *user)
{
    exact_file *const f = (exact_file *)user;
    return so_far(done, f->l) ||
           (f->l->o.state && system_seconds() - f->saved > 30 && save_state(f) != ATTN_OK);
}

#endif
