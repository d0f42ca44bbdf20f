/* A valid argument for each parameter of each public function. calls.awk finds an ARG_ macro by function and
 * name, else by type and name, else by type, and the suite fails for a parameter that has none. So a new
 * function needs a line here only if it takes something new. The lists at the end say what may be NULL, and
 * which spoilt values have a meaning. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "tests/support/hooks.h"
#include "tests/support/shared_models.h"
#include "tools/write/model_file.h"

enum {
    N_TOKENS = 3,   /* in the sessions, and fed by a call */
    N_CTX = 16,     /* of the sessions */
    WIDTH = 4,      /* of most tensors: [WIDTH, WIDTH] */
    ROOM = 1 << 15, /* numbers in each buffer, more than any call here reads or writes */
    GUARD = 4096    /* bytes after what an output may have */
};

/* How a value is spoilt. */
typedef enum spoiling {
    SPOILT_ZERO = 1,  /* NULL, 0: forgotten */
    SPOILT_MORE = 2,  /* one more */
    SPOILT_LESS = 4,  /* all bits set: SIZE_MAX or -1 */
    SPOILT_WRAP = 8,  /* a number of floats whose bytes are 4 once more than can be counted */
    SPOILT_MOST = 16, /* INT32_MAX */
    SPOILT_NAN = 32,
    SPOILT_INFINITE = 64,
    SPOILT_GIVEN = 128, /* a pointer that was NULL is not */
    SPOILT_USUAL = 256  /* what 0 stands for */
} spoiling;

/* All structs that a call may take. They are as in `valid` before each call. */
typedef struct values {
    attn_ctx ctx;
    attn_tensor tensor, vector, ids, hidden, cache, out;
    attn_attention_desc attention;
    attn_block_weights block;
    attn_rng rng;
    attn_config config;
    attn_model_desc model_desc;
    attn_tensor caches[8]; /* two of each layer */
    attn_workspace_desc workspace_desc;
    attn_session_desc session_desc;
    attn_feed_item item;
    attn_token_stats stats[ROOM / 8];
    attn_top top;
    attn_sampler_desc sampling;
    attn_generate_desc generating;
    attn_generation generation;
    attn_continuation texts[1];
    attn_utf8 utf8;
    attn_record_desc recording;
    attn_edit edit;
    attn_model *new_model;
    attn_workspace *new_workspace;
    attn_session *new_session;
    attn_sampler *new_sampler;
    attn_generator *new_generator;
    attn_tokenizer *new_tokenizer;
    attn_record *new_record;
    attn_hook_id hook;
    attn_token token;
    size_t size, room;
} values;

static struct {
    values now, valid;
    meter meter;
    attn_workspace *workspace;
    attn_session *session, *pristine, *recorded, *empty; /* each has `tokens`, but empty */
    attn_sampler *sampler;
    attn_generator *stepped; /* of attn_generator_step */
    attn_record *record;
    attn_rng seeded;
    attn_token tokens[ROOM];
    const char *names[ROOM]; /* two patterns, then NULL */
    size_t rows[ROOM];
    float numbers[ROOM];                   /* zeros and ones */
    attn_prediction predictions[ROOM / 8]; /* outputs */
    float logits[ROOM], resid[ROOM];
    char text[ROOM];
    attn_token ids[ROOM], generated[ROOM];
    float log_probs[ROOM];
} the;

static inline attn_block_weights block_weights(void)
{
    const attn_tensor matrix = the.valid.tensor, vector = the.valid.vector;
    const attn_block_weights block = {2,      vector, vector, matrix, vector, matrix,
                                      vector, matrix, vector, matrix, vector, vector,
                                      vector, matrix, vector, matrix, vector};
    return block;
}

static inline int take_text(const char *text, size_t size, void *user)
{
    (void)text, (void)size, (void)user;
    return 0;
}
static inline int take_logits(float *logits, const attn_session *session, void *user)
{
    (void)logits, (void)session, (void)user;
    return 0;
}
static inline int take_progress(double done_, void *user)
{
    (void)done_, (void)user;
    return 0;
}

