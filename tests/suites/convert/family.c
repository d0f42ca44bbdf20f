/* GPT-2's relatives: checkpoints in fixtures/family (make_family_fixtures.py), converted as they are.
 * Their logits are those of transformers' GPT2LMHeadModel with the same configuration, in float64;
 * and part two of the library (hooks, rewriting) is right for models that compute in other ways. */
#include "tools/convert/gguf.h"
#include "tools/lens/process_weights.h"
#include "tests/support/models.h"
#include "tests/support/command.h"
#include <math.h>

#define FAMILY "tests/fixtures/family/"

static int set_up(void)
{
    return CHECK(system("mkdir -p " TEST_TMP "family") == 0);
}

SUITE_WITH(set_up, forget);

enum { N_TOKENS = 6, V = 24 };
static const int32_t tokens[N_TOKENS] = {3, 17, 0, 21, 9, 9};

/* A copy of a checkpoint, with another configuration of its directory if `config` is not NULL. */
static const char *copied(const char *name, const char *config)
{
    static char dir[512];
    snprintf(dir, sizeof dir, "%s", test_tmp("copy"));
    CHECK(run("rm -rf %s && cp -r " FAMILY "%s %s && chmod -R u+w %s", dir, name, dir, dir) == 0);
    if (config)
        CHECK(run("cp " FAMILY "%s/%s.json %s/config.json", name, config, dir) == 0);
    return dir;
}

/* Text in the place of other text in a configuration. */
static void edit(const char *dir, const char *find, const char *replace)
{
    CHECK(run("grep -q '%s' %s/config.json && sed -i.old 's/%s/%s/' %s/config.json", find, dir,
              find, replace, dir) == 0);
}

/* The checkpoint that is wrapped by modules, with the names of its tensors changed by sed. */
static const char *renamed(const char *script)
{
    const char *const dir = copied("wrapped", NULL);
    CHECK(run("LC_ALL=C sed -i.old '%s' %s/model.safetensors", script, dir) == 0);
    return dir;
}

/* What attn-convert says of a checkpoint, and its exit code. */
static void answers(int code, const char *dir, const char *text)
{
    const int got = run(TEST_BUILD "/attn-convert %s %s", dir, test_tmp("x.attn"));
    CHECKF(got == code && strstr(err, text), "%s: exit code %d, expected %d and \"%s\": %s", dir,
           got, code, text, err);
}

/* All logits of a model, within 2e-5 of those in a file, by the largest among them. */
static void same_as_transformers(const attn_model *model, const char *name, const char *config)
{
    attn_ctx ctx = alone();
    size_t size;
    double want[N_TOKENS * V], largest = 0, worst = 0;
    unsigned char *file;
    if (!CHECK((file = test_read(test_text(FAMILY "%s/%s.logits", name, config), &size)) != NULL) ||
        !CHECK(size == sizeof want))
        return;
    for (size_t i = 0; i < N_TOKENS * V; i++) {
        const uint64_t bits = get_u64(file + 8 * i);
        memcpy(&want[i], &bits, sizeof bits);
        largest = fabs(want[i]) > largest ? fabs(want[i]) : largest;
    }
    free(file);
    float *logits = logits_of(&ctx, model, 0, tokens, N_TOKENS, N_TOKENS);
    for (size_t i = 0; i < N_TOKENS * V; i++) {
        const double error = fabs((double)logits[i] - want[i]) / largest;
        worst = error > worst || isnan(error) ? error : worst;
    }
    CHECKF(worst <= 2e-5, "%s/%s: %.3g of the largest logit away from transformers'", name, config,
           worst);
}

