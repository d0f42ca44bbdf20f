/* The forms of an answer: tables of a terminal, pictures, and those that programs read (tools/waist/forms.h). */
#ifndef LENS_SHOW_H
#define LENS_SHOW_H

#include "each_pair.h"

/* Gives grids and page their texts and colours in a form. */
static void dress(lens *l, int form)
{
    l->form = form;
    l->shown.n_grids = 0;
    if (l->shown.dress)
        l->shown.dress(l, l->shown.of);
    for (size_t g = 0; g < l->shown.n_grids; g++)
        for (size_t i = 0; i < n_cells(&l->shown.grids[g]); i++)
            mark_cell(l, cell_of(&l->shown.grids[g], 0, i));
}

static int draw_answer(lens *l, canvas *to, int form)
{
    const showing *const s = &l->shown;
    if (!s->page.title)
        return fail(USAGE, "the answer of %s has no picture", l->command->name);
    dress(l, form);
    if (l->ctx.status)
        return failed(&l->ctx);
    if (s->draw)
        return s->draw(l, to, s->of);
    (form == FORM_SVG ? svg_grids : html_grids)(to, &s->page, s->grids, s->n_grids);
    return FINE;
}

static int print_answer(lens *l)
{
    const showing *const s = &l->shown;
    dress(l, FORM_TEXT);
    if (l->ctx.status)
        return failed(&l->ctx);
    if (s->print)
        return s->print(l, s->of);
    if (l->columns)
        print_wrapped(s->page.note, 0, 0, l->columns);
    else
        say(l, "%s\n", s->page.note);
    if (s->page.warning) {
        put(l, s->page.warning, 0, "33");
        say(l, "\n");
    }
    for (size_t i = 0; i < s->n_grids; i++) {
        say(l, "\n");
        const int has_spreads = n_cells(&s->grids[i]) && s->grids[i].cells->spread;
        (has_spreads ? print_with_spreads : print_grid)(l, &s->grids[i]);
    }
    return outcome(&l->ctx);
}

/* The table of --table, or the first one but the facts. */
static const answer_table *chosen_table(const lens *l)
{
    const answer *const a = &l->answer;
    size_t i = 0;
    if (l->o.only)
        return answer_named(a, l->o.only);
    while (i + 1 < a->n_tables && strcmp(a->tables[i]->name, "facts") == 0)
        i++;
    return i < a->n_tables ? a->tables[i] : NULL;
}

static int write_csv(lens *l, canvas *to)
{
    const answer_table *const t = chosen_table(l);
    const char *names = "";
    for (size_t i = 0; i < l->answer.n_tables && !t && l->answer.tables[i]; i++)
        names = keep(l, "%s%s%s", names, i ? ", " : "", l->answer.tables[i]->name);
    if (!t)
        return fail(FAILED, "--table: there is no \"%s\"; this answer has %s",
                    l->o.only ? l->o.only : "", *names ? names : "no table");
    answer_csv((answer_sink){&to->memory, to->file}, t);
    return to->memory.failed ? fail(FAILED, "no memory for the answer") : FINE;
}

/* Writes the answer in a form: text, json, csv, svg or html. */
static int write_form(lens *l, const char *form, canvas *to)
{
    int code = FINE;
    l->out = to;
    if (strcmp(form, "text") == 0)
        code = print_answer(l);
    else if (strcmp(form, "csv") == 0)
        code = write_csv(l, to);
    else if (strcmp(form, "json") == 0)
        answer_json((answer_sink){&to->memory, to->file}, &l->answer);
    else
        code = draw_answer(l, to, strcmp(form, "svg") == 0 ? FORM_SVG : FORM_HTML);
    l->out = NULL;
    return code == FINE && to->memory.failed ? fail(FAILED, "no memory for the answer") : code;
}

#endif