/* Every field has a value that is not zero where there is one that goes with the others. */
static inline void fill_structs(void)
{
    values *v = &the.valid;
    const size_t width = attn_model_config(tiny)->d_model, n_head = attn_model_config(tiny)->n_head;
    v->tensor = attn_borrow(the.numbers, ATTN_F32, attn_shape2(WIDTH, WIDTH));
    v->vector = attn_borrow(the.numbers, ATTN_F32, attn_shape1(WIDTH));
    v->ids = attn_borrow(the.tokens, ATTN_I32, attn_shape1(WIDTH));
    v->hidden = attn_borrow(the.numbers, ATTN_F32, attn_shape2(WIDTH, width));
    v->cache = attn_borrow(the.numbers, ATTN_F32, attn_shape3(N_TOKENS, n_head, width / n_head));
    for (size_t i = 0; i < 8; i++)
        v->caches[i] = v->cache;
    v->attention.mask_kind = ATTN_MASK_GIVEN;
    v->attention.mask = v->tensor;
    v->attention.scale = 0.5f;
    v->block = block_weights();
    v->rng = the.seeded;
    v->config = *attn_model_config(tiny);
    v->config.n_more_eos = 1;
    v->config.more_eos = the.tokens;
    v->model_desc.skip_checksums = 1;
    v->model_desc.progress_fn = take_progress;
    v->model_desc.progress_user = &the;
    v->workspace_desc.n_ctx = N_CTX;
    v->workspace_desc.n_batch = 8;
    v->session_desc.n_ctx = N_CTX;
    v->session_desc.cache_dtype = ATTN_F16;
    v->session_desc.workspace = the.workspace;
    v->item = item_of(the.session, the.tokens, N_TOKENS, the.logits);
    v->item.rows = the.rows;
    v->item.n_rows = 2;
    v->item.layers.end = attn_model_config(tiny)->n_layer;
    v->item.layers.resid = the.numbers;
    v->item.layers.resid_out = the.resid;
    v->top.best = the.predictions;
    v->top.k = 3;
    v->sampling.temperature = 0.8f;
    v->sampling.top_k = 5;
    v->sampling.top_p = 0.9f;
    v->sampling.min_p = 0.01f;
    v->sampling.repeat_penalty = 1.1f;
    v->sampling.repeat_last = 3;
    v->sampling.seed = 7;
    v->generating.sampling = v->sampling;
    v->generating.text_fn = take_text;
    v->generating.text_user = &the;
    v->generating.logits_fn = take_logits;
    v->generating.logits_user = &the;
    v->generating.max_tokens = 2;
    v->generating.ignore_eos = 1;
    v->generating.n_draft = 2;
    v->generating.stop_strings = the.names;
    v->generating.n_stop_strings = 2;
    v->generating.keep_stop = 1;
    v->generating.prompt_tokens = the.tokens;
    v->generating.n_prompt_tokens = N_TOKENS;
    v->generation.tokens = the.generated;
    v->generation.log_probs = the.log_probs;
    v->generation.room = 2;
    v->texts[0].prompt_tokens = the.tokens;
    v->texts[0].n_prompt_tokens = N_TOKENS;
    v->texts[0].text_fn = take_text;
    v->texts[0].text_user = &the;
    v->recording.names = the.names;
    v->recording.n_names = 2;
    v->recording.first = N_TOKENS;
    v->recording.n_positions = 2;
    v->edit.name = "blocks.1.hook_resid_pre";
    v->edit.kind = ATTN_EDIT_ADD;
    v->edit.first = 1;
    v->edit.count = WIDTH;
    v->edit.value = v->hidden;
    v->room = 2 * N_TOKENS;
    v->token = 1;
}

/* What a pointer that is NULL may be besides, by its type; NULL: nothing. */
static inline void *something(const char *type)
{
    static const int flag = 0;
    if (strcmp(type, "const attn_token *") == 0 || strcmp(type, "attn_token *") == 0)
        return the.tokens;
    if (strcmp(type, "const char *") == 0 || strcmp(type, "char *") == 0)
        return (void *)(uintptr_t) "a text";
    if (strcmp(type, "const float *") == 0 || strcmp(type, "float *") == 0)
        return the.logits;
    if (strcmp(type, "const int *") == 0)
        return (void *)(uintptr_t)&flag;
    if (strcmp(type, "attn_sampler *") == 0)
        return the.sampler;
    if (strcmp(type, "attn_workspace *") == 0)
        return the.workspace;
    return NULL;
}

