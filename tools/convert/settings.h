/* The settings of a conversion. */
#ifndef CONVERT_SETTINGS_H
#define CONVERT_SETTINGS_H

#include "convert.h"

enum { OF_CONVERT = 1 };

static const struct option convert_settings[] = {
#define AT(member) offsetof(convert_options, member), OF_CONVERT
    {'m', "model", "INPUT", TEXT, AT(input), NULL, "the checkpoint, if it is not the first word"},
    {'o', "output", "FILE", TEXT, AT(output), NULL,
     "the file to write, if it is not the next word"},
    {0, "dtype", "TYPE", CHOICE, AT(dtype), DTYPES,
     "store the weights as f32, f16, q8 (8 bits) or q4 (4 bits); "
     "default: f16 if they are all f16, else f32: nothing is lost"},
    {0, "tokenizer", "DIR", TEXT, AT(tokenizer), NULL, "take the vocabulary from this directory"},
    {0, "no-tokenizer", NULL, FLAG, AT(no_tokenizer), NULL, "leave the vocabulary out"},
    {0, "ignore-normalizer", NULL, FLAG, AT(ignore_normalizer), NULL,
     "take a vocabulary whose normalizer changes texts, which you then change yourself"},
    {0, "adapter", "DIR", TEXTS, AT(adapters), NULL,
     "merge this adapter into the model: LoRA, as PEFT's save_pretrained wrote it; several in turn"},
    {0, "prefix", "NAME", TEXT, AT(prefix), NULL,
     "of several models in one file, the one whose tensors' names begin so, or that has this key"},
    {0, "name", "NAME", TEXT, AT(said[SAID_NAME]), NULL,
     "what the file calls the model; default: what the checkpoint says"},
    {0, "source", "TEXT", TEXT, AT(said[SAID_SOURCE]), NULL,
     "where the checkpoint comes from, such as its address; default: what it says"},
    {0, "license", "NAME", TEXT, AT(said[SAID_LICENSE]), NULL,
     "the license of the weights; default: what the checkpoint says"},
    {'q', "quiet", NULL, FLAG, AT(quiet), NULL, "no summary on standard error"},
    PROGRAM_OPTIONS(OF_CONVERT),
};
#undef AT
enum { N_CONVERT_SETTINGS = sizeof convert_settings / sizeof convert_settings[0] };

/* Refuses settings that contradict each other. */
TOOLS_FN int convert_check(const convert_options *o)
{
    static const char *const options_said[] = {"--name", "--source", "--license"};
    if (strcmp(o->output, "-") == 0)
        return fail(USAGE, "the output is a file that appears when it is whole, "
                           "so standard output cannot be one: give a name");
    for (size_t i = 0; i < N_SAID; i++)
        if (o->said[i] && !card_is_text(o->said[i], strlen(o->said[i])))
            return fail(USAGE,
                        "%s needs a text of 1 to %d bytes in UTF-8, without control characters",
                        options_said[i], (int)CARD_MAX_TEXT);
    if (o->tokenizer && o->no_tokenizer)
        return fail(USAGE, "--tokenizer and --no-tokenizer contradict each other: give one");
    return FINE;
}

TOOLS_FN void convert_set_defaults(void *options)
{
    ((convert_options *)options)->dtype = -1;
}

TOOLS_FN void end_conversion(conversion *c)
{
    source_close(&c->s);
    attn_ctx_free(&c->ctx);
}

#endif
