/* Figures of data sets for scoring: HellaSwag, LAMBADA, WikiText. Each has a standard error:
 * sqrt(p (1 - p) / n) for an accuracy p of n items; that of a perplexity treats the losses as
 * independent. */
#ifndef REPRODUCE_DATA_H
#define REPRODUCE_DATA_H

#include "study.h"
#include "tools/common/json.h"
#include "tools/common/program.h"
#include <ctype.h>

/* What scoring a text needs. */
typedef struct reading {
    study *study;
    attn_session
        *session; /* holds the last text; a prefix that the next one shares is not fed again */
    attn_token_stats *stats;
    attn_token *ids; /* [2 * room] */
    size_t room;     /* the most bytes of a text */
} reading;

enum { LONGEST_TEXT = 1 << 16 };

static attn_status begin_reading(reading *r, study *s)
{
    *r = (reading){.study = s, .room = LONGEST_TEXT};
    r->stats = (attn_token_stats *)arena_alloc(s->ctx, s->memory, 2 * r->room, sizeof *r->stats);
    r->ids = (int32_t *)arena_alloc(s->ctx, s->memory, 2 * r->room, sizeof *r->ids);
    if (!r->stats || !r->ids)
        return s->ctx->status;
    return attn_session_new(s->ctx, &r->session, s->raw, NULL);
}

/* The score of an ending: of all its tokens, and of the last one only. */
typedef struct text_score {
    double log_prob[2];
    int is_likeliest[2];
    size_t n_tokens;
} text_score;

/* Scores ids[first .. n) after ids[0 .. first). A text that is longer than the context loses its
 * beginning. */
static attn_status score_ids(reading *r, text_score *w, const attn_token *ids, size_t n,
                             size_t first)
{
    const size_t most = attn_model_config(r->study->raw)->n_ctx;
    const size_t cut = n > most ? n - most : 0;
    const int32_t *had = attn_session_tokens(r->session);
    size_t keep = 0;
    *w = (text_score){{0, 0}, {1, 1}, 0};
    ids += cut;
    n -= cut;
    first = first > cut + 1 ? first - cut : 1;
    while (keep < attn_session_length(r->session) && keep + 1 < first && had[keep] == ids[keep])
        keep++;
    attn_status status = attn_session_truncate(r->study->ctx, r->session, keep);
    if (status == ATTN_OK)
        status = attn_score(r->study->ctx, r->stats, NULL, r->session, ids + keep, n - keep);
    if (status != ATTN_OK)
        return status;
    for (size_t i = first - 1; i + 1 < n; i++) {
        const attn_token_stats *stats = &r->stats[i - keep];
        w->log_prob[1] = -(double)stats->nll;
        w->log_prob[0] += w->log_prob[1];
        w->is_likeliest[1] = stats->rank == 0;
        w->is_likeliest[0] = w->is_likeliest[0] && w->is_likeliest[1];
        w->n_tokens++;
    }
    return ATTN_OK;
}

static attn_status encode(reading *r, attn_token *ids, size_t *n, const char *text, size_t size)
{
    if (size >= r->room)
        return tool_fail(r->study->ctx, ATTN_E_FORMAT, "a text of %zu bytes; at most %zu are read",
                         size, r->room - 1);
    *n = r->room;
    return attn_encode(r->study->ctx, ids, n, attn_model_tokenizer(r->study->raw), text, size);
}

/* Scores an ending. With `together`, context and ending are tokenized as one text, which is
 * split after as many tokens as the context has (lm-evaluation-harness). Without, each is tokenized
 * by itself (llm.c). */
static attn_status score_text(reading *r, text_score *w, const char *context, const char *ending,
                              int together)
{
    study *const s = r->study;
    const size_t size = strlen(context);
    size_t n = 0, more = 0;
    char *const whole = (char *)arena_alloc(s->ctx, s->memory, size + strlen(ending) + 1, 1);
    if (!whole || encode(r, r->ids, &n, context, size))
        return s->ctx->status;
    memcpy(whole, context, size);
    memcpy(whole + size, ending, strlen(ending) + 1);
    if (together ? encode(r, r->ids, &more, whole, strlen(whole))
                 : encode(r, r->ids + n, &more, ending, strlen(ending)))
        return s->ctx->status;
    more += together ? 0 : n;
    if (n == 0 || more <= n)
        return tool_fail(s->ctx, ATTN_E_FORMAT, "a context or an ending is empty");
    return score_ids(r, w, r->ids, more, n);
}

