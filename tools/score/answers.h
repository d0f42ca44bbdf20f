/* Writes the answer of each task, or the error of a line. */
#ifndef SCORE_ANSWERS_H
#define SCORE_ANSWERS_H

#include "request.h"
#include "tools/lens/decompose.h"
#include "tools/lens/logits.h"
#include "tools/write/model_file.h"

/* Writes the keys of the line that score does not know. */
static void put_given(job *j)
{
    const json_value *v = j->root ? j->root + 1 : NULL;
    attn_ctx ctx = {0};
    out_open(&j->answer, "given", '{');
    for (size_t i = 0; v && j->root->kind == JSON_OBJECT && i < j->root->size; i++, v += v->span)
        if (!find_key(score_keys, N_SCORE_KEYS, v))
            out_value(&j->answer, &j->memory, arena_text(&ctx, &j->memory, v->key, v->key_size), v);
    out_close(&j->answer, '}');
}

static void begin_answer(score_run *r, job *j)
{
    size_t size;
    const char *task = name_at(TASKS, j->q.task, &size);
    json_out *const o = &j->answer;
    out_open(o, NULL, '{');
    out_id(o, j->q.id);
    if (r->o.carry)
        put_given(j);
    if (r->ctx.status) {
        out_count(o, "line", j->line);
        return;
    }
    out_text(o, "task", task, size);
}

/* Answers with the error in the context, and clears it. */
static void give_error(score_run *r, job *j)
{
    const char *const message = message_of(&r->ctx);
    begin_answer(r, j);
    out_word(&j->answer, "error", message);
    j->is_error = 1;
    r->ctx.status = ATTN_OK;
    if (!r->first_error)
        r->first_error = arena_text(&r->ctx, &r->memory, message, strlen(message));
}

static void put_token(const score_run *r, json_out *o, const char *key, attn_token id)
{
    size_t size = 0;
    const char *bytes = attn_token_bytes(&size, r->tokenizer, id);
    out_text(o, key, bytes ? bytes : "", bytes ? size : 0);
}

/* Writes "ids", and "tokens" if the model has a tokenizer. */
static void put_tokens(const score_run *r, json_out *o, const attn_token *ids, size_t n)
{
    out_ids(o, "ids", ids, n);
    if (!r->tokenizer)
        return;
    out_open(o, "tokens", '[');
    for (size_t i = 0; i < n; i++)
        put_token(r, o, NULL, ids[i]);
    out_close(o, ']');
}

static void give_score(score_run *r, job *j)
{
    json_out *const o = &j->answer;
    const size_t n = j->n - j->n_context, first = j->n_context == 0; /* token 0 has no prediction */
    double sum = 0;
    size_t greedy = 1;
    for (size_t i = first; i < n; i++) {
        sum -= (double)j->stats[i - first].nll;
        greedy &= j->stats[i - first].rank == 0;
    }
    out_f64(o, "logprob", sum == 0 ? 0 : sum); /* never -0 */
    out_flag(o, "greedy", (int)greedy);
    put_tokens(r, o, j->ids + j->n_context, n);
    for (int of_ranks = 0; of_ranks < 2; of_ranks++) {
        out_open(o, of_ranks ? "ranks" : "logprobs", '[');
        for (size_t i = 0; i < n; i++)
            if (i < first)
                out_null(o, NULL);
            else if (of_ranks)
                out_count(o, NULL, j->stats[i - first].rank);
            else
                out_f32(o, NULL, 0 - j->stats[i - first].nll);
        out_close(o, ']');
    }
}

static void give_text(score_run *r, job *j)
{
    json_out *const o = &j->answer;
    if (r->tokenizer)
        out_text(o, "text", j->made, j->n_made);
    out_ids(o, "ids", j->ids + j->n_context, j->n - j->n_context);
    out_word(o, "reason", attn_stop_reason_name(j->reason));
}

static void give_embedding(score_run *r, job *j)
{
    json_out *const o = &j->answer;
    if (j->width == 0) {
        shown name;
        show(name, j->q.activation->text, j->q.activation->size);
        tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                  "activation: %s does not have one row of numbers for each position", name);
        return;
    }
    out_open(o, "embedding", '[');
    for (size_t i = 0; i < j->width; i++)
        out_f32(o, NULL, j->q.pooling ? (float)(j->sums[i] / (double)j->n) : j->row[i]);
    out_close(o, ']');
}

/* Finds the k likeliest tokens in each of `count` rows of logits, and the loss of the likeliest, and
 * stores them from row `at` of the answer on. put_top computes the other losses from that. */
static attn_status judge(score_run *r, job *j, size_t at, const float *rows, size_t count)
{
    const size_t k = j->q.k;
    const attn_tensor logits = attn_borrow(rows, ATTN_F32, attn_shape2(count, r->config->n_vocab));
    attn_token best[PASS_ROWS];
    if (attn_logit_stats(&r->ctx, NULL, &(attn_top){j->top + at * k, k}, logits, NULL) != ATTN_OK)
        return r->ctx.status;
    for (size_t i = 0; i < count; i++)
        best[i] = j->top[(at + i) * k].token;
    return attn_logit_stats(&r->ctx, j->stats + at, NULL, logits, best);
}

