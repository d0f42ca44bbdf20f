/* The C functions of the R package: see the R functions that call them. */
#define ATTN_STATIC
#include "attn.h"
#include <R.h>
#include <R_ext/Rdynload.h>
#include <Rinternals.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 64 }; /* tokens from one look for an interrupt to the next */

static attn_model *model_of(SEXP pointer)
{
    attn_model *const model = (attn_model *)R_ExternalPtrAddr(pointer);
    if (!model)
        Rf_error("the model is closed: open it again with attn_model()");
    return model;
}

/* A context with the number of threads that the model was opened with. */
static attn_ctx context_of(SEXP pointer)
{
    attn_ctx ctx = ATTN_ZERO;
    ctx.n_threads = Rf_asInteger(R_ExternalPtrTag(pointer));
    return ctx;
}

static void close_model(SEXP pointer)
{
    attn_model_close((attn_model *)R_ExternalPtrAddr(pointer));
    R_ClearExternalPtr(pointer);
}

/* Ends the call as an R error. The caller has freed what it holds. */
static void stop_with(const attn_ctx *ctx)
{
    const char *const text = ctx->message, *const colon = strstr(text, ": ");
    Rf_error("%s", strncmp(text, "attn_", 5) == 0 && colon ? colon + 2 : text);
}

static SEXP check(void *unused)
{
    (void)unused;
    R_CheckUserInterrupt();
    return R_NilValue;
}

static void go_back(void *place, Rboolean is_jump)
{
    if (is_jump)
        longjmp(*(jmp_buf *)place, 1);
}

/* Did the person press Ctrl-C or Esc? Then R leaves this call: the caller frees what it holds, and lets
 * R go on with R_ContinueUnwind(token), which makes R's own condition "interrupt" of it. */
static int is_interrupted(SEXP token)
{
    jmp_buf place;
    if (setjmp(place))
        return 1;
    R_UnwindProtect(check, NULL, go_back, &place, token);
    return 0;
}

static SEXP r_open(SEXP path, SEXP threads)
{
    SEXP pointer = PROTECT(R_MakeExternalPtr(NULL, threads, R_NilValue));
    attn_ctx ctx = context_of(pointer);
    attn_model *model = NULL;
    R_RegisterCFinalizerEx(pointer, close_model, TRUE);
    if (attn_model_open(&ctx, &model, R_ExpandFileName(Rf_translateChar(STRING_ELT(path, 0))),
                        NULL))
        stop_with(&ctx);
    R_SetExternalPtrAddr(pointer, model);
    UNPROTECT(1);
    return pointer;
}

/* n_ctx, n_vocab, n_layer, n_head, bos, eos */
static SEXP r_config(SEXP pointer)
{
    const attn_config *const c = attn_model_config(model_of(pointer));
    SEXP out = PROTECT(Rf_allocVector(INTSXP, 6));
    INTEGER(out)[0] = (int)c->n_ctx;
    INTEGER(out)[1] = (int)c->n_vocab;
    INTEGER(out)[2] = (int)c->n_layer;
    INTEGER(out)[3] = (int)c->n_head;
    INTEGER(out)[4] = c->bos;
    INTEGER(out)[5] = c->eos;
    UNPROTECT(1);
    return out;
}

/* Of each token: does it begin with a blank, and does it end a text? */
static SEXP r_kinds(SEXP pointer)
{
    const attn_model *const model = model_of(pointer);
    const attn_config *const c = attn_model_config(model);
    const attn_tokenizer *const t = attn_model_tokenizer(model);
    const size_t n = (size_t)c->n_vocab;
    SEXP out = PROTECT(Rf_allocMatrix(LGLSXP, (int)n, 2));
    size_t i, size;
    for (i = 0; i < n; i++) {
        const char *const bytes = attn_token_bytes(&size, t, (int32_t)i);
        LOGICAL(out)[i] = bytes && size && bytes[0] == ' ';
        LOGICAL(out)[n + i] = attn_config_is_eos(c, (int32_t)i);
    }
    UNPROTECT(1);
    return out;
}

