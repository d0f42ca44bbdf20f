/* cc tools/convert/attn-convert.c -I. -O2 -lm -o attn-convert
 *
 * Converts checkpoints of GPT-2 to .attn files, and .attn files to checkpoints: convert.h does it. */
#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "attn-convert"
#define INPUT   "checkpoint"
#include "settings.h"
#include "tools/common/interrupt.h"

static void print_inputs(void)
{
    printf("\nInput:\n");
    print_row(
        "a directory", 15,
        "of Hugging Face: config.json; model.safetensors or pytorch_model.bin, or shards with "
        "their index; "
        "tokenizer.json, or vocab.json and merges.txt, or all three; or of TransformerLens: "
        "the fields of model.cfg in config.json, model.state_dict() in model.safetensors");
    print_row("a .pt file", 15,
              "what torch.save wrote, and no code of it runs: a training state (nanoGPT's ckpt.pt, "
              "Lightning's, one's own) with its configuration, or beside config.json; with the "
              "vocabulary beside it (meta.pkl: nanoGPT's characters)");
    print_row("a GGUF file", 15,
              "architecture gpt2; F32, F16, BF16, F64, Q2_K to Q6_K, Q4_0 to Q8_0, IQ4_NL, IQ4_XS");
    print_row("an llm.c file", 15, "checkpoint of version 3 (f32) or 5 (bf16)");
    print_row("a .attn file", 15,
              "the other way: OUTPUT is a directory for Hugging Face, or FILE.gguf for llama.cpp");
}

static const help_page help = {
    .usage = "attn-convert INPUT OUTPUT.attn [options]",
    .about = "Converts a GPT-2 checkpoint. OUTPUT.attn appears when it is complete.",
    .print_rows = print_inputs};

/* Assigns the words, and refuses options that contradict each other. */
static int check_usage(convert_options *o, const arguments *given, const char *hint)
{
    size_t next = 0;
    o->input = option_or_word(o->input, given, &next);
    o->output = option_or_word(o->output, given, &next);
    if (!o->input)
        return fail(USAGE,
                    "no checkpoint given: attn-convert INPUT OUTPUT.attn (--help tells more)");
    if (!o->output)
        return fail(USAGE, "no output given: attn-convert %s OUTPUT.attn (--help tells more)",
                    o->input);
    if (next < given->n_words)
        return refuse_word(given->words[next], hint);
    return convert_check(o);
}

/* Prints one line on standard error: the file that was written, and its checkpoint. */
static void print_summary(const conversion *c, double began)
{
    size_t size;
    const char *const dtype = name_at(DTYPES, (int)c->dtype, &size);
    fprintf(stderr, "wrote %s: %.1f MB", base_name(c->o.output), (double)c->n_bytes / 1e6);
    if (c->n_parameters)
        fprintf(stderr, ", %.1f million parameters", (double)c->n_parameters / 1e6);
    fprintf(stderr, " in %llu tensors", TOOLS_LLU(c->n_tensors));
    if (c->n_parameters)
        fprintf(stderr, ", weights in %.*s", (int)size, dtype);
    if (c->n_tokens)
        fprintf(stderr, ", a vocabulary of %llu tokens", TOOLS_LLU(c->n_tokens));
    else
        fputs(", no vocabulary", stderr);
    fprintf(stderr, "; read %s: %.1f MB; took %.1f s\n", base_name(c->o.input),
            (double)c->n_read / 1e6, system_seconds() - began);
}

static int run(conversion *c)
{
    const double began = system_seconds();
    static progress line;
    c->ctx.stop_flag = &interrupted;
    c->progress_fn = verified_so_far;
    c->progress_user = &line;
    progress_begin(&line, "converting");
    const attn_status status = convert(c);
    progress_end(&line);
    if (!status && !c->o.quiet)
        print_summary(c, began);
    return status ? fail_ctx(&c->ctx) : FINE;
}

int main(int argc, char **argv)
{
    static conversion c;
    static arguments given;
    const program self = {convert_settings,
                          N_CONVERT_SETTINGS,
                          2,
                          "give one input and one output",
                          &help,
                          1,
                          NULL,
                          NULL,
                          NULL};
    int code;
    system_begin(&argc, &argv);
    convert_set_defaults(&c.o);
    if (!read_command_line(&self, argc, argv, &c.o, &given, &code) ||
        (code = check_usage(&c.o, &given, self.hint)) != FINE)
        return code;
    system_catch(on_interrupt);
    code = run(&c);
    end_conversion(&c);
    if (interrupted)
        system_end_by(interrupted);
    return code;
}
