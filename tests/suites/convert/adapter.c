/* attn-convert --adapter: PEFT merged the same adapters (make_adapters.py). And what a model of one's own says in other
 * files than config.json. */
#define PROGRAM "test"
#include "tools/common/program.h"
#include "tests/support/converting.h"

SUITE_WITH(NULL, forget);

#define BASE     FIXTURES "bf16"
#define ADAPTERS "tests/fixtures/adapters/"
#define FIRST    "--adapter " ADAPTERS "first"
#define SECOND   "--adapter " ADAPTERS "second"

/* A line of attn-info about the converted model. */
static const char *info(const char *key)
{
    static char line[200];
    line[0] = 0;
    CHECK(run(TEST_BUILD "/attn-info %s", test_tmp("converted.attn")) == 0);
    const char *const at = strstr(out, key);
    if (at)
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

TEST(the_bits_of_peft)
{
    static const char *const cases[][2] = {{FIRST " " SECOND, "../adapters/two"},
                                           {"--adapter " ADAPTERS "third", "../adapters/third"}};
    char sum[200];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        attn_model *const model = converted(BASE, cases[i][0]);
        if (model)
            same_as_reference(model, cases[i][1]);
        attn_model_close(model);
    }
    /* its sum is that of all files, and its name is not the base's */
    edit(copied(BASE), "config.json", "\"model_type\"",
         "\"model_name\": \"small\", \"model_type\"");
    attn_model_close(converted(test_tmp("variant"), ""));
    CHECK(*info("small"));
    snprintf(sum, sizeof sum, "%s", info("checkpoint_sha256"));
    attn_model_close(converted(test_tmp("variant"), FIRST));
    CHECK(!*info("small") && *sum && strcmp(info("checkpoint_sha256"), sum) != 0);
}

/* Each setting and tensor that PEFT would take for something else is named. */
TEST(what_is_not_merged)
{
    static const mistake settings[] = {
        {"\"use_dora\": false", "\"use_dora\": true",
         "adapter_config.json has use_dora on, which cannot be merged here"},
        {"\"LORA\"", "\"LOHA\"", "peft_type LOHA, which"},
        {"\"peft_type\"", "\"Peft_type\"", "no adapter_config.json with a peft_type"},
        {"\"init_lora_weights\": false", "\"init_lora_weights\": \"pissa\"",
         "init_lora_weights pissa"},
        {"\"trainable_token_indices\": null", "\"trainable_token_indices\": [3]",
         "trainable_token_indices"},
        {"\"use_qalora\": false", "\"unheard_of\": 1", "unheard_of"},
        {"\"mlp.c_fc\": 5", "\"mlp.c_f?\": 5", "alpha_pattern has a regular expression"},
        {"\"mlp.c_fc\": 5", "\"mlp.c_fc\": [5]", "the alpha of transformer.h.0.mlp.c_fc is not"}};
    static const mistake tensors[] = {
        {"h.0.mlp.c_fc.lora_A", "h.0.mlp.c_fc.lora_X", "h.0.mlp.c_fc.lora_B.weight and its A"},
        {"h.0.mlp.c_fc.lora_B", "h.0.mlp.c_fC.lora_B", "sizes of the model's h.0.mlp.c_fC.weight"},
        {"[48,3]", "[3,48]", "sizes of the model's h.0.attn.c_attn.weight"},
        {"transformer.ln_f.weight", "transformer.h.1.ln_1.bias",
         "nothing in a GPT-2 of 1 layers asks for the tensor h.1.ln_1.bias"}};
    char options[600];
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        snprintf(options, sizeof options, "--adapter %s",
                 variant(ADAPTERS "first", "adapter_config.json", settings[i].find,
                         settings[i].replace));
        refused(BASE, options, settings[i].text);
    }
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        snprintf(options, sizeof options, "--adapter %s",
                 variant(ADAPTERS "first", "adapter_model.safetensors", tensors[i].find,
                         tensors[i].replace));
        refused(BASE, options, tensors[i].text);
    }
    refused(BASE, "--adapter " BASE, "has no adapter_config.json");
    refused(FIXTURES "tiny.gguf", FIRST, "--adapter is for models whose tensors have Hugging");
    refused(ADAPTERS "first", "",
            "--adapter tests/fixtures/adapters/first merges it, BASE being the directory of "
            "someone/tiny");
    copied(ADAPTERS "second");
    CHECK(run(TEST_BUILD "/attn-convert " BASE " %s/adapter_model.bin --adapter %s",
              test_tmp("variant"), test_tmp("variant")) == 1);
    CHECKF(strstr(err, "adapter_model.bin is part of the input") != NULL, "%s", err);
}

