/* Turns a line into a request: its keys, their values, and the token ids of its texts. */
#ifndef SCORE_REQUEST_H
#define SCORE_REQUEST_H

#include "run.h"
#include "tools/common/json_keys.h"

#define COUNTED "0 1000000000"
static const struct option score_keys[] = {
#define KEY(member) offsetof(request, member)
    {0, "id", NULL, TEXT, KEY(id), OF_ALL_TASKS, "a string or a number",
     "returned with the answer"},
    {0, "task", NULL, CHOICE, KEY(task), OF_ALL_TASKS, TASKS, "one of the tasks above"},
    {0, "text", NULL, TEXT, KEY(text), OF_ALL_TASKS, "a string", "the text"},
    {0, "ids", NULL, TEXT, KEY(ids), OF_ALL_TASKS, "a list of token ids", "... or its token ids"},
    {0, "context", NULL, TEXT, KEY(context), OF_TASK(TASK_SCORE), "a string",
     "score: stands before the text and is not scored. Its tokens are its own: a blank belongs to "
     "the word behind it, so it begins the text"},
    {0, "context_ids", NULL, TEXT, KEY(context_ids), OF_TASK(TASK_SCORE), "a list of token ids",
     "... or its token ids"},
    {0, "bos", NULL, FLAG, KEY(bos), OF_ALL_TASKS, NULL,
     "begin with the beginning-of-text token (default: as --bos)"},
    {0, "special", NULL, FLAG, KEY(special), OF_ALL_TASKS, NULL,
     "<|endoftext|> in the text is a token (default: as --special)"},
    {0, "k", NULL, COUNT, KEY(k), OF_GUESSES, "1 1000000",
     "top-k, logit-lens: how many tokens (default 5)"},
    {0, "positions", NULL, CHOICE, KEY(positions), OF_GUESSES, "last all",
     "top-k, logit-lens: last (default) or all"},
    {0, "activation", NULL, TEXT, KEY(activation), OF_TASK(TASK_EMBED), "a string",
     "embed: TransformerLens's name of a residual stream, or of any activation that has one row a "
     "position (default: the last hook_resid_post)"},
    {0, "pooling", NULL, CHOICE, KEY(pooling), OF_TASK(TASK_EMBED), "last mean",
     "embed: the last position (default), or the mean of all"},
    {0, "max_tokens", NULL, COUNT, KEY(max_tokens), OF_TASK(TASK_GENERATE), "1 1000000000",
     "generate: default 100"},
    {0, "temperature", NULL, NUMBER, KEY(temperature), OF_TASK(TASK_GENERATE), "0 1000",
     "generate: 0 is greedy (default), 1 as trained"},
    {0, "top_k", NULL, COUNT, KEY(top_k), OF_TASK(TASK_GENERATE), COUNTED,
     "generate: sample from the K likeliest tokens"},
    {0, "top_p", NULL, NUMBER, KEY(top_p), OF_TASK(TASK_GENERATE), "0 1",
     "... from the likeliest that together reach P (0: from the likeliest; 1: from all)"},
    {0, "min_p", NULL, NUMBER, KEY(min_p), OF_TASK(TASK_GENERATE), "0 1",
     "... from those at least P times the likeliest"},
    {0, "repeat_penalty", NULL, NUMBER, KEY(repeat_penalty), OF_TASK(TASK_GENERATE), "0 1000",
     "above 1: repeat less"},
    {0, "repeat_last", NULL, COUNT, KEY(repeat_last), OF_TASK(TASK_GENERATE), COUNTED,
     "... of the last COUNT tokens"},
    {0, "seed", NULL, SEED, KEY(seed), OF_TASK(TASK_GENERATE), NULL,
     "same seed, same text (default 0)"},
    {0, "stop", NULL, TEXT, KEY(stop), OF_TASK(TASK_GENERATE), "a string or a list of strings",
     "generate: end before any of these"},
    {0, "ignore_eos", NULL, FLAG, KEY(ignore_eos), OF_TASK(TASK_GENERATE), NULL,
     "generate: go on through the end-of-text token"},
};
enum { N_SCORE_KEYS = sizeof score_keys / sizeof score_keys[0] };

