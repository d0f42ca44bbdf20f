/* What fails at the worst moment. Every function of the library that returns a status runs with its
 * first allocation failing, then the second, ... (the list is checked against attn.h, so that none
 * is left out). The programs run with each of their calls of the system failing in turn (faults.c):
 * they end with a message, or as if nothing had been. */
#include "tests/support/test.h"
#include "tools/lens/logits.h"
#include "tools/lens/process_weights.h"
#include "tools/lens/save.h"
#include "tests/support/models.h"
#include "tests/support/command.h"
#include <errno.h>
#include <dirent.h>
#include <sys/stat.h>

SUITE();

/* ---- the library: no memory ---- */

static attn_model *model;      /* tests/golden/long: 40 tokens, 20 wide, 2 heads, one layer */
static attn_tensor cached[16]; /* keys and values of HELD tokens */
static attn_session *held, *other, *watched; /* 4 tokens, none, 4 tokens that a record saw */
static attn_session *teller;                 /* of the included model */
static attn_tokenizer *tokenizer;            /* of the included model */
static attn_model *stories;
static const int32_t tokens[8] = {3, 1, 4, 1, 5, 3, 1, 4};
static attn_tensor x4, x3, sq, vec, ids, qkv, pattern, z, post, scale, resid; /* inputs */
static attn_block_weights block;
static attn_rng rng;
static attn_record *record;
static attn_record_desc recorded, recorded_here, recorded_nowhere; /* the last: a size alone */
static attn_edit edit;
static attn_tensor ids3;
enum { HELD = 4 };
static float next_logits[40]; /* after tokens[HELD] */

static void prepare(attn_ctx *ctx)
{
    static const char *const names[] = {"*hook_z"};
    const size_t t[] = {6};
    /* layouts that are not dense, so that copies are needed */
    x4 = laid_out(random_tensor(4, 2, 3, 5, 20), ATTN_F16, LAYOUT_COLUMNS);
    x3 = laid_out(random_tensor(2, 6, 20), ATTN_F32, LAYOUT_SWAPPED);
    sq = laid_out(random_tensor(2, 20, 20), ATTN_F32, LAYOUT_COLUMNS);
    vec = laid_out(random_tensor(1, 20), ATTN_F32, LAYOUT_EVERY_2);
    qkv = laid_out(random_tensor(3, 2, 6, 10), ATTN_F32, LAYOUT_SWAPPED);
    pattern = laid_out(random_tensor(3, 2, 6, 6), ATTN_F32, LAYOUT_SWAPPED);
    z = laid_out(random_tensor(3, 6, 2, 10), ATTN_F32, LAYOUT_COLUMNS);
    post = laid_out(random_tensor(2, 6, 24), ATTN_F32, LAYOUT_SWAPPED);
    scale = laid_out(random_tensor(2, 6, 1), ATTN_F32, LAYOUT_EVERY_2);
    resid = laid_out(random_tensor(3, 2, 6, 20), ATTN_F32, LAYOUT_SWAPPED);
    ids = new_tensor(ATTN_I32, 1, t, LAYOUT_EVERY_2);
    for (int i = 0; i < 6; i++)
        ((int32_t *)ids.data)[2 * i] = i;
    for (int i = 0; i < 20; i++)
        set_value(vec, (size_t)i, 1.5f);
    memset(&block, 0, sizeof block);
    block.n_head = 2;
    block.w_q = block.w_k = block.w_v = block.w_o = block.w_in = block.w_out = sq;
    block.ln1_w = block.ln2_w = block.b_o = vec;
    attn_rng_seed(&rng, 1);
    OK(ctx, attn_model_open(ctx, &model, TEST_BUILD "/fuzz/long.attn", NULL));
    OK(ctx, attn_model_open(ctx, &stories, TEST_BUILD "/tiny-stories.attn", NULL));
    OK(ctx, attn_session_new(ctx, &held, model, NULL));
    OK(ctx, attn_session_new(ctx, &other, model, NULL));
    OK(ctx, attn_session_new(ctx, &watched, model, NULL));
    OK(ctx, attn_session_new(ctx, &teller, stories, NULL));
    recorded.names = names;
    recorded.n_names = 1;
    recorded.n_positions = HELD;
    recorded_here = recorded_nowhere = recorded;
    OK(ctx, attn_record_size(ctx, &recorded_here.memory_size, model, &recorded));
    recorded_nowhere.memory_size = recorded_here.memory_size;
    recorded_here.memory = pool_new(recorded_here.memory_size);
    OK(ctx, attn_record_new(ctx, &record, watched, &recorded_here));
    OK(ctx, attn_feed(ctx, watched, tokens, HELD));
    edit.name = "*hook_z";
    edit.kind = ATTN_EDIT_MEAN;
    edit.value = random_tensor(3, 3, 2, 10);
    ids3 = attn_borrow(tokens, ATTN_I32, attn_shape1(3));
    for (int i = 0; i < 2 * (int)attn_model_config(model)->n_layer; i++)
        cached[i] = random_tensor(3, HELD, 2, 10);
}

/* `held` as each call finds it, and `other` without a token, but with what others left behind. */
static void fill(attn_ctx *ctx)
{
    OK(ctx, attn_session_truncate(ctx, other, 0));
    OK(ctx, attn_feed(ctx, other, tokens + 1, HELD));
    OK(ctx, attn_session_truncate(ctx, other, 0));
    OK(ctx, attn_session_truncate(ctx, teller, 0));
    OK(ctx, attn_session_truncate(ctx, held, 0));
    OK(ctx, attn_feed(ctx, held, tokens, HELD));
}

/* Does the session hold the first HELD tokens? What follows them shows it. */
static void holds(attn_ctx *ctx, attn_session *session, const char *what)
{
    if (CHECKF(attn_session_length(session) == HELD, "%s: %lu tokens, expected %d", what,
               (unsigned long)attn_session_length(session), (int)HELD) &&
        OK(ctx, attn_feed(ctx, session, tokens + HELD, 1)))
        CHECKF(memcmp(attn_session_logits(session), next_logits, sizeof next_logits) == 0,
               "%s: other logits follow", what);
}

/* What a call may make; all of it is freed afterwards. */
typedef struct scratch {
    attn_tensor out, second;
    attn_model *model;
    attn_workspace *workspace;
    attn_session *session;
    attn_sampler *sampler;
    attn_generator *generator;
    attn_tokenizer *tokenizer;
    attn_record *record;
    lens_new_file *file;
    lens_writer *writer;
    int32_t ids[64];
    char text[256];
    float numbers[64];
    attn_token_stats stats[8];
    attn_continuation texts[2];
    attn_generation made;
    attn_prediction predictions[32];
    size_t n;
} scratch;

static size_t *room_for(scratch *s, size_t n)
{
    s->n = n;
    return &s->n;
}

static void note_task(size_t i, void *user)
{
    ((char *)user)[i] = 'x';
}