/* Of the files that name a token, that counts which would in transformers. */
TEST(tokens_outside_the_vocabulary)
{
    static const struct {
        const char *config, *map, *generation, *options;
        int bos, eos;
        const char *from;
    } cases[] = {{"{\"bos_token\": \"other\", \"eos_token\": \"t,\"}", "{\"bos_token\": \"t,\"}",
                  "{\"bos_token_id\": 7}", "", 296, 297, "taken from tokenizer_config.json"},
                 {"{\"tokenizer_class\": \"GPT2Tokenizer\"}",
                  "{\"bos_token\": \"other\", \"eos_token\": {\"content\": \"t,\"}}",
                  "{\"bos_token_id\": 7}", "", 296, 297, "taken from special_tokens_map.json"},
                 {"{}", "{}", "{\"bos_token_id\": 7, \"eos_token_id\": 9}", "", 7, 9,
                  "taken from generation_config.json"},
                 {"{}", "{}", "{\"bos_token_id\": 300}", "", 299, 299, "default, <|endoftext|>"},
                 {"{}", "{}", "{}", "--no-tokenizer", -1, -1, "write the right id there"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const dir =
            variant(BASE, "config.json", "\"bos_token_id\": 299", "\"bos_token_id\": 50256");
        edit(dir, "config.json", "[\n  299\n ]", "50256");
        if (cases[i].bos == 296) /* no merge makes special tokens */
            CHECK(run("sed -i '/^othe r$/d; /^t ,$/d' %s/merges.txt", dir) == 0);
        write_in(dir, "tokenizer_config.json", cases[i].config, strlen(cases[i].config));
        write_in(dir, "special_tokens_map.json", cases[i].map, strlen(cases[i].map));
        write_in(dir, "generation_config.json", cases[i].generation, strlen(cases[i].generation));
        attn_model *const model = converted(dir, cases[i].options);
        if (!model)
            continue;
        const attn_config *const c = attn_model_config(model);
        CHECKF(c->bos == cases[i].bos && c->eos == cases[i].eos, "%zu: %d and %d", i, (int)c->bos,
               (int)c->eos);
        CHECKF(strstr(err, "note: config.json: bos_token_id 50256 is outside the vocabulary of "
                           "300; ") &&
                   strstr(err, cases[i].from),
               "%zu: %s", i, err);
        attn_model_close(model);
    }
}

/* A Trainer writes the tokenizer above its checkpoints, or nowhere. */
TEST(vocabulary_above_a_checkpoint)
{
    const char *const dir = copied(BASE);
    attn_model *model;
    CHECK(run("mkdir %s/checkpoint-500 %s/other && cd %s && cp config.json model.safetensors other "
              "&& mv config.json model.safetensors checkpoint-500",
              dir, dir, dir) == 0);
    model = converted(test_tmp("variant/checkpoint-500"), "");
    CHECK(model && attn_model_tokenizer(model) && strstr(err, "checkpoint-500/.. is taken"));
    attn_model_close(model);
    model = converted(test_tmp("variant/other"), "");
    CHECK(model && !attn_model_tokenizer(model) && strstr(err, "--tokenizer DIR takes"));
    attn_model_close(model);
}
