/* Changes the settings while gpt2 runs, and saves and loads the text and the settings. */
#ifndef GPT2_SAVE_H
#define GPT2_SAVE_H

#include "tools/common/json.h"

/* >> Settings: options that a command may change =============================================== */

/* Writes a number as briefly as possible, such that it reads back as the same number. */
static void spell_briefly(char text[32], float number)
{
    snprintf(text, 32, "%g", (double)number);
    if (strtof(text, NULL) != number)
        snprintf(text, 32, "%.9g", (double)number);
}

static const char *setting_text(const options *o, const struct option *option, char text[32])
{
    const void *at = (const char *)o + option->at;
    if (option->kind == NUMBER)
        spell_briefly(text, *(const float *)at);
    else if (option->kind == FLAG)
        snprintf(text, 32, *(const int *)at ? "on" : "off");
    else if (option->kind == TEXTS)
        snprintf(text, 32, "%zu", ((const text_list *)at)->n);
    else
        snprintf(text, 32, "%llu",
                 option->kind == SEED ? TOOLS_LLU(*(const uint64_t *)at)
                                      : TOOLS_LLU(*(const size_t *)at));
    return text;
}

/* The same for a person, to whom a top-p of 0 keeps the likeliest token. (In the options it is not
 * given, and keeps all.) */
static const char *shown_setting(const options *o, const struct option *option, char text[32])
{
    options shown_as = *o;
    if (o->top_p <= given_top_p(0))
        shown_as.top_p = o->top_p > 0 ? 0 : 1;
    return setting_text(&shown_as, option, text);
}

/* Sets an option to a value from a command or a saved file. */
static int change_setting(options *o, const struct option *option, const char *value)
{
    void *at = (char *)o + option->at;
    const int which = *value ? find_name("off on", value, strlen(value)) : 1;
    if (option->kind == TEXTS && strcmp(value, "off") == 0) {
        ((text_list *)at)->n = 0;
        return FINE;
    }
    if (option->kind != FLAG)
        return set_option(o, option, value);
    if (which < 0)
        return fail(USAGE, "--%s: there is no \"%s\"; choose on or off", option->name, value);
    *(int *)at = which;
    return FINE;
}

/* Tells the texts of a list, or that it is empty. */
static int say_texts(const struct option *option, const text_list *list)
{
    json_out o = {0};
    if (list->n == 0)
        return say("%s: none", option->name);
    for (size_t i = 0; i < list->n; i++)
        out_word(&o, NULL, list->at[i]);
    say("%s: %.*s; /%s off clears", option->name, (int)o.size, o.text ? o.text : "", option->name);
    out_free(&o);
    return FINE;
}

static int do_setting(repl *p, const struct option *option, const char *value)
{
    char text[32];
    options changed = p->r->o;
    int code;
    if (*value || option->kind == FLAG) {
        if ((code = change_setting(&changed, option, value)) != FINE)
            return code;
        if (*value && option->at == offsetof(options, top_p))
            changed.top_p = given_top_p(changed.top_p);
        p->r->o = changed;
        p->draw = option->kind == SEED ? 0 : p->draw;
    }
    if (option->kind == TEXTS)
        return say_texts(option, (const text_list *)((const char *)&p->r->o + option->at));
    return say("%s: %s", option->name, shown_setting(&p->r->o, option, text));
}

/* >> Files ===================================================================================== */

/* A file has the tokens of every turn, and the settings. Keys and values are computed again. */

static void out_settings(const options *o, json_out *out)
{
    char text[32];
    out_open(out, "settings", '{');
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (!(table[i].commands & LIVE_OPTION))
            continue;
        if (table[i].kind != TEXTS) {
            out_word(out, table[i].name, setting_text(o, &table[i], text));
            continue;
        }
        out_open(out, table[i].name, '[');
        for (size_t k = 0; k < o->stop.n; k++)
            out_word(out, NULL, o->stop.at[k]);
        out_close(out, ']');
    }
    out_close(out, '}');
}

