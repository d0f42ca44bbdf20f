/* Path patching: does what a head, an MLP or the embedding writes matter to certain readers of the
 * residual stream? Uses attn.h's public API only.
 *
 * The corrupted text runs. The receivers read what they would read if the sender had written as in the
 * clean text, and all other heads as in the corrupted one. The receivers and all later parts are computed
 * again. What MLPs between sender and receiver do has two published meanings:
 *
 *     frozen    they write as in the corrupted text: only the direct path (Goldowsky-Dill et al. 2023)
 *     through   they read what the sender wrote, and pass it on (Wang et al. 2022)
 *
 * With edits all runs use the edited model: an edit of the stream between sender and receiver changes
 * what reaches the receiver, whatever MLPs do.
 *
 *     lens_sender from = {LENS_SENDER_HEAD, 5, 5};
 *     lens_receiver to[2] = {{7, "hook_k_input", 3}, {7, "hook_k_input", 9}};
 *     lens_paths_desc d = ATTN_ZERO;
 *     attn_tensor effect = ATTN_ZERO;
 *     d.pairs = &pair, d.n_pairs = 1;                    as for lens_patch (patch.h)
 *     d.senders = &from, d.n_senders = 1;
 *     d.receivers = to, d.n_receivers = 2;
 *     d.mlps = LENS_MLPS_THROUGH;
 *     if (lens_patch_paths(&ctx, &effect, NULL, model, &d) == ATTN_OK)
 *         printf("L5H5 to the keys of L7H3 and L7H9: %.3f\n", attn_get1(effect, 0));
 */
#ifndef LENS_PATHS_H
#define LENS_PATHS_H

#include "sweep.h"
#include <stdlib.h>

/* What writes into the stream. A field that the kind does not read must be zero. */
typedef enum lens_sender_kind {
    LENS_SENDER_EMBED = 0, /* both embeddings together */
    LENS_SENDER_HEAD,
    LENS_SENDER_MLP
} lens_sender_kind;

typedef struct lens_sender {
    lens_sender_kind kind;
    size_t layer; /* HEAD, MLP */
    size_t head;  /* HEAD */
} lens_sender;

typedef struct lens_receiver {
    size_t layer; /* above the sender's; of hook_mlp_in it may be a head's own */
    const char
        *to; /* "hook_resid_pre", "hook_mlp_in", or with a head "hook_q_input", "hook_k_input",
                       "hook_v_input". "hook_resid_pre" of layer n_layer is the stream that is
                       unembedded */
    size_t head;
} lens_receiver;

/* What MLPs between a sender and a receiver do. */
typedef enum lens_path_mlps { LENS_MLPS_FROZEN = 0, LENS_MLPS_THROUGH } lens_path_mlps;

typedef struct lens_paths_desc {
    const lens_pair *pairs; /* [n_pairs]: the result is the mean over them */
    size_t n_pairs;
    const lens_sender *senders; /* [n_senders]: one at a time */
    size_t n_senders;
    const lens_receiver *receivers; /* [n_receivers]: at once, all to which the sender has a path */
    size_t n_receivers;
    int each_receiver; /* 1: one receiver at a time */
    lens_path_mlps mlps;
    int normalize; /* these as in lens_patch_desc */
    const attn_edit *edits;
    size_t n_edits;
    attn_progress_fn progress;
    void *user;
    float *each; /* as in lens_patch_desc */
} lens_paths_desc;

enum { LENS_PATH_RECORDS = 5 }; /* most names that are recorded, without the receivers' inputs */

typedef struct lens_path_run {
    const lens_paths_desc *d;
    lens_sweep sweep;
    const char *
        *names; /* [n_names]: recorded of the corrupted text; the first n_both of both texts */
    size_t n_both, n_names;
    size_t first_input; /* the first of the names that is a receiver's input */
    size_t n_layer, width;
    size_t first_receiver, end_receiver; /* the receivers of this run */
    size_t stage;                        /* of the senders of this run */
    size_t start;                        /* the lowest layer of their receivers */
    lens_sweep_entry *entries;           /* [n_senders]; index: the sender */
    lens_full_name *inputs_named;        /* [n_receivers]: the last of the names */
    attn_tensor differences;             /* [n_rows, C]: clean - corrupted outputs of a batch */
    attn_tensor inputs;                  /* [n_receivers, n_rows, C]: what receivers read */
} lens_path_run;

