/* Gives texts sessions, and feeds the next tokens of all of them in one pass over the weights. */
#ifndef SCORE_BATCH_H
#define SCORE_BATCH_H

#include "answers.h"

/* ---- hooks ---- */

/* An attn_hook_fn for embed: keeps the last row, and the sum of all rows. */
static int keep_last_rows(const attn_activation *activation, void *user)
{
    job *const j = (job *)user;
    const attn_tensor value = activation->value;
    if (value.ndim != 2 || value.shape[1] != j->width) {
        j->width = 0;
        return 0;
    }
    for (size_t t = 0; t < value.shape[0]; t++) {
        const float *const row = (const float *)value.data + (ptrdiff_t)t * value.stride[0];
        for (size_t k = 0; k < j->width; k++) {
            j->row[k] = row[(ptrdiff_t)k * value.stride[1]];
            j->sums[k] += (double)j->row[k];
        }
    }
    return 0;
}

typedef struct lens_hook {
    job *j;
    size_t layer, width;
} lens_hook;

/* An attn_hook_fn for logit-lens: keeps a stream's rows at the requested positions. */
static int keep_stream(const attn_activation *activation, void *user)
{
    const lens_hook *const h = (const lens_hook *)user;
    const attn_tensor value = activation->value;
    const size_t n = n_positions(h->j), first = h->j->n - n;
    for (size_t t = 0; t < value.shape[0]; t++)
        if (activation->first + t >= first)
            memcpy(h->j->streams + (h->layer * n + activation->first + t - first) * h->width,
                   (const float *)value.data + (ptrdiff_t)t * value.stride[0],
                   h->width * sizeof(float));
    return 0;
}

/* Sets j->width to the size of a row of the activation. */
static attn_status measure_activation(score_run *r, job *j, const char *name)
{
    const attn_record_desc one = {.names = &name, .n_names = 1, .n_positions = 1};
    size_t bytes = 0;
    if (strchr(name, '*'))
        return tool_fail(&r->ctx, ATTN_E_NAME,
                         "activation: %.80s is a pattern; give the name of one activation", name);
    if (attn_record_size(&r->ctx, &bytes, r->model, &one) != ATTN_OK)
        return r->ctx.status;
    j->width = bytes / sizeof(float);
    return ATTN_OK;
}

static attn_status hook_embed(score_run *r, job *j, attn_session *session)
{
    char last[64];
    const json_value *const named = j->q.activation;
    const char *name = last;
    snprintf(last, sizeof last, "blocks.%u.hook_resid_post", (unsigned)r->config->n_layer - 1);
    if (j->q.task == TASK_CLASSIFY && r->head.ndim == 0) { /* it was not asked for before */
        if (attn_model_tensor(&r->ctx, &r->head_bias, r->model, "head.bias") == ATTN_E_NAME)
            r->ctx.status = ATTN_OK;
        if (r->ctx.status || attn_model_tensor(&r->ctx, &r->head, r->model, "head.weight"))
            return r->ctx.status != ATTN_E_NAME
                       ? r->ctx.status
                       : tool_fail(&r->ctx, ATTN_E_NAME,
                                   "classify: the model has no head, as classifiers have");
    }
    if (j->q.task == TASK_CLASSIFY)
        name = "ln_final.hook_normalized.post"; /* after its gain and bias */
    if (json_has_zero(named))
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "activation: the name has a zero byte, \\u0000");
    if (named && !(name = arena_text(&r->ctx, &j->memory, named->text, named->size)))
        return r->ctx.status;
    if (measure_activation(r, j, name) != ATTN_OK)
        return r->ctx.status;
    j->row = (float *)allocate_for(r, j, j->width, sizeof *j->row);
    j->sums = (double *)allocate_for(r, j, j->width, sizeof *j->sums);
    if (!j->row || !j->sums)
        return r->ctx.status;
    return attn_hook(&r->ctx, NULL, session, name, keep_last_rows, j);
}

static attn_status hook_lens(score_run *r, job *j, attn_session *session)
{
    const size_t n_layer = r->config->n_layer, width = r->config->d_model, n = n_positions(j);
    lens_hook *hooks = (lens_hook *)allocate_for(r, j, n_layer + 1, sizeof *hooks);
    char name[64];
    j->streams = (float *)allocate_for(r, j, (n_layer + 1) * n, width * sizeof(float));
    for (size_t i = 0; hooks && j->streams && i <= n_layer; i++) {
        hooks[i].j = j;
        hooks[i].layer = i;
        hooks[i].width = width;
        snprintf(name, sizeof name, "blocks.%u.hook_resid_%s", (unsigned)(i - (i == n_layer)),
                 i == n_layer ? "post" : "pre");
        if (attn_hook(&r->ctx, NULL, session, name, keep_stream, &hooks[i]))
            break;
    }
    return r->ctx.status;
}

