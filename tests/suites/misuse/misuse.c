/* What a program does wrong in a call, for every function of attn.h: NULL for each pointer, each field of
 * each struct forgotten or filled with rubbish, an old failure in the context, a call made twice. calls.awk
 * writes the calls from attn.h; arguments.h has what is valid, and what may be spoilt. */
#include "arguments.h"
#include <stddef.h>

SUITE_WITH_MODELS("tiny");

#define N(list) (sizeof(list) / sizeof *(list))

typedef enum kind { POINTER, UNSIGNED, SIGNED, ENUM, FLOAT, RESERVED, STRUCT } kind;
typedef enum returning { STATUS, NOTHING, ADDRESS, TENSOR, SHAPE, REAL, WHOLE } returning;

/* A field of a struct: "layers.first", "size_t". */
typedef struct place {
    const char *name, *type;
    size_t offset, size;
    kind is;
} place;

typedef struct argument {
    const char *name, *type;
    size_t size;
    kind is;
    const place *fields; /* of the struct that it is or points to */
    size_t n_fields;
} argument;

/* A call with one value spoilt, and what the function returned. */
typedef struct call {
    size_t at;          /* of this parameter; UNSPOILT: of none */
    const argument *of; /* the same */
    const place *field; /* a field of its struct; NULL: the parameter itself */
    spoiling how;
    double usual; /* of SPOILT_USUAL */
    int is_same;  /* 1: the valid value was this one already */
    attn_status status;
    const void *address;
    double number;
    int ndim;
} call;
#define UNSPOILT SIZE_MAX

typedef struct function {
    const char *name;
    void (*make)(call *c);
    returning returns;
    const argument *parameters;
    size_t n_parameters;
} function;

/* ---- how a value is spoilt ---- */

static int is_null(const call *c, size_t parameter)
{
    return c->at == parameter && !c->field && c->how == SPOILT_ZERO;
}

static uint64_t spoilt_number(uint64_t number, spoiling how)
{
    switch (how) {
    case SPOILT_ZERO:
        return 0;
    case SPOILT_MORE:
        return number + 1;
    case SPOILT_LESS:
        return UINT64_MAX; /* -1 of a signed number */
    case SPOILT_WRAP:
        return SIZE_MAX / 4 + 2;
    default:
        return INT32_MAX;
    }
}

static float spoilt_float(float number, spoiling how)
{
    return how == SPOILT_ZERO   ? 0
           : how == SPOILT_LESS ? -number - 1
           : how == SPOILT_NAN  ? NAN
                                : INFINITY;
}

static void put(void *to, size_t size, uint64_t number)
{
    const uint32_t word = (uint32_t)number;
    const uint16_t half = (uint16_t)number;
    const unsigned char byte = (unsigned char)number;
    memcpy(to,
           size == 1   ? &byte
           : size == 2 ? (const void *)&half
           : size == 4 ? (const void *)&word
                       : &number,
           size);
}

static uint64_t get(const void *from, size_t size)
{
    uint64_t number = 0;
    uint32_t word;
    if (size == 8)
        memcpy(&number, from, size);
    else if (size == 4) {
        memcpy(&word, from, size);
        number = word;
    }
    return number;
}

static void spoil_value(call *c, void *at, kind is, size_t size, const char *type)
{
    unsigned char before[sizeof(attn_tensor)];
    memcpy(before, at, size);
    if (is == POINTER) {
        void *const given = c->how == SPOILT_GIVEN && !get(at, size) ? something(type) : NULL;
        if (given || c->how == SPOILT_ZERO)
            memcpy(at, &given, size);
    } else if (is == FLOAT) {
        float number;
        memcpy(&number, at, sizeof number);
        number = c->how == SPOILT_USUAL ? (float)c->usual : spoilt_float(number, c->how);
        memcpy(at, &number, sizeof number);
    } else
        put(at, size,
            c->how == SPOILT_USUAL ? (uint64_t)c->usual : spoilt_number(get(at, size), c->how));
    c->is_same = memcmp(before, at, size) == 0;
}