#define EACH_FUNCTION(DO)                                                                          \
    DO(attn_zeros, (ctx, &s->out, ATTN_F32, attn_shape2(3, 4)))                                    \
    DO(attn_copy, (ctx, &s->out, x4))                                                              \
    DO(attn_add, (ctx, &s->out, x4, vec))                                                          \
    DO(attn_sub, (ctx, &s->out, x4, vec))                                                          \
    DO(attn_mul, (ctx, &s->out, x4, vec))                                                          \
    DO(attn_div, (ctx, &s->out, x4, vec))                                                          \
    DO(attn_scale, (ctx, &s->out, x4, 2))                                                          \
    DO(attn_exp, (ctx, &s->out, x4))                                                               \
    DO(attn_sum, (ctx, &s->out, x4))                                                               \
    DO(attn_mean, (ctx, &s->out, x4))                                                              \
    DO(attn_variance, (ctx, &s->out, x4, 1))                                                       \
    DO(attn_matmul, (ctx, &s->out, x4, sq))                                                        \
    DO(attn_linear, (ctx, &s->out, x4, sq, vec))                                                   \
    DO(attn_softmax, (ctx, &s->out, x4))                                                           \
    DO(attn_log_softmax, (ctx, &s->out, x4))                                                       \
    DO(attn_cross_entropy, (ctx, &s->out, x3, ids))                                                \
    DO(attn_layernorm, (ctx, &s->out, x4, vec, vec, 1e-5f))                                        \
    DO(attn_apply_mlp_act, (ctx, &s->out, x4, ATTN_ACT_GELU_ERF))                                  \
    DO(attn_embedding, (ctx, &s->out, sq, ids))                                                    \
    DO(attn_attention, (ctx, &s->out, qkv, qkv, qkv, NULL))                                        \
    DO(attn_attention_pattern, (ctx, &s->out, qkv, qkv, NULL))                                     \
    DO(attn_multihead, (ctx, &s->out, x3, x3, &block, NULL))                                       \
    DO(attn_multihead_pattern, (ctx, &s->out, x3, x3, &block, NULL))                               \
    DO(attn_mlp, (ctx, &s->out, x3, &block, ATTN_ACT_GELU_TANH))                                   \
    DO(attn_block, (ctx, &s->out, x3, &block, 1e-5f, ATTN_ACT_GELU_TANH))                          \
    DO(attn_unembed, (ctx, &s->out, x3, sq))                                                       \
    DO(attn_model_open, (ctx, &s->model, TEST_BUILD "/tiny-stories.attn", NULL))                   \
    DO(attn_model_open_memory, (ctx, &s->model, file + 1, file_size, NULL))                        \
    DO(attn_model_tensor, (ctx, &s->out, model, "blocks.0.attn.W_K"))                              \
    DO(attn_workspace_size, (ctx, &s->n, model, NULL))                                             \
    DO(attn_workspace_new, (ctx, &s->workspace, model, NULL))                                      \
    DO(attn_session_set_workspace, (ctx, other, shared))                                           \
    DO(attn_unhook, (ctx, other, new_hook()))                                                      \
    DO(attn_session_size, (ctx, &s->n, model, NULL))                                               \
    DO(attn_session_new, (ctx, &s->session, model, NULL))                                          \
    DO(attn_feed, (ctx, held, tokens, 8))                                                          \
    DO(attn_feed_batch, (ctx, &item, 1))                                                           \
    DO(attn_session_truncate, (ctx, held, 2))                                                      \
    DO(attn_session_copy, (ctx, other, held))                                                      \
    DO(attn_session_restore, (ctx, held, tokens, HELD, cached, NULL))                              \
    DO(attn_sampler_new, (ctx, &s->sampler, 40, NULL))                                             \
    DO(attn_sample, (ctx, s->ids, sampler, logits, NULL, 0))                                       \
    DO(attn_generate, (ctx, &s->made, held, "", &generating))                                      \
    DO(attn_generator_new, (ctx, &s->generator, held, "", &generating))                            \
    DO(attn_generator_step, (ctx, &s->made, new_generator()))                                      \
    DO(attn_generate_many, (ctx, s->texts, 2, model, &many))                                       \
    DO(attn_tokenizer_new, (ctx, &s->tokenizer, section, section_size))                            \
    DO(attn_encode, (ctx, s->ids, room_for(s, 64), tokenizer, "Once upon a time", 16))             \
    DO(attn_encode_special, (ctx, s->ids, room_for(s, 64), tokenizer, "Once upon a time", 16))     \
    DO(attn_decode, (ctx, s->text, room_for(s, 256), tokenizer, tokens, 8))                        \
    DO(attn_parallel_for, (ctx, 8, note_task, s->text))                                            \
    DO(attn_feed_text, (ctx, teller, "Once upon a time"))                                          \
    DO(attn_text_token, (ctx, s->ids, stories, " time"))                                           \
    DO(attn_hook, (ctx, NULL, other, "*hook_pattern", do_nothing, NULL))                           \
    DO(attn_session_get_cache, (ctx, &s->out, held, ATTN_CACHE_VALUES, 0, 1))                      \
    DO(attn_session_set_cache, (ctx, held, ATTN_CACHE_KEYS, 0, 1, attn_slice(z, 0, 0, 1)))         \
    DO(attn_record_size, (ctx, &s->n, model, &recorded))                                           \
    DO(attn_record_new, (ctx, &s->record, other, &recorded))                                       \
    DO(attn_record_get, (ctx, &view, record, "blocks.0.attn.hook_z"))                              \
    DO(lens_save_record, (ctx, test_tmp("faults.record.safetensors"), record))                     \
    DO(lens_save, (ctx, test_tmp("faults.safetensors"), &edit.name, &x4, 1))                       \
    DO(attn_hook_edit, (ctx, NULL, other, &edit))                                                  \
    DO(attn_logit_stats, (ctx, s->stats, &(attn_top){s->predictions, 4}, x3, tokens))              \
    DO(attn_score, (ctx, s->stats, &(attn_top){s->predictions, 4}, held, tokens, 8))               \
    DO(attn_logit_directions, (ctx, &s->out, model, tokens, tokens + 1, 6))                        \
    DO(attn_model_logits, (ctx, &s->out, model, resid, ids3))                                      \
    DO(lens_logit_attrs, (ctx, &s->out, model, resid, scale, x3))                                  \
    DO(lens_logit_lens, (ctx, &s->out, model, resid, scale, ids3))                                 \
    DO(lens_process_weights, (ctx, &s->model, model, LENS_PROCESS_FOLD_LN))                        \
    DO(lens_model_save, (ctx, test_tmp("faults.attn"), model))                                     \
    DO(lens_new_file_begin, (ctx, &s->file, test_tmp("faults.file")))                              \
    DO(lens_new_file_end, (ctx, new_file(), ATTN_OK))                                              \
    DO(lens_writer_new,                                                                            \
       (ctx, &s->writer, test_tmp("faults.made"), attn_model_config(model), NULL, 0))              \
    DO(lens_writer_add, (ctx, new_writer(0), "embed.W_E", ATTN_Q8, written))                       \
    DO(lens_writer_end, (ctx, new_writer(1)))                                                      \
    DO(lens_writer_open, (ctx, &s->model, new_writer(2)))

static unsigned char *file; /* the included model at an odd address */
static size_t file_size, section_size;
static const void *section;
static attn_sampler *sampler;
static float logits[40];
static attn_feed_item item;
static attn_generate_desc generating, many;
static attn_tensor view;

static attn_tensor written;  /* W_E of `model` */
static attn_ctx other_usual; /* of what these two make, which must not fail */
static lens_writer *writer;

static attn_workspace *shared;

static attn_hook_id new_hook(void)
{
    attn_hook_id id = 0;
    OK(&other_usual, attn_hook(&other_usual, &id, other, "*hook_pattern", do_nothing, NULL));
    return id;
}

static attn_generator *generator;

static attn_generator *new_generator(void)
{
    attn_generator_free(generator);
    generator = NULL;
    OK(&other_usual, attn_generator_new(&other_usual, &generator, held, "", &generating));
    return generator;
}

static lens_new_file *new_file(void)
{
    lens_new_file *made = NULL;
    OK(&other_usual, lens_new_file_begin(&other_usual, &made, test_tmp("faults.ended")));
    return made;
}