/* ---- beginning a text ---- */

static attn_status make_sampler(score_run *r, job *j)
{
    const request *const q = &j->q;
    const attn_sampler_desc how = {.temperature = q->temperature,
                                   .top_k = q->top_k,
                                   .top_p = q->top_p,
                                   .min_p = q->min_p,
                                   .repeat_penalty = q->repeat_penalty,
                                   .repeat_last = q->repeat_last,
                                   .seed = q->seed};
    return attn_sampler_new(&r->ctx, &j->sampler, r->config->n_vocab, &how);
}

static attn_status check_stop(score_run *r, const job *j)
{
    const json_value *const stop = j->q.stop, *v;
    size_t i;
    if (!stop)
        return ATTN_OK;
    if (!r->tokenizer)
        return tool_fail(&r->ctx, ATTN_E_TOKENIZER, "stop: the model has no tokenizer");
    for (i = 0, v = stop + (stop->kind == JSON_ARRAY);
         i < (stop->kind == JSON_ARRAY ? stop->size : 1); i++, v += v->span)
        if (v->kind != JSON_STRING || v->size == 0)
            return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "stop: expected strings that are not empty");
    return ATTN_OK;
}

/* Allocates what a task needs besides the session. */
static attn_status prepare_job(score_run *r, job *j)
{
    const size_t n_rows = j->q.task == TASK_SCORE        ? j->n - j->n_context
                          : j->q.task == TASK_LOGIT_LENS ? (r->config->n_layer + 1) * n_positions(j)
                                                         : n_positions(j);
    if (j->q.k > r->config->n_vocab)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "k is %zu, more than the vocabulary's %u tokens",
                         j->q.k, (unsigned)r->config->n_vocab);
    if (OF_TASK(j->q.task) & (OF_GUESSES | OF_TASK(TASK_SCORE)))
        j->stats = (attn_token_stats *)allocate_for(r, j, n_rows, sizeof *j->stats);
    if (OF_TASK(j->q.task) & OF_GUESSES)
        j->top = (attn_prediction *)allocate_for(r, j, n_rows, j->q.k * sizeof *j->top);
    if (j->q.task == TASK_GENERATE && check_stop(r, j) == ATTN_OK)
        make_sampler(r, j);
    j->n_context = j->q.task == TASK_GENERATE ? j->n : j->n_context;
    return r->ctx.status;
}

/* How many positions of a session a text needs, with the tokens to generate. */
static size_t length_of(const score_run *r, const job *j)
{
    const size_t left = r->config->n_ctx - j->goal;
    return j->goal + (j->goal == 0) +
           (j->q.task != TASK_GENERATE ? 0
            : j->q.max_tokens < left   ? j->q.max_tokens
                                       : left);
}

static void close_slot(score_run *r, session_slot *s)
{
    attn_session_free(s->session);
    r->capacity -= s->capacity;
    s->session = NULL;
    s->capacity = 0;
}

/* Finds the smallest idle session that is long enough, or a slot for a new one. All sessions together
 * hold at most eight contexts, so idle ones are freed for a new one if necessary. Returns NULL if
 * the text has to wait. */
static session_slot *find_slot(score_run *r, size_t length, size_t *capacity)
{
    const size_t most = (size_t)8 * r->config->n_ctx;
    session_slot *best = NULL, *unused = NULL;
    for (size_t i = 0; i < r->o.batch; i++) {
        session_slot *const s = &r->slots[i];
        if (s->is_busy)
            continue;
        unused = !unused || s->capacity < unused->capacity ? s : unused;
        if (s->capacity >= length && (!best || s->capacity < best->capacity))
            best = s;
    }
    if (best || !unused)
        return best;
    *capacity = (length + 63) / 64 * 64;
    *capacity = *capacity < r->config->n_ctx ? *capacity : r->config->n_ctx;
    close_slot(r, unused);
    for (size_t i = 0; i < r->o.batch && r->capacity + *capacity > most; i++)
        if (!r->slots[i].is_busy)
            close_slot(r, &r->slots[i]);
    return r->capacity + *capacity <= most ? unused : NULL;
}