/* ---- checks ---- */

LENS_FN int lens_is_mlp_reader(const lens_receiver *r)
{
    return strcmp(r->to, "hook_mlp_in") == 0;
}

LENS_FN int lens_is_of_a_head(const lens_receiver *r)
{
    return strstr(r->to, "_input") != NULL;
}

/* Stages are in the order in which senders write: 0 the embedding, 1 + 2i the heads of layer i, 2 + 2i its
 * MLP. */
LENS_FN size_t lens_stage_of(const lens_sender *s)
{
    return s->kind == LENS_SENDER_EMBED ? 0 : 2 * s->layer + (size_t)s->kind;
}

/* The layer of a stage. */
LENS_FN size_t lens_layer_of(size_t stage)
{
    return stage == 0 ? 0 : (stage - 1) / 2;
}

/* Is there a path from the senders of a stage to this receiver? */
LENS_FN int lens_leads_to(size_t stage, const lens_receiver *r)
{
    return stage < 2 * r->layer + 1 + (size_t)lens_is_mlp_reader(r);
}

LENS_FN attn_status lens_need_receiver(attn_ctx *ctx, const attn_model *model,
                                       const lens_receiver *r)
{
    static const char *const ends[] = {"hook_resid_pre", "hook_mlp_in", "hook_q_input",
                                       "hook_k_input", "hook_v_input"};
    const attn_config *c = attn_model_config(model);
    int end = 0;
    while (end < 5 && !(r->to && strcmp(r->to, ends[end]) == 0))
        end++;
    if (end == 5)
        return attn_fail(ctx, ATTN_E_NAME,
                         "lens_patch_paths: expected a receiver hook_resid_pre, hook_mlp_in, "
                         "hook_q_input, hook_k_input or hook_v_input, not %.60s",
                         r->to ? r->to : "nothing");
    if (r->layer >= c->n_layer + (size_t)(end == 0) || (end > 1 && r->head >= c->n_head))
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_patch_paths: no receiver %s of layer %llu, head %llu: the model has "
                         "layers 0 to %zu of heads 0 to %zu",
                         r->to, LENS_LLU(r->layer), LENS_LLU(r->head), c->n_layer - 1,
                         c->n_head - 1);
    return ATTN_OK;
}

/* "head 3 of layer 1", "MLP of layer 1", "the embedding" */
LENS_FN lens_full_name lens_show_sender(const lens_sender *s)
{
    lens_full_name out;
    if (s->kind == LENS_SENDER_EMBED)
        snprintf(out.text, sizeof out.text, "the embedding");
    else if (s->kind == LENS_SENDER_MLP)
        snprintf(out.text, sizeof out.text, "MLP of layer %llu", LENS_LLU(s->layer));
    else
        snprintf(out.text, sizeof out.text, "head %llu of layer %llu", LENS_LLU(s->head),
                 LENS_LLU(s->layer));
    return out;
}

/* Checks that the model has the sender, and that a path leads to a receiver (each_receiver: to all). */
LENS_FN attn_status lens_need_sender(attn_ctx *ctx, const attn_model *model,
                                     const lens_paths_desc *d, const lens_sender *s)
{
    const attn_config *c = attn_model_config(model);
    size_t n = 0;
    if ((unsigned)s->kind > LENS_SENDER_MLP)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_patch_paths: kind %d of a sender is none "
                         "of LENS_SENDER_EMBED, _HEAD, _MLP",
                         (int)s->kind);
    if ((s->kind != LENS_SENDER_HEAD && s->head) || (s->kind == LENS_SENDER_EMBED && s->layer))
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_patch_paths: layer %llu, head %llu of a sender: the embedding has "
                         "neither, and an MLP has no head; set kind, and leave other fields zero",
                         LENS_LLU(s->layer), LENS_LLU(s->head));
    if (s->layer >= c->n_layer || s->head >= c->n_head)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_patch_paths: no %s: the model has layers 0 to %zu of heads 0 to %zu",
                         lens_show_sender(s).text, c->n_layer - 1, c->n_head - 1);
    for (size_t i = 0; i < d->n_receivers; i++)
        n += (size_t)lens_leads_to(lens_stage_of(s), &d->receivers[i]);
    if (n == 0 || (d->each_receiver && n < d->n_receivers))
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_patch_paths: no path leads from %s to %s: a path leads to a later "
                         "layer, or from a head to the MLP of the same one",
                         lens_show_sender(s).text, n ? "one of the receivers" : "the receivers");
    return ATTN_OK;
}