static size_t n_positions(const job *j)
{
    return j->q.positions ? j->n : 1;
}

/* Writes [{"id": 5, "token": " time", "logprob": -0.5}, ...] for each position, from row `at` on. A
 * logprob has the same bits as the task score gives for that token. */
static void put_top(const score_run *r, job *j, const char *key, size_t at)
{
    json_out *const o = &j->answer;
    const size_t end = at + n_positions(j);
    out_open(o, key, '[');
    for (; at < end; at++) {
        const attn_prediction *const top = j->top + at * j->q.k;
        out_open(o, NULL, '[');
        for (size_t i = 0; i < j->q.k; i++) {
            out_open(o, NULL, '{');
            out_count(o, "id", (uint64_t)top[i].token);
            if (r->tokenizer)
                put_token(r, o, "token", top[i].token);
            out_f32(o, "logprob", 0 - (j->stats[at].nll - (top[i].logit - top[0].logit)));
            out_close(o, '}');
        }
        out_close(o, ']');
    }
    out_close(o, ']');
}

static void put_positions(job *j)
{
    const size_t n = n_positions(j);
    out_open(&j->answer, "positions", '[');
    for (size_t p = j->n - n; p < j->n; p++)
        out_count(&j->answer, NULL, p);
    out_close(&j->answer, ']');
}

static void give_top(score_run *r, job *j)
{
    put_positions(j);
    put_top(r, j, "top", 0);
}

/* Applies the logit lens to the streams, at most ROWS rows at a time. */
static attn_status read_streams(score_run *r, job *j)
{
    const size_t width = r->config->d_model;
    const size_t n = (r->config->n_layer + 1) * n_positions(j);
    const attn_tensor own_scale = ATTN_ZERO;
    size_t count;
    for (size_t at = 0; at < n; at += count) {
        count = n - at < PASS_ROWS ? n - at : PASS_ROWS;
        attn_tensor logits =
            attn_borrow(r->logits, ATTN_F32, attn_shape2(count, r->config->n_vocab));
        if (lens_logit_lens(
                &r->ctx, &logits, r->model,
                attn_borrow(j->streams + at * width, ATTN_F32, attn_shape2(count, width)),
                own_scale, own_scale) ||
            judge(r, j, at, r->logits, count))
            return r->ctx.status;
    }
    return ATTN_OK;
}

static void give_lens(score_run *r, job *j)
{
    json_out *const o = &j->answer;
    const size_t n_streams = r->config->n_layer + 1;
    lens_parts_desc streams = ATTN_ZERO;
    if (read_streams(r, j) != ATTN_OK)
        return;
    put_positions(j);
    out_open(o, "layers", '[');
    for (size_t i = 0; i < n_streams; i++)
        out_word(o, NULL, lens_parts_label(r->model, &streams, i).text);
    out_close(o, ']');
    out_open(o, "top", '[');
    for (size_t i = 0; i < n_streams; i++)
        put_top(r, j, NULL, i * n_positions(j));
    out_close(o, ']');
}

/* Writes the names of the labels and the logits of the head. */
static void give_classes(score_run *r, job *j)
{
    json_out *const o = &j->answer;
    const size_t n = r->head.shape[0], width = r->head.shape[1];
    const float *w = (const float *)r->head.data, *const b = (const float *)r->head_bias.data;
    char room[32];
    out_open(o, "labels", '[');
    for (size_t i = 0; i < n; i++)
        out_word(o, NULL, model_label(r->model, i, room));
    out_close(o, ']');
    out_open(o, "logits", '[');
    for (size_t i = 0; i < n; i++, w += width) {
        double sum = b ? (double)b[i] : 0;
        for (size_t k = 0; k < width; k++)
            sum += (double)w[k] * (double)j->row[k];
        out_f32(o, NULL, (float)sum);
    }
    out_close(o, ']');
}

static void give_tokens(score_run *r, job *j)
{
    put_tokens(r, &j->answer, j->ids, j->n);
}

/* Writes the answer of a line, or the error in the context, and frees what the line needed. */
static int finish_job(score_run *r, job *j)
{
    static void (*const answers[])(score_run *, job *) = {
        give_score, give_text, give_embedding, give_lens, give_top, give_tokens, give_classes};
    const size_t held = j->held;
    if (r->ctx.status == ATTN_OK) {
        begin_answer(r, j);
        answers[j->q.task](r, j);
    }
    if (score_is_stopped(r)) /* perhaps in the middle of the answer */
        return INTERRUPTED;
    if (r->ctx.status) {
        j->answer.size = 0;
        j->answer.follows = 0;
        give_error(r, j);
    }
    out_close(&j->answer, '}');
    if (j->answer.failed)
        return fail(FAILED, "no memory for the answer of line %llu", TOOLS_LLU(j->line));
    if (j->state == RUNNING) {
        r->slots[j->slot].is_busy = 0;
        attn_unhook_all(r->slots[j->slot].session);
        r->n_running--;
    }
    attn_sampler_free(j->sampler);
    j->sampler = NULL;
    arena_free(&j->memory);
    free(j->root);
    free(j->text);
    j->root = NULL;
    j->text = NULL;
    j->held = j->answer.capacity;
    r->n_held += j->held;
    r->n_held -= held;
    j->state = DONE;
    return FINE;
}

#endif