/* ---- files of one JSON object a line ---- */

typedef attn_status (*item_fn)(reading *r, const json_value *item, double *sums);

/* Puts a zero after each string of a parsed line. The strings are still inside the line, so the zero
 * replaces a quotation mark or what an escape left over. 0: a string has a zero already. */
static int end_strings(char *line, const json_value *root)
{
    for (size_t i = 0; i < root->span; i++) {
        if (json_has_zero(&root[i]))
            return 0;
        if (root[i].kind == JSON_STRING)
            line[(size_t)(root[i].text - line) + root[i].size] = 0;
    }
    return 1;
}

/* Adds up the sums that an item function gives for each line. *n is the number of lines. */
static attn_status read_items(reading *r, const char *path, item_fn item, double *sums, size_t *n)
{
    attn_ctx *ctx = r->study->ctx;
    char *text = NULL, *at, *end;
    size_t size = 0;
    *n = 0;
    if (read_file(ctx, r->study->memory, path, (size_t)1 << 30, &text, &size))
        return ctx->status;
    for (at = text; at < text + size && !ctx->status; at = end + 1) {
        json_value *root = NULL;
        end = (char *)memchr(at, '\n', (size_t)(text + size - at));
        end = end ? end : text + size;
        *end = 0;
        if (at_share(r->study, (double)(at - text) / (double)size))
            return ctx->status;
        if (at[strspn(at, " \t\r")] == 0)
            continue;
        if (!json_parse_at(ctx, path, *n + 1, at, (size_t)(end - at), &root) && root) {
            if (end_strings(at, root))
                item(r, root, sums);
            else
                tool_fail(ctx, ATTN_E_FORMAT, "%s, line %zu: a text has a zero byte, \\u0000",
                          base_name(path), *n + 1);
        }
        free(root);
        *n += 1;
    }
    if (!ctx->status && *n == 0)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s has no lines", path);
    return ctx->status;
}

static const char *text_of(reading *r, const json_value *item, const char *key)
{
    const json_value *v = json_get(item, key);
    if (v && v->kind == JSON_STRING)
        return v->text;
    tool_fail(r->study->ctx, ATTN_E_FORMAT, "a line has no text \"%s\"", key);
    return NULL;
}

/* ---- LAMBADA: the last word of a passage ---- */

/* {"text": "... last"}. sums [6]: of last words how many are likeliest, and their losses; the same of last tokens; the
 * squares of both losses. */
static attn_status lambada_item(reading *r, const json_value *item, double *sums)
{
    const char *text = text_of(r, item, "text"), *last = text ? strrchr(text, ' ') : NULL;
    text_score w;
    if (!last)
        return r->study->ctx->status
                   ? r->study->ctx->status
                   : tool_fail(r->study->ctx, ATTN_E_FORMAT, "a text of one word: %.40s", text);
    char *context = arena_text(r->study->ctx, r->study->memory, text, (size_t)(last - text));
    if (!context || score_text(r, &w, context, last, 1))
        return r->study->ctx->status;
    for (size_t i = 0; i < 2; i++) {
        sums[2 * i] += w.is_likeliest[i];
        sums[2 * i + 1] -= w.log_prob[i];
        sums[4 + i] += w.log_prob[i] * w.log_prob[i];
    }
    return ATTN_OK;
}

static double error_of_share(double share, double n)
{
    return sqrt(share * (1 - share) / n);
}

/* The standard error of exp(mean loss). */
static double error_of_perplexity(double sum, double squares, double n)
{
    const double mean = sum / n, variance = n > 1 ? (squares / n - mean * mean) * n / (n - 1) : 0;
    return exp(mean) * sqrt(variance > 0 ? variance / n : 0);
}

/* out and errors [4]: the share of last words whose tokens are all the likeliest, and the perplexity
 * of last words; then the same for the last token only. */
static attn_status lambada(reading *r, const char *path, float *out, float *errors)
{
    double sums[6] = {0};
    size_t items;
    if (read_items(r, path, lambada_item, sums, &items))
        return r->study->ctx->status;
    for (size_t i = 0; i < 4; i += 2) {
        const double n = (double)items, share = sums[i] / n;
        out[i] = (float)share;
        errors[i] = (float)error_of_share(share, n);
        out[i + 1] = (float)exp(sums[i + 1] / n);
        errors[i + 1] = (float)error_of_perplexity(sums[i + 1], sums[4 + i / 2], n);
    }
    return ATTN_OK;
}