/* A writer without tensors (0), with all of `model` (1), or in memory (2). */
static lens_writer *new_writer(int full)
{
    attn_ctx *const ctx = &other_usual;
    const size_t width = attn_model_config(model)->d_model;
    lens_writer_free(writer);
    OK(ctx, lens_writer_new(ctx, &writer, full == 2 ? NULL : test_tmp("faults.added"),
                            attn_model_config(model), NULL, 0));
    for (size_t i = 0; full && i < model_n_tensors(model); i++) {
        attn_tensor x;
        memset(&x, 0, sizeof x);
        model_tensor info = model_tensor_at(model, i);
        OK(ctx, attn_model_tensor(ctx, &x, model, info.name));
        OK(ctx, lens_writer_add(ctx, writer, info.name, info.dtype,
                                x.ndim == 3 ? attn_reshape(x, attn_shape2(width, width)) : x));
    }
    return writer;
}

#define DEFINE(name, arguments)                                                                    \
    static attn_status call_##name(attn_ctx *ctx, scratch *s)                                      \
    {                                                                                              \
        (void)ctx, (void)s;                                                                        \
        return name arguments;                                                                     \
    }
EACH_FUNCTION(DEFINE)

static const struct function {
    const char *name;
    attn_status (*call)(attn_ctx *ctx, scratch *s);
} functions[] = {
#define LIST(name, arguments) {#name, call_##name},
    EACH_FUNCTION(LIST)};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

/* What must not have happened after a failure. */
static void nothing_made(const char *name, scratch *s)
{
    CHECKF(!s->out.ndim && !s->second.ndim, "%s failed and made a tensor", name);
    CHECKF(!s->model && !s->session && !s->workspace && !s->sampler && !s->generator &&
               !s->tokenizer && !s->record && !s->texts[0].text && !s->texts[1].tokens,
           "%s failed and made something", name);
}

/* Everything that EACH_FUNCTION names; end_all frees it. */
static int begin_all(attn_ctx *usual)
{
    memset(usual, 0, sizeof *usual);
    usual->n_threads = 1; /* so little work is not worth waking workers for */
    random_state = 5;
    prepare(usual);
    if (!model || !stories || !held || !other || !watched || !record)
        return 0;
    file = (unsigned char *)pool_new(1 << 24);
    {
        SCOPED_BYTES whole = test_read(TEST_BUILD "/tiny-stories.attn", &file_size);
        if (!CHECK(whole != NULL && file_size < 1 << 24))
            return 0;
        memcpy(file + 1, whole, file_size);
        section = model_tokenizer_section(&section_size, stories);
    }
    tokenizer = (attn_tokenizer *)(uintptr_t)attn_model_tokenizer(stories);
    OK(usual, attn_sampler_new(usual, &sampler, 40, NULL));
    if (OK(usual, attn_feed(usual, other, tokens, HELD + 1)))
        memcpy(next_logits, attn_session_logits(other), sizeof next_logits);
    memset(&other_usual, 0, sizeof other_usual);
    memset(&written, 0, sizeof written);
    OK(&other_usual, attn_model_tensor(&other_usual, &written, model, "embed.W_E"));
    OK(&other_usual, attn_workspace_new(&other_usual, &shared, model, NULL));
    item = item_of(held, tokens, 8, NULL);
    memset(&generating, 0, sizeof generating);
    generating.prompt_tokens = tokens;
    generating.n_prompt_tokens = 8;
    generating.max_tokens = 6;
    return 1;
}

static void end_all(attn_ctx *usual)
{
    lens_writer_free(writer);
    writer = NULL;
    section_size = 0;
    attn_ctx_free(&other_usual);
    attn_sampler_free(sampler);
    attn_record_free(record);
    attn_workspace_free(shared);
    attn_session_free(held);
    attn_session_free(other);
    attn_session_free(watched);
    attn_session_free(teller);
    attn_model_close(model);
    attn_model_close(stories);
    attn_ctx_free(usual);
    pool_clear();
}

TEST(every_function_without_memory)
{
    attn_ctx usual;
    long rounds = 0;
    if (!begin_all(&usual)) {
        end_all(&usual);
        return;
    }
    for (size_t i = 0; i < N_FUNCTIONS; i++) {
        attn_status status = ATTN_E_MEMORY;
        long n;
        for (n = 0; n < 500 && status == ATTN_E_MEMORY; n++, rounds++) {
            const char *const name = functions[i].name;
            meter m;
            attn_ctx ctx = metered(&m);
            scratch s;
            fill(&usual);
            memset(&s, 0, sizeof s);
            many.max_tokens = 3;
            s.texts[0].prompt_tokens = s.texts[1].prompt_tokens = tokens;
            s.texts[0].n_prompt_tokens = s.texts[1].n_prompt_tokens = 8;
            ctx.n_threads = 1;
            m.fail_at = n;
            status = functions[i].call(&ctx, &s);
            CHECKF(status == ATTN_OK || (status == ATTN_E_MEMORY && strstr(ctx.message, "memory")),
                   "%s, allocation %ld: %s (%s)", name, n, attn_status_name(status), ctx.message);
            if (status != ATTN_OK) {
                nothing_made(name, &s);
                CHECKF(attn_session_length(other) == 0, "%s failed and fed a session", name);
                if (strncmp(name, "attn_generat", 12) != 0) /* generation keeps the tokens it fed */
                    holds(&usual, held, name);
            } else if (strcmp(name, "attn_session_copy") == 0) {
                holds(&usual, held, name);
                holds(&usual, other, name);
            } else if (strcmp(name, "attn_session_truncate") == 0) {
                OK(&usual, attn_feed(&usual, held, tokens + 2, HELD - 2));
                holds(&usual, held, name);
            }
            attn_ctx_free(&ctx);
            attn_model_close(s.model);
            attn_session_free(s.session);
            attn_workspace_free(s.workspace);
            attn_sampler_free(s.sampler);
            attn_generator_free(s.generator);
            attn_generator_free(generator);
            generator = NULL;
            attn_continuations_free(s.texts, 2);
            attn_tokenizer_free(s.tokenizer);
            attn_record_free(s.record);
            lens_new_file_end(&ctx, s.file, ATTN_STOPPED);
            lens_writer_free(s.writer);
            attn_unhook_all(other);
            CHECKF(m.live == 0 && m.wrong == 0, "%s, allocation %ld: %ld blocks leaked", name, n,
                   m.live);
        }
        CHECKF(status == ATTN_OK, "%s: %s after %ld rounds", functions[i].name,
               attn_status_name(status), n);
    }
    CHECKF(rounds > 2 * N_FUNCTIONS, "%ld rounds", rounds);
    end_all(&usual);
}