static void out_session(const repl *p, json_out *o)
{
    const run *r = p->r;
    out_open(o, NULL, '{');
    out_count(o, "gpt2", 1); /* the version of this format */
    out_decoded(r, o, "text", r->text.ids, r->text.n);
    out_settings(&r->o, o);
    out_count(o, "draw", p->draw);
    out_count(o, "first", r->first);
    out_ids(o, "begin", r->text.ids, p->n_turns ? p->turns[0].begin : r->text.n);
    out_open(o, "turns", '[');
    for (size_t i = 0; i < p->n_turns; i++) {
        const turn *t = &p->turns[i];
        const size_t end = i + 1 < p->n_turns ? t[1].begin : r->text.n;
        out_open(o, NULL, '{');
        out_ids(o, "typed", text_from(r, t->begin), t->typed_end - t->begin);
        out_ids(o, "continued", text_from(r, t->typed_end), end - t->typed_end);
        out_count(o, "first", t->first);
        out_count(o, "draw_before", t->draw_before);
        out_count(o, "draw", t->draw);
        out_close(o, '}');
    }
    out_close(o, ']');
    out_close(o, '}');
}

static int write_session(repl *p, const char *path)
{
    run *r = p->r;
    lens_new_file *file;
    json_out o = {0};
    if (!*path || strcmp(path, "-") == 0)
        return fail(USAGE, "/save needs the name of a file");
    if (system_same_file(r->o.model, path))
        return fail(USAGE, "/save %s: that is the model", path);
    if (lens_new_file_begin(&r->ctx, &file, path))
        return failed(&r->ctx);
    out_session(p, &o);
    int whole = out_line(&o, (FILE *)lens_new_file_stream(file));
    out_free(&o);
    if (lens_new_file_end(&r->ctx, file, whole ? ATTN_OK : ATTN_E_MEMORY))
        return whole ? failed(&r->ctx) : fail(FAILED, "no memory to save the text");
    p->file = path;
    return say("saved in %s", path);
}

/* /save overwrites a file only if this text was loaded from it or saved there. /save! overwrites any. */
static int do_save(repl *p, const char *value)
{
    if (*value && system_exists(value) && !(p->file && system_same_file(p->file, value)))
        return fail(USAGE, "%s exists: give another name, or overwrite it with /save! %s", value,
                    value);
    return write_session(p, *value || !p->file ? value : p->file);
}

static int do_save_over(repl *p, const char *value)
{
    return write_session(p, *value || !p->file ? value : p->file);
}

/* Appends the ids of a list to the text. */
static int load_ids(run *r, const json_value *list)
{
    const uint64_t n_vocab = attn_model_config(r->model)->n_vocab;
    const json_value *v;
    uint64_t id;
    size_t i;
    if (!list || list->kind != JSON_ARRAY)
        return 0;
    for (i = 0, v = list + 1; i < list->size; i++, v += v->span) {
        const attn_token token = json_u64(v, &id) && id < n_vocab ? (int32_t)id : -1;
        if (token < 0 || keep_tokens(r, &token, 1) != FINE)
            return 0;
    }
    return 1;
}

/* Loads the turns that /save wrote. The text before a continuation must have at least one token, since
 * the session is fed at least one. */
static int load_turns(repl *p, const json_value *root)
{
    const json_value *turns = json_get(root, "turns"), *v;
    run *r = p->r;
    uint64_t first = 0;
    size_t i;
    if (keep_tokens(r, NULL, 0) != FINE || !turns || turns->kind != JSON_ARRAY ||
        !load_ids(r, json_get(root, "begin")))
        return 0;
    for (i = 0, v = turns + 1; i < turns->size; i++, v += v->span) {
        turn *t = add_turn(p);
        if (!t || !load_ids(r, json_get(v, "typed")))
            return 0;
        t->typed_end = r->text.n;
        if (!load_ids(r, json_get(v, "continued")) || !json_u64(json_get(v, "first"), &first) ||
            first > t->begin || first >= t->typed_end ||
            !json_u64(json_get(v, "draw_before"), &t->draw_before) ||
            !json_u64(json_get(v, "draw"), &t->draw))
            return 0;
        t->first = (size_t)first;
    }
    if (!json_u64(json_get(root, "first"), &first) || (first >= r->text.n && first > 0))
        return 0;
    r->first = (size_t)first;
    return json_u64(json_get(root, "draw"), &p->draw);
}

