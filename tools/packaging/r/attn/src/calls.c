/* The C functions of the R package: see the R functions that call them. The names of those that R does not call begin
 * with r_, as the programs that answer questions have names of their own. */
#include "tools/common/system.h"
#define ATTN_STATIC
#include "attn.h"
#define PROGRAM "attn"
#define INPUT   "text"
#include "tools/convert/asked.h"
#include "tools/convert/download.h"
#define OTHER_PROGRAMS &asked_convert, &asked_download,
#include "tools/waist/programs.h"
#include <R.h>
#include <R_ext/Rdynload.h>
#include <Rinternals.h>
#include <R_ext/GraphicsEngine.h> /* R_interrupts_pending */
#include <setjmp.h>

/* >> Pointers, failures, interrupts ============================================================ */

/* What a pointer of this package points to; `kind` is its tag. */
static void *r_object(SEXP pointer, const char *kind)
{
    void *const object =
        TYPEOF(pointer) == EXTPTRSXP && R_ExternalPtrTag(pointer) == Rf_install(kind)
            ? R_ExternalPtrAddr(pointer)
            : NULL;
    if (!object)
        Rf_error("the %s is closed, for it was made in another session of R: make it again", kind);
    return object;
}

/* A context with the number of threads that the model was opened with. Ctrl-C ends a call in the middle of a pass; where R
 * sees it later only, as Esc on Windows, r_look does after a layer or a batch. */
static attn_ctx r_context(SEXP pointer)
{
    attn_ctx ctx = ATTN_ZERO;
    ctx.stop_flag = &R_interrupts_pending;
    ctx.n_threads = TYPEOF(pointer) == LGLSXP ? 1 : Rf_asInteger(R_ExternalPtrProtected(pointer));
    return ctx;
}

static void r_close(SEXP pointer)
{
    attn_model_close((attn_model *)R_ExternalPtrAddr(pointer));
    R_ClearExternalPtr(pointer);
}

/* What a long call looks at, to be stopped: an attn_progress_fn, and an attn_hook_fn for every layer of a feed, with
 * this as `user`. The call then gives ATTN_STOPPED, and the caller frees what it holds and calls r_leave(). */
typedef struct r_watch {
    SEXP token, tell; /* tell: a function of R that gets the share that is done, or NULL */
    int interrupted;
    double done;
} r_watch;

/* For UNPROTECT(1). */
static r_watch r_watch_with(SEXP tell)
{
    r_watch w = {R_NilValue, tell, 0, 0};
    w.token = PROTECT(R_MakeUnwindCont());
    return w;
}

static SEXP r_check(void *user)
{
    const r_watch *const w = (const r_watch *)user;
    R_CheckUserInterrupt();
    if (w->tell != R_NilValue) {
        SEXP call = PROTECT(Rf_lang2(w->tell, Rf_ScalarReal(w->done)));
        Rf_eval(call, R_GlobalEnv);
        UNPROTECT(1);
    }
    return R_NilValue;
}

static void r_go_back(void *place, Rboolean is_jump)
{
    if (is_jump)
        longjmp(*(jmp_buf *)place, 1);
}

/* Did the person press Ctrl-C or Esc? Then R leaves this call: the caller frees what it holds, and lets
 * R go on with R_ContinueUnwind(token), which makes R's own condition "interrupt" of it. */
static int r_look(void *user)
{
    r_watch *const w = (r_watch *)user;
    jmp_buf place;
    if (w->interrupted || setjmp(place))
        return w->interrupted = 1;
    R_UnwindProtect(r_check, w, r_go_back, &place, w->token);
    return 0;
}

static int r_tell(double done, void *user)
{
    ((r_watch *)user)->done = done;
    return r_look(user);
}

static int r_look_in_layer(const attn_activation *a, void *user)
{
    (void)a;
    return r_look(user);
}

/* Ends a call that failed, as R has it. w: what looked, or NULL. The caller has freed what it holds. */
static void r_leave(const attn_ctx *ctx, const r_watch *w)
{
    if (w && w->interrupted)
        R_ContinueUnwind(w->token);
    if (ctx->status == ATTN_STOPPED)
        R_CheckUserInterrupt();
    if (ctx->status)
        Rf_error("%s", message_of(ctx));
}

