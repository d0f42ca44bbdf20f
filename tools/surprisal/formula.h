/* The formulae of a suite's predictions, as SyntaxGym writes them, and what was measured of its regions:
 *
 *     truths  = truth { "&" truth } | truth { "|" truth }       both need parentheses
 *     truth   = sum ("<" | ">" | "=") sum | "(" truths ")"      "=": within 0.001 and 1e-5 of the right side
 *     sum     = product { ("+" | "-") product }
 *     product = part { ("*" | "/") part }
 *     part    = number | "(" sum ")" | "(" (region | "*") ";%" condition "%)" | ("sum" | "mean") "(" sum { "," sum } ")"
 */
#ifndef SURPRISAL_FORMULA_H
#define SURPRISAL_FORMULA_H

#include "rows.h"

/* A formula that is being read for one item. The value of a truth is 1 or 0. */
typedef struct formula {
    surprisal_run *r;
    const suite *s;
    size_t prediction, item_number; /* from 0 */
    const char *text, *at;
    int is_check; /* before anything is measured */
} formula;

typedef struct formula_value {
    double number;
    int is_truth;
} formula_value;

static attn_status fail_formula(formula *f, const char *at, const char *what)
{
    if (!f->r->ctx.status)
        tool_fail(&f->r->ctx, ATTN_E_FORMAT, "prediction %zu, character %zu, at \"%.40s\": %s",
                  f->prediction + 1, (size_t)(at - f->text) + 1, at, what);
    return f->r->ctx.status;
}

static char next_of(formula *f)
{
    while (is_space(*f->at))
        f->at++;
    return *f->at;
}

static int take_word(formula *f, const char *word)
{
    next_of(f);
    if (strncmp(f->at, word, strlen(word)) != 0)
        return 0;
    f->at += strlen(word);
    return 1;
}

static void need_word(formula *f, const char *word, const char *what)
{
    if (!f->r->ctx.status && !take_word(f, word))
        fail_formula(f, f->at, what);
}

/* A sum, or over the tokens a mean. */
static double score_of(formula *f, const char *at, const region_sums *m)
{
    const double sum = m->sums[f->r->o.corrected];
    if (!f->s->is_mean || f->is_check)
        return sum;
    if (m->n_tokens == 0) {
        char text[100];
        snprintf(text, sizeof text, "the region is empty in item %zu, and has no mean",
                 f->item_number + 1);
        fail_formula(f, at, text);
        return 0;
    }
    return sum / m->n_tokens;
}

/* Behind "(": region ";%" condition "%)" */
static double read_region(formula *f)
{
    const char *const begin = f->at;
    const size_t n_digits = strspn(begin, "0123456789");
    const suite *const s = f->s;
    const region_sums *m = &s->regions[s->first_region[s->first_record[f->item_number]]];
    const json_value *condition = NULL; /* the first of that name */
    text_span name;
    size_t n_found = 0;
    double sum = 0;
    char text[160];
    shown shown_name;
    f->at += n_digits ? n_digits : 1; /* or a star */
    need_word(f, ";%", "expected ;% and the name of a condition behind the region");
    name.text = f->at;
    name.size = strcspn(f->at, "%)");
    f->at += f->r->ctx.status ? 0 : name.size;
    need_word(f, "%", "expected % behind the name of a condition");
    need_word(f, ")", "expected ) behind a region and its condition");
    if (f->r->ctx.status)
        return 0;
    for (; m < s->regions + s->n_regions && m->item == f->item_number; m++) {
        if (!condition && m->condition->size == name.size &&
            memcmp(m->condition->text, name.text, name.size) == 0)
            condition = m->condition;
        if (m->condition != condition || (n_digits && m->number != strtoul(begin, NULL, 10)))
            continue;
        sum += m->n_tokens == 0 && !n_digits ? 0 : score_of(f, begin, m);
        n_found++;
    }
    if (!condition) {
        snprintf(text, sizeof text, "item %zu has no condition \"%s\"", f->item_number + 1,
                 show(shown_name, name.text, name.size));
        return fail_formula(f, name.text, text), 0.0;
    }
    if (n_found == 0) {
        snprintf(text, sizeof text, "condition \"%s\" of item %zu has no such region",
                 show(shown_name, name.text, name.size), f->item_number + 1);
        fail_formula(f, begin, text);
    }
    return sum;
}

static formula_value read_truths(formula *f, int depth);
static double read_sum(formula *f, int depth);

/* Behind "sum(" or "mean(". */
static double read_formula_list(formula *f, int is_mean, int depth)
{
    double sum = 0;
    size_t n = 0;
    do {
        sum += read_sum(f, depth);
        n++;
    } while (!f->r->ctx.status && take_word(f, ","));
    need_word(f, ")", "expected , or ) in a list");
    return is_mean ? sum / (double)n : sum;
}