/* Each pointer that must not be NULL, NULL. */
#define EACH_NULL(DO)                                                                              \
    DO(attn_zeros, (ctx, NULL, ATTN_F32, attn_shape2(3, 4)))                                       \
    DO(attn_copy, (ctx, NULL, x4))                                                                 \
    DO(attn_add, (ctx, NULL, x4, vec))                                                             \
    DO(attn_sub, (ctx, NULL, x4, vec))                                                             \
    DO(attn_mul, (ctx, NULL, x4, vec))                                                             \
    DO(attn_div, (ctx, NULL, x4, vec))                                                             \
    DO(attn_scale, (ctx, NULL, x4, 2))                                                             \
    DO(attn_exp, (ctx, NULL, x4))                                                                  \
    DO(attn_sum, (ctx, NULL, x4))                                                                  \
    DO(attn_mean, (ctx, NULL, x4))                                                                 \
    DO(attn_variance, (ctx, NULL, x4, 1))                                                          \
    DO(attn_matmul, (ctx, NULL, x4, sq))                                                           \
    DO(attn_linear, (ctx, NULL, x4, sq, vec))                                                      \
    DO(attn_softmax, (ctx, NULL, x4))                                                              \
    DO(attn_log_softmax, (ctx, NULL, x4))                                                          \
    DO(attn_cross_entropy, (ctx, NULL, x3, ids))                                                   \
    DO(attn_layernorm, (ctx, NULL, x4, vec, vec, 1e-5f))                                           \
    DO(attn_apply_mlp_act, (ctx, NULL, x4, ATTN_ACT_GELU_ERF))                                     \
    DO(attn_embedding, (ctx, NULL, sq, ids))                                                       \
    DO(attn_attention, (ctx, NULL, qkv, qkv, qkv, NULL))                                           \
    DO(attn_attention_pattern, (ctx, NULL, qkv, qkv, NULL))                                        \
    DO(attn_multihead, (ctx, NULL, x3, x3, &block, NULL))                                          \
    DO(attn_multihead_pattern, (ctx, NULL, x3, x3, &block, NULL))                                  \
    DO(attn_multihead, (ctx, &s->out, x3, x3, NULL, NULL))                                         \
    DO(attn_multihead_pattern, (ctx, &s->out, x3, x3, NULL, NULL))                                 \
    DO(attn_mlp, (ctx, NULL, x3, &block, ATTN_ACT_GELU_TANH))                                      \
    DO(attn_mlp, (ctx, &s->out, x3, NULL, ATTN_ACT_GELU_TANH))                                     \
    DO(attn_block, (ctx, NULL, x3, &block, 1e-5f, ATTN_ACT_GELU_TANH))                             \
    DO(attn_block, (ctx, &s->out, x3, NULL, 1e-5f, ATTN_ACT_GELU_TANH))                            \
    DO(attn_unembed, (ctx, NULL, x3, sq))                                                          \
    DO(attn_model_open, (ctx, NULL, TEST_BUILD "/tiny-stories.attn", NULL))                        \
    DO(attn_model_open, (ctx, &s->model, NULL, NULL))                                              \
    DO(attn_model_open_memory, (ctx, NULL, file + 1, file_size, NULL))                             \
    DO(attn_model_open_memory, (ctx, &s->model, NULL, file_size, NULL))                            \
    DO(attn_model_tensor, (ctx, NULL, model, "blocks.0.attn.W_K"))                                 \
    DO(attn_model_tensor, (ctx, &s->out, NULL, "blocks.0.attn.W_K"))                               \
    DO(attn_model_tensor, (ctx, &s->out, model, NULL))                                             \
    DO(attn_workspace_size, (ctx, NULL, model, NULL))                                              \
    DO(attn_workspace_size, (ctx, &s->n, NULL, NULL))                                              \
    DO(attn_workspace_new, (ctx, NULL, model, NULL))                                               \
    DO(attn_workspace_new, (ctx, &s->workspace, NULL, NULL))                                       \
    DO(attn_session_set_workspace, (ctx, NULL, shared))                                            \
    DO(attn_session_set_workspace, (ctx, other, NULL))                                             \
    DO(attn_session_size, (ctx, NULL, model, NULL))                                                \
    DO(attn_session_size, (ctx, &s->n, NULL, NULL))                                                \
    DO(attn_session_new, (ctx, NULL, model, NULL))                                                 \
    DO(attn_session_new, (ctx, &s->session, NULL, NULL))                                           \
    DO(attn_feed, (ctx, NULL, tokens, 8))                                                          \
    DO(attn_feed, (ctx, held, NULL, 8))                                                            \
    DO(attn_feed_batch, (ctx, NULL, 1))                                                            \
    DO(attn_session_truncate, (ctx, NULL, 2))                                                      \
    DO(attn_session_copy, (ctx, NULL, held))                                                       \
    DO(attn_session_copy, (ctx, other, NULL))                                                      \
    DO(attn_session_restore, (ctx, NULL, tokens, HELD, cached, NULL))                              \
    DO(attn_session_restore, (ctx, held, NULL, HELD, cached, NULL))                                \
    DO(attn_session_restore, (ctx, held, tokens, HELD, NULL, NULL))                                \
    DO(attn_sampler_new, (ctx, NULL, 40, NULL))                                                    \
    DO(attn_sample, (ctx, NULL, sampler, logits, NULL, 0))                                         \
    DO(attn_sample, (ctx, s->ids, NULL, logits, NULL, 0))                                          \
    DO(attn_sample, (ctx, s->ids, sampler, NULL, NULL, 0))                                         \
    DO(attn_generate, (ctx, &s->made, NULL, "", &generating))                                      \
    DO(attn_generator_new, (ctx, NULL, held, "", &generating))                                     \
    DO(attn_generator_new, (ctx, &s->generator, NULL, "", &generating))                            \
    DO(attn_generator_step, (ctx, NULL, new_generator()))                                          \
    DO(attn_generator_step, (ctx, &s->made, NULL))                                                 \
    DO(attn_generate_many, (ctx, NULL, 2, model, &many))                                           \
    DO(attn_generate_many, (ctx, s->texts, 2, NULL, &many))                                        \
    DO(attn_tokenizer_new, (ctx, NULL, section, section_size))                                     \
    DO(attn_tokenizer_new, (ctx, &s->tokenizer, NULL, section_size))                               \
    DO(attn_encode, (ctx, NULL, room_for(s, 64), tokenizer, "Once upon a time", 16))               \
    DO(attn_encode, (ctx, s->ids, NULL, tokenizer, "Once upon a time", 16))                        \
    DO(attn_encode_special, (ctx, NULL, room_for(s, 64), tokenizer, "Once upon a time", 16))       \
    DO(attn_encode_special, (ctx, s->ids, NULL, tokenizer, "Once upon a time", 16))                \
    DO(attn_encode_special, (ctx, s->ids, room_for(s, 64), tokenizer, NULL, 16))                   \
    DO(attn_encode, (ctx, s->ids, room_for(s, 64), tokenizer, NULL, 16))                           \
    DO(attn_decode, (ctx, NULL, room_for(s, 256), tokenizer, tokens, 8))                           \
    DO(attn_decode, (ctx, s->text, NULL, tokenizer, tokens, 8))                                    \
    DO(attn_decode, (ctx, s->text, room_for(s, 256), tokenizer, NULL, 8))                          \
    DO(attn_feed_text, (ctx, NULL, "Once upon a time"))                                            \
    DO(attn_feed_text, (ctx, teller, NULL))                                                        \
    DO(attn_text_token, (ctx, NULL, stories, " time"))                                             \
    DO(attn_text_token, (ctx, s->ids, NULL, " time"))                                              \
    DO(attn_text_token, (ctx, s->ids, stories, NULL))                                              \
    DO(attn_hook, (ctx, NULL, NULL, "*hook_pattern", do_nothing, NULL))                            \
    DO(attn_hook, (ctx, NULL, other, NULL, do_nothing, NULL))                                      \
    DO(attn_hook, (ctx, NULL, other, "*hook_pattern", NULL, NULL))                                 \
    DO(attn_session_get_cache, (ctx, NULL, held, ATTN_CACHE_VALUES, 0, 1))                         \
    DO(attn_session_get_cache, (ctx, &s->out, NULL, ATTN_CACHE_VALUES, 0, 1))                      \
    DO(attn_session_set_cache, (ctx, NULL, ATTN_CACHE_KEYS, 0, 1, attn_slice(z, 0, 0, 1)))         \
    DO(attn_record_size, (ctx, NULL, model, &recorded))                                            \
    DO(attn_record_size, (ctx, &s->n, NULL, &recorded))                                            \
    DO(attn_record_new, (ctx, NULL, other, &recorded))                                             \
    DO(attn_record_new, (ctx, &s->record, NULL, &recorded))                                        \
    DO(attn_record_new, (ctx, &s->record, other, &recorded_nowhere))                               \
    DO(attn_record_get, (ctx, NULL, record, "blocks.0.attn.hook_z"))                               \
    DO(attn_record_get, (ctx, &view, NULL, "blocks.0.attn.hook_z"))                                \
    DO(attn_record_get, (ctx, &view, record, NULL))                                                \
    DO(lens_save_record, (ctx, NULL, record))                                                      \
    DO(lens_save_record, (ctx, test_tmp("faults.record.safetensors"), NULL))                       \
    DO(lens_save, (ctx, NULL, &edit.name, &x4, 1))                                                 \
    DO(lens_save, (ctx, test_tmp("faults.safetensors"), NULL, &x4, 1))                             \
    DO(lens_save, (ctx, test_tmp("faults.safetensors"), &edit.name, NULL, 1))                      \
    DO(attn_hook_edit, (ctx, NULL, NULL, &edit))                                                   \
    DO(attn_hook_edit, (ctx, NULL, other, NULL))                                                   \
    DO(attn_logit_stats, (ctx, s->stats, &(attn_top){NULL, 4}, x3, tokens))                        \
    DO(attn_logit_stats, (ctx, s->stats, &(attn_top){s->predictions, 4}, x3, NULL))                \
    DO(attn_score, (ctx, s->stats, &(attn_top){NULL, 4}, held, tokens, 8))                         \
    DO(attn_score, (ctx, s->stats, &(attn_top){s->predictions, 4}, NULL, tokens, 8))               \
    DO(attn_score, (ctx, s->stats, &(attn_top){s->predictions, 4}, held, NULL, 8))                 \
    DO(attn_logit_directions, (ctx, NULL, model, tokens, tokens + 1, 6))                           \
    DO(attn_logit_directions, (ctx, &s->out, NULL, tokens, tokens + 1, 6))                         \
    DO(attn_logit_directions, (ctx, &s->out, model, NULL, tokens + 1, 6))                          \
    DO(attn_model_logits, (ctx, NULL, model, resid, ids3))                                         \
    DO(attn_model_logits, (ctx, &s->out, NULL, resid, ids3))                                       \
    DO(lens_logit_attrs, (ctx, NULL, model, resid, scale, x3))                                     \
    DO(lens_logit_attrs, (ctx, &s->out, NULL, resid, scale, x3))                                   \
    DO(lens_logit_lens, (ctx, NULL, model, resid, scale, ids3))                                    \
    DO(lens_logit_lens, (ctx, &s->out, NULL, resid, scale, ids3))                                  \
    DO(lens_process_weights, (ctx, NULL, model, LENS_PROCESS_FOLD_LN))                             \
    DO(lens_process_weights, (ctx, &s->model, NULL, LENS_PROCESS_FOLD_LN))                         \
    DO(lens_model_save, (ctx, NULL, model))                                                        \
    DO(lens_model_save, (ctx, test_tmp("faults.attn"), NULL))                                      \
    DO(lens_new_file_begin, (ctx, NULL, test_tmp("faults.file")))                                  \
    DO(lens_new_file_begin, (ctx, &s->file, NULL))                                                 \
    DO(lens_writer_new, (ctx, NULL, test_tmp("faults.made"), attn_model_config(model), NULL, 0))   \
    DO(lens_writer_new, (ctx, &s->writer, test_tmp("faults.made"), NULL, NULL, 0))                 \
    DO(lens_writer_add, (ctx, NULL, "embed.W_E", ATTN_Q8, written))                                \
    DO(lens_writer_end, (ctx, NULL))                                                               \
    DO(lens_writer_open, (ctx, NULL, new_writer(2)))                                               \
    DO(lens_writer_open, (ctx, &s->model, NULL))