static int load_settings(run *r, options *o, const json_value *settings)
{
    const json_value *v, *text;
    size_t i, k, n;
    if (!settings || settings->kind != JSON_OBJECT)
        return 0;
    o->stop.n = 0;
    for (i = 0, v = settings + 1; i < settings->size; i++, v += v->span) {
        for (k = 0; k < N_OPTIONS; k++)
            if (table[k].commands & LIVE_OPTION && strlen(table[k].name) == v->key_size &&
                memcmp(table[k].name, v->key, v->key_size) == 0)
                break;
        if (k == N_OPTIONS || (v->kind == JSON_ARRAY) != (table[k].kind == TEXTS))
            return 0;
        n = v->kind == JSON_ARRAY ? v->size : 1;
        for (text = v->kind == JSON_ARRAY ? v + 1 : v; n > 0; n--, text += text->span) {
            const char *value = text->kind == JSON_STRING && !json_has_zero(text)
                                    ? arena_text(&r->ctx, &r->memory, text->text, text->size)
                                    : NULL;
            if (!value || (table[k].kind == TEXTS ? !*value || !texts_add(&o->stop, value)
                                                  : change_setting(o, &table[k], value) != FINE))
                return 0;
        }
    }
    return 1;
}

/* Do the tokens give the same text as when they were saved? In another vocabulary they do not. */
static int reads_the_same(const run *r, const json_value *saved)
{
    json_out a = {0}, b = {0};
    int same = saved && saved->kind == JSON_STRING;
    if (same) {
        out_decoded(r, &a, NULL, r->text.ids, r->text.n);
        out_text(&b, NULL, saved->text, saved->size);
        same = !a.failed && !b.failed && a.size == b.size && memcmp(a.text, b.text, a.size) == 0;
    }
    out_free(&a);
    out_free(&b);
    return same;
}

/* Loads a text in place of the present one, which stays if that fails. */
static int do_load(repl *p, const char *path)
{
    run *r = p->r;
    const repl old = *p;
    const tokens old_text = r->text, none = {NULL, 0, 0};
    const size_t old_first = r->first, limit = (size_t)1 << 26;
    options changed = r->o;
    json_value *root = NULL;
    uint64_t version = 0;
    size_t size;
    char *bytes;
    if (!*path)
        return fail(USAGE, "/load needs the name of a file");
    if (read_file(&r->ctx, &r->memory, path, limit, &bytes, &size) ||
        json_parse(&r->ctx, path, bytes, size, &root))
        return failed(&r->ctx);
    drop_candidates(p);
    r->text = none;
    p->turns = NULL;
    p->n_turns = p->room = 0;
    r->first = 0;
    int good = json_u64(json_get(root, "gpt2"), &version) && version == 1 && load_turns(p, root) &&
               load_settings(r, &changed, json_get(root, "settings"));
    if (!good)
        fail(FAILED, "%s is not a text that /save wrote for a model with these tokens", path);
    else if (!(good = reads_the_same(r, json_get(root, "text"))))
        fail(FAILED, "%s was saved with another vocabulary than this model's", path);
    free(root);
    free(good ? old_text.ids : r->text.ids);
    free(good ? old.turns : p->turns);
    if (good) {
        r->o = changed;
        p->file = path;
        return tell_end(r, "loaded");
    }
    *p = old;
    p->texts = NULL;
    p->n_texts = 0;
    r->text = old_text;
    r->first = old_first;
    return FAILED;
}

#endif