/* A list of the ids of a text, and of the number of bytes of each. */
static SEXP r_encode(SEXP pointer, SEXP text)
{
    const attn_tokenizer *const t = attn_model_tokenizer(model_of(pointer));
    const char *const bytes = Rf_translateCharUTF8(STRING_ELT(text, 0));
    attn_ctx ctx = context_of(pointer);
    size_t n = strlen(bytes), i, size, at = 0;
    attn_token *const ids = (int32_t *)R_alloc(n + 1, sizeof *ids);
    SEXP out;
    if (attn_encode(&ctx, ids, &n, t, bytes, n))
        stop_with(&ctx);
    out = PROTECT(Rf_allocVector(VECSXP, 2));
    SET_VECTOR_ELT(out, 0, Rf_allocVector(INTSXP, (R_xlen_t)n));
    SET_VECTOR_ELT(out, 1, Rf_allocVector(INTSXP, (R_xlen_t)n));
    for (i = 0; i < n; i++) {
        const char *const token = attn_token_bytes(&size, t, ids[i]);
        if (!token || strncmp(bytes + at, token, size) != 0)
            Rf_error("the model's vocabulary lacks a character of \"%.60s\"", bytes);
        at += size;
        INTEGER(VECTOR_ELT(out, 0))[i] = ids[i];
        INTEGER(VECTOR_ELT(out, 1))[i] = (int)size;
    }
    UNPROTECT(1);
    return out;
}

static SEXP r_decode(SEXP pointer, SEXP ids)
{
    const attn_tokenizer *const t = attn_model_tokenizer(model_of(pointer));
    const R_xlen_t n = XLENGTH(ids);
    SEXP out = PROTECT(Rf_allocVector(STRSXP, n));
    R_xlen_t i;
    for (i = 0; i < n; i++) {
        attn_utf8 state = {{0}, 0};
        size_t size = 0, used;
        const char *const bytes = attn_token_bytes(&size, t, INTEGER(ids)[i]);
        char *const text = R_alloc(3 * (size + 8), 1);
        used = attn_utf8_push(text, &state, bytes ? bytes : "", bytes ? size : 0);
        used += attn_utf8_push(text + used, &state, "", 0);
        SET_STRING_ELT(out, i, Rf_mkCharLenCE(text, (int)used, CE_UTF8));
    }
    UNPROTECT(1);
    return out;
}

/* What is read from a text. */
typedef struct reading {
    attn_ctx ctx;
    attn_session *session;
    SEXP token;       /* see is_interrupted */
    float *logits;    /* [ROWS, n_vocab] */
    const int *kinds; /* see r_read */
    size_t n_vocab;
    attn_top top;
    double *measures; /* [n, 4] */
    int *best;        /* [n, top.k] */
    double *chances;  /* [n, top.k]: their probabilities */
} reading;

/* What happened. */
enum { DONE, REFUSED, INTERRUPTED };

/* What row `i` of logits says of the token `next`, or of no token if it is -1. In nats. */
static void measure(reading *r, const float *logits, const int *ends, int next, size_t i)
{
    double most = logits[0], sum = 0, weighted = 0, of_ends = 0, best = -INFINITY, log_sum;
    double *const out = r->measures + 4 * i;
    const int32_t target = next;
    attn_token_stats stats = ATTN_ZERO;
    size_t t;
    for (t = 0; t < r->n_vocab; t++) {
        most = logits[t] > most ? logits[t] : most;
        best = ends[t] && logits[t] > best ? logits[t] : best;
    }
    for (t = 0; t < r->n_vocab; t++) {
        const double x = logits[t] - most, power = exp(x);
        sum += power;
        weighted += power * x;
        of_ends += ends[t] ? exp(logits[t] - best) : 0;
    }
    log_sum = log(sum);
    attn_logit_stats(&r->ctx, next >= 0 ? &stats : NULL, r->top.k ? &r->top : NULL,
                     attn_borrow(logits, ATTN_F32, attn_shape2(1, r->n_vocab)),
                     next >= 0 ? &target : NULL);
    out[0] = next >= 0 ? log_sum - (logits[next] - most) : NA_REAL;
    out[1] = log_sum - weighted / sum;
    out[2] = log(of_ends) + best - most - log_sum;
    out[3] = next >= 0 ? (double)stats.rank : NA_REAL;
    for (t = 0; t < r->top.k; t++) {
        r->best[i * r->top.k + t] = r->top.best[t].token;
        r->chances[i * r->top.k + t] = r->top.best[t].probability;
    }
}