/* Begins a waiting text if there is a session for it; *begun says so. */
static int begin_job(score_run *r, job *j, int *begun)
{
    size_t capacity = 0;
    session_slot *const s = find_slot(r, length_of(r, j), &capacity);
    *begun = s != NULL;
    if (!s)
        return FINE;
    if (!s->session) {
        const attn_session_desc desc = {.n_ctx = capacity,
                                        .cache_dtype = r->o.f16_cache ? ATTN_F16 : ATTN_F32,
                                        .workspace = r->workspace};
        if (attn_session_new(&r->ctx, &s->session, r->model, &desc))
            return failed_run(r);
        s->capacity = capacity;
        r->capacity += capacity;
    }
    j->slot = (size_t)(s - r->slots);
    j->state = RUNNING;
    s->is_busy = 1;
    r->n_waiting--;
    r->n_running++;
    if (attn_session_truncate(&r->ctx, s->session, 0) != ATTN_OK)
        return failed_run(r);
    if (prepare_job(r, j) == ATTN_OK &&
        OF_TASK(j->q.task) & (OF_TASK(TASK_EMBED) | OF_TASK(TASK_CLASSIFY)))
        hook_embed(r, j, s->session);
    else if (r->ctx.status == ATTN_OK && j->q.task == TASK_LOGIT_LENS)
        hook_lens(r, j, s->session);
    return r->ctx.status || j->goal == 0 ? finish_job(r, j) : FINE;
}

/* Begins texts in the order of the input, until one has to wait. */
static int begin_jobs(score_run *r)
{
    int begun = 1, code = FINE;
    for (size_t i = 0; i < r->n && begun && r->n_waiting && code == FINE; i++)
        if (job_at(r, i)->state == WAITING)
            code = begin_job(r, job_at(r, i), &begun);
    return code;
}

/* ---- one pass over the weights ---- */

/* The first position whose logits a task needs. */
static size_t first_wanted(const job *j)
{
    switch (j->q.task) {
    case TASK_SCORE:
        return j->n_context > 0 ? j->n_context - 1 : 0;
    case TASK_TOP_K:
        return j->n - n_positions(j);
    default:
        return j->goal;
    }
}

/* Adds the next tokens of a text, as many as the pass has room for. */
static void add_item(score_run *r, score_pass *p, job *j)
{
    attn_feed_item *const item = &p->items[p->n_items];
    const size_t room = PASS_ROWS - p->n_tokens, left = j->goal - j->fed;
    size_t wanted = first_wanted(j);
    *item = (attn_feed_item){.session = r->slots[j->slot].session,
                             .tokens = j->ids + j->fed,
                             .n_tokens = left < room ? left : room};
    p->jobs[p->n_items++] = j;
    p->n_tokens += item->n_tokens;
    if (j->q.task == TASK_GENERATE)
        return; /* the session keeps the logits of the last token */
    item->logits = r->logits + p->n_rows * r->config->n_vocab;
    item->rows = p->rows + p->n_rows;
    for (size_t at = wanted > j->fed ? wanted - j->fed : 0; at < item->n_tokens; at++) {
        p->rows[p->n_rows++] = at;
        item->n_rows++;
    }
}

/* The longest stop string that ends at byte `end` of the text, or NULL. */
static const json_value *stop_string_at(const job *j, size_t end)
{
    const json_value *const stop = j->q.stop, *v, *found = NULL;
    size_t i;
    if (!stop)
        return NULL;
    size_t n = stop->kind == JSON_ARRAY ? stop->size : 1;
    for (i = 0, v = stop + (stop->kind == JSON_ARRAY); i < n; i++, v++)
        if (v->size <= end && memcmp(j->made + end - v->size, v->text, v->size) == 0 &&
            (!found || v->size > found->size))
            found = v;
    return found;
}

/* Appends the bytes of a token. If they complete a stop string, the text is cut before it. */
static attn_status append_text(score_run *r, job *j, attn_token id)
{
    size_t size = 0;
    const char *const bytes = attn_token_bytes(&size, r->tokenizer, id);
    const json_value *stop;
    if (!bytes)
        return ATTN_OK;
    if (j->room - j->n_made < size) {
        const size_t room = 2 * (j->room + size);
        char *const larger = (char *)allocate_for(r, j, room, 1);
        if (!larger)
            return r->ctx.status;
        if (j->n_made)
            memcpy(larger, j->made, j->n_made);
        j->made = larger;
        j->room = room;
    }
    memcpy(j->made + j->n_made, bytes, size);
    for (size_t i = 1; i <= size; i++)
        if ((stop = stop_string_at(j, j->n_made + i)) != NULL) {
            j->n_made += i - stop->size;
            j->reason = ATTN_STOP_STRING;
            return ATTN_OK;
        }
    j->n_made += size;
    return ATTN_OK;
}