/* Called for each argument before a call. itself: the argument, NULL for a struct; pointee: the struct
 * that it points to or is. */
static void spoil(call *c, size_t parameter, void *itself, void *pointee)
{
    if (c->at != parameter)
        return;
    if (c->field && pointee)
        spoil_value(c, (char *)pointee + c->field->offset, c->field->is, c->field->size,
                    c->field->type);
    else if (!c->field && itself && (c->of->is != POINTER || c->how == SPOILT_GIVEN))
        spoil_value(c, itself, c->of->is, c->of->size, c->of->type);
}

#define STATUS(value)  c->status = (value)
#define NOTHING(value) value
#define ADDRESS(value) c->address = (value)
#define TENSOR(value)  c->ndim = (value).ndim
#define SHAPE(value)   c->ndim = (value).ndim
#define REAL(value)    c->number = (double)(value)
#define WHOLE(value)   c->number = (double)(value)
#include "misuse_calls.h"

/* Which spoilings a value of this kind can have. */
static unsigned spoilings_of(kind is)
{
    switch (is) {
    case POINTER:
        return SPOILT_ZERO | SPOILT_GIVEN;
    case UNSIGNED:
        return SPOILT_ZERO | SPOILT_MORE | SPOILT_LESS | SPOILT_WRAP;
    case SIGNED:
        return SPOILT_ZERO | SPOILT_MORE | SPOILT_LESS | SPOILT_MOST;
    case ENUM:
        return SPOILT_ZERO | SPOILT_LESS | SPOILT_MOST;
    case FLOAT:
        return SPOILT_ZERO | SPOILT_LESS | SPOILT_NAN | SPOILT_INFINITE;
    case RESERVED:
        return SPOILT_MORE;
    default:
        return 0;
    }
}

static const char *spoilt_name(spoiling how)
{
    switch (how) {
    case SPOILT_ZERO:
        return "0";
    case SPOILT_MORE:
        return "one more";
    case SPOILT_LESS:
        return "-1";
    case SPOILT_WRAP:
        return "SIZE_MAX / 4 + 2";
    case SPOILT_MOST:
        return "INT32_MAX";
    case SPOILT_NAN:
        return "NaN";
    case SPOILT_INFINITE:
        return "infinity";
    case SPOILT_USUAL:
        return "the usual value";
    default:
        return "a pointer";
    }
}

/* ---- what is around a call ---- */

static const char old_message[] = "old.attn: cannot be read";

/* What may be written of each output, in bytes. The bytes after it stay as they were. */
static struct {
    void *output;
    size_t size;
    unsigned char after[GUARD];
} guards[7];

static void guard(size_t i, void *output, size_t size)
{
    guards[i].output = output;
    guards[i].size = size;
    memset((char *)output + size, 0x5A, GUARD);
    memset(guards[i].after, 0x5A, GUARD);
}

static void check_guards(const char *what)
{
    for (size_t i = 0; i < N(guards); i++) {
        void *const after = (char *)guards[i].output + guards[i].size;
        CHECKF(memcmp(after, guards[i].after, GUARD) == 0, "%s wrote behind output %d", what,
               (int)i);
        memcpy(after, guards[i].after, GUARD);
    }
}

static attn_session *new_session(void)
{
    attn_session *session = NULL;
    const attn_session_desc desc = {.n_ctx = N_CTX, .workspace = the.workspace};
    OK(&the.now.ctx, attn_session_new(&the.now.ctx, &session, tiny, &desc));
    OK(&the.now.ctx, attn_feed(&the.now.ctx, session, the.tokens, N_TOKENS));
    return session;
}