/* Feeds the n tokens of a text, and measures the positions behind those from number `first` on. */
static int read_tokens(reading *r, const attn_token *ids, size_t n, size_t first)
{
    attn_feed_item item = ATTN_ZERO;
    size_t at, i;
    item.session = r->session;
    item.logits = r->logits;
    for (at = 0; at < n; at += ROWS) {
        item.tokens = ids + at;
        item.n_tokens = n - at < ROWS ? n - at : ROWS;
        if (is_interrupted(r->token))
            return INTERRUPTED;
        if (attn_feed_batch(&r->ctx, &item, 1))
            return REFUSED;
        for (i = at < first ? first - at : 0; i < item.n_tokens; i++)
            measure(r, r->logits + i * r->n_vocab,
                    at + i == 0 && r->kinds[2 * r->n_vocab] ? r->kinds : r->kinds + r->n_vocab,
                    ids[at + i + 1], at + i - first);
        if (r->ctx.status)
            return REFUSED;
    }
    return DONE;
}

/* `ids` are the n tokens of a text, and the next one; -1: there is none. Gives a list of a matrix [4, n - first] and
 * of two [top, n - first], a column for the position behind each of the n tokens from number `first`
 * on: the loss of the next token, the entropy, log(the probability that a word ends), the rank of the
 * next token; the likeliest tokens; their probabilities. `kinds` has, of each token, whether it may begin
 * a text and whether it ends a word, and then whether the first position is the beginning of a text. */
static SEXP r_read(SEXP pointer, SEXP ids, SEXP first, SEXP kinds, SEXP top)
{
    attn_model *const model = model_of(pointer);
    const size_t n = (size_t)XLENGTH(ids) - 1, begin = (size_t)Rf_asInteger(first);
    const int k = Rf_asInteger(top), n_columns = (int)(n - begin);
    SEXP out = PROTECT(Rf_allocVector(VECSXP, 3)), token = PROTECT(R_MakeUnwindCont());
    attn_session_desc desc = ATTN_ZERO;
    reading r = ATTN_ZERO;
    int code;
    SET_VECTOR_ELT(out, 0, Rf_allocMatrix(REALSXP, 4, n_columns));
    SET_VECTOR_ELT(out, 1, Rf_allocMatrix(INTSXP, k, n_columns));
    SET_VECTOR_ELT(out, 2, Rf_allocMatrix(REALSXP, k, n_columns));
    r.ctx = context_of(pointer);
    r.token = token;
    r.kinds = LOGICAL(kinds);
    r.n_vocab = attn_model_config(model)->n_vocab;
    r.logits = (float *)R_alloc(ROWS * r.n_vocab, sizeof *r.logits);
    r.top.k = (size_t)k;
    r.top.best = (attn_prediction *)R_alloc((size_t)k + 1, sizeof *r.top.best);
    r.measures = REAL(VECTOR_ELT(out, 0));
    r.best = INTEGER(VECTOR_ELT(out, 1));
    r.chances = REAL(VECTOR_ELT(out, 2));
    desc.n_ctx = n;
    desc.n_batch = ROWS;
    code = attn_session_new(&r.ctx, &r.session, model, &desc)
               ? REFUSED
               : read_tokens(&r, INTEGER(ids), n, begin);
    attn_session_free(r.session);
    if (code == INTERRUPTED)
        R_ContinueUnwind(token);
    if (code == REFUSED)
        stop_with(&r.ctx);
    UNPROTECT(2);
    return out;
}

typedef struct writing {
    SEXP token;
    int interrupted;
} writing;

