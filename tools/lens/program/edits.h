/* --edit: changes in the model while a command runs the text. These become edits of attn_hook_edit:
 *
 *     zero  NAME [head H] [at P]          the activation becomes 0
 *     mean  NAME [head H] [at P]          ... its mean over the text, in the unchanged model
 *     set   NAME [head H] [at P]          ... its value in the text of --second, position by position
 *     scale NAME by F [head H] [at P]     ... F times its value
 *     add   NAME by F [head H] [at P]     F times (mean row of --towards - mean row of --away) is added */
#ifndef LENS_EDITS_H
#define LENS_EDITS_H

#include "tools/lens/changes.h"
#include "tools/lens/decompose.h"
#include "run.h"

#define EDIT_KINDS "zero set mean add scale" /* by attn_edit_kind */

/* Hooks the edits to a session. A hook that must see the edited activations is added after them. */
static attn_status hook_edits(lens *l, attn_session *session)
{
    return lens_hook_edits(&l->ctx, session, l->edits, l->n_edits);
}

/* ---- the words of an edit ---- */

/* A copy of the next word of a text; NULL at its end. */
static const char *next_word(lens *l, const char **text)
{
    const char *begin = *text + strspn(*text, " ");
    const size_t size = strcspn(begin, " ");
    *text = begin + size;
    return size ? keep(l, "%.*s", (int)size, begin) : NULL;
}

/* The number of "by F". */
typedef struct edit_factor {
    float number;
    int is_given;
} edit_factor;

static int parse_place(lens *l, const char *text, attn_edit *e, edit_factor *by)
{
    const char *key, *value, *rest = text;
    char *end;
    while ((key = next_word(l, &rest)) != NULL) {
        value = next_word(l, &rest);
        if (value &&
            ((strcmp(key, "head") == 0 && e->n_heads) || (strcmp(key, "at") == 0 && e->count) ||
             (strcmp(key, "by") == 0 && by->is_given)))
            return fail(USAGE,
                        "--edit: \"%s\" stands twice: write an edit for each, with ; between them",
                        key);
        if (value && strcmp(key, "head") == 0 && parse_count(value, "0 1000000", &e->first_head)) {
            e->n_heads = 1;
        } else if (value && strcmp(key, "at") == 0 &&
                   parse_count(value, "0 1000000000", &e->first)) {
            e->count = 1;
        } else if (value && strcmp(key, "by") == 0) {
            by->number = strtof(value, &end);
            by->is_given = 1;
            if (end == value || *end || !isfinite(by->number))
                return fail(USAGE, "--edit: \"by %s\" is no number", value);
        } else {
            return fail(USAGE,
                        "--edit: \"%s%s%s\" where \"head H\", \"at P\" or \"by F\" may stand", key,
                        value ? " " : "", value ? value : "");
        }
    }
    return FINE;
}

static int is_of_keys(const char *name)
{
    return lens_ends_in(name, "hook_pattern") || lens_ends_in(name, "hook_attn_scores");
}

static int parse_edit(lens *l, const char *text, attn_edit *e, edit_factor *by)
{
    const char *rest = text, *kind = next_word(l, &rest), *name = next_word(l, &rest);
    const int number = kind ? find_name(EDIT_KINDS, kind, strlen(kind)) : -1;
    char list[80];
    int code;
    memset(e, 0, sizeof *e);
    memset(by, 0, sizeof *by);
    list_names(EDIT_KINDS, list, sizeof list);
    if (number < 0)
        return fail(USAGE, "--edit: \"%s\" does not begin with %s", text, list);
    e->kind = (attn_edit_kind)number;
    if (!name)
        return fail(USAGE, "--edit: \"%s\" names no activation, such as blocks.0.attn.hook_z",
                    text);
    if ((code = parse_place(l, rest, e, by)) != FINE)
        return code;
    if (by->is_given != (e->kind == ATTN_EDIT_ADD || e->kind == ATTN_EDIT_SCALE))
        return fail(USAGE,
                    by->is_given ? "--edit: %s takes no \"by F\""
                                 : "--edit: %s needs \"by F\", a number",
                    kind);
    if (e->kind != ATTN_EDIT_ZERO && e->kind != ATTN_EDIT_SCALE && is_of_keys(name))
        return fail(USAGE, "--edit: %s can only be set to zero or scaled here", name);
    if (e->n_heads && e->first_head >= l->config->n_head)
        return fail(FAILED, "--edit: there is no head %zu: a layer has %u, from 0", e->first_head,
                    (unsigned)l->config->n_head);
    e->name = name;
    return FINE;
}

/* ---- the values of edits ---- */

/* The edit's activation of a text in the unchanged model; of one head only if the edit names a head. */
static int read_activation(lens *l, const attn_edit *e, const lens_text *text, attn_tensor *out)
{
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_record_desc what = {0};
    attn_session_desc size = {0};
    attn_tensor view = {0};
    int code = FINE;
    what.names = &e->name;
    what.n_names = 1;
    what.n_positions = size.n_ctx = text->n;
    if (attn_session_new(&l->ctx, &session, l->model, &size) == ATTN_OK &&
        attn_record_new(&l->ctx, &record, session, &what) == ATTN_OK &&
        attn_feed(&l->ctx, session, text->ids, text->n) == ATTN_OK &&
        attn_record_get(&l->ctx, &view, record, e->name) == ATTN_OK) {
        if (e->n_heads && view.ndim != 3)
            code = fail(FAILED, "--edit: %s has no heads", e->name);
        else
            attn_copy(&l->ctx, out, e->n_heads ? attn_select(view, 1, e->first_head) : view);
    }
    if (code == FINE)
        code = outcome(&l->ctx);
    attn_record_free(record);
    attn_session_free(session);
    return code;
}