/* Draws the next token. A text ends for the same reasons as in attn_generate. */
static attn_status draw_token(score_run *r, job *j)
{
    const attn_session *const session = r->slots[j->slot].session;
    attn_token id;
    if (attn_sample(&r->ctx, &id, j->sampler, attn_session_logits(session), j->ids, j->n) !=
        ATTN_OK)
        return r->ctx.status;
    if (attn_config_is_eos(r->config, id) && !j->q.ignore_eos) {
        j->reason = ATTN_STOP_EOS;
        return ATTN_OK;
    }
    j->ids[j->n++] = id;
    if (r->tokenizer && append_text(r, j, id) != ATTN_OK)
        return r->ctx.status;
    if (!j->reason && j->n - j->n_context == j->q.max_tokens)
        j->reason = ATTN_STOP_COUNT;
    if (!j->reason && j->n > r->config->n_ctx)
        j->reason = ATTN_STOP_CONTEXT;
    j->goal++;
    return ATTN_OK;
}

/* Takes a text's results from a pass, and finishes the text after its last pass. */
static int take_item(score_run *r, const attn_feed_item *item, job *j)
{
    const size_t at = j->fed + (item->n_rows ? item->rows[0] : 0);
    j->fed += item->n_tokens;
    r->n_tokens += item->n_tokens;
    if (j->q.task == TASK_SCORE && item->n_rows)
        attn_logit_stats(
            &r->ctx, j->stats + (at - first_wanted(j)), NULL,
            attn_borrow(item->logits, ATTN_F32, attn_shape2(item->n_rows, r->config->n_vocab)),
            j->ids + at + 1);
    else if (j->q.task == TASK_TOP_K && item->n_rows)
        judge(r, j, at - first_wanted(j), item->logits, item->n_rows);
    else if (j->q.task == TASK_GENERATE && j->fed == j->goal)
        draw_token(r, j);
    if (r->ctx.status || (j->q.task == TASK_GENERATE ? j->reason != 0 : j->fed == j->goal))
        return finish_job(r, j);
    return FINE;
}

static int feed_jobs(score_run *r)
{
    score_pass *const p = &r->pass;
    int code = FINE;
    p->n_items = p->n_tokens = p->n_rows = 0;
    for (size_t i = 0; i < r->n && p->n_tokens < PASS_ROWS; i++)
        if (job_at(r, i)->state == RUNNING)
            add_item(r, p, job_at(r, i));
    if (p->n_items && attn_feed_batch(&r->ctx, p->items, p->n_items))
        return failed_run(r);
    for (size_t i = 0; i < p->n_items && code == FINE; i++)
        if (p->jobs[i]->q.task != TASK_LOGIT_LENS)
            code = take_item(r, &p->items[i], p->jobs[i]);
    for (size_t i = 0; i < p->n_items && code == FINE;
         i++) /* after the others, because it overwrites the logits */
        if (p->jobs[i]->state == RUNNING && p->jobs[i]->q.task == TASK_LOGIT_LENS)
            code = take_item(r, &p->items[i], p->jobs[i]);
    return code;
}

/* ---- all of it ---- */

/* Makes room, in the model that is open. */
static attn_status begin_score(score_run *r)
{
    const attn_workspace_desc desc = {.n_batch = PASS_ROWS};
    r->config = attn_model_config(r->model);
    r->tokenizer = attn_model_tokenizer(r->model);
    r->ring = (job *)arena_alloc(&r->ctx, &r->memory, RING, sizeof *r->ring);
    r->logits =
        (float *)arena_alloc(&r->ctx, &r->memory, r->config->n_vocab, PASS_ROWS * sizeof(float));
    return r->ring && r->logits ? attn_workspace_new(&r->ctx, &r->workspace, r->model, &desc)
                                : r->ctx.status;
}

/* Frees all but the model. */
static void end_score(score_run *r)
{
    for (size_t i = 0; i < r->n; i++)
        free_job(r, job_at(r, i));
    for (size_t i = 0; i < MAX_BATCH; i++)
        attn_session_free(r->slots[i].session);
    attn_workspace_free(r->workspace);
    lines_free(&r->lines);
    arena_free(&r->memory);
    attn_ctx_free(&r->ctx);
}

#endif