/* ---- HellaSwag: the likeliest of four endings ---- */

/* Appends a text, cleaned as the harness does: "[title]" becomes the end of a sentence, other remarks
 * in brackets are removed, and two blanks become one. */
static void add_cleaned(char *out, const char *text)
{
    size_t n = strlen(out), size = strlen(text), i, from = 0;
    const size_t begin = n;
    const char *close;
    while (from < size && isspace((unsigned char)text[from]))
        from++;
    while (size > from && isspace((unsigned char)text[size - 1]))
        size--;
    for (i = from; i < size; i++) {
        if (strncmp(text + i, " [title]", 8) == 0) {
            out[n++] = '.';
            out[n++] = ' ';
            i += 7;
        } else if (text[i] == '[' && (close = strchr(text + i, ']')) != NULL &&
                   !memchr(text + i, '\n', (size_t)(close - text) - i)) {
            i = (size_t)(close - text);
        } else {
            out[n++] = text[i];
        }
    }
    out[n] = 0;
    for (i = from = begin; i < n; i++) { /* pairs of blanks, from the left */
        out[from++] = out[i];
        if (out[i] == ' ' && out[i + 1] == ' ')
            i++;
    }
    out[from] = 0;
}

/* Makes the first letter a capital, and the others small. */
static void capitalize(char *text)
{
    for (size_t i = 0; text[i]; i++)
        text[i] = (char)(i ? tolower((unsigned char)text[i]) : toupper((unsigned char)text[i]));
}