LENS_FN attn_status lens_need_paths(attn_ctx *ctx, const attn_model *model,
                                    const lens_paths_desc *d)
{
    if (lens_need_described(ctx, "lens_patch_paths", model, d) != ATTN_OK)
        return lens_failure(ctx);
    if (lens_need_pairs(ctx, "lens_patch_paths", model, d->pairs, d->n_pairs) != ATTN_OK)
        return lens_failure(ctx);
    if (!d->senders || !d->n_senders || !d->receivers || !d->n_receivers)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_patch_paths: no %s given",
                         d->senders && d->n_senders ? "receivers" : "senders");
    if ((unsigned)d->mlps > LENS_MLPS_THROUGH)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_patch_paths: mlps is %d; expected LENS_MLPS_FROZEN or _THROUGH",
                         (int)d->mlps);
    if (lens_need_edits(ctx, "lens_patch_paths", d->edits, d->n_edits) != ATTN_OK)
        return lens_failure(ctx);
    for (size_t i = 0; i < d->n_receivers; i++)
        if (lens_need_receiver(ctx, model, &d->receivers[i]) != ATTN_OK)
            return lens_failure(ctx);
    for (size_t i = 0; i < d->n_senders; i++)
        if (lens_need_sender(ctx, model, d, &d->senders[i]) != ATTN_OK)
            return lens_failure(ctx);
    return ATTN_OK;
}

/* ---- what receivers read ---- */

/* The activation that a receiver reads. */
LENS_FN lens_full_name lens_input_of(const lens_path_run *run, const lens_receiver *r)
{
    return r->layer == run->n_layer ? lens_name_in(r->layer - 1, "hook_resid_post")
                                    : lens_name_in(r->layer, r->to);
}

/* Is a receiver part of this run? */
LENS_FN int lens_takes_part(const lens_path_run *run, size_t receiver)
{
    return receiver >= run->first_receiver && receiver < run->end_receiver &&
           lens_leads_to(run->stage, &run->d->receivers[receiver]);
}

/* Where the input of a receiver is stored for one session of a batch, whose rows begin at `row`: [count, C]. */
LENS_FN attn_tensor lens_input_room(const lens_path_run *run, size_t receiver, size_t row,
                                    size_t count)
{
    return attn_slice(attn_select(run->inputs, 0, receiver), 0, row, count);
}

/* A receiver's input in a record, from position `first` on: [count, C]. */
LENS_FN attn_status lens_recorded_input(attn_ctx *ctx, attn_tensor *out, const lens_path_run *run,
                                        const attn_record *record, size_t receiver, size_t first)
{
    const lens_receiver *const r = &run->d->receivers[receiver];
    const attn_status status = attn_record_get(ctx, out, record, lens_input_of(run, r).text);
    if (status == ATTN_OK && out->ndim == 3)
        *out = attn_select(*out, 1, r->head);
    if (status == ATTN_OK)
        *out = attn_slice(*out, 0, first, out->shape[0] - first);
    return status;
}

/* Do receivers read the corrupted stream plus the difference of the sender's two outputs? So they do if
 * MLPs are frozen, unless an edit may change the stream on the way. */
LENS_FN int lens_is_direct(const lens_path_run *run)
{
    return run->d->mlps == LENS_MLPS_FROZEN && run->d->n_edits == 0;
}

LENS_FN attn_status lens_give_directly(attn_ctx *ctx, lens_path_run *run, size_t row, size_t first)
{
    const size_t count = run->sweep.n - first;
    attn_status status = ATTN_OK;
    for (size_t r = 0; r < run->d->n_receivers && status == ATTN_OK; r++) {
        attn_tensor to = lens_input_room(run, r, row, count), was;
        if (!lens_takes_part(run, r))
            continue;
        status = lens_recorded_input(ctx, &was, run, run->sweep.corrupted, r, first);
        if (status == ATTN_OK)
            status = attn_add(ctx, &to, was, attn_slice(run->differences, 0, row, count));
    }
    return status;
}

/* Hooks an edit that adds the sender's difference to what it writes. The outputs of a head are recorded
 * before edits of hook_attn_out, which so come after this edit; those of other senders are recorded after
 * their edits. */