/* >> Models ==================================================================================== */

/* A pointer to a model, and n_ctx, n_vocab, n_layer, n_head, bos and eos. */
static SEXP C_open(SEXP path, SEXP threads)
{
    SEXP out = PROTECT(Rf_allocVector(VECSXP, 2)), numbers;
    SEXP pointer = PROTECT(R_MakeExternalPtr(NULL, Rf_install("model"), threads));
    attn_ctx ctx = r_context(pointer);
    attn_model *model = NULL;
    attn_model_desc desc = ATTN_ZERO;
    r_watch w = r_watch_with(R_NilValue);
    desc.progress_fn = r_tell;
    desc.progress_user = &w;
    R_RegisterCFinalizerEx(pointer, r_close, TRUE);
    if (attn_model_open(&ctx, &model, R_ExpandFileName(Rf_translateChar(STRING_ELT(path, 0))),
                        &desc))
        r_leave(&ctx, &w);
    R_SetExternalPtrAddr(pointer, model);
    const attn_config *const c = attn_model_config(model);
    const int config[] = {(int)c->n_ctx,  (int)c->n_vocab, (int)c->n_layer,
                          (int)c->n_head, c->bos,          c->eos};
    SET_VECTOR_ELT(out, 0, pointer);
    SET_VECTOR_ELT(out, 1, numbers = Rf_allocVector(INTSXP, 6));
    memcpy(INTEGER(numbers), config, sizeof config);
    UNPROTECT(3);
    return out;
}

/* >> Texts ===================================================================================== */

/* A string of R. Bytes that are not UTF-8 become U+FFFD, and a zero, which it cannot hold, U+2400. */
static SEXP r_string(const char *bytes, size_t size)
{
    const void *const before = vmaxget();
    char *const whole = R_alloc(3 * (size + 8), 1), *const text = R_alloc(9 * (size + 8), 1);
    attn_utf8 state = {{0}, 0};
    size_t used = attn_utf8_push(whole, &state, bytes, size), n = 0;
    used += attn_utf8_push(whole + used, &state, "", 0);
    for (size_t i = 0; i < used; i++) {
        memcpy(text + n, whole[i] ? whole + i : "\xe2\x90\x80", whole[i] ? 1 : 3);
        n += whole[i] ? 1 : 3;
    }
    SEXP out = Rf_mkCharLenCE(text, (int)n, CE_UTF8);
    vmaxset(before);
    return out;
}

/* >> Generation ================================================================================ */

/* A text that is being written. */
typedef struct r_writing {
    r_watch watch;
    json_out text;
} r_writing;

static int r_take_piece(const char *text, size_t size, void *user)
{
    r_writing *const a = (r_writing *)user;
    out_bytes(&a->text, text, size);
    return a->text.failed || r_look(&a->watch);
}

/* All tokens of a prompt but the last, layer by layer, as a long one takes a large model many seconds. The hooks that
 * look at each layer go before the text is written, because a session with hooks has no drafts. */
static attn_status r_read_prompt(attn_ctx *ctx, attn_session *session, const attn_token *ids,
                                 size_t n, r_watch *w)
{
    attn_status status = attn_hook(ctx, NULL, session, "*hook_resid_pre", r_look_in_layer, w);
    if (n > 1 && status == ATTN_OK)
        status = attn_feed(ctx, session, ids, n - 1);
    attn_unhook_all(session);
    return status;
}