/* Before a case. */
static void begin(void)
{
    const attn_workspace_desc desc = {.n_ctx = N_CTX, .n_batch = 8};
    const size_t n_vocab = vocab_of(tiny);
    attn_ctx *ctx = &the.now.ctx;
    attn_record_desc all = {.names = the.names, .n_names = 1};
    memset(&the, 0, sizeof the);
    the.valid.ctx = metered(&the.meter);
    the.valid.ctx.n_threads = 1;
    the.now.ctx = the.valid.ctx;
    for (size_t i = 0; i < ROOM; i++) {
        the.tokens[i] = (attn_token)(1 + i % 3);
        the.numbers[i] = (float)(i % 2);
        the.rows[i] = i < 2 ? i * 2 : 99;
    }
    the.names[0] = "hook_embed", the.names[1] = "*.hook_resid_post";
    attn_rng_seed(&the.seeded, 1);
    OK(ctx, attn_workspace_new(ctx, &the.workspace, tiny, &desc));
    the.session = new_session();
    the.pristine = new_session();
    the.recorded = new_session();
    OK(ctx, attn_session_truncate(ctx, the.recorded, 0));
    the.empty = new_session();
    OK(ctx, attn_session_truncate(ctx, the.empty, 0));
    OK(ctx, attn_record_new(ctx, &the.record, the.recorded, &all));
    OK(ctx, attn_feed(ctx, the.recorded, the.tokens, N_TOKENS));
    fill_structs();
    OK(ctx, attn_sampler_new(ctx, &the.sampler, n_vocab, &the.valid.sampling));
    guard(0, the.logits, 2 * n_vocab * sizeof *the.logits);
    guard(1, the.resid, (N_TOKENS + 1) * attn_model_config(tiny)->d_model * sizeof *the.resid);
    guard(2, the.text, 3 * (N_TOKENS + 4));
    guard(3, the.ids, 2 * N_TOKENS * sizeof *the.ids);
    guard(4, the.predictions, WIDTH * WIDTH * sizeof *the.predictions);
    guard(5, the.generated, 2 * sizeof *the.generated);
    guard(6, the.log_probs, 2 * sizeof *the.log_probs);
}

/* All structs as they were, with an old failure in the context. */
static void make_valid(void)
{
    struct attn__allocation *const blocks = the.now.ctx.blocks;
    the.now = the.valid;
    the.now.ctx.blocks = blocks;
    the.now.ctx.status = ATTN_E_IO;
    memcpy(the.now.ctx.message, old_message, sizeof old_message);
}

/* New objects are where only a pointer shows them. */
static void free_objects(void)
{
    attn_model_close(the.now.new_model);
    attn_session_free(the.now.new_session);
    attn_workspace_free(the.now.new_workspace);
    attn_sampler_free(the.now.new_sampler);
    attn_generator_free(the.now.new_generator);
    attn_generator_free(the.stepped);
    attn_tokenizer_free(the.now.new_tokenizer);
    attn_record_free(the.now.new_record);
    the.now.new_model = NULL;
    the.now.new_session = NULL;
    the.now.new_workspace = NULL;
    the.now.new_sampler = NULL;
    the.now.new_generator = the.stepped = NULL;
    the.now.new_tokenizer = NULL;
    the.now.new_record = NULL;
}

static void free_results(void)
{
    attn_tensor_free(&the.now.ctx, &the.now.out);
    attn_continuations_free(the.now.texts, 1);
    free_objects();
}

/* The session as it was. */
static void renew_session(void)
{
    attn_ctx *ctx = &the.now.ctx;
    attn_unhook_all(the.session);
    OK(ctx, attn_session_set_workspace(ctx, the.session, the.workspace));
    OK(ctx, attn_session_copy(ctx, the.session, the.pristine));
}

static int is_session_unchanged(void)
{
    const float *const logits = attn_session_logits(the.session);
    return attn_session_length(the.session) == N_TOKENS && logits &&
           memcmp(attn_session_tokens(the.session), the.tokens, N_TOKENS * sizeof *the.tokens) ==
               0 &&
           !differ(logits, attn_session_logits(the.pristine), vocab_of(tiny));
}

