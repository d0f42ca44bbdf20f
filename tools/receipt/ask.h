/* Verifies the receipt of a question: asks it again, and compares the digests of the answer's units. */
#ifndef TOOLS_RECEIPT_ASK_H
#define TOOLS_RECEIPT_ASK_H

#include "compare.h"
#include "question.h"

/* How to verify; all may be zero. */
typedef struct receipt_how {
    const char *input;  /* the file that was standard input */
    const char *answer; /* a file of the answer, to find the row that differs */
    double sample;      /* the share of the blocks to compute; 0: all */
    const char *seed;   /* which blocks; NULL: by the root */
} receipt_how;

typedef struct receipt_question {
    attn_ctx *ctx;
    receipt_findings *found;
    arena *memory;
    const receipt *told;
    const char *path; /* of the receipt */
    const receipt_how *how;
    lens_query *query;
    answer_units units;
} receipt_question;

/* >> Files ===================================================================================== */

/* Where the file of a setting is: by its name, or beside the receipt. */
TOOLS_FN const char *receipt_find(receipt_question *q, const char *name)
{
    const size_t n = (size_t)(base_name(q->path) - q->path);
    if (strcmp(name, "-") == 0 && !q->how->input)
        return tool_fail(q->ctx, ATTN_E_ARGUMENT,
                         "%s is about a text from standard input: give it with --input FILE",
                         base_name(q->path)),
               NULL;
    if (strcmp(name, "-") == 0)
        return q->how->input;
    if (system_exists(name) || system_is_directory(name))
        return name;
    char *beside = (char *)arena_alloc(q->ctx, q->memory, n + strlen(base_name(name)) + 1, 1);
    if (!beside)
        return NULL;
    memcpy(beside, q->path, n);
    memcpy(beside + n, base_name(name), strlen(base_name(name)) + 1);
    return system_exists(beside) || system_is_directory(beside) ? beside : name;
}

/* The digest that the receipt has of a setting's file; NULL: it names none. */
TOOLS_FN const char *receipt_file_of(const receipt *r, const char *setting)
{
    for (size_t i = 0; i < r->n_files; i++)
        if (strcmp(r->files[i].name, setting) == 0)
            return r->files[i].value;
    return NULL;
}

/* Gives requests to a program whose input is no setting. */
TOOLS_FN attn_status receipt_give_lines(receipt_question *q, const char *path)
{
    char *text;
    size_t size;
    if (read_bytes(q->ctx, q->memory, path, (size_t)1 << 31, &text, &size))
        return q->ctx->status;
    return lens_query_texts(q->ctx, q->query, "requests", text, &(uint64_t){size}, 1);
}

TOOLS_FN receipt_verdict receipt_set(receipt_question *q, const receipt_setting *s)
{
    const char *const digest = receipt_file_of(q->told, s->name);
    const char *const path = digest ? receipt_find(q, s->value) : s->value;
    char hex[SHA256_HEX];
    size_t row;
    int negated;
    if (digest && (!path || receipt_path_digest(q->ctx, q->memory, hex, path)))
        return RECEIPT_FAILED;
    if (digest && strcmp(hex, digest) != 0)
        return receipt_differs(q->found,
                               "another file %.80s: SHA-256 %.16s... in the receipt, %.16s... here",
                               base_name(path), digest, hex);
    return (strcmp(s->name, "file") == 0 &&
                    !find_setting(q->query->of, q->query->bits, s->name, &negated, &row)
                ? receipt_give_lines(q, path)
                : lens_query_set(q->ctx, q->query, s->name, path, SIZE_MAX))
               ? RECEIPT_FAILED
               : RECEIPT_HOLDS;
}

/* >> Samples =================================================================================== */

/* Draws the blocks: at least one, and the share of them that is asked for, which the seed decides. */
TOOLS_FN attn_status receipt_draw(receipt_question *q)
{
    const size_t n = q->told->n_blocks, share = (size_t)(q->how->sample * (double)n + 0.5);
    unsigned char *const wanted = (unsigned char *)arena_alloc(q->ctx, q->memory, n + 1, 1);
    unsigned char digest[SHA256_SIZE];
    attn_rng state;
    if (!wanted)
        return q->ctx->status;
    if (q->how->seed)
        sha256_of(digest, q->how->seed, strlen(q->how->seed));
    else
        memcpy(digest, q->told->root, sizeof digest);
    attn_rng_seed(&state, get_u64(digest));
    for (size_t left = share ? share < n ? share : n : 1; left > 0;) {
        const size_t i = (size_t)(attn_rng_u32(&state) % n);
        left -= !wanted[i];
        wanted[i] = 1;
    }
    q->units.wanted = wanted;
    q->units.n_wanted = n;
    return ATTN_OK;
}

/* Can a part of the answer be computed alone? */
TOOLS_FN int receipt_has_parts(const receipt *r)
{
    if (strcmp(r->command, "surprisal") != 0 && strcmp(r->command, "score") != 0)
        return 0;
    for (size_t i = 0; i < r->n_settings; i++)
        if (strcmp(r->settings[i].name, "continue") == 0)
            return 0;
    return 1;
}