LENS_FN attn_status lens_hook_sender(attn_ctx *ctx, const lens_path_run *run, attn_session *session,
                                     attn_edit edit)
{
    static const char *const places[] = {"hook_mlp_out", "hook_attn_out"};
    const int is_head = run->stage % 2 == 1;
    const lens_full_name place = lens_name_in(
        lens_layer_of(run->stage), run->stage == 0 ? "hook_resid_pre" : places[run->stage % 2]);
    edit.name = place.text;
    edit.kind = ATTN_EDIT_ADD;
    if (is_head)
        attn_unhook_all(session);
    attn_status status = attn_hook_edit(ctx, NULL, session, &edit);
    if (status == ATTN_OK && is_head)
        status = lens_hook_edits(ctx, session, run->d->edits, run->d->n_edits);
    return status;
}

/* Hooks an edit that sets the output of an attention layer or MLP to that of the corrupted text. */
LENS_FN attn_status lens_hook_frozen(attn_ctx *ctx, const lens_path_run *run, attn_session *session,
                                     size_t layer, const char *output, attn_edit edit)
{
    const lens_full_name name = lens_name_in(layer, output);
    if (attn_record_get(ctx, &edit.value, run->sweep.corrupted, name.text) != ATTN_OK)
        return lens_failure(ctx);
    edit.name = name.text;
    edit.kind = ATTN_EDIT_SET;
    edit.value = attn_slice(edit.value, 0, edit.first, edit.count);
    return attn_hook_edit(ctx, NULL, session, &edit);
}

/* Hooks the edits of a run from the sender to the receivers: the sender's difference is added to its
 * output, and each later attention layer writes as in the corrupted text, as do frozen MLPs. */
LENS_FN attn_status lens_hook_writers(attn_ctx *ctx, const lens_path_run *run,
                                      attn_session *session, size_t end, size_t row, size_t first)
{
    const size_t own = lens_layer_of(run->stage);
    const size_t first_mlp = own + (run->stage > 0 && run->stage % 2 == 0);
    attn_edit edit = ATTN_ZERO;
    edit.first = first;
    edit.count = run->sweep.n - first;
    edit.value = attn_slice(run->differences, 0, row, edit.count);
    attn_status status = lens_hook_sender(ctx, run, session, edit);
    for (size_t layer = own + (run->stage > 0); layer < end && status == ATTN_OK; layer++)
        status = lens_hook_frozen(ctx, run, session, layer, "hook_attn_out", edit);
    for (size_t layer = first_mlp;
         run->d->mlps == LENS_MLPS_FROZEN && layer < end && status == ATTN_OK; layer++)
        status = lens_hook_frozen(ctx, run, session, layer, "hook_mlp_out", edit);
    return status;
}

/* Runs the layers between sender and receivers, for a batch, and records what the receivers read. */
LENS_FN attn_status lens_give_through(attn_ctx *ctx, lens_path_run *run,
                                      const lens_sweep_entry *entries, size_t n)
{
    attn_record *records[LENS_AT_ONCE] = {NULL};
    attn_record_desc what = ATTN_ZERO;
    attn_feed_item items[LENS_AT_ONCE];
    attn_status status = ATTN_OK;
    size_t i, row, end = 0, n_begun = 0;
    what.names = run->names + run->first_input;
    what.n_names = run->d->n_receivers;
    for (size_t r = 0; r < run->d->n_receivers; r++)
        if (lens_takes_part(run, r) && run->d->receivers[r].layer + 1 > end)
            end = run->d->receivers[r].layer + 1;
    end = end < run->n_layer ? end : run->n_layer;
    for (row = 0; n_begun < n && status == ATTN_OK; row += run->sweep.n - entries[i].first) {
        i = n_begun++;
        status = lens_sweep_item(ctx, &items[i], &run->sweep, i, lens_layer_of(run->stage),
                                 entries[i].first);
        items[i].layers.end = end;
        if (status == ATTN_OK)
            status = lens_hook_writers(ctx, run, items[i].session, end, row, entries[i].first);
        what.first = entries[i].first;
        what.n_positions = run->sweep.n - entries[i].first;
        if (status == ATTN_OK)
            status = attn_record_new(ctx, &records[i], items[i].session, &what);
    }
    if (status == ATTN_OK)
        status = attn_feed_batch(ctx, items, n);
    for (i = row = 0; i < n && status == ATTN_OK; row += run->sweep.n - entries[i++].first)
        for (size_t r = 0; r < run->d->n_receivers && status == ATTN_OK; r++) {
            attn_tensor to = lens_input_room(run, r, row, run->sweep.n - entries[i].first), is;
            if (!lens_takes_part(run, r))
                continue;
            status = lens_recorded_input(ctx, &is, run, records[i], r, 0);
            if (status == ATTN_OK)
                status = attn_copy(ctx, &to, is);
        }
    for (i = 0; i < n_begun; i++) {
        attn_unhook_all(run->sweep.sessions[i]);
        attn_record_free(records[i]);
    }
    return status;
}