static void end(void)
{
    make_valid();
    attn_record_free(the.record);
    attn_session_free(the.session);
    attn_session_free(the.pristine);
    attn_session_free(the.recorded);
    attn_session_free(the.empty);
    attn_sampler_free(the.sampler);
    attn_workspace_free(the.workspace);
    CHECKF(!the.now.ctx.blocks, "a tensor is left");
    CHECKF(the.meter.live == 0 && the.meter.wrong == 0, "%ld blocks are left", the.meter.live);
    attn_ctx_free(&the.now.ctx);
}

/* ---- one call ---- */

/* "tokens", or "items.layers.first" for a field. */
static const char *value_name(const call *c)
{
    static char text[100];
    snprintf(text, sizeof text, "%s%s%s", c->of->name, c->field ? "." : "",
             c->field ? c->field->name : "");
    return text;
}

/* "attn_feed_batch with items.n_rows = 0". */
static const char *title(const function *f, const call *c)
{
    static char text[200];
    if (c->at == UNSPOILT)
        return f->name;
    snprintf(text, sizeof text, "%s with %s = %s", f->name, value_name(c), spoilt_name(c->how));
    return text;
}

/* An asterisk stands for any characters. */
static int is_like(const char *pattern, const char *name)
{
    if (*pattern != '*')
        return *pattern == *name && (!*name || is_like(pattern + 1, name + 1));
    return is_like(pattern + 1, name) || (*name && is_like(pattern, name + 1));
}

/* Is the value of this call in the list? Marks the rows that say so. */
static int is_listed(exception *list, size_t n, const function *f, const call *c)
{
    int found = 0;
    for (size_t i = 0; i < n; i++)
        if (is_like(list[i].function, f->name) && (list[i].how & c->how) &&
            is_like(list[i].value, value_name(c)))
            list[i].used |= c->how, found = 1;
    return found;
}

/* What holds for the status of every call. */
static void check_status(const function *f, const call *c)
{
    const attn_ctx *ctx = &the.now.ctx;
    if (strcmp(f->name, "attn_fail") == 0)
        return;
    if (c->status == ATTN_OK || c->status == ATTN_STOPPED) {
        CHECKF(strcmp(ctx->message, old_message) == 0 && ctx->status == ATTN_E_IO,
               "%s: a success changed the latest failure: %s", title(f, c), ctx->message);
        return;
    }
    CHECKF(ctx->status == c->status, "%s: returned %s, the context has %s", title(f, c),
           attn_status_name(c->status), attn_status_name(ctx->status));
    CHECKF(ctx->message[0] && strncmp(ctx->message, old_message, 8) != 0,
           "%s: failed with the message of an earlier call: %s", title(f, c), ctx->message);
}

/* Makes the call, with what holds for every one. 1 if it succeeded. */
static int make(const function *f, call *c)
{
    printf("%s\n", title(f, c));
    fflush(stdout);
    f->make(c);
    if (f->returns == STATUS)
        check_status(f, c);
    check_guards(title(f, c));
    if (strcmp(f->name, "attn_alloc") == 0)
        attn_free((void *)(uintptr_t)c->address);
    return f->returns != STATUS || c->status == ATTN_OK || c->status == ATTN_STOPPED;
}

static void finish(const function *f, const call *c, int succeeded)
{
    const int changed = !is_session_unchanged();
    if (succeeded)
        free_results();
    else
        free_objects();
    if (!succeeded)
        CHECKF(!changed || strncmp(f->name, "attn_generat", 12) == 0,
               "%s: failed, and changed the session", title(f, c));
    make_valid();
    attn_unhook_all(the.session);
    attn_unhook_all(the.empty);
    if (succeeded || changed)
        renew_session();
    make_valid();
}