typedef struct member {
    const char *name, *config;
    int act_fn, unscaled_attn, by_layer;
    int in_gguf; /* GGUF can say that, too */
} member;
static const member members[] = {{"base", "config", ATTN_ACT_GELU_TANH, 0, 0, 1},
                                 {"base", "gelu", ATTN_ACT_GELU_ERF, 0, 0, 0},
                                 {"base", "gelu_fast", ATTN_ACT_GELU_TANH, 0, 0, 1},
                                 {"base", "gelu_pytorch_tanh", ATTN_ACT_GELU_TANH, 0, 0, 1},
                                 {"base", "relu", ATTN_ACT_RELU, 0, 0, 0},
                                 {"base", "silu", ATTN_ACT_SILU, 0, 0, 0},
                                 {"base", "swish", ATTN_ACT_SILU, 0, 0, 0},
                                 {"base", "unscaled", ATTN_ACT_GELU_TANH, 1, 0, 0},
                                 {"base", "inverse", ATTN_ACT_GELU_TANH, 0, 1, 0},
                                 {"base", "codeparrot", ATTN_ACT_GELU_TANH, 0, 1, 0},
                                 {"base", "everything", ATTN_ACT_RELU, 1, 1, 0},
                                 {"nano", "config", ATTN_ACT_GELU_ERF, 0, 0, 0},
                                 {"mingpt", "config", ATTN_ACT_GELU_ERF, 0, 0, 0},
                                 {"scratch", "config", ATTN_ACT_GELU_TANH, 0, 0, 1},
                                 {"wrapped", "config", ATTN_ACT_GELU_TANH, 0, 0, 1},
                                 {"head", "config", ATTN_ACT_GELU_TANH, 0, 0, 1}};
enum { N_MEMBERS = sizeof members / sizeof members[0] };

static attn_model *member_of(const member *m, const char *options)
{
    return converted(copied(m->name, strcmp(m->config, "config") ? m->config : NULL), "member.attn",
                     options);
}

/* Each one's logits and configuration. */
TEST(logits_of_transformers)
{
    for (size_t i = 0; i < N_MEMBERS; i++) {
        const member *m = &members[i];
        SCOPED_MODEL model = member_of(m, "--quiet 2>/dev/null");
        if (model) {
            const attn_config *c = attn_model_config(model);
            same_as_transformers(model, m->name, m->config);
            CHECKF((int)c->act_fn == m->act_fn && c->unscaled_attn == m->unscaled_attn &&
                       c->scale_attn_by_inverse_layer_idx == m->by_layer,
                   "%s/%s: another configuration", m->name, m->config);
        }
        pool_clear();
    }
}

/* The same bits on every instruction set, and token by token. */
TEST(the_same_bits_everywhere)
{
    for (size_t i = 0; i < N_MEMBERS; i++) {
        SCOPED_MODEL model = member_of(&members[i], "--quiet 2>/dev/null");
        attn_ctx ctx = alone();
        float *want = model ? logits_of(&ctx, model, 0, tokens, N_TOKENS, N_TOKENS) : NULL;
        for (int kind = ATTN_ISA_PORTABLE; want && kind <= ATTN_ISA_NEON; kind++) {
            ctx.isa = (attn_isa_kind)kind;
            if (attn_isa(&ctx) && strstr(attn_isa(&ctx), "no fused") == NULL)
                same_logits(logits_of(&ctx, model, 0, tokens, N_TOKENS, 1), want, N_TOKENS, model,
                            attn_isa(&ctx));
        }
        pool_clear();
    }
}

/* Scores that a hook shows, worked out again from the queries and keys that it shows. */
TEST(scores_as_the_configuration_says)
{
    for (size_t i = 7; i <= 10; i++) { /* unscaled, inverse, codeparrot, everything */
        const member *m = &members[i];
        SCOPED_MODEL model = member_of(m, "--quiet 2>/dev/null");
        sight *s = new_sight();
        double worst = 0;
        if (!model)
            continue;
        hooked(model, tokens, N_TOKENS, N_TOKENS, NULL, NULL, NULL, "blocks.*.attn.*", s);
        hooked(model, tokens, N_TOKENS, N_TOKENS, NULL, NULL, NULL, "*.hook_attn_scores", s);
        for (size_t layer = 0; layer < 3; layer++) {
            char name[3][64];
            snprintf(name[0], 64, "blocks.%d.attn.hook_q", (int)layer);
            snprintf(name[1], 64, "blocks.%d.attn.hook_k", (int)layer);
            snprintf(name[2], 64, "blocks.%d.attn.hook_attn_scores", (int)layer);
            attn_tensor q = latest(s, name[0]);
            attn_tensor keys = latest(s, name[1]);
            attn_tensor scores = latest(s, name[2]);
            for (size_t head = 0; head < 2 && scores.ndim == 3; head++)
                for (size_t row = 0; row < N_TOKENS; row++)
                    for (size_t k = 0; k <= row; k++) {
                        double want = 0, got = (double)*entry(scores, head, row, k);
                        for (size_t j = 0; j < 4; j++)
                            want +=
                                (double)*entry(q, row, head, j) * (double)*entry(keys, k, head, j);
                        want /= m->unscaled_attn ? 1 : 2; /* sqrt(4) */
                        want /= m->by_layer ? (double)(layer + 1) : 1;
                        worst = fabs(got - want) > worst ? fabs(got - want) : worst;
                    }
        }
        CHECKF(worst < 1e-5, "%s: scores are off by %.3g", m->config, worst);
        pool_clear();
    }
}