/* how: whether to begin with the beginning-of-text token, the most tokens, temperature, top_k and seed. */
static SEXP C_generate(SEXP pointer, SEXP prompt, SEXP how)
{
    attn_model *const model = r_object(pointer, "model");
    const attn_config *const c = attn_model_config(model);
    const char *const bytes = CHAR(STRING_ELT(prompt, 0));
    const size_t begins = REAL(how)[0] != 0, most = (size_t)REAL(how)[1];
    attn_token *const ids = (attn_token *)R_alloc(strlen(bytes) + 2, sizeof *ids);
    attn_ctx ctx = r_context(pointer);
    attn_session *session = NULL;
    attn_session_desc room = ATTN_ZERO;
    attn_generate_desc desc = ATTN_ZERO;
    r_writing a = {r_watch_with(R_NilValue), {NULL, 0, 0, 0, 0}};
    size_t n = strlen(bytes) + 1;
    ids[0] = c->bos;
    if (attn_encode(&ctx, ids + begins, &n, attn_model_tokenizer(model), bytes, strlen(bytes)))
        r_leave(&ctx, NULL);
    if ((n += begins) == 0)
        Rf_error("prompt: without bos it must have at least one token");
    if (n > c->n_ctx)
        Rf_error("the text has %ld tokens, but the context holds %ld", (long)n, (long)c->n_ctx);
    desc.text_fn = r_take_piece;
    desc.text_user = &a;
    desc.prompt_tokens = ids + n - 1;
    desc.n_prompt_tokens = 1;
    desc.max_tokens = most;
    desc.sampling.temperature = (float)REAL(how)[2];
    desc.sampling.top_k = (size_t)REAL(how)[3];
    desc.sampling.seed = (uint64_t)REAL(how)[4];
    room.n_ctx = most < c->n_ctx - n ? n + most : c->n_ctx;
    if (attn_session_new(&ctx, &session, model, &room) == ATTN_OK &&
        r_read_prompt(&ctx, session, ids, n, &a.watch) == ATTN_OK)
        attn_generate(&ctx, NULL, session, NULL, &desc);
    attn_session_free(session);
    if (ctx.status || a.watch.interrupted || a.text.failed) {
        out_free(&a.text);
        r_leave(&ctx, &a.watch);
        Rf_error("no memory for the text");
    }
    SEXP out = PROTECT(Rf_ScalarString(r_string(a.text.size ? a.text.text : "", a.text.size)));
    out_free(&a.text);
    UNPROTECT(2);
    return out;
}

/* >> Questions: see tools/waist/query.h ======================================================== */

static void r_free_query(SEXP pointer)
{
    lens_query_free((lens_query *)R_ExternalPtrAddr(pointer));
    R_ClearExternalPtr(pointer);
}

/* Gives a question a setting, or with n >= 0 a column of a table of n rows. value: token ids, or a list of the bytes of
 * texts, one behind another, and where each ends; NULL: a column of no texts. */
static attn_status r_give(attn_ctx *ctx, lens_query *q, const char *name, SEXP value, int n)
{
    if (TYPEOF(value) == INTSXP)
        return lens_query_ids(ctx, q, name, INTEGER(value), (size_t)XLENGTH(value));
    if (value == R_NilValue)
        return lens_query_input(ctx, q, name, NULL, NULL, (size_t)n);
    const char *const bytes = (const char *)RAW(VECTOR_ELT(value, 0));
    const double *const numbers = REAL(VECTOR_ELT(value, 1));
    const size_t n_texts = (size_t)XLENGTH(VECTOR_ELT(value, 1));
    uint64_t *const ends = (uint64_t *)R_alloc(n_texts + 1, sizeof *ends);
    for (size_t i = 0; i < n_texts; i++)
        ends[i] = (uint64_t)numbers[i];
    return (n < 0 ? lens_query_texts : lens_query_input)(ctx, q, name, bytes, ends, n_texts);
}

/* Asks, and gives a pointer to the answer. pointer: a model, or FALSE for a question that needs none. given: lists of names, of values, and of the rows of their table, for r_give. */
static SEXP C_ask(SEXP pointer, SEXP command, SEXP given, SEXP tell)
{
    SEXP names = VECTOR_ELT(given, 0), values = VECTOR_ELT(given, 1), rows = VECTOR_ELT(given, 2);
    attn_model *const model = TYPEOF(pointer) == LGLSXP ? NULL : r_object(pointer, "model");
    attn_ctx ctx = r_context(pointer);
    lens_query *q = NULL;
    SEXP out = PROTECT(R_MakeExternalPtr(NULL, Rf_install("answer"), pointer));
    r_watch w = r_watch_with(tell);
    R_RegisterCFinalizerEx(out, r_free_query, TRUE);
    if (lens_query_new(&ctx, &q, model, CHAR(STRING_ELT(command, 0)), LENS_FACE_R, 0))
        r_leave(&ctx, NULL);
    R_SetExternalPtrAddr(out, q);
    for (R_xlen_t i = 0; ctx.status == ATTN_OK && i < XLENGTH(names); i++)
        r_give(&ctx, q, CHAR(STRING_ELT(names, i)), VECTOR_ELT(values, i), INTEGER(rows)[i]);
    if (ctx.status || lens_query_run(&ctx, q, r_tell, &w)) {
        r_free_query(out);
        r_leave(&ctx, &w);
    }
    UNPROTECT(2);
    return out;
}