/* ---- objects that a call frees ---- */

static inline attn_sampler *fresh_sampler(void)
{
    attn_sampler *sampler = NULL;
    OK(&the.now.ctx, attn_sampler_new(&the.now.ctx, &sampler, vocab_of(tiny), NULL));
    return sampler;
}
static inline attn_generator *fresh_generator(void)
{
    attn_generator *generator = NULL;
    attn_ctx ctx = the.valid.ctx;
    OK(&ctx, attn_generator_new(&ctx, &generator, the.session, "", &the.valid.generating));
    return generator;
}
static inline attn_generator *stepped_generator(void) /* free_objects frees it */
{
    attn_generator_free(the.stepped);
    return the.stepped = fresh_generator();
}
static inline attn_workspace *fresh_workspace(void)
{
    attn_workspace *workspace = NULL;
    OK(&the.now.ctx, attn_workspace_new(&the.now.ctx, &workspace, tiny, &the.valid.workspace_desc));
    return workspace;
}
static inline attn_session *fresh_session(void)
{
    attn_session *session = NULL;
    OK(&the.now.ctx, attn_session_new(&the.now.ctx, &session, tiny, &the.valid.session_desc));
    return session;
}
static inline attn_model *fresh_model(void)
{
    attn_model *model = NULL;
    OK(&the.now.ctx, attn_model_open(&the.now.ctx, &model, TEST_BUILD "/tiny-stories.attn",
                                     &the.valid.model_desc));
    return model;
}
static inline attn_tokenizer *fresh_tokenizer(void)
{
    attn_tokenizer *tokenizer = NULL;
    size_t size;
    const void *data = model_tokenizer_section(&size, tiny);
    OK(&the.now.ctx, attn_tokenizer_new(&the.now.ctx, &tokenizer, data, size));
    return tokenizer;
}
static inline attn_record *fresh_record(void)
{
    attn_record *record = NULL;
    OK(&the.now.ctx, attn_record_new(&the.now.ctx, &record, the.session, &the.valid.recording));
    return record;
}
static inline attn_tensor *fresh_tensor(void)
{
    memset(the.now.ctx.reserved, 0, sizeof the.now.ctx.reserved);
    OK(&the.now.ctx, attn_zeros(&the.now.ctx, &the.now.out, ATTN_F32, attn_shape1(WIDTH)));
    return &the.now.out;
}
static inline attn_hook_id fresh_hook(void)
{
    attn_hook_id id = 0;
    memset(the.now.ctx.reserved, 0, sizeof the.now.ctx.reserved);
    OK(&the.now.ctx, attn_hook(&the.now.ctx, &id, the.session, "hook_embed", do_nothing, NULL));
    return id;
}
static inline void task_for_nothing(size_t i, void *user)
{
    (void)i;
    (void)user;
}
static inline size_t tokenizer_size(void)
{
    size_t size;
    model_tokenizer_section(&size, tiny);
    return size;
}
static inline size_t model_size(void)
{
    size_t size;
    attn_model_bytes(&size, tiny);
    return size;
}

/* ---- arguments ---- */

/* clang-format off */
#define ARG_attn_ctx_p                  (&the.now.ctx)
#define ARG_attn_status                 ATTN_E_IO
#define ARG_attn_dtype                  ATTN_F32
#define ARG_attn_shape                  attn_shape2(WIDTH, WIDTH)
#define ARG_attn_mlp_act                ATTN_ACT_RELU
#define ARG_attn_stop_reason            ATTN_STOP_EOS
#define ARG_attn_cache_part             ATTN_CACHE_VALUES
#define ARG_attn_hook_fn                do_nothing
#define ARG_attn_task_fn                task_for_nothing
#define ARG_attn_hook_id                fresh_hook()
#define ARG_attn_hook_id_p              (&the.now.hook)
#define ARG_attn_token                  1
#define ARG_attn_token_p                the.tokens
#define ARG_attn_token_p__token          (&the.now.token)
#define ARG_int                         1
#define ARG_float                       0.5f
#define ARG_uint16_t                    0x3c00
#define ARG_uint64_t                    7
#define ARG_float_p                     the.numbers