/* Fills in the request from the line's object. The id is read first, because an error has it, too. */
static attn_status read_request(score_run *r, job *j)
{
    const json_value *v = j->root + 1, *id = json_get(j->root, "id");
    const struct option *key;
    request *const q = &j->q;
    size_t i, size;
    q->task = r->o.task;
    q->bos = r->o.bos;
    q->special = r->o.special;
    q->k = 5;
    q->max_tokens = 100;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the line was parsed */
    if (j->root->kind != JSON_OBJECT)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "expected an object, such as {\"text\": \"Once upon a time\"}");
    if (id && is_taken(&score_keys[0], id))
        q->id = id;
    for (i = 0; i < j->root->size; i++, v += v->span) {
        if (!(key = find_key(score_keys, N_SCORE_KEYS, v)) && (v->kind == JSON_NULL || r->o.carry))
            continue;
        if (!key)
            return refuse_name(&r->ctx, score_keys, N_SCORE_KEYS, v,
                               r->scores ? ""
                                         : "; --help keys lists them, and --carry takes others");
        if (read_value(&r->ctx, q, key, v) != ATTN_OK)
            return r->ctx.status;
        if (key->at == offsetof(request, top_p) && v->kind == JSON_NUMBER)
            q->top_p = given_top_p(q->top_p);
    }
    if (q->task == TASK_GENERATE && r->scores && !r->units)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "generation is no table of numbers: the program score answers it");
    const char *task = name_at(TASKS, q->task, &size);
    for (i = 0, v = j->root + 1; i < j->root->size; i++, v += v->span)
        if (v->kind != JSON_NULL && (key = find_key(score_keys, N_SCORE_KEYS, v)) &&
            !(key->commands & OF_TASK(q->task)))
            return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "%s means nothing to the task %.*s",
                             key->name, (int)size, task);
    return ATTN_OK;
}

/* Appends the ids of a list, or of a text; there is room for them. `name` is the name of the key. */
static attn_status append_tokens(score_run *r, job *j, const char *name, const json_value *text,
                                 const json_value *ids)
{
    const json_value *v = ids ? ids + 1 : NULL;
    json_value number;
    uint64_t id;
    size_t n;
    shown value;
    if (text && ids)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "%s and its ids are both given: leave one of them out", name);
    if (text && !r->tokenizer)
        return tool_fail(&r->ctx, ATTN_E_TOKENIZER, "the model has no tokenizer: give ids");
    if (text) {
        n = text->size + 1;
        if ((j->q.special ? attn_encode_special : attn_encode)(
                &r->ctx, j->ids + j->n, &n, r->tokenizer, text->text, text->size) == ATTN_OK)
            j->n += n;
        return r->ctx.status;
    }
    for (size_t i = 0; v && i < ids->size; i++, v += v->span) {
        number = *v;
        if (v->kind == JSON_NUMBER)
            number.size = whole_size(v);
        if (!json_u64(&number, &id))
            return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "ids[%zu] is %s, not a token id", i,
                             kind_name(v) ? kind_name(v) : show(value, v->text, v->size));
        if (id >= r->config->n_vocab)
            return tool_fail(&r->ctx, ATTN_E_TOKEN,
                             "ids[%zu] is %llu, which is not in the vocabulary of %u", i,
                             TOOLS_LLU(id), (unsigned)r->config->n_vocab);
        j->ids[j->n++] = (int32_t)id;
    }
    return ATTN_OK;
}

static size_t size_of_tokens(const json_value *text, const json_value *ids)
{
    return (text ? text->size + 1 : 0) + (ids ? ids->size : 0);
}

/* Makes the ids of the context and the text, and sets how many are fed. To score a text, its last
 * token need not be fed. */
static attn_status make_ids(score_run *r, job *j)
{
    const request *const q = &j->q;
    const size_t n_ctx = r->config->n_ctx, one = q->task == TASK_SCORE;
    size_t room = 1 + size_of_tokens(q->text, q->ids) + size_of_tokens(q->context, q->context_ids);
    if (!q->text && !q->ids)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "nothing to do: give a \"text\", or its \"ids\"");
    if (q->bos && r->config->bos < 0)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "bos: the model has no beginning-of-text token");
    if (q->task == TASK_GENERATE)
        room += q->max_tokens < n_ctx ? q->max_tokens : n_ctx + 1;
    if (!(j->ids = (int32_t *)allocate_for(r, j, room, sizeof *j->ids)))
        return r->ctx.status;
    if (q->bos)
        j->ids[j->n++] = r->config->bos;
    if (append_tokens(r, j, "context", q->context, q->context_ids) != ATTN_OK)
        return r->ctx.status;
    j->n_context = j->n;
    if (append_tokens(r, j, "text", q->text, q->ids) != ATTN_OK || q->task == TASK_TOKENS)
        return r->ctx.status;
    if (j->n == (q->task == TASK_SCORE ? j->n_context : 0))
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "the text is empty");
    if (j->n > n_ctx + one)
        return tool_fail(&r->ctx, ATTN_E_CONTEXT, "the text has %zu tokens%s; expected at most %zu",
                         j->n, j->n_context ? " with those before it" : "", n_ctx + one);
    j->goal = j->n - one;
    return ATTN_OK;
}

#endif