/* ---- the receivers' runs ---- */

/* Prepares session i to run the receivers and all later parts, from the receivers' lowest layer on. */
LENS_FN attn_status lens_hook_receivers(attn_ctx *ctx, const lens_path_run *run,
                                        attn_feed_item *item, size_t i, size_t row, size_t first)
{
    const size_t count = run->sweep.n - first;
    attn_status status = lens_sweep_item(ctx, item, &run->sweep, i, run->start, first);
    for (size_t r = 0; r < run->d->n_receivers && status == ATTN_OK; r++) {
        const lens_receiver *const receiver = &run->d->receivers[r];
        const lens_full_name name = lens_input_of(run, receiver);
        attn_edit edit = ATTN_ZERO;
        if (!lens_takes_part(run, r))
            continue;
        edit.name = name.text;
        edit.kind = ATTN_EDIT_SET;
        edit.first = first;
        edit.count = count;
        edit.value = lens_input_room(run, r, row, count);
        if (run->start == run->n_layer) { /* only the unembedding is left to run */
            item->layers.resid = (const float *)edit.value.data;
            continue;
        }
        if (lens_is_of_a_head(receiver)) {
            edit.first_head = receiver->head;
            edit.n_heads = 1;
            edit.value = attn_reshape(edit.value, attn_shape3(count, 1, run->width));
        }
        status = attn_hook_edit(ctx, NULL, item->session, &edit);
    }
    return status;
}

/* What a sender writes, in a record: [T, C]. */
LENS_FN attn_status lens_written_by(attn_ctx *ctx, attn_tensor *out, const lens_sender *s,
                                    const attn_record *record)
{
    static const char *const names[] = {"hook_resid_pre", "attn.hook_result", "hook_mlp_out"};
    const attn_status status =
        attn_record_get(ctx, out, record, lens_name_in(s->layer, names[s->kind]).text);
    if (status == ATTN_OK && s->kind == LENS_SENDER_HEAD)
        *out = attn_select(*out, 1, s->head);
    return status;
}

/* Some senders of one stage, as a batch. */
LENS_FN attn_status lens_paths_some(attn_ctx *ctx, lens_path_run *run,
                                    const lens_sweep_entry *entries, size_t n, float *values)
{
    attn_feed_item items[LENS_AT_ONCE];
    attn_tensor clean, corrupted;
    attn_status status = ATTN_OK;
    size_t i, row, n_hooked = 0;
    for (i = row = 0; i < n && status == ATTN_OK; i++) {
        const size_t first = entries[i].first, count = run->sweep.n - first;
        const lens_sender *const sender = &run->d->senders[entries[i].index];
        attn_tensor to = attn_slice(run->differences, 0, row, count);
        if (lens_written_by(ctx, &clean, sender, run->sweep.clean) ||
            lens_written_by(ctx, &corrupted, sender, run->sweep.corrupted))
            return lens_failure(ctx);
        status = attn_sub(ctx, &to, attn_slice(clean, 0, first, count),
                          attn_slice(corrupted, 0, first, count));
        if (status == ATTN_OK && lens_is_direct(run))
            status = lens_give_directly(ctx, run, row, first);
        row += count;
    }
    if (status == ATTN_OK && !lens_is_direct(run))
        status = lens_give_through(ctx, run, entries, n);
    for (row = 0; n_hooked < n && status == ATTN_OK; row += run->sweep.n - entries[i].first) {
        i = n_hooked++;
        status = lens_hook_receivers(ctx, run, &items[i], i, row, entries[i].first);
    }
    if (status == ATTN_OK)
        status = lens_sweep_run(ctx, values, &run->sweep, items, n);
    for (i = 0; i < n_hooked; i++)
        attn_unhook_all(run->sweep.sessions[i]);
    return status;
}