#define ARG_size_t                      1
#define ARG_size_t__n_tokens             N_TOKENS
#define ARG_size_t__n_seen               N_TOKENS
#define ARG_size_t__n_vocab              vocab_of(tiny)
#define ARG_size_t__size                 N_TOKENS
#define ARG_size_t_p                    (&the.now.size)
#define ARG_size_t_p__n_tokens           (&the.now.room)
#define ARG_attn_decode__size            (&the.now.room)

#define ARG_char_p__text                 "one"
#define ARG_char_p__name                 "hook_embed"
#define ARG_char_p__pattern              "*"
#define ARG_char_p__format               "no argument"
#define ARG_char_p__what                 "a block"
#define ARG_char_p__bytes                "one"
#define ARG_char_p__path                 TEST_BUILD "/tiny-stories.attn"
#define ARG_char_p__prompt               NULL /* the descs have prompt_tokens */
#define ARG_attn_model_tensor__name      "embed.W_E"
#define ARG_attn_text_token__text        " the"
#define ARG_attn_utf8_push__text         the.text
#define ARG_attn_decode__text            the.text
#define ARG_attn_encode__tokens          the.ids
#define ARG_attn_encode_special__tokens  the.ids

#define ARG_void_p                      the.numbers
#define ARG_void_p__user                 NULL
#define ARG_attn_free__block             attn_alloc(&the.now.ctx, 1, 1, "a block")

#define ARG_attn_tensor                 the.now.tensor
#define ARG_attn_tensor_p               (&the.now.out)
#define ARG_attn_tensor_free__tensor     fresh_tensor()
#define ARG_attn_cross_entropy__targets  the.now.ids
#define ARG_attn_embedding__tokens       the.now.ids
#define ARG_attn_layernorm__w            the.now.vector
#define ARG_attn_layernorm__b            the.now.vector
#define ARG_attn_linear__bias            the.now.vector
#define ARG_attn_get1__x                 the.now.vector
#define ARG_attn_model_logits__normed    the.now.hidden
#define ARG_attn_model_logits__tokens    the.now.ids
#define ARG_attn_session_set_cache__first 0
#define ARG_attn_session_set_cache__value the.now.cache
#define ARG_attn_attention_desc_p       (&the.now.attention)
#define ARG_attn_block_weights_p        (&the.now.block)

#define ARG_attn_rng_p                  (&the.now.rng)
#define ARG_attn_config_p               (&the.now.config)
#define ARG_attn_utf8_p                 (&the.now.utf8)

#define ARG_attn_model_p                tiny
#define ARG_attn_model_p_p              (&the.now.new_model)
#define ARG_attn_model_close__model      fresh_model()
#define ARG_attn_model_desc_p           (&the.now.model_desc)
#define ARG_attn_model_open_memory__data attn_model_bytes(NULL, tiny)
#define ARG_attn_model_open_memory__size model_size()
#define ARG_attn_session_restore__cache  the.now.caches
#define ARG_attn_model_meta__key         "model.name"

#define ARG_attn_workspace_p            the.workspace
#define ARG_attn_workspace_p_p          (&the.now.new_workspace)
#define ARG_attn_workspace_free__workspace fresh_workspace()
#define ARG_attn_workspace_desc_p       (&the.now.workspace_desc)

#define ARG_attn_session_p              the.session
#define ARG_attn_session_p__from         the.pristine
#define ARG_attn_session_p_p            (&the.now.new_session)
#define ARG_attn_session_free__session   fresh_session()
#define ARG_attn_session_desc_p         (&the.now.session_desc)
#define ARG_attn_session_truncate__length (N_TOKENS - 1)
#define ARG_attn_feed_item_p            (&the.now.item)
#define ARG_attn_token_stats_p          the.now.stats
#define ARG_attn_top_p                  (&the.now.top)