static formula_value read_part(formula *f, int depth)
{
    formula_value v = {0, 0};
    char *end;
    next_of(f);
    if (depth > 64) {
        fail_formula(f, f->at, "more than 64 brackets inside each other");
    } else if (take_word(f, "sum(") || take_word(f, "mean(")) {
        v.number = read_formula_list(f, f->at[-2] == 'n', depth + 1);
    } else if (take_word(f, "[")) {
        v = read_truths(f, depth + 1);
        need_word(f, "]", "expected ] here");
    } else if (take_word(f, "(")) {
        next_of(f);
        if (f->at[*f->at == '*' ? 1 : strspn(f->at, "0123456789")] == ';') {
            v.number = read_region(f);
        } else {
            v = read_truths(f, depth + 1);
            need_word(f, ")", "expected ) here");
        }
    } else if ((*f->at >= '0' && *f->at <= '9') || *f->at == '.' || *f->at == '-') {
        v.number = number_at(f->at, &end);
        if (end == f->at)
            fail_formula(f, f->at, "expected a number");
        f->at = end;
    } else {
        fail_formula(f, f->at, "expected a number, or a region such as (5;%name%)");
    }
    return v;
}

/* One of the characters of `operators`, which joins two of the same kind; 0: none is next. */
static char take_operator(formula *f, const char *operators, const formula_value *left,
                          int of_truths)
{
    char c = 0;
    if (!f->r->ctx.status)
        c = next_of(f);
    if (!c || !strchr(operators, c))
        return 0;
    if (left->is_truth != of_truths) {
        fail_formula(f, f->at,
                     of_truths ? "& and | join comparisons"
                               : "this joins numbers, not comparisons");
        return 0;
    }
    f->at++;
    return c;
}

/* What follows an operator between numbers. */
static double need_number(formula *f, const char *at, formula_value v)
{
    if (v.is_truth)
        fail_formula(f, at, "a number is needed here, not a comparison");
    return v.number;
}

static formula_value read_products(formula *f, int depth)
{
    formula_value v = read_part(f, depth);
    char c;
    while ((c = take_operator(f, "*/", &v, 0)) != 0) {
        const char *const at = f->at;
        const double right = need_number(f, at, read_part(f, depth));
        if (c == '/' && right == 0 && !f->is_check) {
            char text[100];
            snprintf(text, sizeof text, "item %zu divides by zero", f->item_number + 1);
            fail_formula(f, at, text);
        }
        v.number = c == '*'     ? lens_rounded_product(v.number, right)
                   : right != 0 ? v.number / right
                                : 0;
    }
    return v;
}

static formula_value read_sums(formula *f, int depth)
{
    formula_value v = read_products(f, depth);
    char c;
    while ((c = take_operator(f, "+-", &v, 0)) != 0) {
        const char *const at = f->at;
        const double right = need_number(f, at, read_products(f, depth));
        v.number += c == '+' ? right : -right;
    }
    return v;
}

static double read_sum(formula *f, int depth)
{
    const char *const at = f->at;
    return need_number(f, at, read_sums(f, depth));
}

static formula_value read_truth(formula *f, int depth)
{
    formula_value v = read_sums(f, depth);
    const char c = take_operator(f, "<>=", &v, 0);
    if (c) {
        const double right = read_sum(f, depth);
        v.number = c == '<' ? v.number < right
                   : c == '>'
                       ? v.number > right
                       : fabs(v.number - right) <= 1e-3 + lens_rounded_product(1e-5, fabs(right));
        v.is_truth = 1;
    }
    return v;
}

static formula_value read_truths(formula *f, int depth)
{
    formula_value v = read_truth(f, depth);
    char first = 0, c;
    while ((c = take_operator(f, "&|", &v, 1)) != 0) {
        const char *const at = f->at;
        const formula_value right = read_truth(f, depth);
        if (first && c != first)
            fail_formula(f, at - 1, "& and | together need parentheses");
        if (!right.is_truth)
            fail_formula(f, at, "& and | join comparisons");
        v.number =
            c == '&' ? v.number != 0 && right.number != 0 : v.number != 0 || right.number != 0;
        first = c;
    }
    return v;
}

/* Does the prediction hold for the item? */
static int holds(formula *f)
{
    f->at = f->text;
    formula_value v = read_truths(f, 0);
    if (!f->r->ctx.status && next_of(f))
        fail_formula(f, f->at, "expected the end of the formula, or an operator");
    if (!f->r->ctx.status && !v.is_truth)
        fail_formula(f, f->at, "a prediction compares numbers by <, > or =");
    return v.number != 0;
}

#endif
