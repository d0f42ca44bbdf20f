/* The C functions of the R package: see the R functions that call them. */
#define ATTN_STATIC
#define ATTN_UNSTABLE
#include "attn.h"
#include <R.h>
#include <R_ext/Rdynload.h>
#include <Rinternals.h>
#include <math.h>
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

static void check(void *unused)
{
    (void)unused;
    R_CheckUserInterrupt();
}

/* Did the person press Ctrl-C or Esc? */
static int is_interrupted(void)
{
    return !R_ToplevelExec(check, NULL);
}

static SEXP r_open(SEXP path, SEXP threads)
{
    SEXP pointer = PROTECT(R_MakeExternalPtr(NULL, R_NilValue, R_NilValue));
    attn_ctx ctx = ATTN_ZERO;
    attn_model *model = NULL;
    R_RegisterCFinalizerEx(pointer, close_model, TRUE);
    ctx.n_threads = Rf_asInteger(threads);
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
    attn_ctx ctx = ATTN_ZERO;
    size_t n = strlen(bytes), i, size, at = 0;
    int32_t *const ids = (int32_t *)R_alloc(n + 1, sizeof *ids);
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

/* What a row of logits says of the next token, in nats. */
static void measure(const float *logits, size_t n, const int *ends, int next, double *out)
{
    double most = logits[0], sum = 0, weighted = 0, of_ends = 0, best = -INFINITY, log_sum;
    size_t i;
    for (i = 0; i < n; i++) {
        most = logits[i] > most ? logits[i] : most;
        best = ends[i] && logits[i] > best ? logits[i] : best;
    }
    for (i = 0; i < n; i++) {
        const double x = logits[i] - most, power = exp(x);
        sum += power;
        weighted += power * x;
        of_ends += ends[i] ? exp(logits[i] - best) : 0;
    }
    log_sum = log(sum);
    out[0] = next >= 0 ? log_sum - (logits[next] - most) : NA_REAL;
    out[1] = log_sum - weighted / sum;
    out[2] = log(of_ends) + best - most - log_sum;
}

/* Feeds a window and measures its positions from `first` on, which are those behind its tokens. ids [n + 1]: the
 * last one is the next token and is not fed; -1: there is none. 0: done. */
static int read_window(attn_ctx *ctx, attn_session *session, const int32_t *ids, size_t n,
                       size_t first, const int *kinds, double *out)
{
    const size_t n_vocab = (size_t)attn_model_config(attn_session_model(session))->n_vocab;
    float *const logits = (float *)malloc(ROWS * n_vocab * sizeof *logits);
    attn_feed_item item = ATTN_ZERO;
    size_t at, i;
    int code = logits ? 0 : 2;
    for (at = 0; at < n && code == 0; at += ROWS) {
        item.session = session;
        item.tokens = ids + at;
        item.n_tokens = n - at < ROWS ? n - at : ROWS;
        item.logits = logits;
        code = is_interrupted() ? 3 : attn_feed_batch(ctx, &item, 1) != ATTN_OK;
        for (i = 0; i < item.n_tokens && code == 0; i++)
            if (at + i >= first)
                measure(logits + i * n_vocab, n_vocab,
                        at + i == 0 && kinds[2 * n_vocab] ? kinds : kinds + n_vocab,
                        ids[at + i + 1], out + 3 * (at + i - first));
    }
    free(logits);
    return code;
}

/* `ids` are the n tokens, and the next one. A matrix [3, n]: the loss of the next token, the entropy, and log(the probability that a word ends) behind
 * each of the n tokens from number `first` on. `kinds` has, of each token, whether it may begin a text and
 * whether it ends a word, and then whether the first position is the beginning of a text. */
static SEXP r_read(SEXP pointer, SEXP ids, SEXP first, SEXP kinds)
{
    attn_model *const model = model_of(pointer);
    const size_t n = (size_t)XLENGTH(ids) - 1, begin = (size_t)Rf_asInteger(first);
    SEXP out = PROTECT(Rf_allocMatrix(REALSXP, 3, (int)(n - begin)));
    attn_ctx ctx = ATTN_ZERO;
    attn_session *session = NULL;
    attn_session_desc desc = ATTN_ZERO;
    int code;
    desc.n_ctx = n;
    desc.n_batch = ROWS;
    code = attn_session_new(&ctx, &session, model, &desc) != ATTN_OK;
    if (code == 0)
        code = read_window(&ctx, session, INTEGER(ids), n, begin, LOGICAL(kinds), REAL(out));
    attn_session_free(session);
    if (code == 1)
        stop_with(&ctx);
    if (code)
        Rf_error("%s", code == 3 ? "interrupted" : "no memory for the logits");
    UNPROTECT(1);
    return out;
}

/* The k likeliest next tokens: a list of ids and probabilities. */
static SEXP r_next(SEXP pointer, SEXP ids, SEXP k)
{
    attn_model *const model = model_of(pointer);
    attn_ctx ctx = ATTN_ZERO;
    attn_session *session = NULL;
    attn_session_desc desc = ATTN_ZERO;
    attn_top top = ATTN_ZERO;
    const int n = Rf_asInteger(k);
    SEXP out = PROTECT(Rf_allocVector(VECSXP, 2));
    int i;
    SET_VECTOR_ELT(out, 0, Rf_allocVector(INTSXP, n));
    SET_VECTOR_ELT(out, 1, Rf_allocVector(REALSXP, n));
    top.k = (size_t)n;
    top.best = (attn_prediction *)R_alloc((size_t)n, sizeof *top.best);
    desc.n_ctx = (size_t)XLENGTH(ids);
    if (attn_session_new(&ctx, &session, model, &desc) == ATTN_OK &&
        attn_feed(&ctx, session, INTEGER(ids), desc.n_ctx) == ATTN_OK)
        attn_logit_stats(&ctx, NULL, &top,
                         attn_borrow(attn_session_logits(session), ATTN_F32,
                                     attn_shape2(1, (size_t)attn_model_config(model)->n_vocab)),
                         NULL);
    attn_session_free(session);
    if (ctx.status)
        stop_with(&ctx);
    for (i = 0; i < n; i++) {
        INTEGER(VECTOR_ELT(out, 0))[i] = top.best[i].token;
        REAL(VECTOR_ELT(out, 1))[i] = top.best[i].probability;
    }
    UNPROTECT(1);
    return out;
}

static int stop_text(const char *text, size_t size, void *interrupted)
{
    (void)text, (void)size;
    return *(int *)interrupted = is_interrupted();
}

static SEXP r_generate(SEXP pointer, SEXP ids, SEXP how)
{
    attn_model *const model = model_of(pointer);
    attn_ctx ctx = ATTN_ZERO;
    attn_continuation one = ATTN_ZERO;
    attn_generate_desc desc = ATTN_ZERO;
    int interrupted = 0;
    SEXP out;
    one.prompt_tokens = INTEGER(ids);
    one.n_prompt_tokens = (size_t)XLENGTH(ids);
    one.text_fn = stop_text;
    one.text_user = &interrupted;
    desc.max_tokens = (size_t)REAL(how)[0];
    desc.sampling.temperature = (float)REAL(how)[1];
    desc.sampling.top_k = (size_t)REAL(how)[2];
    desc.sampling.seed = (uint64_t)REAL(how)[3];
    if (attn_generate_many(&ctx, &one, 1, model, &desc))
        stop_with(&ctx);
    out = PROTECT(Rf_ScalarString(Rf_mkCharLenCE(one.text, (int)one.size, CE_UTF8)));
    attn_continuations_free(&one, 1);
    if (interrupted)
        Rf_error("interrupted");
    UNPROTECT(1);
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
    attn_ctx ctx = ATTN_ZERO;
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

static const R_CallMethodDef calls[] = {
    {"C_open", (DL_FUNC)&r_open, 2},           {"C_config", (DL_FUNC)&r_config, 1},
    {"C_kinds", (DL_FUNC)&r_kinds, 1},         {"C_encode", (DL_FUNC)&r_encode, 2},
    {"C_decode", (DL_FUNC)&r_decode, 2},       {"C_read", (DL_FUNC)&r_read, 4},
    {"C_next", (DL_FUNC)&r_next, 3},           {"C_generate", (DL_FUNC)&r_generate, 3},
    {"C_attention", (DL_FUNC)&r_attention, 2}, {NULL, NULL, 0}};

void R_init_attn(DllInfo *info)
{
    R_registerRoutines(info, NULL, calls, NULL, NULL);
    R_useDynamicSymbols(info, FALSE);
}