/* The values of a column; of one that the caller's table has, the numbers of its rows. */
static SEXP r_values(const lens_values *v)
{
    static const SEXPTYPE types[] = {REALSXP, INTSXP, LGLSXP,
                                     STRSXP,  STRSXP, INTSXP}; /* by lens_kind */
    SEXPTYPE type = types[v->kind];
    for (size_t i = 0; type == INTSXP && i < v->n; i++)
        type = fabs(v->numbers[i]) > INT_MAX ? REALSXP : INTSXP;
    SEXP out = PROTECT(Rf_allocVector(type, (R_xlen_t)v->n));
    for (size_t i = 0; i < v->n; i++) {
        const size_t begin = type == STRSXP && i ? (size_t)v->ends[i - 1] : 0;
        if (type == STRSXP)
            SET_STRING_ELT(out, (R_xlen_t)i,
                           v->is_missing[i]
                               ? NA_STRING
                               : r_string(v->bytes + begin, (size_t)v->ends[i] - begin));
        else if (type == REALSXP)
            REAL(out)[i] = ISNAN(v->numbers[i]) ? NA_REAL : v->numbers[i];
        else
            (type == INTSXP ? INTEGER(out) : LOGICAL(out))[i] =
                ISNAN(v->numbers[i]) ? NA_INTEGER : (int)v->numbers[i];
    }
    UNPROTECT(1);
    return out;
}

/* Table i of an answer: its name, the lengths of its axes, its columns and their names; of each column, its axis from 1, or
 * 0 if it has a value for each row, and its number in the caller's table from 1, or 0; whether it is an array: then columns
 * have their values by the places of their axis, or none, for rows are too many. NULL: there are fewer tables. */
static SEXP C_table(SEXP pointer, SEXP number)
{
    enum { MOST_ROWS = 1000000 };
    lens_query *const q = r_object(pointer, "answer");
    const size_t at = (size_t)Rf_asInteger(number);
    attn_ctx ctx = ATTN_ZERO;
    attn_tensor x;
    lens_table t;
    lens_values v;
    if (!lens_query_table(&t, q, at))
        return R_NilValue;
    const int is_array =
        t.is_dense || (t.n_rows > MOST_ROWS && lens_query_tensor(&x, q, at, t.n_columns - 1));
    SEXP out = PROTECT(Rf_allocVector(VECSXP, 6)), axes, columns, names, about;
    SET_VECTOR_ELT(out, 0, Rf_mkString(t.name));
    SET_VECTOR_ELT(out, 1, axes = Rf_allocVector(INTSXP, (R_xlen_t)t.n_axes));
    SET_VECTOR_ELT(out, 2, columns = Rf_allocVector(VECSXP, (R_xlen_t)t.n_columns));
    SET_VECTOR_ELT(out, 3, names = Rf_allocVector(STRSXP, (R_xlen_t)t.n_columns));
    SET_VECTOR_ELT(out, 4, about = Rf_allocMatrix(INTSXP, 2, (int)t.n_columns));
    SET_VECTOR_ELT(out, 5, Rf_ScalarLogical(is_array));
    for (size_t i = 0; i < t.n_axes; i++)
        INTEGER(axes)[i] = (int)t.axes[i];
    for (size_t i = 0; i < t.n_columns; i++) {
        if (!(is_array ? lens_query_about(&v, q, at, i) : lens_query_column(&ctx, &v, q, at, i)))
            r_leave(&ctx, NULL);
        if (is_array)
            v.n = v.numbers ? t.axes[v.axis] : 0;
        SET_VECTOR_ELT(columns, (R_xlen_t)i, r_values(&v));
        SET_STRING_ELT(names, (R_xlen_t)i, Rf_mkCharCE(v.name, CE_UTF8));
        INTEGER(about)[2 * i] = v.axis + 1;
        INTEGER(about)[2 * i + 1] = v.kind == LENS_CARRIED ? (int)v.source + 1 : 0;
    }
    UNPROTECT(1);
    return out;
}

