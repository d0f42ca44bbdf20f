/* The C functions of the R package: see the R functions that call them. */
#include "tools/common/system.h"
#define ATTN_STATIC
#include "attn.h"
#include "tools/surprisal/columns.h"
#include <R.h>
#include <R_ext/Rdynload.h>
#include <Rinternals.h>
#include <setjmp.h>
#include <string.h>

/* What a pointer of this package points to; `kind` is its tag. NULL: it is none, or its object is freed. */
static void *object_of(SEXP pointer, const char *kind)
{
    return TYPEOF(pointer) == EXTPTRSXP && R_ExternalPtrTag(pointer) == Rf_install(kind)
               ? R_ExternalPtrAddr(pointer)
               : NULL;
}

static attn_model *model_of(SEXP pointer)
{
    attn_model *const model = (attn_model *)object_of(pointer, "attn_model");
    if (!model)
        Rf_error("the model is closed: open it again with attn_model()");
    return model;
}

/* A context with the number of threads that the model was opened with. */
static attn_ctx context_of(SEXP pointer)
{
    attn_ctx ctx = ATTN_ZERO;
    ctx.n_threads = Rf_asInteger(R_ExternalPtrProtected(pointer));
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

/* What a long call looks at, to be stopped: an attn_progress_fn, and an attn_hook_fn for every layer of a feed, with a
 * watch as `user`. The call then gives ATTN_STOPPED, and the caller frees what it holds and calls leave(). */
typedef struct watch {
    SEXP token; /* see is_interrupted */
    int interrupted;
} watch;

static int look(void *user)
{
    watch *const w = (watch *)user;
    return w->interrupted = w->interrupted || is_interrupted(w->token);
}

static int look_while_open(double done, void *user)
{
    (void)done;
    return look(user);
}

static int look_in_layer(const attn_activation *a, void *user)
{
    (void)a;
    return look(user);
}

static attn_status watch_session(attn_ctx *ctx, attn_session *session, watch *w)
{
    return attn_hook(ctx, NULL, session, "*hook_resid_pre", look_in_layer, w);
}

/* Ends a call that was interrupted or failed, as R has it. */
static void leave(const attn_ctx *ctx, const watch *w)
{
    if (w->interrupted)
        R_ContinueUnwind(w->token);
    if (ctx->status)
        stop_with(ctx);
}

static SEXP r_open(SEXP path, SEXP threads)
{
    SEXP pointer = PROTECT(R_MakeExternalPtr(NULL, Rf_install("attn_model"), threads));
    attn_ctx ctx = context_of(pointer);
    attn_model *model = NULL;
    attn_model_desc desc = ATTN_ZERO;
    watch w = {R_NilValue, 0};
    w.token = PROTECT(R_MakeUnwindCont());
    desc.progress_fn = look_while_open;
    desc.progress_user = &w;
    R_RegisterCFinalizerEx(pointer, close_model, TRUE);
    if (attn_model_open(&ctx, &model, R_ExpandFileName(Rf_translateChar(STRING_ELT(path, 0))),
                        &desc))
        leave(&ctx, &w);
    R_SetExternalPtrAddr(pointer, model);
    UNPROTECT(2);
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

/* The bytes of a string in UTF-8. What R would write as <e9>, because the session's encoding has no such
 * character, stays as it is: it is UTF-8 (read in the C locale), or will be refused. */
static const char *bytes_of(SEXP string)
{
    const char *const raw = CHAR(string), *translated, *at;
    int n = 0;
    if (Rf_getCharCE(string) == CE_BYTES || Rf_getCharCE(string) == CE_UTF8)
        return raw;
    translated = Rf_translateCharUTF8(string);
    for (at = raw; *at; at++)
        n -= *at == '<';
    for (at = translated; *at; at++)
        n += *at == '<';
    return n > 0 ? raw : translated;
}

/* A string of R. A zero byte, which it cannot hold, becomes U+2400. */
static SEXP string_of(const char *text, size_t size)
{
    char *const copy = R_alloc(3 * size + 1, 1);
    size_t i, n = 0;
    for (i = 0; i < size; i++) {
        memcpy(copy + n, text[i] ? text + i : "\xe2\x90\x80", text[i] ? 1 : 3);
        n += text[i] ? 1 : 3;
    }
    return Rf_mkCharLenCE(copy, (int)n, CE_UTF8);
}

/* The ids of a text, which messages call `name`. */
static SEXP r_encode(SEXP pointer, SEXP text, SEXP name)
{
    const attn_tokenizer *const t = attn_model_tokenizer(model_of(pointer));
    const char *const bytes = bytes_of(STRING_ELT(text, 0));
    attn_ctx ctx = context_of(pointer);
    size_t n = strlen(bytes), i, size, at = 0, end = utf8_end(bytes, n);
    attn_token *const ids = (int32_t *)R_alloc(n + 1, sizeof *ids);
    SEXP out;
    if (end < n)
        Rf_error("%s: the byte %02x is not UTF-8; %s", CHAR(STRING_ELT(name, 0)),
                 (unsigned)(unsigned char)bytes[end], cures[0][OF_R]);
    if (attn_encode(&ctx, ids, &n, t, bytes, n))
        stop_with(&ctx);
    out = PROTECT(Rf_allocVector(INTSXP, (R_xlen_t)n));
    for (i = 0; i < n; i++) {
        const char *const token = attn_token_bytes(&size, t, ids[i]);
        if (!token || strncmp(bytes + at, token, size) != 0)
            Rf_error("the model's vocabulary lacks a character of \"%.60s\"", bytes);
        at += size;
        INTEGER(out)[i] = ids[i];
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
        SET_STRING_ELT(out, i, string_of(text, used));
    }
    UNPROTECT(1);
    return out;
}

/* What happened. */
enum { DONE, REFUSED };

/* Feeds the n tokens of a text. `nll` takes the loss of each but the first, and `top` the likeliest after
 * the last. */
static int read_tokens(attn_ctx *ctx, attn_session *session, const attn_token *ids, size_t n,
                       attn_token_stats *nll, attn_top top)
{
    const size_t n_vocab = attn_model_config(attn_session_model(session))->n_vocab;
    float *const logits = (float *)R_alloc(CALLER_PASS * n_vocab, sizeof *logits);
    attn_feed_item item = ATTN_ZERO;
    size_t at, n_known;
    item.session = session;
    item.logits = logits;
    for (at = 0; at < n; at += item.n_tokens) {
        item.tokens = ids + at;
        item.n_tokens = n - at < CALLER_PASS ? n - at : CALLER_PASS;
        n_known = at + item.n_tokens < n ? item.n_tokens : item.n_tokens - 1;
        if (attn_feed_batch(ctx, &item, 1) ||
            (n_known &&
             attn_logit_stats(ctx, nll + at, NULL,
                              attn_borrow(logits, ATTN_F32, attn_shape2(n_known, n_vocab)),
                              ids + at + 1)))
            return REFUSED;
    }
    return attn_logit_stats(ctx, NULL, &top,
                            attn_borrow(logits + (item.n_tokens - 1) * n_vocab, ATTN_F32,
                                        attn_shape2(1, n_vocab)),
                            NULL)
               ? REFUSED
               : DONE;
}

/* A list of the losses of all tokens but the first, in nats, and of the `k` likeliest after the last, with
 * their probabilities. */
static SEXP r_score(SEXP pointer, SEXP ids, SEXP k)
{
    attn_model *const model = model_of(pointer);
    const size_t n = (size_t)XLENGTH(ids);
    attn_token_stats *const nll = (attn_token_stats *)R_alloc(n, sizeof *nll);
    SEXP out = PROTECT(Rf_allocVector(VECSXP, 3)), token = PROTECT(R_MakeUnwindCont());
    attn_ctx ctx = context_of(pointer);
    attn_session_desc desc = ATTN_ZERO;
    attn_session *session = NULL;
    attn_top top = ATTN_ZERO;
    watch w = {R_NilValue, 0};
    size_t i;
    int code;
    top.k = (size_t)Rf_asInteger(k);
    top.best = (attn_prediction *)R_alloc(top.k + 1, sizeof *top.best);
    SET_VECTOR_ELT(out, 0, Rf_allocVector(REALSXP, (R_xlen_t)n - 1));
    SET_VECTOR_ELT(out, 1, Rf_allocVector(INTSXP, (R_xlen_t)top.k));
    SET_VECTOR_ELT(out, 2, Rf_allocVector(REALSXP, (R_xlen_t)top.k));
    desc.n_ctx = n;
    desc.n_batch = CALLER_PASS;
    w.token = token;
    code = attn_session_new(&ctx, &session, model, &desc) || watch_session(&ctx, session, &w)
               ? REFUSED
               : read_tokens(&ctx, session, INTEGER(ids), n, nll, top);
    attn_session_free(session);
    if (code == REFUSED)
        leave(&ctx, &w);
    for (i = 0; i + 1 < n; i++)
        REAL(VECTOR_ELT(out, 0))[i] = (double)nll[i].nll;
    for (i = 0; i < top.k; i++) {
        INTEGER(VECTOR_ELT(out, 1))[i] = top.best[i].token;
        REAL(VECTOR_ELT(out, 2))[i] = (double)top.best[i].probability;
    }
    UNPROTECT(2);
    return out;
}

/* >> Surprisal: see tools/surprisal/columns.h. */

static surprisal_run *run_of(SEXP pointer)
{
    surprisal_run *const run = (surprisal_run *)object_of(pointer, "attn_surprisal");
    if (!run)
        Rf_error("the run is over");
    return run;
}

static void free_surprisal(SEXP pointer)
{
    lens_surprisal_free((surprisal_run *)object_of(pointer, "attn_surprisal"));
    R_ClearExternalPtr(pointer);
}

static SEXP r_surprisal_free(SEXP pointer)
{
    free_surprisal(pointer);
    return R_NilValue;
}

/* The strings of a vector, in memory of R's that lives as long as the call. */
static lens_strings strings_of(SEXP vector)
{
    const size_t n = vector == R_NilValue ? 0 : (size_t)XLENGTH(vector);
    uint64_t *const ends = (uint64_t *)R_alloc(n + 1, sizeof *ends);
    const char **const texts = (const char **)R_alloc(n + 1, sizeof *texts);
    lens_strings strings;
    size_t i, size = 0;
    char *bytes;
    for (i = 0; i < n; i++) {
        texts[i] = bytes_of(STRING_ELT(vector, (R_xlen_t)i));
        size += strlen(texts[i]);
        ends[i] = size;
    }
    bytes = R_alloc(size + 1, 1);
    for (i = 0; i < n; i++) {
        const size_t begin = i ? (size_t)ends[i - 1] : 0;
        memcpy(bytes + begin, texts[i], (size_t)ends[i] - begin);
    }
    strings.bytes = bytes;
    strings.ends = vector == R_NilValue ? NULL : ends;
    strings.n = n;
    return strings;
}

static const char *option_of(SEXP words, R_xlen_t i)
{
    return STRING_ELT(words, i) == NA_STRING ? NULL : bytes_of(STRING_ELT(words, i));
}

/* words, numbers: as take_lists() has them; names: of the columns of a data frame. Gives a run, and the numbers of the
 * columns of texts and of names. */
static SEXP r_surprisal(SEXP pointer, SEXP names, SEXP words, SEXP numbers)
{
    attn_model *const model = model_of(pointer);
    const char *list[N_WORDS];
    R_xlen_t i;
    const lens_strings columns = strings_of(names);
    SEXP out = PROTECT(Rf_allocVector(VECSXP, 2));
    SEXP of = R_MakeExternalPtr(NULL, Rf_install("attn_surprisal"), pointer);
    attn_ctx ctx = context_of(pointer);
    surprisal_options o = ATTN_ZERO;
    surprisal_run *run = NULL;
    SET_VECTOR_ELT(out, 0, of);
    SET_VECTOR_ELT(out, 1, Rf_allocVector(INTSXP, 2));
    R_RegisterCFinalizerEx(of, free_surprisal, TRUE);
    for (i = 0; i < N_WORDS; i++)
        list[i] = option_of(words, i);
    list[5] = STRING_ELT(words, 5) == NA_STRING
                  ? NULL
                  : R_ExpandFileName(Rf_translateChar(STRING_ELT(words, 5)));
    take_lists(&o, list, REAL(numbers));
    o.face = OF_R;
    if (lens_surprisal_new(&ctx, &run, model, &o, &columns))
        stop_with(&ctx);
    R_SetExternalPtrAddr(of, run);
    INTEGER(VECTOR_ELT(out, 1))[0] = (int)lens_surprisal_source(run, 0) + 1;
    INTEGER(VECTOR_ELT(out, 1))[1] = (int)lens_surprisal_source(run, 1) + 1;
    UNPROTECT(1);
    return out;
}

/* Takes the texts, and gives the notes. */
static SEXP r_surprisal_read(SEXP of, SEXP texts, SEXP lists)
{
    surprisal_run *const run = run_of(of);
    const lens_strings words = strings_of(texts), names = strings_of(lists);
    attn_ctx ctx = ATTN_ZERO;
    if (lens_surprisal_read(&ctx, run, &words, &names))
        stop_with(&ctx);
    return Rf_ScalarString(Rf_mkCharCE(lens_surprisal_notes(run), CE_UTF8));
}

/* Takes the file of a suite in place of texts. */
static SEXP r_surprisal_suite(SEXP of, SEXP path)
{
    surprisal_run *const run = run_of(of);
    attn_ctx ctx = ATTN_ZERO;
    if (lens_surprisal_suite(&ctx, run, R_ExpandFileName(Rf_translateChar(STRING_ELT(path, 0)))))
        stop_with(&ctx);
    return Rf_ScalarString(Rf_mkCharCE(lens_surprisal_notes(run), CE_UTF8));
}

/* Reads on, and gives the share that is read. */
static SEXP r_surprisal_pass(SEXP of)
{
    attn_ctx ctx = ATTN_ZERO;
    double done = 0;
    R_CheckUserInterrupt();
    if (lens_surprisal_pass(&ctx, run_of(of), &done))
        stop_with(&ctx);
    return Rf_ScalarReal(done);
}

static SEXP values_of(const lens_column *c)
{
    static const SEXPTYPE types[] = {INTSXP, REALSXP, STRSXP};
    SEXP out = PROTECT(Rf_allocVector(types[c->kind], (R_xlen_t)c->n));
    size_t i;
    for (i = 0; i < c->n; i++) {
        const int missing = ISNAN(c->numbers[i]);
        const size_t begin = c->kind == A_TEXT && i ? (size_t)c->ends[i - 1] : 0;
        if (c->kind == A_COUNT)
            INTEGER(out)[i] = missing ? NA_INTEGER : (int)c->numbers[i];
        else if (c->kind == A_NUMBER)
            REAL(out)[i] = missing ? NA_REAL : c->numbers[i];
        else
            SET_STRING_ELT(out, (R_xlen_t)i,
                           missing ? NA_STRING
                                   : string_of(c->bytes + begin, (size_t)c->ends[i] - begin));
    }
    UNPROTECT(1);
    return out;
}

/* A list of the columns of the result, and which columns of the data frame they are; 0: none of them. */
static SEXP r_surprisal_columns(SEXP of)
{
    const surprisal_run *const run = run_of(of);
    lens_column c;
    int n = 0, i;
    SEXP out = PROTECT(Rf_allocVector(VECSXP, 2)), columns, names;
    while (lens_surprisal_column(&c, run, (size_t)n))
        n++;
    SET_VECTOR_ELT(out, 0, columns = Rf_allocVector(VECSXP, n));
    SET_VECTOR_ELT(out, 1, Rf_allocVector(INTSXP, n));
    names = PROTECT(Rf_allocVector(STRSXP, n));
    for (i = 0; lens_surprisal_column(&c, run, (size_t)i); i++) {
        INTEGER(VECTOR_ELT(out, 1))[i] = c.kind == CARRIED ? (int)c.source + 1 : 0;
        SET_STRING_ELT(names, i, Rf_mkCharCE(c.name, CE_UTF8));
        if (c.kind != CARRIED)
            SET_VECTOR_ELT(columns, i, values_of(&c));
    }
    Rf_setAttrib(columns, R_NamesSymbol, names);
    UNPROTECT(2);
    return out;
}

/* The vectors of the rows, a matrix. */
static SEXP r_surprisal_vectors(SEXP of)
{
    lens_column c = ATTN_ZERO;
    size_t width, i, k;
    const float *const from = lens_surprisal_vectors(run_of(of), &width);
    SEXP out;
    lens_surprisal_column(&c, run_of(of), 0);
    out = PROTECT(Rf_allocMatrix(REALSXP, (int)c.n, (int)width));
    for (i = 0; i < c.n; i++)
        for (k = 0; k < width; k++)
            REAL(out)[k * c.n + i] = (double)from[i * width + k];
    UNPROTECT(1);
    return out;
}

/* A text that is being written. */
typedef struct writing {
    watch watch;
    char *text; /* [size]; NULL before the first piece, and freed by whoever made the struct */
    size_t size;
    int no_memory;
} writing;

static int take_piece(const char *text, size_t size, void *user)
{
    writing *const a = (writing *)user;
    char *const longer = (char *)realloc(a->text, a->size + size + 1);
    if (!longer) {
        a->no_memory = 1;
        return 1;
    }
    memcpy(longer + a->size, text, size);
    a->text = longer;
    a->size += size;
    return look(&a->watch);
}

/* All tokens of a prompt but the last, layer by layer, as a long one takes a large model many seconds. The hooks that
 * look at each layer go before the text is written, because a session with hooks has no drafts. */
static attn_status read_prompt(attn_ctx *ctx, attn_session *session, const attn_token *ids,
                               size_t n, watch *w)
{
    attn_status status = n > 1 ? watch_session(ctx, session, w) : ATTN_OK;
    if (n > 1 && status == ATTN_OK)
        status = attn_feed(ctx, session, ids, n - 1);
    attn_unhook_all(session);
    return status;
}

static SEXP r_generate(SEXP pointer, SEXP ids, SEXP how)
{
    attn_model *const model = model_of(pointer);
    attn_ctx ctx = context_of(pointer);
    attn_session *session = NULL;
    attn_session_desc room = ATTN_ZERO;
    attn_generate_desc desc = ATTN_ZERO;
    writing a = {{R_NilValue, 0}, NULL, 0, 0};
    const size_t n = (size_t)XLENGTH(ids), n_ctx = attn_model_config(model)->n_ctx;
    attn_status status;
    SEXP out;
    a.watch.token = PROTECT(R_MakeUnwindCont());
    desc.text_fn = take_piece;
    desc.text_user = &a;
    desc.prompt_tokens = n > 0 ? INTEGER(ids) + n - 1 : NULL;
    desc.n_prompt_tokens = n > 0;
    desc.max_tokens = (size_t)REAL(how)[0];
    desc.sampling.temperature = (float)REAL(how)[1];
    desc.sampling.top_k = (size_t)REAL(how)[2];
    desc.sampling.seed = (uint64_t)REAL(how)[3];
    room.n_ctx = n < n_ctx && desc.max_tokens < n_ctx - n ? n + desc.max_tokens : n_ctx;
    status = attn_session_new(&ctx, &session, model, &room);
    if (status == ATTN_OK)
        status = read_prompt(&ctx, session, INTEGER(ids), n, &a.watch);
    if (status == ATTN_OK)
        status = attn_generate(&ctx, NULL, session, NULL, &desc);
    attn_session_free(session);
    if (status != ATTN_OK || a.watch.interrupted || a.no_memory) {
        free(a.text);
        leave(&ctx, &a.watch);
        Rf_error("no memory for the text");
    }
    out = PROTECT(Rf_ScalarString(string_of(a.size ? a.text : "", a.size)));
    free(a.text);
    UNPROTECT(2);
    return out;
}

/* Where a pattern goes. */
typedef struct pattern_room {
    watch w;
    double *out;
} pattern_room;

/* An attn_hook_fn: copies a pattern [head, query, key] into an array [layer, head, query, key] of R, whose first
 * dimension is the fastest. */
static int keep_pattern(const attn_activation *a, void *user)
{
    double *const out = ((pattern_room *)user)->out;
    const attn_config *const c = attn_model_config(attn_session_model(a->session));
    const size_t n_layer = (size_t)c->n_layer, n_head = (size_t)c->n_head, n = a->value.shape[1];
    size_t h, q, k;
    for (h = 0; h < n_head; h++)
        for (q = 0; q < n; q++)
            for (k = 0; k < n; k++)
                out[(size_t)a->layer + n_layer * (h + n_head * (q + n * k))] =
                    attn_get3(a->value, h, q, k);
    return look(&((pattern_room *)user)->w);
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
    pattern_room room = {{R_NilValue, 0}, NULL};
    room.w.token = PROTECT(R_MakeUnwindCont());
    room.out = REAL(out);
    desc.n_ctx = desc.n_batch = n;
    if (attn_session_new(&ctx, &session, model, &desc) == ATTN_OK &&
        attn_hook(&ctx, NULL, session, "*hook_pattern", keep_pattern, &room) == ATTN_OK)
        attn_feed(&ctx, session, INTEGER(ids), n);
    attn_session_free(session);
    leave(&ctx, &room.w);
    UNPROTECT(2);
    return out;
}

static const R_CallMethodDef calls[] = {{"C_open", (DL_FUNC)&r_open, 2},
                                        {"C_config", (DL_FUNC)&r_config, 1},
                                        {"C_encode", (DL_FUNC)&r_encode, 3},
                                        {"C_decode", (DL_FUNC)&r_decode, 2},
                                        {"C_score", (DL_FUNC)&r_score, 3},
                                        {"C_surprisal", (DL_FUNC)&r_surprisal, 4},
                                        {"C_surprisal_read", (DL_FUNC)&r_surprisal_read, 3},
                                        {"C_surprisal_suite", (DL_FUNC)&r_surprisal_suite, 2},
                                        {"C_surprisal_pass", (DL_FUNC)&r_surprisal_pass, 1},
                                        {"C_surprisal_columns", (DL_FUNC)&r_surprisal_columns, 1},
                                        {"C_surprisal_vectors", (DL_FUNC)&r_surprisal_vectors, 1},
                                        {"C_surprisal_free", (DL_FUNC)&r_surprisal_free, 1},
                                        {"C_generate", (DL_FUNC)&r_generate, 3},
                                        {"C_attention", (DL_FUNC)&r_attention, 2},
                                        {NULL, NULL, 0}};

void R_init_attn(DllInfo *info)
{
    R_registerRoutines(info, NULL, calls, NULL, NULL);
    R_useDynamicSymbols(info, FALSE);
}