/* Lists the senders of this stage whose output differs between the two texts. For each other sender,
 * adds the corrupted text's value to sums [n_senders, stride]. */
LENS_FN attn_status lens_plan_paths(attn_ctx *ctx, lens_path_run *run, size_t *n_entries,
                                    float *sums, size_t stride)
{
    const size_t size = run->width * sizeof(float);
    attn_tensor clean, corrupted;
    size_t n = 0;
    for (size_t i = 0; i < run->d->n_senders; i++) {
        const lens_sender *const sender = &run->d->senders[i];
        size_t first = 0;
        if (lens_stage_of(sender) != run->stage)
            continue;
        if (lens_written_by(ctx, &clean, sender, run->sweep.clean) ||
            lens_written_by(ctx, &corrupted, sender, run->sweep.corrupted))
            return lens_failure(ctx);
        while (first < run->sweep.n &&
               memcmp((const float *)clean.data + first * (size_t)clean.stride[0],
                      (const float *)corrupted.data + first * (size_t)corrupted.stride[0],
                      size) == 0)
            first++;
        run->entries[n].index = i;
        run->entries[n].first = first;
        n += first < run->sweep.n;
        if (first == run->sweep.n)
            sums[i * stride] += run->sweep.values.corrupted;
    }
    qsort(run->entries, n, sizeof *run->entries, lens_compare_entries);
    *n_entries = n;
    return ATTN_OK;
}

/* The senders of one stage, to the receivers of this run; sums [n_senders, stride]. */
LENS_FN attn_status lens_paths_stage(attn_ctx *ctx, lens_path_run *run, float *sums, size_t stride)
{
    float values[LENS_AT_ONCE] = {0};
    size_t n, left = 0, done = 0;
    attn_status status = lens_plan_paths(ctx, run, &left, sums, stride);
    run->start = run->n_layer;
    for (size_t i = 0; i < run->d->n_receivers; i++)
        if (lens_takes_part(run, i) && run->d->receivers[i].layer < run->start)
            run->start = run->d->receivers[i].layer;
    if (status == ATTN_OK)
        status = lens_sweep_copy(ctx, &run->sweep, left);
    for (; left > 0 && status == ATTN_OK; left -= n, done += n) {
        const lens_sweep_entry *entries = run->entries + done;
        n = lens_sweep_batch(&run->sweep, entries, left);
        status = lens_paths_some(ctx, run, entries, n, values);
        for (size_t i = 0; i < n && status == ATTN_OK; i++)
            sums[entries[i].index * stride] += values[i];
    }
    return status;
}

/* ---- all of it ---- */

/* Adds the values of one pair to sums [n_senders] or [n_senders, n_receivers]. */
LENS_FN attn_status lens_paths_pair(attn_ctx *ctx, lens_path_run *run, float *sums, size_t index)
{
    const size_t stride = run->d->each_receiver ? run->d->n_receivers : 1;
    run->sweep.pair = &run->d->pairs[index];
    attn_status status = lens_sweep_begin(ctx, &run->sweep, run->names, run->n_both, run->n_names);
    if (status == ATTN_OK)
        status = attn_zeros(ctx, &run->differences, ATTN_F32,
                            attn_shape2(run->sweep.n_rows, run->width));
    if (status == ATTN_OK)
        status = attn_zeros(ctx, &run->inputs, ATTN_F32,
                            attn_shape3(run->d->n_receivers, run->sweep.n_rows, run->width));
    for (size_t i = 0; i < stride; i++) {
        run->first_receiver = i;
        run->end_receiver = run->d->each_receiver ? i + 1 : run->d->n_receivers;
        for (run->stage = 0; run->stage <= 2 * run->n_layer && status == ATTN_OK; run->stage++)
            status = lens_paths_stage(ctx, run, sums + i, stride);
        if (status == ATTN_OK)
            status = lens_progress(run->d->progress, run->d->user,
                                   ((double)index + (double)(i + 1) / (double)stride) /
                                       (double)run->d->n_pairs);
    }
    attn_tensor_free(ctx, &run->differences);
    attn_tensor_free(ctx, &run->inputs);
    lens_sweep_end(ctx, &run->sweep);
    return status;
}