/* Reads the text of an option that an edit needs, unless it was read before. */
static int need_text(lens *l, const char *option, const char *word, lens_text *text)
{
    int code;
    if (text->n)
        return FINE;
    if (!word)
        return fail(USAGE, "--edit: this needs --%s TEXT", option);
    if ((code = make_text(l, text, word, NULL, option, NULL)) != FINE)
        return code;
    return text->n ? FINE : fail(FAILED, "--%s: the text is empty", option);
}

/* value = factor * (mean row of --towards - mean row of --away), as lens steer adds it */
static int make_direction(lens *l, attn_edit *e, float factor)
{
    attn_tensor a = {0}, b = {0}, mean_a = {0}, mean_b = {0}, direction = {0};
    int code;
    if ((code = need_text(l, "towards", l->o.towards, &l->towards)) != FINE ||
        (code = need_text(l, "away", l->o.away, &l->away)) != FINE ||
        (code = read_activation(l, e, &l->towards, &a)) != FINE ||
        (code = read_activation(l, e, &l->away, &b)) != FINE)
        return code;
    if (attn_mean(&l->ctx, &mean_a, attn_transpose(a, 0, a.ndim - 1)) ||
        attn_mean(&l->ctx, &mean_b, attn_transpose(b, 0, b.ndim - 1)) ||
        attn_sub(&l->ctx, &direction, attn_transpose(mean_a, 0, a.ndim - 1),
                 attn_transpose(mean_b, 0, b.ndim - 1)) ||
        attn_scale(&l->ctx, &e->value, direction, factor))
        return failed(&l->ctx);
    return FINE;
}

/* value = the factor */
static int make_factor(lens *l, attn_edit *e, float factor)
{
    float *number = (float *)allocate(l, 1, sizeof *number);
    if (!number)
        return failed(&l->ctx);
    *number = factor;
    e->value = attn_borrow(number, ATTN_F32, attn_shape1(1));
    return FINE;
}

/* value = the rows of --second at the edit's positions */
static int take_second(lens *l, attn_edit *e)
{
    const size_t first = e->first;
    int code;
    if ((code = need_text(l, "second", l->o.second, &l->second)) != FINE ||
        (code = read_activation(l, e, &l->second, &e->value)) != FINE)
        return code;
    if (first >= e->value.shape[0])
        return fail(FAILED, "--edit: --second has %zu tokens, so there is none at %zu",
                    e->value.shape[0], first);
    if (e->count == 0)
        e->count = e->value.shape[0] < l->text.n ? e->value.shape[0] : l->text.n;
    e->value = attn_slice(e->value, 0, first, e->count);
    return FINE;
}

/* Reads the edits of the command line. Semicolons separate several in one argument. */
static int make_edits(lens *l)
{
    size_t n = 0, size;
    const char *text;
    int code;
    for (size_t i = 0; i < l->o.edit.n; i++)
        for (n++, text = l->o.edit.at[i]; (text = strchr(text, ';')) != NULL; text++)
            n++;
    l->edits = (attn_edit *)allocate(l, n, sizeof *l->edits);
    for (size_t i = 0; l->edits && i < l->o.edit.n; i++)
        for (text = l->o.edit.at[i]; *text; text += size + (text[size] != 0)) {
            attn_edit *e = &l->edits[l->n_edits];
            edit_factor by;
            size = strcspn(text, ";");
            if ((code = parse_edit(l, keep(l, "%.*s", (int)size, text), e, &by)) != FINE ||
                (e->kind == ATTN_EDIT_MEAN &&
                 (code = read_activation(l, e, &l->text, &e->value)) != FINE) ||
                (e->kind == ATTN_EDIT_SET && (code = take_second(l, e)) != FINE) ||
                (e->kind == ATTN_EDIT_ADD && (code = make_direction(l, e, by.number)) != FINE) ||
                (e->kind == ATTN_EDIT_SCALE && (code = make_factor(l, e, by.number)) != FINE))
                return code;
            l->n_edits++;
        }
    const int adds = l->command->bit == STEER || l->towards.n;
    if (l->o.second && !l->second.n)
        return fail(USAGE, "--second is the text of edits that set, and no --edit does");
    if ((l->o.towards || l->o.away) && !adds)
        return fail(USAGE, "--%s is a text of edits that add, and no --edit does",
                    l->o.towards ? "towards" : "away");
    return outcome(&l->ctx);
}

/* ---- the parts of the residual stream, with edits ---- */

/* Describes the parts of the final stream at `count` positions; 0: at all. */
static lens_parts_desc parts_of_text(const lens *l, lens_parts_kind kind, size_t first,
                                     size_t count)
{
    lens_parts_desc d = ATTN_ZERO;
    d.kind = kind;
    d.tokens = l->text.ids;
    d.n_tokens = l->text.n;
    d.first = first;
    d.count = count;
    return d;
}

static attn_status decompose_edited(lens *l, attn_tensor *parts, attn_tensor *scale,
                                    const lens_parts_desc *desc)
{
    attn_session *session = NULL;
    attn_session_desc size = {0};
    size.n_ctx = lens_fed(desc);
    attn_status status = attn_session_new(&l->ctx, &session, l->model, &size);
    if (status == ATTN_OK)
        status = hook_edits(l, session);
    if (status == ATTN_OK)
        status = lens_decompose_in(&l->ctx, parts, scale, session, desc);
    attn_session_free(session);
    return status;
}

#endif