#define ARG_attn_sampler_p              the.sampler
#define ARG_attn_sampler_p_p            (&the.now.new_sampler)
#define ARG_attn_sampler_free__sampler   fresh_sampler()
#define ARG_attn_sampler_desc_p         (&the.now.sampling)
#define ARG_attn_generator_p            stepped_generator()
#define ARG_attn_generator_free__generator fresh_generator()
#define ARG_attn_generator_p_p          (&the.now.new_generator)
#define ARG_attn_generate_desc_p        (&the.now.generating)
#define ARG_attn_generation_p           (&the.now.generation)
#define ARG_attn_continuation_p         the.now.texts
#define ARG_attn_generate_many__desc     for_many()

#define ARG_attn_tokenizer_p            attn_model_tokenizer(tiny)
#define ARG_attn_tokenizer_p_p          (&the.now.new_tokenizer)
#define ARG_attn_tokenizer_free__tokenizer fresh_tokenizer()
#define ARG_attn_tokenizer_new__data     model_tokenizer_section(NULL, tiny)
#define ARG_attn_tokenizer_new__size     tokenizer_size()

#define ARG_attn_record_p               the.record
#define ARG_attn_record_p_p             (&the.now.new_record)
#define ARG_attn_record_free__record     fresh_record()
#define ARG_attn_record_desc_p          (&the.now.recording)
#define ARG_attn_record_new__session the.empty
#define ARG_attn_edit_p                 (&the.now.edit)
/* clang-format on */

/* attn_generate_many has these in its texts. */
static inline const attn_generate_desc *for_many(void)
{
    attn_generate_desc *desc = &the.now.generating;
    desc->text_fn = NULL;
    desc->prompt_tokens = NULL;
    desc->n_prompt_tokens = 0;
    desc->workspace = the.workspace;
    return desc;
}

/* ---- exceptions ---- */

/* Values of a function and of a parameter or field; an asterisk at the end stands for any rest. */
typedef struct exception {
    const char *function, *value;
    unsigned how, used; /* used: which of these a call had */
} exception;

/* Pointers that may be NULL. */
static exception nullable[] = {
    {"*", "desc", SPOILT_ZERO, 0},
    {"*", "id", SPOILT_ZERO, 0},
    {"*", "user", SPOILT_ZERO, 0},
    {"*", "top", SPOILT_ZERO, 0},
    {"attn_score", "stats", SPOILT_ZERO, 0},
    {"attn_generate", "result", SPOILT_ZERO, 0},
    {"attn_generat*", "prompt", SPOILT_ZERO, 0},
    {"attn_session_restore", "logits", SPOILT_ZERO, 0},
    {"attn_logit_directions", "against", SPOILT_ZERO, 0},
    {"attn_alloc", "what", SPOILT_ZERO, 0},
    {"attn_model_bytes", "size", SPOILT_ZERO, 0},
    {"attn_token_bytes", "size", SPOILT_ZERO, 0},
};

/* Values that no function can check: what the allocator needs, and memory that is there as the call says. */
static exception trusted[] = {
    {"*", "ctx.alloc", SPOILT_ZERO, 0},
    {"*", "ctx.free", SPOILT_ZERO, 0},
    {"*", "ctx.user", SPOILT_ZERO, 0},
    {"*", "ctx.blocks", SPOILT_ZERO, 0},
    {"attn_tensor_free", "tensor.owned", SPOILT_ZERO, 0},
    {"attn_continuations_free", "n_texts", SPOILT_MORE | SPOILT_LESS | SPOILT_WRAP, 0},
    {"attn_continuations_free", "texts.t*", SPOILT_GIVEN, 0},
    {"attn_continuations_free", "texts.log_probs", SPOILT_GIVEN, 0},
    {"attn_mean_nll", "n_stats", SPOILT_LESS | SPOILT_WRAP, 0},
    {"attn_config_is_eos", "config.n_more_eos", SPOILT_LESS | SPOILT_WRAP, 0},
    {"attn_sample", "n_seen", SPOILT_LESS | SPOILT_WRAP, 0},
    {"attn_encode*", "size", SPOILT_LESS | SPOILT_WRAP, 0},
    {"attn_utf8_push", "size", SPOILT_LESS | SPOILT_WRAP, 0},
    {"*", "ctx.status", SPOILT_ZERO | SPOILT_LESS | SPOILT_MOST, 0},
    {"*", "*.stride[*", SPOILT_MORE | SPOILT_LESS | SPOILT_MOST, 0},
    {"attn_model_open_memory", "desc.takes_memory", SPOILT_MORE | SPOILT_LESS | SPOILT_MOST, 0},
    {"attn_model_open_memory", "size", SPOILT_LESS | SPOILT_WRAP, 0},
    {"attn_fail", "format", SPOILT_ZERO, 0},                  /* compilers warn of it */
    {"attn_parallel_for", "n", SPOILT_LESS | SPOILT_WRAP, 0}, /* so many calls */
};

