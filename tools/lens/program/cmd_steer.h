/* lens steer: a direction that is added to the stream while the model runs, and what it changes. */
#ifndef LENS_CMD_STEER_H
#define LENS_CMD_STEER_H

#include "beside.h"
#include "tools/lens/control.h"
#include "tools/lens/steering.h"

/* What is added: a direction of each layer from a file, or one at a single place. */
typedef struct steered {
    lens_control control;
    attn_edit edit; /* of the difference of two texts */
    char name[64];
    const char *what;
    beside sides;
} steered;

static int hook_direction(lens *l, attn_session *session, void *how)
{
    steered *s = (steered *)how;
    attn_status status = l->o.vector ? attn_hook(&l->ctx, NULL, session, LENS_CONTROL_POINTS,
                                                 lens_control_hook, &s->control)
                                     : attn_hook_edit(&l->ctx, NULL, session, &s->edit);
    return status ? failed(&l->ctx) : FINE;
}

/* --vector FILE, of one layer alone with --layer */
static int read_vector(lens *l, steered *s)
{
    if (lens_control_open(&l->ctx, &s->control.directions, l->model, l->o.vector))
        return failed(&l->ctx);
    s->control.strength = l->o.strength;
    for (size_t i = 0; i < l->config->n_layer; i++)
        if (l->o.layer != not_given && i != l->o.layer)
            memset((float *)s->control.directions.data + i * l->config->d_model, 0,
                   l->config->d_model * sizeof(float));
    s->what =
        l->o.layer == not_given
            ? keep(l, "the control vector %s behind its layers", base_name(l->o.vector))
            : keep(l, "the control vector %s behind layer %zu", base_name(l->o.vector), l->o.layer);
    return FINE;
}

static int read_one(lens *l, lens_text *to, const char *option, const char *given)
{
    return make_text(l, to, l->o.ids ? NULL : given, NULL, option, l->o.ids ? given : NULL);
}

/* --towards TEXT --away TEXT: the difference of the means of the stream before a layer */
static int subtract_texts(lens *l, steered *s)
{
    const size_t layer = l->o.layer == not_given ? l->config->n_layer / 2 : l->o.layer;
    lens_text towards = {0}, away = {0};
    attn_tensor direction = {0};
    lens_tokens of_towards, of_away;
    int code;
    if ((code = read_one(l, &towards, "towards", l->o.towards)) != FINE ||
        (code = read_one(l, &away, "away", l->o.away)) != FINE)
        return code;
    of_towards.ids = towards.ids;
    of_towards.n = towards.n;
    of_away.ids = away.ids;
    of_away.n = away.n;
    snprintf(s->name, sizeof s->name, "blocks.%zu.hook_resid_pre", layer);
    if (lens_steering_vector(&l->ctx, &direction, l->model, s->name, &of_towards, &of_away) ||
        attn_scale(&l->ctx, &s->edit.value, direction, l->o.strength))
        return failed(&l->ctx);
    s->edit.name = s->name;
    s->edit.kind = ATTN_EDIT_ADD;
    s->what = keep(l, "the mean of %s over \"%s\", less that over \"%s\",", s->name,
                   brief(l, whole_text(l, &towards), 60), brief(l, whole_text(l, &away), 60));
    return FINE;
}

static void dress_steered(lens *l, const void *of)
{
    add_side_grid(l, &((const steered *)of)->sides);
}

static int run_steer(lens *l, void *finding)
{
    steered *const s = (steered *)finding;
    show_as(l, "Steering", dress_steered);
    if (l->o.layer != not_given && l->o.layer >= l->config->n_layer)
        return fail(FAILED, "there is no layer %zu: the model has layers 0 to %u", l->o.layer,
                    (unsigned)l->config->n_layer - 1);
    int code = l->o.vector ? read_vector(l, s) : subtract_texts(l, s);
    if (code == FINE)
        code = run_beside(l, hook_direction, s, &s->sides);
    if (code != FINE)
        return code;
    facts(l, "added:s strength", s->what, l->o.strength);
    add_sides(l, &s->sides);
    add_tokens(l);
    l->shown.page.note = keep(l, "At every position, %g times %s is added.%s",
                              (double)l->o.strength, s->what, note_of_sides(l, &s->sides));
    return show_answer(l);
}

#endif