/* >> The answer ================================================================================ */

TOOLS_FN receipt_verdict receipt_block_differs(receipt_question *q, size_t i)
{
    const unit_place *const ends = (const unit_place *)(const void *)q->units.ends.text;
    const size_t first = i * UNITS_OF_BLOCK + 1, last = first + UNITS_OF_BLOCK - 1;
    const int goes_on = i > 0 && ends[i - 1].table && ends[i].table &&
                        strcmp(ends[i - 1].table, ends[i].table) == 0;
    char names[160] = "";
    size_t used = 0;
    if (q->told->units == 1) {
        for (size_t t = 0; t < q->query->answer->n_tables && used + 40 < sizeof names; t++)
            used += (size_t)snprintf(names + used, sizeof names - used, t ? ", %.30s" : "%.30s",
                                     q->query->answer->tables[t]->name);
        return receipt_differs(q->found, "the answer differs, which is one unit: the tables %s",
                               names);
    }
    return receipt_differs(q->found, "units %zu to %zu differ: rows %zu to %zu of the table %.60s",
                           first, last < q->told->units ? last : q->told->units,
                           goes_on ? ends[i - 1].row + 2 : 1, ends[i].row + 1,
                           ends[i].table ? ends[i].table : "");
}

TOOLS_FN receipt_verdict receipt_compare_units(receipt_question *q)
{
    const receipt *const r = q->told;
    unsigned char root[SHA256_SIZE], *const nodes = (unsigned char *)arena_alloc(
                                         q->ctx, q->memory, r->n_blocks + 1, SHA256_SIZE);
    const size_t n = units_root(&q->units, root);
    if (!nodes || (!n && q->units.n))
        return RECEIPT_FAILED;
    memcpy(nodes, r->blocks, r->n_blocks * SHA256_SIZE);
    merkle_join(nodes, r->n_blocks);
    for (size_t i = 0; i < n && i < r->n_blocks; i++)
        if ((!q->units.wanted || q->units.wanted[i]) &&
            memcmp(q->units.blocks.text + i * SHA256_SIZE, r->blocks + i * SHA256_SIZE,
                   SHA256_SIZE) != 0)
            return receipt_block_differs(q, i);
    if (q->units.n != r->units)
        return receipt_differs(q->found, "the answer has %llu units, and in the receipt %zu",
                               TOOLS_LLU(q->units.n), r->units);
    return memcmp(nodes, r->root, SHA256_SIZE) == 0
               ? RECEIPT_HOLDS
               : receipt_differs(q->found, "the root is not that of the blocks");
}

TOOLS_FN receipt_verdict receipt_ask_again(receipt_question *q, attn_model *model)
{
    receipt_verdict verdict = RECEIPT_HOLDS;
    if (lens_query_new(q->ctx, &q->query, model, q->told->command, LENS_FACE_C, 0))
        return RECEIPT_FAILED;
    for (size_t i = 0; i < q->told->n_settings && !verdict; i++)
        verdict = receipt_set(q, &q->told->settings[i]);
    q->query->units = &q->units;
    if (verdict || (q->how->sample > 0 && receipt_has_parts(q->told) && receipt_draw(q)) ||
        lens_query_run(q->ctx, q->query, NULL, NULL))
        return verdict ? verdict : RECEIPT_FAILED;
    verdict = receipt_compare_units(q);
    if (verdict != RECEIPT_FAILED && q->how->answer) {
        receipt_findings row = {{0}};
        const receipt_verdict kept =
            receipt_compare_answer(q->ctx, &row, q->memory, q->query->answer, q->how->answer);
        if (kept != RECEIPT_HOLDS) {
            *q->found = row;
            verdict = kept;
        }
    }
    if (verdict == RECEIPT_HOLDS && q->how->sample > 0 && !q->units.wanted)
        snprintf(q->found->text, sizeof q->found->text,
                 "--sample does not apply: no part of this answer can be computed alone, so all of "
                 "it was");
    return verdict;
}

/* Reads a receipt of any kind and verifies it, as receipt_verify_file. */
TOOLS_FN receipt_verdict receipt_check_file(attn_ctx *ctx, receipt_findings *f, receipt *told,
                                            arena *memory, const attn_model *model,
                                            const receipt_identity *identity, const char *path,
                                            const receipt_how *how)
{
    receipt_question q = {ctx, f, memory, told, path, how, NULL, {0}};
    int is_whole = 0;
    if (receipt_read(ctx, told, &is_whole, memory, path))
        return RECEIPT_FAILED;
    receipt_verdict verdict = receipt_verify(ctx, f, model, told, identity);
    if (verdict == RECEIPT_HOLDS && told->kind == RECEIPT_QUESTION)
        verdict = receipt_ask_again(&q, (attn_model *)(uintptr_t)model);
    lens_query_free(q.query);
    units_free(&q.units);
    return receipt_judge(f, told, verdict, is_whole);
}

#endif