/* A rewritten model computes the same, also after it was saved. */
TEST(rewritten)
{
    for (size_t i = 0; i < N_MEMBERS; i++) {
        attn_ctx ctx = alone();
        attn_model *model = member_of(&members[i], "--quiet 2>/dev/null"), *made = NULL,
                   *again = NULL;
        const char *path = test_tmp("rewritten.attn");
        double worst = 0, largest = 0;
        if (model &&
            OK(&ctx,
               lens_process_weights(&ctx, &made, model,
                                    LENS_PROCESS_FOLD_LN | LENS_PROCESS_CENTER_WRITING_WEIGHTS)) &&
            OK(&ctx, lens_model_save(&ctx, path, made)) &&
            OK(&ctx, attn_model_open(&ctx, &again, path, NULL))) {
            const float *want = logits_of(&ctx, model, 0, tokens, N_TOKENS, N_TOKENS);
            const float *got = logits_of(&ctx, again, 0, tokens, N_TOKENS, N_TOKENS);
            for (size_t n = 0; n < N_TOKENS * V; n++) {
                worst = fmax(worst, fabs((double)got[n] - (double)want[n]));
                largest = fmax(largest, fabs((double)want[n]));
            }
            CHECKF(worst < 1e-4 * largest, "%s/%s: off by %.3g", members[i].name, members[i].config,
                   worst);
            CHECK((int)attn_model_config(again)->act_fn == members[i].act_fn);
        }
        attn_model_close(again);
        attn_model_close(made);
        attn_model_close(model);
        pool_clear();
    }
}

/* Every quantised type of GGUF: the numbers of random blocks, bit for bit as the gguf package has
 * them. */
TEST(blocks_as_the_gguf_package)
{
    size_t size, at = 0, n, i, n_types = 0;
    SCOPED_BYTES file = test_read(FAMILY "blocks.bin", &size);
    while (CHECK(file != NULL) && at < size) {
        source_dtype dtype;
        const char *name = gguf_dtype(get_u32(file + at), &dtype);
        const source_block *block = &source_blocks[dtype];
        float got[8 * 256];
        n = get_u32(file + at + 4);
        if (!CHECK(name && dtype != SOURCE_OTHER && n * block->count <= 8 * 256))
            break;
        source_widen(dtype, file + at + 8, n * block->size, got);
        at += 8 + n * block->size;
        for (i = 0; i < n * block->count; i++, at += 4)
            if (!CHECKF(memcmp(&got[i], (float[]){float_from_bits(get_u32(file + at))}, 4) == 0,
                        "%s: number %zu is %.9g, expected %.9g", name, i, (double)got[i],
                        (double)float_from_bits(get_u32(file + at))))
                break;
        at += 4 * (n * block->count - i);
        n_types++;
    }
    CHECK(n_types == SOURCE_OTHER - SOURCE_Q8_0);
}