static call unspoilt(void)
{
    call c = {.at = UNSPOILT};
    return c;
}

static void make_spoilt(const function *f, size_t at, const place *field, spoiling how)
{
    call c = unspoilt();
    c.at = at;
    c.of = &f->parameters[at];
    c.field = field;
    c.how = how;
    if (is_listed(trusted, N(trusted), f, &c))
        return;
    int succeeded = make(f, &c);
    if (f->returns == STATUS && succeeded && !c.is_same)
        CHECKF(is_listed(meaningful, N(meaningful), f, &c),
               "%s: succeeded; expected a failure, or a row of `meaningful` in arguments.h",
               title(f, &c));
    finish(f, &c, succeeded);
}

static void make_null(const function *f, size_t at)
{
    call c = unspoilt();
    c.at = at;
    c.of = &f->parameters[at];
    c.how = SPOILT_ZERO;
    if (is_listed(trusted, N(trusted), f, &c))
        return;
    int may_be_null = is_listed(nullable, N(nullable), f, &c);
    int succeeded = make(f, &c);
    if (may_be_null)
        CHECKF(succeeded, "%s: %s", title(f, &c), the.now.ctx.message);
    else if (f->returns == STATUS)
        CHECKF(c.status == ATTN_E_ARGUMENT ||
                   (c.status == ATTN_E_TOKENIZER && strcmp(c.of->name, "tokenizer") == 0),
               "%s: returned %s; expected ATTN_E_ARGUMENT: %s", title(f, &c),
               attn_status_name(c.status), the.now.ctx.message);
    else if (f->returns == REAL)
        CHECKF(!(c.number != 0) || isnan(c.number), "%s: expected 0 or NaN", title(f, &c));
    else
        CHECKF(!c.address && c.number == 0 && c.ndim == 0, "%s: expected NULL or 0", title(f, &c));
    finish(f, &c, succeeded);
}

static void all_used(const exception *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        CHECKF(list[i].used == list[i].how, "%s: the row %s, %s is not needed (%x of %x)", name,
               list[i].function, list[i].value, list[i].used, list[i].how);
}

static void for_every_function(void (*body)(const function *f))
{
    begin();
    make_valid();
    for (size_t i = 0; i < N(functions); i++)
        if (functions[i].make)
            body(&functions[i]);
    end();
}

/* ---- cases ---- */

TEST(every_parameter_has_an_argument)
{
    size_t i;
    for (i = 0; no_argument[i]; i++)
        test_fail(__FILE__, __LINE__, "%s: see tests/suites/misuse/arguments.h", no_argument[i]);
    EQUAL(i, 0);
}

/* The second call gets the outputs of the first. */
static void call_twice(const function *f)
{
    const long live = the.meter.live;
    for (int again = 0; again < 2; again++) {
        call c = unspoilt();
        const int succeeded = make(f, &c);
        CHECKF(succeeded || strcmp(f->name, "attn_fail") == 0 ||
                   (again && strcmp(f->name, "attn_generate_many") == 0),
               "%s, call %d: %s", f->name, again + 1, the.now.ctx.message);
        free_objects();
    }
    free_results();
    if (strcmp(f->name, "attn_zeros") == 0) /* makes a new one, and the context has the first */
        attn_ctx_free(&the.now.ctx);
    make_valid();
    attn_unhook_all(the.empty);
    renew_session();
    make_valid();
    CHECKF(the.meter.live == live && the.meter.wrong == 0, "%s: %ld blocks are left", f->name,
           the.meter.live - live);
}

TEST(each_call_twice)
{
    for_every_function(call_twice);
}

static void call_with_null(const function *f)
{
    const long live = the.meter.live;
    call c = unspoilt();
    for (size_t i = 0; i < f->n_parameters; i++)
        if (f->parameters[i].is == POINTER && strcmp(f->parameters[i].name, "ctx") != 0)
            make_null(f, i);
    finish(f, &c, make(f, &c)); /* and nothing is broken */
    CHECKF(the.meter.live == live && the.meter.wrong == 0, "%s: %ld blocks are left", f->name,
           the.meter.live - live);
}