static int stop_text(const char *text, size_t size, void *user)
{
    writing *const w = (writing *)user;
    (void)text, (void)size;
    return w->interrupted = is_interrupted(w->token);
}

static SEXP r_generate(SEXP pointer, SEXP ids, SEXP how)
{
    attn_model *const model = model_of(pointer);
    attn_ctx ctx = context_of(pointer);
    attn_continuation one = ATTN_ZERO;
    attn_generate_desc desc = ATTN_ZERO;
    writing w = {R_NilValue, 0};
    SEXP out;
    w.token = PROTECT(R_MakeUnwindCont());
    one.prompt_tokens = INTEGER(ids);
    one.n_prompt_tokens = (size_t)XLENGTH(ids);
    one.text_fn = stop_text;
    one.text_user = &w;
    desc.max_tokens = (size_t)REAL(how)[0];
    desc.sampling.temperature = (float)REAL(how)[1];
    desc.sampling.top_k = (size_t)REAL(how)[2];
    desc.sampling.seed = (uint64_t)REAL(how)[3];
    if (attn_generate_many(&ctx, &one, 1, model, &desc))
        stop_with(&ctx);
    if (w.interrupted) {
        attn_continuations_free(&one, 1);
        R_ContinueUnwind(w.token);
    }
    out = PROTECT(Rf_ScalarString(Rf_mkCharLenCE(one.text, (int)one.size, CE_UTF8)));
    attn_continuations_free(&one, 1);
    UNPROTECT(2);
    return out;
}

/* An attn_hook_fn: copies a pattern [head, query, key] into an array [layer, head, query, key] of R, whose first
 * dimension is the fastest. */
static int keep_pattern(const attn_activation *a, void *user)
{
    double *const out = (double *)user;
    const attn_config *const c = attn_model_config(attn_session_model(a->session));
    const size_t n_layer = (size_t)c->n_layer, n_head = (size_t)c->n_head, n = a->value.shape[1];
    size_t h, q, k;
    for (h = 0; h < n_head; h++)
        for (q = 0; q < n; q++)
            for (k = 0; k < n; k++)
                out[(size_t)a->layer + n_layer * (h + n_head * (q + n * k))] =
                    attn_get3(a->value, h, q, k);
    return 0;
}

static SEXP r_attention(SEXP pointer, SEXP ids)
{
    attn_model *const model = model_of(pointer);
    const attn_config *const c = attn_model_config(model);
    const size_t n = (size_t)XLENGTH(ids);
    SEXP out = PROTECT(
        Rf_allocVector(REALSXP, (R_xlen_t)((size_t)c->n_layer * (size_t)c->n_head * n * n)));
    attn_ctx ctx = context_of(pointer);
    attn_session *session = NULL;
    attn_session_desc desc = ATTN_ZERO;
    desc.n_ctx = desc.n_batch = n;
    if (attn_session_new(&ctx, &session, model, &desc) == ATTN_OK &&
        attn_hook(&ctx, NULL, session, "*hook_pattern", keep_pattern, REAL(out)) == ATTN_OK)
        attn_feed(&ctx, session, INTEGER(ids), n);
    attn_session_free(session);
    if (ctx.status)
        stop_with(&ctx);
    UNPROTECT(1);
    return out;
}

static const R_CallMethodDef calls[] = {{"C_open", (DL_FUNC)&r_open, 2},
                                        {"C_config", (DL_FUNC)&r_config, 1},
                                        {"C_kinds", (DL_FUNC)&r_kinds, 1},
                                        {"C_encode", (DL_FUNC)&r_encode, 2},
                                        {"C_decode", (DL_FUNC)&r_decode, 2},
                                        {"C_read", (DL_FUNC)&r_read, 5},
                                        {"C_generate", (DL_FUNC)&r_generate, 3},
                                        {"C_attention", (DL_FUNC)&r_attention, 2},
                                        {NULL, NULL, 0}};

void R_init_attn(DllInfo *info)
{
    R_registerRoutines(info, NULL, calls, NULL, NULL);
    R_useDynamicSymbols(info, FALSE);
}