/* What is left out, or taken for granted, is said once. */
TEST(notes)
{
    const char *dir = copied("wrapped", NULL);
    enum { MANY = 100000 };
    char *header = (char *)malloc((size_t)MANY * 80), path[600];
    size_t size, n, i;
    answers(0, dir,
            "note: 4 tensors are not part of GPT-2, classifier.weight among them; left out\n");
    CHECKF(strstr(err, "note: 29 tensors are F64, and are rounded to f32\n"), "%s", err);
    CHECK(run(TEST_BUILD "/attn-convert " FAMILY "nano %s -q", test_tmp("x.attn")) == 0);
    CHECKF(strstr(err, "no activation_function; taken as \"gelu\"") &&
               strstr(err, "no tensor is a bias"),
           "%s", err);
    CHECK(run(TEST_BUILD "/attn-info %s", test_tmp("x.attn")) == 0);
    CHECKF(strstr(out, "gelu, by erf") && strstr(out, "over sqrt(d_head)\n"), "%s", out);
    dir = copied("base", "everything");
    CHECK(run(TEST_BUILD "/attn-convert %s %s -q", dir, test_tmp("x.attn")) == 0);
    CHECK(run(TEST_BUILD "/attn-info %s", test_tmp("x.attn")) == 0);
    CHECKF(strstr(out, "relu\n") && strstr(out, "not scaled, over layer + 1\n"), "%s", out);
    /* a hundred thousand tensors without a byte, at the end of the data */
    dir = copied("base", NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unsigned char *file = test_read(path, &size);
    if (CHECK(file && header)) {
        const size_t old = (size_t)get_u64(file);
        const unsigned long end = (unsigned long)(size - 8 - old);
        for (i = n = 0; i < MANY; i++)
            n += (size_t)sprintf(
                header + n, ",\"x%lu\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[%lu,%lu]}",
                (unsigned long)i, end, end);
        for (i = old; file[8 + i - 1] != '}'; i--)
            continue;
        unsigned char *made = (unsigned char *)malloc(size + n);
        if (CHECK(made != NULL)) {
            memcpy(made, file, 8 + i - 1);
            put_u64(made, i + n);
            memcpy(made + 8 + i - 1, header, n);
            made[8 + i - 1 + n] = '}';
            memcpy(made + 8 + i + n, file + 8 + old, end);
            test_write(path, made, 8 + i + n + end);
        }
        free(made);
        RUNS(TEST_BUILD "/attn-convert %s %s -q", dir, test_tmp("x.attn"));
        CHECKF(strstr(err, "note: 100000 tensors are not part of GPT-2, x") && err_size < 300,
               "%.400s", err);
    }
    free(file);
    free(header);
}

/* transformers give some settings a second name, which the configurations of all models share. */
TEST(names_of_settings)
{
    static const char *const names[][2] = {{"\"n_embd\"", "\"hidden_size\""},
                                           {"\"n_layer\"", "\"num_hidden_layers\""},
                                           {"\"n_head\"", "\"num_attention_heads\""},
                                           {"\"n_positions\"", "\"max_position_embeddings\""}};
    const char *dir = copied("base", NULL);
    attn_model *model;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        edit(dir, names[i][0], names[i][1]);
    if ((model = converted(dir, "member.attn", "--quiet 2>/dev/null")) != NULL)
        same_as_transformers(model, "base", "config");
    attn_model_close(model);
    edit(dir, "\"hidden_size\"", "\"auto_map\": {\"AutoModelForCausalLM\": \"a.B\"}, \"n_embd\"");
    answers(0, dir, "note: config.json: auto_map names a program as the model");
}

/* A configuration or a directory that asks for another model gets a sentence that says so. */
TEST(refused_by_a_sentence)
{
    static const char *const cases[][3] = {
        {"\"gelu_new\"", "\"quick_gelu\"", "activation_function is quick_gelu; only gelu (also as"},
        {"\"gelu_new\"", "\"gelu_10\"", "activation_function is gelu_10; only"},
        {"\"gelu_new\"", "null", "activation_function is null; only"},
        {"\"scale_attn_weights\": true", "\"scale_attn_weights\": 1",
         "scale_attn_weights is neither true nor false"},
        {"\"add_cross_attention\": false", "\"add_cross_attention\": true",
         "add_cross_attention is true"},
        {"\"n_layer\": 3", "\"n_layer\": 3, \"quantization_config\": {\"bits\": 4}",
         "quantization_config is a list or object; only none"},
        {"\"n_layer\": 3", "\"n_layer\": 3, \"pruned_heads\": {\"0\": [1]}",
         "pruned_heads is a list"},
        {"\"gpt2\"", "\"gpt_bigcode\"", "model_type is gpt_bigcode; only gpt2"}};
    const char *dir = "";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dir = copied("base", NULL);
        edit(dir, cases[i][0], cases[i][1]);
        refuses(1, cases[i][2],
                test_text(TEST_BUILD "/attn-convert %s %s", dir, test_tmp("x.attn")));
    }
    dir = copied("head", NULL);
    edit(dir, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    answers(1, dir, "the tensor wte.weight is missing");
    dir = copied("base", NULL);
    edit(dir, "\"n_layer\": 3", "\"n_layer\": 3, \"pruned_heads\": {}");
    CHECK(run("touch %s/adapter_config.json", dir) == 0);
    answers(0, dir, "note: an adapter (LoRA or another of PEFT's) is beside the model");
    CHECK(run("rm %s/model.safetensors && echo {} >%s/adapter_config.json", dir, dir) == 0);
    answers(1, dir, "holds an adapter without its model");
    CHECK(run("echo {} >%s/pytorch_model.bin.index.json", dir) == 0);
    answers(1, dir, "pytorch_model.bin.index.json has no object weight_map");
    /* a buffer of a layer's dropout is left out */
    answers(0, renamed("s/model.v_head.summary.bias/model.h.0.mlp.dropout.mas/"),
            "note: 4 tensors are not part of GPT-2");
    /* whatever stands before the embedding's name stands before all names; of two models, none */
    answers(0, renamed("s/_orig_mod.module.model/_orig_mod.policy.base_/g"), "");
    answers(1, renamed("s/model.v_head.summary.bias/others.network.wte.weight/"),
            "holds two models, whose tensors begin with \"");
    CHECKF(strstr(err, "\"others.network.\"") != NULL, "%s", err);
    /* the message about a tensor that is missing names the nearest */
    answers(1, renamed("s/h.1.attn.c_proj.bias/h.1.attn.c_proj.lora/g"),
            "the tensor h.1.attn.c_proj.bias is missing (config.json asks for 2 layers); "
            "the nearest is h.1.attn.c_proj.lora");
    /* a bias of the logits is no head of its own */
    answers(1, renamed("s/model.v_head.summary.bias/model.module.lm_head.bias/"),
            "lm_head.bias is a bias of the logits, which GPT-2 lacks");
}

/* >> The other way ============================================================================= */

/* A .attn file without the SHA-256 of its checkpoint, which differs where the checkpoint does. */
static unsigned char *without_sum(const char *path, size_t *size)
{
    static const char key[] = "checkpoint_sha256";
    unsigned char *const file = test_read(path, size);
    size_t at;
    if (!CHECK(file && get_u32(file + 8) >= 4))
        return file;
    size_t end = (size_t)(get_u64(file + 96) + get_u64(file + 104));
    end = end > 0 ? end : (size_t)(256 + get_u64(file + 80));
    end = (end + 63) / 64 * 64;
    memset(file + end, 0, 8); /* the checksum of the strings */
    for (at = end; at + sizeof key + 64 < *size && memcmp(file + at, key, sizeof key) != 0; at++)
        continue;
    memset(file + at + sizeof key, '0', 64);
    return file;
}

static int same_but_sum(const char *path, const char *other)
{
    size_t size[2] = {0, 0};
    unsigned char *const a = without_sum(path, &size[0]), *const b = without_sum(other, &size[1]);
    const int same = a && b && size[0] == size[1] && memcmp(a, b, size[0]) == 0;
    free(a);
    free(b);
    return same;
}

/* Out of a .attn file and in again, by either format, it is the same file, of another checkpoint. */
static void there_and_back(const char *path, int as_gguf)
{
    const char *const gguf = test_text("%s", test_tmp("back.gguf"));
    const char *const dir = test_text("%s", test_tmp("back"));
    const char *const again = test_text("%s", test_tmp("again.attn"));
    CHECK(run("rm -rf %s %s", dir, gguf) == 0);
    CHECKF(run(TEST_BUILD "/attn-convert %s %s", path, dir) == 0 && strstr(err, "wrote back: "),
           "%s: %s", path, err);
    CHECKF(run(TEST_BUILD "/attn-convert %s %s", dir, again) == 0, "%s: %s", path, err);
    CHECKF(same_but_sum(path, again), "%s: another file by way of a directory", path);
    if (!as_gguf) {
        CHECK(run(TEST_BUILD "/attn-convert %s %s", path, gguf) == 1);
        CHECKF(strstr(err, "GGUF's gpt2 has gelu by tanh") != NULL, "%s", err);
        return;
    }
    CHECKF(run(TEST_BUILD "/attn-convert %s %s -q", path, gguf) == 0, "%s: %s", path, err);
    if (err_size > 0 && CHECKF(strstr(err, "its head, of a cl") != NULL, "%s: %s", path, err))
        return;
    CHECKF(run(TEST_BUILD "/attn-convert %s %s", gguf, again) == 0, "%s: %s", path, err);
    CHECKF(same_but_sum(path, again), "%s: another file by way of GGUF", path);
}

/* Makes "<|endoftext|>" of a .attn file another special token. */
static void rename_special(const char *path)
{
    size_t size;
    SCOPED_BYTES file = test_read(path, &size);
    for (size_t i = 0; file && i + 13 < size; i++)
        if (memcmp(file + i, "<|endoftext|>", 13) == 0)
            file[i + 3] = 'X';
    if (CHECK(file != NULL)) {
        put_u64(file + 112,
                model_checksum(0, file + get_u64(file + 96), (size_t)get_u64(file + 104)));
        put_u64(file + 248, model_checksum(0, file, 248));
        test_write(path, file, size);
    }
}

TEST(there_and_back_again)
{
    static const char *const others[] = {"sharded", "bf16", "tiny.gguf"};
    const char *const path = test_text("%s", test_tmp("there.attn"));
    there_and_back(TEST_BUILD "/tiny-stories.attn", 1);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CHECK(run(TEST_BUILD "/attn-convert tests/fixtures/convert/%s %s", others[i], path) == 0);
        there_and_back(path, 1);
    }
    rename_special(path); /* of the last one: no reader takes this for special by itself */
    there_and_back(path, 1);
    for (size_t i = 0; i < N_MEMBERS; i++) {
        attn_model_close(member_of(&members[i], "--quiet 2>/dev/null"));
        CHECK(run("cp %s %s", test_tmp("member.attn"), path) == 0);
        there_and_back(path, members[i].in_gguf);
    }
}