TEST(null_for_each_pointer)
{
    for_every_function(call_with_null);
    all_used(nullable, N(nullable), "nullable");
}

static void call_with_spoilt(const function *f)
{
    const long live = the.meter.live;
    for (size_t i = 0; i < f->n_parameters; i++)
        for (unsigned how = 1; how <= SPOILT_GIVEN; how <<= 1) {
            const argument *p = &f->parameters[i];
            if (spoilings_of(p->is) & how && !(p->is == POINTER && how == SPOILT_ZERO))
                make_spoilt(f, i, NULL, (spoiling)how);
            for (size_t k = 0; k < p->n_fields; k++)
                if (spoilings_of(p->fields[k].is) & how)
                    make_spoilt(f, i, &p->fields[k], (spoiling)how);
        }
    CHECKF(the.meter.live == live && the.meter.wrong == 0, "%s: %ld blocks are left", f->name,
           the.meter.live - live);
}

TEST(each_value_spoilt)
{
    for_every_function(call_with_spoilt);
    all_used(trusted, N(trusted), "trusted");
    all_used(meaningful, N(meaningful), "meaningful");
}

/* The parameter and field of this name. */
static int find(call *c, const function *f, const char *value)
{
    for (c->at = 0; c->at < f->n_parameters; c->at++) {
        c->of = &f->parameters[c->at];
        for (size_t k = 0; k < c->of->n_fields; k++) {
            c->field = &c->of->fields[k];
            if (strcmp(value_name(c), value) == 0)
                return 1;
        }
    }
    return 0;
}

/* What a call left: numbers of all outputs. */
static uint64_t digest(const void *bytes, size_t size, uint64_t sum)
{
    const unsigned char *at = (const unsigned char *)bytes;
    while (size-- > 0)
        sum = (sum ^ *at++) * 1099511628211u;
    return sum;
}

static uint64_t outputs_with(const function *f, const char *value, spoiling how, double usual_value)
{
    call c = unspoilt();
    uint64_t sum = 0;
    if (!CHECKF(find(&c, f, value), "%s has no %s", f->name, value))
        return 0;
    c.how = how;
    c.usual = usual_value;
    CHECKF(make(f, &c), "%s: %s", title(f, &c), the.now.ctx.message);
    for (size_t i = 0; i < N(guards); i++)
        sum = digest(guards[i].output, guards[i].size, sum);
    sum = digest(&the.now.size, sizeof the.now.size, sum);
    sum = digest(the.now.out.data, attn_count(the.now.out) * sizeof(float), sum);
    sum = digest(&the.now.generation.n_tokens, sizeof(size_t), sum);
    finish(f, &c, 1);
    return sum;
}

TEST(zero_is_the_usual_value)
{
    size_t k;
    begin();
    make_valid();
    for (size_t i = 0; i < N(usual); i++) {
        for (k = 0; k < N(functions) && strcmp(functions[k].name, usual[i].function) != 0; k++)
            ;
        if (CHECKF(k < N(functions), "attn.h has no %s", usual[i].function))
            CHECKF(outputs_with(&functions[k], usual[i].value, SPOILT_ZERO, 0) ==
                       outputs_with(&functions[k], usual[i].value, SPOILT_USUAL, usual[i].usual),
                   "%s: %s = 0 is not %g", usual[i].function, usual[i].value, usual[i].usual);
    }
    memset(&the.now.rng, 0, sizeof the.now.rng);
    attn_rng_seed(&the.seeded, 0);
    for (size_t i = 0; i < 1000; i++)
        CHECK(attn_rng_u32(&the.now.rng) == attn_rng_u32(&the.seeded));
    end();
}