static size_t count_letters(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

enum { N_ENDINGS = 4 };

/* Is the right ending the best one, by each of two measures? */
static void count_right(double *sums, const double *whole, const double *normed, size_t right)
{
    size_t best[2] = {0, 0};
    for (size_t i = 1; i < N_ENDINGS; i++) {
        best[0] = whole[i] > whole[best[0]] ? i : best[0];
        best[1] = normed[i] > normed[best[1]] ? i : best[1];
    }
    sums[0] += best[0] == right;
    sums[1] += best[1] == right;
}

/* Scores the endings as llm.c does: context and " ending" are tokenized separately, and the normed score is divided by
 * the number of the ending's tokens. Or as lm-evaluation-harness does, which cleans them and tokenizes both together,
 * and divides by the number of the ending's letters. */
static attn_status score_endings(reading *r, const char *context, const json_value *endings,
                                 size_t right, int as_harness, double *sums)
{
    double whole[N_ENDINGS], normed[N_ENDINGS];
    text_score w;
    for (size_t i = 0; context && i < N_ENDINGS; i++) {
        char *ending =
            (char *)arena_alloc(r->study->ctx, r->study->memory, strlen(endings[i].text) + 8, 1);
        if (!ending)
            break;
        ending[0] = ' ';
        if (as_harness)
            add_cleaned(ending, endings[i].text);
        else
            memcpy(ending + 1, endings[i].text, strlen(endings[i].text) + 1);
        if (score_text(r, &w, context, ending, as_harness))
            break;
        whole[i] = w.log_prob[0];
        normed[i] = w.log_prob[0] / (double)(as_harness ? count_letters(ending + 1) : w.n_tokens);
    }
    if (!r->study->ctx->status)
        count_right(sums, whole, normed, right);
    return r->study->ctx->status;
}

/* The harness's context begins with the activity, and is cleaned. NULL after a message. */
static const char *harness_context(reading *r, const json_value *item)
{
    const char *label = text_of(r, item, "activity_label"), *a = text_of(r, item, "ctx_a");
    const char *b = text_of(r, item, "ctx_b");
    const size_t size = label && a && b ? strlen(label) + strlen(a) + strlen(b) + 16 : 0;
    char *const context =
        size ? (char *)arena_alloc(r->study->ctx, r->study->memory, 2 * size, 1) : NULL;
    if (!context)
        return NULL;
    snprintf(context, size, "%s: %s %s", label, a, b);
    capitalize(context + strlen(label) + strlen(a) + 3);
    add_cleaned(context + size, context);
    return context + size;
}

/* {"activity_label", "ctx_a", "ctx_b", "ctx", "endings": [4], "label"} */
static attn_status hellaswag_item(reading *r, const json_value *item, double *sums)
{
    const json_value *endings = json_get(item, "endings"), *label = json_get(item, "label");
    uint64_t right = 0;
    int is_item = endings && endings->kind == JSON_ARRAY && endings->size == N_ENDINGS && label;
    for (size_t i = 0; i < N_ENDINGS && is_item; i++)
        is_item = endings[1 + i].kind == JSON_STRING;
    if (is_item && label->kind == JSON_STRING) /* in Hugging Face's copy a string */
        right = strtoul(label->text, NULL, 10);
    else if (is_item)
        is_item = json_u64(label, &right);
    if (!is_item || right >= N_ENDINGS)
        return tool_fail(r->study->ctx, ATTN_E_FORMAT,
                         "a line without four \"endings\", or without \"label\", 0 to 3");
    score_endings(r, text_of(r, item, "ctx"), endings + 1, (size_t)right, 0, sums);
    return r->study->ctx->status ? r->study->ctx->status
                                 : score_endings(r, harness_context(r, item), endings + 1,
                                                 (size_t)right, 1, sums + 2);
}

/* out and errors [4]: accuracy and normed accuracy of llm.c, then of lm-evaluation-harness. */
static attn_status hellaswag(reading *r, const char *path, float *out, float *errors)
{
    double sums[4] = {0};
    size_t items;
    if (read_items(r, path, hellaswag_item, sums, &items))
        return r->study->ctx->status;
    for (size_t i = 0; i < 4; i++) {
        const double share = sums[i] / (double)items;
        out[i] = (float)share;
        errors[i] = (float)error_of_share(share, (double)items);
    }
    return ATTN_OK;
}

/* ---- WikiText ---- */

/* Joins the lines as Hugging Face's page on perplexity does: a blank line becomes empty, any other
 * keeps its line feed, and two line feeds are put between lines. */
static char *join_rows(study *s, const char *text, size_t size, size_t *joined)
{
    char *out = (char *)arena_alloc(s->ctx, s->memory, 3 * size + 4, 1);
    const char *at = text, *end;
    size_t n = 0;
    for (; out && at < text + size; at = end + 1) {
        end = (const char *)memchr(at, '\n', (size_t)(text + size - at));
        end = end ? end : text + size;
        if (at > text) {
            out[n++] = '\n';
            out[n++] = '\n';
        }
        if (strspn(at, " \t\r") < (size_t)(end - at)) {
            memcpy(out + n, at, (size_t)(end - at));
            n += (size_t)(end - at);
            out[n++] = '\n';
        }
    }
    *joined = n;
    return out;
}

/* out and errors [2]: the perplexity by Hugging Face's two recipes: windows that do not overlap, and
 * windows that overlap by half, in which only the tokens of the second half count. */
static attn_status wikitext(reading *r, const char *path, float *out, float *errors)
{
    study *s = r->study;
    const size_t window = attn_model_config(s->raw)->n_ctx;
    char *text = NULL;
    attn_token *ids;
    size_t size = 0, n, end, seen;
    if (read_file(s->ctx, s->memory, path, (size_t)1 << 30, &text, &size))
        return s->ctx->status;
    char *joined = join_rows(s, text, size, &n);
    ids = joined ? (int32_t *)arena_alloc(s->ctx, s->memory, n + 1, sizeof *ids) : NULL;
    size = n;
    if (!ids || attn_encode(s->ctx, ids, &n, attn_model_tokenizer(s->raw), joined, size))
        return s->ctx->status;
    if (n < 2)
        return tool_fail(s->ctx, ATTN_E_FORMAT, "%s has no text", path);
    for (size_t recipe = 0; recipe < 2; recipe++) {
        const size_t stride = recipe ? window / 2 : window;
        double sum = 0, squares = 0, count = 0;
        for (size_t begin = end = 0; end < n; begin += stride) {
            seen = end;
            end = n - begin < window ? n : begin + window;
            if (at_share(s,
                         ((double)end / (double)n * (double)(1 + recipe) + (double)recipe) / 3) ||
                end - begin < 2 || attn_session_truncate(s->ctx, r->session, 0) ||
                attn_score(s->ctx, r->stats, NULL, r->session, ids + begin, end - begin))
                break;
            for (size_t i = seen > begin ? seen : begin + 1; i < end; i++) {
                const double loss = (double)r->stats[i - begin - 1].nll;
                sum += loss;
                squares += loss * loss;
                count++;
            }
        }
        out[recipe] = (float)exp(sum / count);
        errors[recipe] = (float)error_of_perplexity(sum, squares, count);
    }
    return s->ctx->status;
}

#endif