/* Lists the names of the activations to record: outputs of the kinds of senders that are given, the stream,
 * and the receivers' inputs. */
LENS_FN void lens_name_records(lens_path_run *run)
{
    static const char *const written[] = {"blocks.0.hook_resid_pre", "*.attn.hook_result",
                                          "*.hook_mlp_out"};
    size_t n = 0;
    for (size_t kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < run->d->n_senders; i++)
            if ((size_t)run->d->senders[i].kind == kind) {
                run->names[n++] = written[kind];
                break;
            }
    run->n_both = n;
    if (run->d->n_edits > 0 && (n == 0 || run->names[n - 1] != written[2]))
        run->names[n++] = written[2];
    run->names[n++] = "*.hook_resid_post";
    run->names[n++] = "*.hook_attn_out";
    run->first_input = n;
    for (size_t i = 0; i < run->d->n_receivers; i++) {
        run->inputs_named[i] = lens_input_of(run, &run->d->receivers[i]);
        run->names[n++] = run->inputs_named[i].text;
    }
    run->n_names = n;
}

/* Allocates the list of senders, and lists the names of what is recorded. */
LENS_FN attn_status lens_list_paths(attn_ctx *ctx, lens_path_run *run)
{
    const size_t n_receivers = run->d->n_receivers, n_names = LENS_PATH_RECORDS + n_receivers;
    run->entries = (lens_sweep_entry *)attn_alloc(ctx, run->d->n_senders, sizeof *run->entries,
                                                  "a list of senders");
    run->names = (const char **)attn_alloc(ctx, n_names, sizeof *run->names, "a list of names");
    run->inputs_named = (lens_full_name *)attn_alloc(ctx, n_receivers, sizeof *run->inputs_named,
                                                     "a list of names");
    if (!run->entries || !run->names || !run->inputs_named)
        return lens_failure(ctx);
    lens_name_records(run);
    return ATTN_OK;
}

/* out [n_senders], or [n_senders, n_receivers] with desc->each_receiver: the corrupted text's metric with
 * the paths from one sender patched, as a mean over the pairs. *baseline (may be NULL): the mean metrics of
 * both texts without a patch. Several receivers read their patched inputs in the same run; no receiver's
 * input contains the changed output of another one. ATTN_E_ARGUMENT if no path leads from a sender to its
 * receivers; ATTN_STOPPED if the metric or desc->progress asks to stop. Both texts run once for each pair. */
LENS_FN attn_status lens_patch_paths(attn_ctx *ctx, attn_tensor *out, lens_baseline *baseline,
                                     const attn_model *model, const lens_paths_desc *desc)
{
    lens_path_run run = ATTN_ZERO;
    lens_baseline sum = {0, 0};
    lens_result result;
    float *row;
    if (lens_need_paths(ctx, model, desc) != ATTN_OK ||
        lens_begin(ctx, "lens_patch_paths", out,
                   desc->each_receiver ? attn_shape2(desc->n_senders, desc->n_receivers)
                                       : attn_shape1(desc->n_senders),
                   &result) != ATTN_OK)
        return lens_failure(ctx);
    float *numbers = (float *)result.numbers.data;
    size_t n = attn_count(result.numbers);
    run.d = desc;
    run.n_layer = attn_model_config(model)->n_layer;
    run.width = attn_model_config(model)->d_model;
    attn_status status = lens_list_paths(ctx, &run);
    for (size_t i = 0; i < desc->n_pairs && status == ATTN_OK; i++) {
        run.sweep = lens_sweep_of(model, desc->edits, desc->n_edits);
        row = lens_sweep_row(desc->each, numbers, i, n);
        status = lens_paths_pair(ctx, &run, row, i);
        lens_sweep_add_row(&run.sweep, numbers, row, n);
        sum.clean += run.sweep.values.clean;
        sum.corrupted += run.sweep.values.corrupted;
    }
    attn_free(run.entries);
    attn_free(run.names);
    attn_free(run.inputs_named);
    if (status == ATTN_OK)
        status = lens_sweep_means(ctx, "lens_patch_paths", result.numbers, &sum, desc->n_pairs,
                                  desc->normalize);
    if (status == ATTN_OK && baseline)
        *baseline = sum;
    return lens_finish(ctx, &result, status);
}

#endif