/* 8 and 4 bits become Q8_0 and Q4_0, whose numbers are the same, where rows are whole blocks of 32;
 * else, and for Hugging Face, f32. */
TEST(quantised_and_back)
{
    static const char *const inputs[] = {"tests/fixtures/convert/tiny.gguf",
                                         "tests/fixtures/convert/sharded"},
                             *dtypes[] = {"q8", "q4"}, *ends[] = {".gguf", ""};
    char to[512];
    const char *const from = test_text("%s", test_tmp("quantised.attn"));
    const char *const back = test_text("%s", test_tmp("again.attn"));
    for (size_t n = 0; n < 8; n++) {
        SCOPED_CTX ctx = alone();
        attn_model *a = NULL, *b = NULL;
        snprintf(to, sizeof to, "%s%s", test_tmp("quantised"), ends[n & 1]);
        CHECK(run("rm -rf %s && " TEST_BUILD "/attn-convert %s %s --dtype %s", to, inputs[n >> 2],
                  from, dtypes[n >> 1 & 1]) == 0);
        CHECKF(run(TEST_BUILD "/attn-convert %s %s && " TEST_BUILD "/attn-convert %s %s", from, to,
                   to, back) == 0,
               "%s: %s", to, err);
        if (!(n & 1)) /* 107 KB as f32 */
            CHECK((run("test $(wc -c <%s) -lt 60000", to) == 0) == (n < 4));
        if (OK(&ctx, attn_model_open(&ctx, &a, from, NULL)) &&
            OK(&ctx, attn_model_open(&ctx, &b, back, NULL)))
            for (size_t i = 0; i < model_n_tensors(a); i++) {
                attn_tensor x = {0}, y = {0};
                model_tensor info = model_tensor_at(a, i);
                if (OK(&ctx, attn_model_tensor(&ctx, &x, a, info.name)) &&
                    OK(&ctx, attn_model_tensor(&ctx, &y, b, info.name)))
                    CHECKF(attn_count(x) == attn_count(y) &&
                               memcmp(x.data, y.data, attn_count(x) * 4) == 0,
                           "%s by way of %s: other numbers", info.name, to);
                attn_tensor_free(&ctx, &x);
                attn_tensor_free(&ctx, &y);
            }
        attn_model_close(a);
        attn_model_close(b);
    }
}

