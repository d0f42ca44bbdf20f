/* lens as a program that answers questions of callers in the process (tools/waist/query.h). */
#ifndef LENS_ASKED_H
#define LENS_ASKED_H

#include "commands.h"
#include "tools/waist/query.h"

static int lens_answer_query(void *run, lens_query *q)
{
    lens *const l = (lens *)run;
    int code;
    l->is_query = 1;
    take_settings(&l->ctx, &q->ctx);
    l->model = q->model;
    l->model_path = "the model";
    l->command_line = q->line;
    l->units = q->units;
    l->progress_fn = q->progress_fn;
    l->progress_user = q->progress_user;
    for (l->command = commands; strcmp(l->command->name, q->command) != 0; l->command++)
        continue;
    memcpy(l->given, q->given, sizeof l->given);
    if ((code = check_together(l)) == FINE)
        code = answer_question(l);
    l->ctx.stop_flag = NULL;
    q->ctx.status = l->ctx.status;
    q->answer = &l->answer;
    return code;
}

static int lens_write_form(void *run, const char *form, json_out *to)
{
    static const char *const forms[] = {"text", "json", "csv", "svg", "html"};
    lens *const l = (lens *)run;
    canvas paper = {NULL, *to};
    size_t i = 0;
    while (i < sizeof forms / sizeof forms[0] && strcmp(forms[i], form) != 0)
        i++;
    int code =
        i < sizeof forms / sizeof forms[0]
            ? write_form(l, form, &paper)
            : fail(USAGE, "there is no form \"%.20s\"; choose text, json, csv, svg or html", form);
    *to = paper.memory;
    return code;
}

static int lens_save_answer(void *run, lens_query *q, const char *path)
{
    lens *const l = (lens *)run;
    int code = check_name_of_output(path);
    l->o.output = path;
    l->ctx.stop_flag = q->ctx.stop_flag;
    if (code == FINE)
        code = write_output(l);
    l->ctx.stop_flag = NULL;
    l->o.output = NULL;
    q->ctx.status = l->ctx.status;
    l->ctx.status = ATTN_OK;
    return code;
}

static const lens_asked asked_lens = {"lens",
                                      lens_settings,
                                      N_OPTIONS,
                                      lens_command_at,
                                      sizeof(lens),
                                      offsetof(lens, o),
                                      set_defaults,
                                      lens_answer_query,
                                      NULL,
                                      lens_write_form,
                                      lens_save_answer,
                                      end_question,
                                      0};

#endif