static void refused(const char *call, attn_status status, const attn_ctx *ctx)
{
    CHECKF(status == ATTN_E_ARGUMENT && ctx->message[0], "%s: %s (%s)", call,
           attn_status_name(status), ctx->message);
}

/* begin_all, with a context and a scratch that hold nothing yet. */
static int begin_empty(attn_ctx *usual, attn_ctx *ctx, scratch *s)
{
    memset(ctx, 0, sizeof *ctx);
    memset(s, 0, sizeof *s);
    return begin_all(usual);
}

TEST(null_is_refused)
{
    attn_ctx usual, ctx_, *ctx = &ctx_;
    scratch made, *s = &made;
    if (begin_empty(&usual, ctx, s)) {
#define REFUSED(name, arguments)                                                                   \
    ctx->status = ATTN_OK;                                                                         \
    refused(#name #arguments, name arguments, ctx);
        EACH_NULL(REFUSED)
    }
    end_all(&usual);
}

/* If a program ignores a failed call, the messages of the following calls end with its message. */
TEST(null_tells_the_failure_before_it)
{
    attn_ctx ctx;
    attn_model *none = NULL;
    attn_session *session = NULL;
    memset(&ctx, 0, sizeof ctx);
    attn_model_open(&ctx, &none, test_tmp("not-there.attn"), NULL);
    attn_session_new(&ctx, &session, none, NULL);
    CHECK(attn_feed(&ctx, session, tokens, 8) == ATTN_E_ARGUMENT);
    CHECKF(strstr(ctx.message, "attn_feed: no session given; before that: ") == ctx.message &&
               strstr(ctx.message, "not-there.attn") && !strstr(ctx.message, "no model"),
           "%s", ctx.message);
    ctx.status = ATTN_OK;
    attn_feed(&ctx, NULL, tokens, 8);
    CHECKF(strcmp(ctx.message, "attn_feed: no session given") == 0, "%s", ctx.message);
}

/* Every struct that a caller fills is refused if the fields of later versions are in use. */
TEST(reserved_fields_are_zero)
{
    attn_ctx usual, ctx_, *ctx = &ctx_;
    scratch made, *s = &made;
    if (begin_empty(&usual, ctx, s)) {
        attn_attention_desc attention = ATTN_ZERO;
        attn_model_desc opening = ATTN_ZERO;
        attn_workspace_desc workspace = ATTN_ZERO;
        attn_session_desc session = ATTN_ZERO;
        attn_sampler_desc sampling = ATTN_ZERO;
        attn_generate_desc generation = generating;
        attn_record_desc recording = recorded;
        attn_edit editing = edit;
        attn_config config = *attn_model_config(model);
        attn_feed_item feeding = item;
        s->texts[0].prompt_tokens = tokens;
        s->texts[0].n_prompt_tokens = 8;
#define USED(type, variable, call)                                                                 \
    variable.reserved[sizeof variable.reserved / sizeof variable.reserved[0] - 1] = 1;             \
    CHECKF(call == ATTN_E_ARGUMENT && strstr(ctx->message, #type ".reserved is not zero"), "%s",   \
           ctx->message)
        USED(attn_attention_desc, attention,
             attn_attention(ctx, &s->out, qkv, qkv, qkv, &attention));
        USED(attn_model_desc, opening,
             attn_model_open_memory(ctx, &s->model, file + 1, file_size, &opening));
        USED(attn_workspace_desc, workspace,
             attn_workspace_new(ctx, &s->workspace, model, &workspace));
        USED(attn_session_desc, session, attn_session_new(ctx, &s->session, model, &session));
        USED(attn_sampler_desc, sampling, attn_sampler_new(ctx, &s->sampler, 40, &sampling));
        USED(attn_generate_desc, generation, attn_generate(ctx, NULL, held, NULL, &generation));
        USED(attn_generation, s->made, attn_generate(ctx, &s->made, held, NULL, &generating));
        USED(attn_record_desc, recording, attn_record_size(ctx, &s->n, model, &recording));
        USED(attn_edit, editing, attn_hook_edit(ctx, NULL, other, &editing));
        USED(attn_config, config,
             lens_writer_new(ctx, &s->writer, test_tmp("faults.made"), &config, NULL, 0));
        USED(attn_feed_item, feeding, attn_feed_batch(ctx, &feeding, 1));
        USED(attn_continuation, s->texts[0], attn_generate_many(ctx, s->texts, 1, model, NULL));
        nothing_made("a call with a reserved field in use", s);
    }
    end_all(&usual);
}

TEST(no_function_is_left_out)
{
    static const char mark[] = "\nATTN_API attn_status ";
    size_t size, i, found = 0;
    char *text = (char *)test_read("attn.h", &size), *at;
    if (!CHECK(text != NULL))
        return;
    for (at = text; (at = strstr(at, mark)) != NULL; found++) {
        const size_t length = strcspn(at += sizeof mark - 1, "(");
        for (i = 0; i < N_FUNCTIONS; i++)
            if (strlen(functions[i].name) == length && memcmp(functions[i].name, at, length) == 0)
                break;
        CHECKF(i < N_FUNCTIONS, "nobody lets the allocations of %.*s fail", (int)length, at);
    }
    CHECK(found > 60);
    free(text);
}

/* ---- the programs: every call of the system fails once ---- */

#if TEST_SANITIZED
#define PRELOAD_NOT "a sanitizer wants to be loaded first"
#elif !defined(__linux__) || !defined(__GLIBC__)
#define PRELOAD_NOT "faults.c is for Linux with glibc"
#else
#define PRELOAD_NOT ""
#endif

/* Runs a command under faults.c, which is teller `fault`; `before` may feed it ("cat file | "). */
static int run_faulty(const char *before, const char *fault, const char *command)
{
    return run("%sFAULT_%s LD_PRELOAD=" TEST_BUILD "/faults.so %s", before, fault, command);
}

/* How many calls of the system a command makes; 0 where they cannot be made to fail, which skips
 * the case, and for a command that fails by itself. */
static long count_calls(const char *before, const char *command)
{
    static const char count[] = TEST_TMP "count";
    size_t size = 0;
    long n = 0;
    unsigned char *const library = test_read(TEST_BUILD "/faults.so", &size);
    free(library);
    if (PRELOAD_NOT[0] || size == 0) {
        test_skip(PRELOAD_NOT[0] ? PRELOAD_NOT : "no faults.so");
        return 0;
    }
    remove(count);
    if (!CHECKF(run_faulty(before, "COUNT=" TEST_TMP "count", command) == 0,
                "%s fails by itself: %s", command, err))
        return 0;
    FILE *counted = fopen(count, "r");
    if (!counted) {
        test_skip("LD_PRELOAD does nothing; is this a static program?");
        return 0;
    }
    CHECK(fscanf(counted, "%ld", &n) == 1 && n > 5);
    fclose(counted);
    return n;
}

/* Some file systems (FUSE, network shares) do not support fsync. A file there is written all the same. If
 * fsync fails because the disk fails, the program fails. */
TEST(no_fsync)
{
    static const char command[] =
        TEST_BUILD "/attn-convert -q examples/tiny-stories " TEST_TMP "fsync.attn";
    static const int none[] = {EINVAL, ENOSYS, EOPNOTSUPP};
    if (count_calls("", command) == 0)
        return;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        CHECKF(run_faulty("", test_text("FSYNC=%d", none[i]), command) == 0 && err_size == 0, "%s",
               err);
    }
    CHECKF(run_faulty("", test_text("FSYNC=%d", EIO), command) == 1 &&
               strstr(err, "fsync.attn: writing failed"),
           "%s", err);
}

/* Runs a program with each call failing in turn (in a plain `make test`: about 24 of them); `how`
 * is what faults.c is teller besides. It must do what it always does, or end with exit code 1, a
 * message, and without a trace of its output; or with the signal that it got. `made` is the file
 * it writes, or NULL. */
static void each_call(const char *how, const char *command, const char *made)
{
    static const char want[] = TEST_TMP "want";
    const int measures = strstr(command, "/bench ") != NULL; /* other figures each time */
    long n, step = 1, failed = 0;
    if (made)
        remove(made);
    if ((n = count_calls("", command)) == 0)
        return;
    char *good = out;
    size_t good_size = out_size;
    out = NULL;
    if (made)
        rename(made, want);
    if (!test_full() || measures)
        step = n / (test_full() ? 150 : measures ? 12 : 24) + 1;
    const char *const drafts =
        test_text("ls %s* >/dev/null 2>&1", made ? made : TEST_BUILD "/no-such-file");
    for (long i = 0; i < n; i += step) {
        int code = run_faulty("", test_text("AT=%ld %s", i, how), command);
        failed += code != 0;
        if (strstr(how, "SIGNAL")) {
            const int whole = made && test_same_file(made, want);
            CHECKF(code == 128 + 15, "%s, signal at call %ld: exit code %d", command, i, code);
            CHECKF(system(drafts) != 0 || whole, "%s, signal at call %ld: a file is left", command,
                   i);
            if (made)
                remove(made);
            CHECKF(system(drafts) != 0, "%s, signal at call %ld: an unfinished file is left",
                   command, i);
            continue;
        }
        CHECKF(code == 0 || code == 1, "%s, call %ld fails: exit code %d", command, i, code);
        if (code == 0) {
            CHECKF(measures || (out_size == good_size && memcmp(out, good, out_size) == 0),
                   "%s, call %ld fails: other output", command, i);
            CHECKF(!made || test_same_file(made, want), "%s, call %ld fails: another file", command,
                   i);
        } else {
            CHECKF(err_size > 0, "%s, call %ld fails: no message", command, i);
            /* what is printed is flushed at the very end, when the file is whole */
            if (made && (strstr(command, "/lens ") || strstr(command, " --logits ")) &&
                test_same_file(made, want))
                remove(made);
            CHECKF(system(drafts) != 0, "%s, call %ld fails: a file is left", command, i);
        }
        if (made)
            remove(made);
    }
    CHECKF(failed > (measures ? 0 : 3), "%s fails only %ld times", command, failed);
    free(good);
    forget();
}

static void every_call_fails(const char *command, const char *made)
{
    each_call("", command, made);
}

#define SAVED TEST_TMP "saved"

/* Removes what lies in the directory SAVED, and counts it. */
static int clear_saved(void)
{
    DIR *const directory = opendir(SAVED);
    const struct dirent *entry;
    int n = 0;
    while (directory && (entry = readdir(directory)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            n += remove(test_text(SAVED "/%s", entry->d_name)) == 0;
        }
    if (directory)
        closedir(directory);
    return n;
}

/* Opening and saving (saving.c) with each call failing. At each of the three paths lies an older
 * file: afterwards that is still there whole, or the new one is, and nothing else lies beside them.
 * What was begun may stay if removing it failed too, or if a signal ended the program. */
static void save_under_faults(const char *command)
{
    static const char *const ends[] = {".attn", ".safetensors", "-record.safetensors"},
                             old[] = "an older file\n",
                             before[] = "cat " TEST_BUILD "/tiny-stories.attn | ";
    static const struct {
        const char *how;
        int leaves, times; /* how often in a plain `make test`, and more often while it opens */
    } modes[] = {{"", 0, 8},
                 {"FAULT_ON=1", 0, 6},
                 {"FAULT_ON=1 FAULT_REMOVE=1", 1, 4},
                 {"FAULT_SIGNAL=15", 1, 4}};
    const int full = test_full();
    char made[3][100], want[3][100], fault[100];
    long n, at, step, failed = 0, n_new = 0, n_left = 0;
    mkdir(SAVED, 0777);
    clear_saved();
    test_write(TEST_TMP "old", old, sizeof old - 1);
    if ((n = count_calls(before, command)) == 0)
        return;
    for (size_t i = 0; i < 3; i++) {
        snprintf(made[i], sizeof made[i], SAVED "/made%s", ends[i]);
        snprintf(want[i], sizeof want[i], TEST_TMP "want%s", ends[i]);
        CHECKF(rename(made[i], want[i]) == 0, "%s was not made", made[i]);
    }
    for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++)
        for (at = 0; at < n; at += step) {
            const char *const how = modes[mode].how;
            int is_new[3];
            step = full ? 1 : at < 60 && mode == 0 ? 5 : n / modes[mode].times + 1;
            for (size_t i = 0; i < 3; i++)
                test_write(made[i], old, sizeof old - 1);
            snprintf(fault, sizeof fault, "AT=%ld %s", at, how);
            int code = run_faulty(before, fault, command);
            int expected = strstr(how, "SIGNAL") ? 128 + 15 : 1;
            CHECKF(code == expected || (code == 0 && expected == 1),
                   "%s, call %ld, %s: exit code %d", command, at, how, code);
            CHECKF(code != 1 || err_size > 0, "%s, call %ld, %s: no message", command, at, how);
            for (size_t i = 0; i < 3; i++) {
                is_new[i] = test_same_file(made[i], want[i]);
                CHECKF(is_new[i] || test_same_file(made[i], TEST_TMP "old"),
                       "call %ld, %s: %s is neither the old file nor the new one", at, how,
                       made[i]);
                CHECKF(!is_new[i] || i == 0 || is_new[i - 1], "call %ld, %s: %s came first", at,
                       how, made[i]);
            }
            CHECKF(code != 0 || is_new[2], "%s, call %ld, %s: not all was saved", command, at, how);
            int left = clear_saved() - 3;
            CHECKF(left == 0 || (left == 1 && modes[mode].leaves),
                   "%s, call %ld, %s: %d files too many", command, at, how, left);
            failed += code != 0;
            n_new += is_new[0];
            n_left += left;
        }
    /* some fail before anything is saved, some later; of some an unfinished file stays */
    CHECKF(failed > 10 && n_new > 3 && failed > n_new && n_left > 0, "%ld fail, %ld save, %ld stay",
           failed, n_new, n_left);
    forget();
}

TEST(opening_and_saving)
{
    save_under_faults(TEST_BUILD "/tests/saving " TEST_BUILD "/tiny-stories.attn " SAVED "/made");
}
TEST(reading_and_saving)
{
    save_under_faults(TEST_BUILD "/tests/saving-read " TEST_BUILD "/tiny-stories.attn " SAVED
                                 "/made");
}

#define OUT TEST_TMP "made.attn"

TEST(converting_a_directory)
{
    every_call_fails(TEST_BUILD "/attn-convert tests/fixtures/convert/bf16 " OUT, OUT);
}
TEST(converting_shards)
{
    every_call_fails(TEST_BUILD "/attn-convert tests/fixtures/convert/sharded " OUT " --dtype q8",
                     OUT);
}
TEST(converting_gguf)
{
    every_call_fails(TEST_BUILD "/attn-convert tests/fixtures/convert/tiny.gguf " OUT, OUT);
}
TEST(converting_llmc)
{
    every_call_fails(TEST_BUILD "/attn-convert tests/fixtures/convert/v3.bin " OUT " --dtype q4",
                     OUT);
}
#define SMALL TEST_TMP "small.attn"
#define BACK  TEST_TMP "made"

/* Out of a .attn file again: into one file, and into a directory, of which nothing is left either. */
TEST(exporting_gguf)
{
    const char *command = TEST_BUILD "/attn-convert " SMALL " " BACK ".gguf";
    CHECK(run(TEST_BUILD "/attn-convert tests/fixtures/convert/bf16 " SMALL) == 0);
    every_call_fails(command, BACK ".gguf");
    each_call("FAULT_SIGNAL=15", command, BACK ".gguf");
}
TEST(exporting_a_directory)
{
    static const char clear[] = "rm -rf " BACK "; ", *modes[] = {"", "FAULT_SIGNAL=15"};
    const char *command = TEST_BUILD "/attn-convert " SMALL " " BACK;
    long n;
    CHECK(run(TEST_BUILD "/attn-convert tests/fixtures/convert/bf16 " SMALL) == 0);
    if ((n = count_calls(clear, command)) == 0)
        return;
    for (size_t mode = 0; mode < 2; mode++)
        for (long i = 0; i < n; i += test_full() ? 1 : n / 60 + 1) {
            int code = run_faulty(clear, test_text("AT=%ld %s", i, modes[mode]), command);
            CHECKF(mode ? code == 128 + 15 : code == 0 || (code == 1 && err_size > 0),
                   "call %ld, %s: exit code %d, %s", i, modes[mode], code, err);
            int whole = run("test $(ls " BACK " | wc -l) = 7") == 0;
            CHECKF(whole || (code != 0 && run("test ! -e " BACK) == 0),
                   "call %ld, %s: part of a directory is left", i, modes[mode]);
        }
    forget();
}
TEST(showing)
{
    every_call_fails(TEST_BUILD "/attn-info " TEST_BUILD "/tiny-stories.attn", NULL);
}
/* From a model and from a directory; text that is longer than the buffer which reads it. */
TEST(tokenizing)
{
    every_call_fails(TEST_BUILD "/attn-tokenize " TEST_BUILD "/tiny-stories.attn", NULL);
    CHECK(system("yes 'the cat' | head -c 140000 >" TEST_TMP "text") == 0);
    every_call_fails(TEST_BUILD "/attn-tokenize tests/fixtures/convert/strings <" TEST_TMP "text",
                     NULL);
}
TEST(detokenizing)
{
    CHECK(system("echo 1 2 3 299 | tr ' ' '\\n' >" TEST_TMP "ids") == 0);
    every_call_fails(TEST_BUILD "/attn-tokenize --decode tests/fixtures/convert/strings "
                                "<" TEST_TMP "ids",
                     NULL);
}
/* A list of 300 strings, so that one of them is what does not find room. */
TEST(converting_a_long_configuration)
{
    CHECK(system("rm -rf " TEST_TMP "long && cp -r tests/fixtures/convert/bf16 " TEST_TMP
                 "long && cd " TEST_TMP "long && "
                 "chmod -R u+w . && (echo '{ \"a list\": ['; i=0; while [ $i -lt 300 ]; do "
                 "echo '\"\",'; i=$((i + 1)); done; echo '\"\"],'; tail -n +2 config.json) "
                 ">config.new && mv config.new config.json") == 0);
    every_call_fails(TEST_BUILD "/attn-convert " TEST_TMP "long " OUT, OUT);
}
/* A disk that is full stays full, and what has run out of memory finds none later. */
TEST(failures_that_last)
{
    each_call("FAULT_ON=1", TEST_BUILD "/attn-convert tests/fixtures/convert/bf16 " OUT, OUT);
    each_call("FAULT_ON=1",
              TEST_BUILD "/gpt2 " TEST_BUILD "/tiny-stories.attn 'Once upon' -q --logits " OUT,
              OUT);
}

/* Among the failures is one that no other message may stand for: nothing is wrong with the file. */
TEST(a_size_that_nobody_tells)
{
    int told = 0;
    if (count_calls("", TEST_BUILD "/attn-convert tests/fixtures/convert/tiny.gguf " OUT) == 0)
        return;
    for (int at = 0; at < 300 && !told; at++) {
        run_faulty("", test_text("AT=%d", at),
                   TEST_BUILD "/attn-convert tests/fixtures/convert/tiny.gguf " OUT);
        told = err_size > 0 && strstr(err, "cannot tell the size of") != NULL;
    }
    CHECK(told);
    remove(OUT);
}

/* A signal at any moment: the file is whole or not there. */
TEST(signals)
{
    each_call("FAULT_SIGNAL=15",
              TEST_BUILD "/attn-convert tests/fixtures/convert/sharded " OUT " --dtype q8", OUT);
}
TEST(generating_text)
{
    every_call_fails(TEST_BUILD "/gpt2 " TEST_BUILD
                                "/tiny-stories.attn 'Once upon' -n 5 -q --temperature 0.7",
                     NULL);
}
/* Encoding a long word takes memory. */
TEST(generating_from_a_long_word)
{
    every_call_fails(
        TEST_BUILD "/gpt2 " TEST_BUILD "/tiny-stories.attn \"$(printf '%0160d' 1)\" -n 1 -q", NULL);
}
TEST(generating_several)
{
    every_call_fails(TEST_BUILD "/gpt2 " TEST_BUILD
                                "/tiny-stories.attn 'Once upon' -n 3 -q --temperature 0.7 "
                                "--count 2 --json --logprobs --stop x",
                     NULL);
    every_call_fails(TEST_BUILD "/gpt2 " TEST_BUILD
                                "/tiny-stories.attn 'The cat' --choices ' was| had' --logprobs",
                     NULL);
}
/* Commands of the interactive mode; the text is saved at the end. */
TEST(writing_in_turns)
{
    CHECK(system("printf 'Once\\\\\nupon\\n/regenerate\\n/candidates 2\\n/choose 2\\n/undo\\nTom\\n"
                 "/save! " OUT "\\n/load " OUT "\\n/help\\n/show\\n' >" TEST_TMP "typed") == 0);
    every_call_fails(TEST_BUILD "/gpt2 " TEST_BUILD "/tiny-stories.attn --repl -n 3 "
                                "<" TEST_TMP "typed",
                     NULL);
}
TEST(saving_logits)
{
    every_call_fails(
        TEST_BUILD "/gpt2 " TEST_BUILD "/tiny-stories.attn 'Once upon' -q --logits " OUT, OUT);
}
/* A quoted field, windows, a batch of one, likely tokens. */
TEST(surprising)
{
    CHECK(system("{ printf 's,n\\n\"Once_upon, \"\"a\"\"\",x\\n\"'; "
                 "yes 'the cat' | head -n 150 | tr '\\n' ' '; echo '\",y'; } >" TEST_TMP
                 "items.csv") == 0);
    every_call_fails(
        TEST_BUILD
        "/surprisal " TEST_BUILD "/tiny-stories.attn " TEST_TMP
        "items.csv -c s --regions _ --top 1 --rank --layers 0 --spillover 1 --renyi 2 -q "
        "--threads 1",
        NULL);
}
/* What is left of a file after a failure is continued to the same file. */
TEST(resuming)
{
    static const char made[] = TEST_TMP "made.csv", want[] = TEST_TMP "want.csv",
                      clear[] = "rm -f " TEST_TMP "made.csv*; ",
                      command[] = TEST_BUILD
                      "/surprisal " TEST_BUILD "/tiny-stories.attn tests/fixtures/surprisal/"
                      "texts.txt -q --threads 1 --batch 2 -o " TEST_TMP "made.csv";
    static const char *const modes[] = {"", "FAULT_SIGNAL=15"};
    long n, n_parts = 0;
    if ((n = count_calls(clear, command)) == 0)
        return;
    CHECK(rename(made, want) == 0);
    for (size_t mode = 0; mode < 2; mode++)
        for (long i = 0; i < n; i += test_full() ? 1 : n / 24 + 1) {
            int code = run_faulty(clear, test_text("AT=%ld %s", i, modes[mode]), command);
            CHECKF(mode ? code == 128 + 15 : code == 0 || (code == 1 && err_size > 0),
                   "call %ld, %s: exit code %d, %s", i, modes[mode], code, err);
            CHECKF(code == 0 ? test_same_file(made, want)
                             : !system_exists(made) || test_same_file(made, want),
                   "call %ld, %s: another file", i, modes[mode]);
            n_parts += system_exists(TEST_TMP "made.csv.part");
            CHECKF(system_exists(made) ||
                       (run("%s --resume", command) == 0 && test_same_file(made, want)),
                   "call %ld, %s: not continued: %s", i, modes[mode], err);
        }
    CHECKF(n_parts > 2, "%ld unfinished files", n_parts);
    forget();
}
/* A table and a picture, activations, and patterns that go out as they come by. */
TEST(looking_inside)
{
    every_call_fails(TEST_BUILD "/lens " TEST_BUILD "/tiny-stories.attn tokens 'Once upon'", NULL);
    every_call_fails(TEST_BUILD "/lens " TEST_BUILD
                                "/tiny-stories.attn patch 'a boy' 'a girl' --token ' was' "
                                "--json --threads 1",
                     NULL);
}
/* Of weights alone, of paths, of each head set to zero, and of a text that lens makes itself. */
TEST(looking_at_heads)
{
    every_call_fails(
        TEST_BUILD "/lens " TEST_BUILD "/tiny-stories.attn ablate Onceupon --threads 1", NULL);
    every_call_fails(TEST_BUILD "/lens " TEST_BUILD "/tiny-stories.attn heads --threads 1", NULL);
    every_call_fails(TEST_BUILD "/lens " TEST_BUILD "/from_scratch/plain.attn circuits --threads 1",
                     NULL);
    every_call_fails(TEST_BUILD "/lens " TEST_BUILD
                                "/tiny-stories.attn path 'a boy' 'a girl' --token ' was' "
                                "--from 2.1 --json --threads 1",
                     NULL);
}
TEST(drawing)
{
    static const char page[] = TEST_TMP "made.html", picture[] = TEST_TMP "made.svg";
    every_call_fails(test_text(TEST_BUILD "/lens " TEST_BUILD
                                          "/tiny-stories.attn patterns 'Once upon' -o %s",
                               page),
                     page);
    every_call_fails(test_text(TEST_BUILD "/lens " TEST_BUILD
                                          "/tiny-stories.attn logit-lens 'Once upon' -o %s",
                               picture),
                     picture);
}
TEST(recording)
{
    static const char *const made[] = {TEST_TMP "made.safetensors", TEST_TMP "made.npz"};
    for (int i = 0; i < 2; i++) {
        every_call_fails(test_text(TEST_BUILD
                                   "/lens " TEST_BUILD
                                   "/tiny-stories.attn record 'Once upon' '*.hook_z' -o %s",
                                   made[i]),
                         made[i]);
    }
}
/* Measuring takes a while, so a plain `make test` lets the calls of two sections fail. */
TEST_IF(test_full(), measuring)
{
    static const char *const sections[] = {
        "batch",       "tokenizer", "roofs,matmul", "prompt,generation",
        "speculation", "hooks",     "first,memory"};
    const size_t n = test_full() ? sizeof sections / sizeof *sections : 2;
    every_call_fails(TEST_BUILD "/bench --child " TEST_BUILD "/fuzz/long.attn 1 3", NULL);
    for (size_t i = 0; i < n; i++) {
        every_call_fails(test_text(TEST_BUILD "/bench " TEST_BUILD
                                              "/fuzz/long.attn --quick --threads 1 --only %s",
                                   sections[i]),
                         NULL);
    }
}