/* The numbers of a tensor in row-major order. */
static SEXP C_tensor(SEXP pointer, SEXP table, SEXP column)
{
    attn_tensor x = ATTN_ZERO;
    R_xlen_t n = 1;
    if (!lens_query_tensor(&x, r_object(pointer, "answer"), (size_t)Rf_asInteger(table),
                           (size_t)Rf_asInteger(column)))
        Rf_error("this column has no numbers");
    for (int i = 0; i < x.ndim; i++)
        n *= (R_xlen_t)x.shape[i];
    SEXP out = Rf_allocVector(REALSXP, n);
    for (R_xlen_t i = 0; i < n; i++)
        REAL(out)[i] = answer_element(x, (size_t)i);
    return out;
}

/* Writes an answer in the form that the file's name ends in. */
static SEXP C_save(SEXP pointer, SEXP path)
{
    attn_ctx ctx = ATTN_ZERO;
    if (lens_query_save(&ctx, r_object(pointer, "answer"), CHAR(STRING_ELT(path, 0))))
        r_leave(&ctx, NULL);
    return R_NilValue;
}

static SEXP r_vector(const char *const *texts, int n)
{
    SEXP out = PROTECT(Rf_allocVector(STRSXP, n));
    for (int i = 0; i < n; i++)
        SET_STRING_ELT(out, i, Rf_mkCharCE(texts[i], CE_UTF8));
    UNPROTECT(1);
    return out;
}

/* Note i of an answer. NULL: there are fewer. */
static SEXP C_note(SEXP pointer, SEXP i)
{
    const char *const note = lens_query_note(r_object(pointer, "answer"), (size_t)Rf_asInteger(i));
    return note ? r_vector(&note, 1) : R_NilValue;
}

/* The name of command i, and what it is for. NULL: there are fewer. */
static SEXP C_command(SEXP i)
{
    const char *texts[2];
    texts[0] = lens_query_command((size_t)Rf_asInteger(i), &texts[1]);
    return texts[0] ? r_vector(texts, 2) : R_NilValue;
}

/* Of setting i of a command: its name, which word it is, its kind, what it takes, its default, its help. NULL: there are
 * fewer. */
static SEXP C_setting(SEXP command, SEXP i)
{
    lens_setting s;
    char word[16], kind[16];
    size_t size;
    if (!lens_query_setting(&s, CHAR(STRING_ELT(command, 0)), (size_t)Rf_asInteger(i)))
        return R_NilValue;
    const char *const of_kind = name_at(KIND_NAMES, s.kind, &size);
    const char *const texts[] = {s.name,
                                 word,
                                 s.is_file   ? "file"
                                 : s.is_many ? "texts"
                                             : kind,
                                 s.takes      ? s.takes
                                 : s.argument ? s.argument
                                              : "TRUE or FALSE",
                                 s.usual,
                                 s.help};
    snprintf(kind, sizeof kind, "%.*s", (int)size, of_kind);
    snprintf(word, sizeof word, "%d", s.word);
    return r_vector(texts, 6);
}

static const R_CallMethodDef r_calls[] = {
    {"C_open", (DL_FUNC)&C_open, 2},       {"C_generate", (DL_FUNC)&C_generate, 3},
    {"C_ask", (DL_FUNC)&C_ask, 4},         {"C_table", (DL_FUNC)&C_table, 2},
    {"C_tensor", (DL_FUNC)&C_tensor, 3},   {"C_save", (DL_FUNC)&C_save, 2},
    {"C_note", (DL_FUNC)&C_note, 2},       {"C_command", (DL_FUNC)&C_command, 1},
    {"C_setting", (DL_FUNC)&C_setting, 2}, {NULL, NULL, 0}};

void R_init_attn(DllInfo *info)
{
    R_registerRoutines(info, NULL, r_calls, NULL, NULL);
    R_useDynamicSymbols(info, FALSE);
}