/* What transformers and the gguf package make of it, where they are installed. */
TEST(opened_by_those_it_is_for)
{
    if (run("python3 -c 'import torch, transformers, gguf'") != 0) {
        test_skip("no torch, transformers and gguf here");
        return;
    }
    const char *const path = test_text("%s", test_tmp("member.attn"));
    const char *const other = test_text("%s", test_tmp("sharded.attn"));
    attn_model_close(member_of(&members[10], "--quiet 2>/dev/null"));
    CHECK(run(TEST_BUILD "/attn-convert tests/fixtures/convert/sharded %s", other) == 0);
    CHECKF(run("python3 tests/compare/truth/check_export.py " TEST_BUILD " " TEST_BUILD
               "/tiny-stories.attn %s %s",
               path, other) == 0,
           "%s%s", out, err);
}

/* A directory that is in use is left alone, and a failure leaves nothing behind. */
TEST(not_exported)
{
    static const char *const refusals[][2] = {
        {"$C $A $D --dtype f16", "is written as it is"},
        {"$C $A $D --tokenizer .", "is written as it is"},
        {"$C $A $D/no/such", "cannot make the directory"},
        {"$C $A $D.safetensors", "would be a directory"},
        {"$C tests/fixtures/convert/bf16 $D.gguf", "would be a .attn file in spite of its name"},
        {"$C $A LICENSE", "LICENSE is a file; expected a directory"},
        {"mkdir -p $D.gguf && $C $A $D.gguf", ".gguf is a directory; expected a file name"},
        {"ln -sf x.attn $D.link.gguf && $C $A $D.link.gguf", "is part of the input"},
        {"mkdir $D && echo {} >$D/config.json && $C $A $D", "holds a config.json already"}};
    char path[600];
    char *special;
    size_t size, i;
    const char *const attn = test_text("%s", test_tmp("x.attn"));
    const char *const dir = test_text("%s", test_tmp("exported"));
    CHECK(run("rm -rf %s", dir) == 0);
    CHECK(run(TEST_BUILD "/attn-convert tests/fixtures/convert/bf16 %s", attn) == 0);
    for (i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        CHECKF(run("A=%s; D=%s; C=" TEST_BUILD "/attn-convert; %s", attn, dir, refusals[i][0]) ==
                       1 &&
                   strstr(err, refusals[i][1]),
               "%s: %s", refusals[i][0], err);
    CHECK(run("rm %s/config.json && " TEST_BUILD "/attn-convert %s %s --no-tokenizer", dir, attn,
              dir) == 0);
    CHECK(run("ls %s", dir) == 0 && strcmp(out, "config.json\nmodel.safetensors\n") == 0);
    CHECK(run("rm -r %s && " TEST_BUILD "/attn-convert %s %s/ && ls %s", dir, attn, dir, dir) ==
              0 &&
          strstr(out, "merges.txt"));
    /* a special token that no JSON can hold */
    SCOPED_BYTES file = test_read(attn, &size);
    for (i = 0, special = NULL; file && i + 13 < size && !special; i++)
        if (memcmp(file + i, "<|endoftext|>", 13) == 0)
            special = (char *)file + i;
    if (CHECK(special != NULL)) {
        *special = (char)0xff;
        put_u64(file + 112,
                model_checksum(0, file + get_u64(file + 96), (size_t)get_u64(file + 104)));
        put_u64(file + 248, model_checksum(0, file, 248));
        test_write(attn, file, size);
        CHECK(run("rm -r %s", dir) == 0);
        CHECK(run(TEST_BUILD "/attn-convert %s %s", attn, dir) == 1 &&
              strstr(err, "a special token is not UTF-8"));
        CHECKF(run("ls %s", dir) != 0, "a directory is left");
        snprintf(path, sizeof path, "%s/x.gguf", dir);
        CHECK(run("mkdir %s", dir) == 0);
        CHECK(run(TEST_BUILD "/attn-convert %s %s", attn, path) == 1 &&
              strstr(err, "a special token is not UTF-8"));
        CHECK(run(TEST_BUILD "/attn-convert %s %s", attn, dir) == 1);
        CHECKF(run("ls -A %s", dir) == 0 && out_size == 0, "%s", out);
        file[300] ^= 1;
        test_write(attn, file, size);
        CHECK(run(TEST_BUILD "/attn-convert %s %s", attn, dir) == 1 && strstr(err, "checksum"));
    }
}