enum {
    ANY_ENUM = SPOILT_LESS | SPOILT_MOST,
    ANY_INT = SPOILT_MORE | SPOILT_LESS | SPOILT_MOST,
    ANY_SIZE = SPOILT_MORE | SPOILT_LESS | SPOILT_WRAP,
    ANY_FLOAT = SPOILT_ZERO | SPOILT_LESS | SPOILT_NAN | SPOILT_INFINITE
};

/* Values with which a call succeeds. */
static exception meaningful[] = {
    /* a context: most calls look at no thread and at no kernel */
    {"*", "ctx.stop_flag", SPOILT_GIVEN, 0},
    {"*", "ctx.n_threads", SPOILT_ZERO | ANY_INT, 0},
    {"*", "ctx.isa", ANY_ENUM, 0},
    {"*", "ctx.reserved[*", SPOILT_MORE, 0},
    /* a tensor that is made, or replaced: only its ndim and error are read */
    {"*", "out.dtype", ANY_ENUM, 0},
    {"*", "out.shape[*", ANY_SIZE, 0},
    {"attn_cross_entropy", "nll.dtype", ANY_ENUM, 0},
    {"attn_cross_entropy", "nll.shape[*", ANY_SIZE, 0},
    {"attn_*_pattern", "pattern.dtype", ANY_ENUM, 0},
    {"attn_*_pattern", "pattern.shape[*", ANY_SIZE, 0},
    {"attn_logit_directions", "directions.dtype", ANY_ENUM, 0},
    {"attn_logit_directions", "directions.shape[*", ANY_SIZE, 0},
    {"attn_zeros", "out.ndim", ANY_INT, 0},
    {"attn_record_get", "out.ndim", ANY_ENUM, 0},
    {"attn_zeros", "out.error", SPOILT_GIVEN, 0},
    /* other shapes that fit, repeated rows, reasons of nothing */
    {"*", "*.error", SPOILT_GIVEN, 0},
    {"*", "*.shape[0]", SPOILT_ZERO | SPOILT_MORE, 0},
    {"*", "*.shape[1]", SPOILT_ZERO | SPOILT_MORE, 0},
    {"*", "*.stride[*", SPOILT_ZERO, 0},
    {"attn_*", "*.ndim", SPOILT_MORE, 0}, /* a vector is [4, 1], a matrix [4, 4, 1] */
    /* "a zeroed bias means none", "zeroed, they are 1 and 0" */
    {"attn_linear", "bias.ndim", SPOILT_ZERO, 0},
    {"attn_layernorm", "b.ndim", SPOILT_ZERO, 0},
    {"attn_layernorm", "w.ndim", SPOILT_ZERO, 0},
    {"attn_*", "w.b_*.ndim", SPOILT_ZERO, 0},
    {"attn_*", "w.ln*.ndim", SPOILT_ZERO, 0},
    {"attn_model_logits", "tokens.ndim", SPOILT_ZERO, 0}, /* a zeroed one: all tokens */
    /* weights that a function does not use */
    {"attn_multihead*", "w.*", SPOILT_ZERO | ANY_SIZE | SPOILT_MOST, 0},
    {"attn_mlp", "w.*", SPOILT_ZERO | ANY_SIZE | SPOILT_MOST, 0},
    /* numbers of which every one means something, and where 0 is the first or the usual one */
    {"attn_zeros", "shape.ndim", SPOILT_MORE, 0},
    {"attn_zeros", "shape.dim[*", SPOILT_ZERO | ANY_SIZE, 0},
    {"attn_scale", "factor", ANY_FLOAT, 0},
    {"*", "eps", ANY_FLOAT, 0},
    {"*", "desc.scale", ANY_FLOAT, 0},
    {"*", "desc.mask_kind", SPOILT_ZERO, 0},
    {"*", "act_fn", SPOILT_ZERO, 0},
    {"attn_apply_mlp_act", "kind", SPOILT_ZERO, 0},
    {"attn_variance", "unbiased", SPOILT_ZERO | ANY_INT, 0},
    {"attn_fail", "status", SPOILT_ZERO, 0},
    {"*", "part", SPOILT_ZERO, 0},
    {"*", "layer", SPOILT_ZERO | SPOILT_MORE, 0},
    {"*", "first", SPOILT_ZERO | SPOILT_MORE, 0},
    {"attn_session_truncate", "length", SPOILT_ZERO | SPOILT_MORE, 0},
    /* lengths: the arrays have one more, and none is a length where the comment does not ask for one */
    {"attn_*", "n_tokens", SPOILT_MORE, 0},
    {"attn_decode", "n_tokens", SPOILT_ZERO, 0},
    {"attn_encode*", "size", SPOILT_ZERO | SPOILT_MORE, 0},
    {"attn_logit_directions", "n", SPOILT_MORE, 0},
    {"attn_sampler_new", "n_vocab", SPOILT_MORE, 0},
    {"attn_sample", "n_seen", SPOILT_ZERO | SPOILT_MORE, 0},
    {"attn_parallel_for", "n", SPOILT_ZERO | SPOILT_MORE, 0},
    /* opening: "NULL, or called", 1 for anything but 0 */
    {"attn_model_open*", "desc.skip_checksums", SPOILT_ZERO | ANY_INT, 0},
    {"attn_model_open", "desc.takes_memory", ANY_INT, 0}, /* "of attn_model_open_memory" */
    {"attn_model_open*", "desc.progress_*", SPOILT_ZERO, 0},
    /* "0: the model's", "0: 256"; the session has a workspace, and makes none */
    {"attn_workspace_size", "desc.n_ctx", SPOILT_ZERO | SPOILT_MORE, 0},
    {"attn_workspace_new", "desc.n_ctx", SPOILT_ZERO | SPOILT_MORE, 0},
    {"attn_workspace_*", "desc.n_batch", SPOILT_ZERO | SPOILT_MORE, 0},
    {"attn_session_*", "desc.cache_dtype", SPOILT_ZERO, 0},
    {"attn_session_*", "desc.workspace", SPOILT_ZERO, 0},
    /* feeding: "end 0 means n_layer", "NULL: the embedding"; logits of no row */
    {"attn_feed_batch", "items.n_tokens", SPOILT_MORE, 0},
    {"attn_feed_batch", "items.n_rows", SPOILT_ZERO, 0},
    {"attn_feed_batch", "items.layers.end", SPOILT_ZERO, 0},
    {"attn_feed_batch", "items.layers.resid*", SPOILT_ZERO, 0},
    /* results are written, whatever is there */
    {"attn_*", "stats.*", ANY_SIZE | SPOILT_NAN | SPOILT_INFINITE, 0},
    {"attn_generat*", "result.n_*", ANY_SIZE, 0},
    {"attn_generat*", "result.which_stop", ANY_SIZE, 0},
    {"attn_generat*", "result.accepted", ANY_SIZE, 0},
    {"attn_generat*", "result.reason", ANY_ENUM, 0},
    {"attn_generate_many", "texts.size", ANY_SIZE, 0},
    {"attn_generate_many", "texts.n_tokens", ANY_SIZE, 0},
    {"attn_generate_many", "texts.which_stop", ANY_SIZE, 0},
    {"attn_generate_many", "texts.reason", ANY_ENUM, 0},
    {"*", "top.k", SPOILT_ZERO | SPOILT_MORE, 0}, /* none is a number of tokens */
    /* sampling: "0: greedy", "0: all", "0 or 1: none" */
    {"attn_sampler_new", "desc.top_k", SPOILT_ZERO | ANY_SIZE, 0},
    {"attn_sampler_new", "desc.repeat_last", SPOILT_ZERO | ANY_SIZE, 0},
    {"attn_sampler_new", "desc.seed", SPOILT_ZERO | ANY_SIZE, 0},
    {"attn_sampler_new", "desc.*p*", SPOILT_ZERO, 0},
    {"attn_generat*", "desc.sampling.top_k", SPOILT_ZERO | ANY_SIZE, 0},
    {"attn_generat*", "desc.sampling.repeat_last", SPOILT_ZERO | ANY_SIZE, 0},
    {"attn_generat*", "desc.sampling.seed", SPOILT_ZERO | ANY_SIZE, 0},
    {"attn_generat*", "desc.sampling.*p*", SPOILT_ZERO, 0},
    /* generating: "NULL, or", "0: 100", "0: 15" or at most that many, 1 for anything but 0 */
    {"attn_generat*", "result.tokens", SPOILT_ZERO, 0},
    {"attn_generat*", "result.log_probs", SPOILT_ZERO, 0},
    {"attn_generat*", "result.room", ANY_SIZE, 0},
    {"attn_generat*", "desc.*_user", SPOILT_ZERO, 0},
    {"attn_generat*", "desc.*_fn", SPOILT_ZERO, 0},
    {"attn_generate_many", "texts.text_*", SPOILT_ZERO, 0},
    {"attn_generate_many", "texts.n_prompt_tokens", SPOILT_MORE, 0},
    {"attn_generat*", "desc.max_tokens", SPOILT_MORE, 0},
    {"attn_generate", "desc.max_tokens", SPOILT_ZERO | SPOILT_LESS | SPOILT_WRAP, 0},
    {"attn_generat*", "desc.prepend_bos", ANY_INT, 0},
    {"attn_generat*", "desc.allow_special", ANY_INT, 0},
    {"attn_generat*", "desc.ignore_eos", SPOILT_ZERO | ANY_INT, 0},
    {"attn_generat*", "desc.no_draft", ANY_INT, 0},
    {"attn_generat*", "desc.keep_stop", SPOILT_ZERO | ANY_INT, 0},
    {"attn_generat*", "desc.n_draft", SPOILT_ZERO | ANY_SIZE, 0},
    {"attn_generat*", "desc.n_stop_strings", SPOILT_ZERO, 0},
    {"attn_generate", "desc.n_prompt_tokens", SPOILT_ZERO | SPOILT_MORE,
     0}, /* the session has tokens */
    {"attn_generator_new", "desc.max_tokens", SPOILT_ZERO | SPOILT_LESS | SPOILT_WRAP, 0},
    {"attn_generator_new", "desc.n_prompt_tokens", SPOILT_ZERO | SPOILT_MORE, 0},
    {"attn_generate_many", "desc.workspace", SPOILT_ZERO, 0},
    /* records and edits: "0: all", "the first" */
    {"attn_record_*", "desc.n_names", SPOILT_ZERO, 0},
    {"attn_record_size", "desc.first", SPOILT_ZERO | SPOILT_MORE, 0},
    {"attn_record_new", "desc.first", SPOILT_ZERO | SPOILT_MORE, 0},
    {"attn_record_*", "desc.n_positions", SPOILT_ZERO | SPOILT_MORE, 0},
    {"attn_record_size", "desc.memory_size", ANY_SIZE, 0},
    {"attn_hook_edit", "edit.kind", SPOILT_ZERO, 0},
    {"attn_hook_edit", "edit.first", SPOILT_ZERO | SPOILT_MORE, 0},
    {"attn_hook_edit", "edit.count", SPOILT_ZERO, 0},
};

/* What 0 stands for in a field, by its comment. */
static const struct {
    const char *function, *value;
    double usual;
} usual[] = {
    {"attn_attention", "desc.scale", 0.5}, /* 1 / sqrt(WIDTH) */
    {"attn_workspace_size", "desc.n_ctx", 256},
    {"attn_workspace_size", "desc.n_batch", 256},
    {"attn_feed_batch", "items.layers.end", 4},
    {"attn_generate", "desc.sampling.top_k", 2048},
    {"attn_generate", "desc.sampling.top_p", 1},
    {"attn_generate", "desc.sampling.repeat_penalty", 1},
    {"attn_generate", "desc.sampling.repeat_last", N_CTX},
    {"attn_generate", "desc.max_tokens", 100},
    {"attn_generate", "desc.n_draft", 15},
    {"attn_record_size", "desc.n_positions", 256 - N_TOKENS},
};

#endif
