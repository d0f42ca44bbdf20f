/* The settings of surprisal: options of the program, and of questions of callers in the process. */
#ifndef SURPRISAL_SETTINGS_H
#define SURPRISAL_SETTINGS_H

#include "tools/common/prompt.h"
#include "run.h"

/* Bits of the pages of help, and of the commands that callers ask. */
enum {
    SURPRISAL_PAGE = 1,
    FORMULA_PAGE = 2,
    VECTORS_PAGE = 4,
    SUITE_PAGE = 8,
    OF_SURPRISAL = 16,
    OF_SUITE = 32,
    OF_COLUMNS = 64
};

static const struct option surprisal_settings[] = {
#define SETTING(bits, member) offsetof(surprisal_options, member), bits
    {'o', "output", "FILE", OUTPUT, SETTING(SURPRISAL_PAGE, output), NULL,
     "write there; the file appears when it is whole"},
    {0, "receipt", "FILE", OUTPUT, SETTING(SURPRISAL_PAGE, receipt), NULL, RECEIPT_HELP},
    {0, "resume", NULL, FLAG, SETTING(SURPRISAL_PAGE, resume), NULL,
     "go on where FILE.part of an interrupted run ends"},
    {'c', "column", "NAME", TEXT, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, column), NULL,
     "FILE is CSV or TSV, and this column has the texts; the others are carried to the output"},
    {0, "by", "NAME", CHOICE, SETTING(SURPRISAL_PAGE | OF_SURPRISAL | OF_SUITE, by),
     "word token region", "a row for each word (default), token or region"},
    {0, "regions", "MARK", TEXT, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, regions), NULL,
     "words joined by MARK are a region: the old_man"},
    {0, "region-names", "COLUMN", TEXT, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, region_names), NULL,
     "this column has a name for each region"},
    {0, "unit", "NAME", CHOICE, SETTING(SURPRISAL_PAGE | OF_SURPRISAL | OF_SUITE, unit),
     "bits nats", "bits (default) or nats"},
    {0, "rank", NULL, FLAG, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, rank), NULL,
     "add how many tokens were likelier than the first one"},
    {0, "top", "COUNT", COUNT, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, top), "0 1000",
     "add the likeliest tokens before the word"},
    {0, "layers", "LIST", TEXT, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, layers), NULL,
     "add the surprisal by layers, as 0,6,11, or by all"},
    {0, "tuned", "FILE", TEXT, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, tuned), NULL,
     "through this tuned or Jacobian lens, a file"},
    {0, "entropy-reduction", NULL, FLAG, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, entropy_reduction),
     NULL, "add by how much the word lowers the entropy"},
    {0, "renyi", "ORDER", NUMBER, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, renyi), "0.01 100",
     "add the entropy of Renyi of this order, as 0.5"},
    {0, "spillover", "COUNT", COUNT, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, spillover), "0 100",
     "add the numbers of so many rows before"},
    {0, "vectors", "NAME", TEXTS, SETTING(VECTORS_PAGE | OF_SURPRISAL, vectors), NULL,
     "an activation at the words: blocks.8.hook_resid_post"},
    {0, "vectors-file", "FILE", OUTPUT, SETTING(VECTORS_PAGE, vectors_file), NULL,
     "the vectors go there, .npz or .safetensors"},
    {0, "pooling", "NAME", CHOICE, SETTING(VECTORS_PAGE | OF_SURPRISAL, pooling), "mean first last",
     "of a word's tokens (default: mean)"},
    {0, "dtype", "NAME", CHOICE, SETTING(VECTORS_PAGE, dtype), "f32 f16",
     "of the vectors (default: f32)"},
    {0, "suite", NULL, FLAG, SETTING(SUITE_PAGE, is_suite), NULL,
     "FILE is a suite of SyntaxGym, or has pairs of sentences"},
    {0, "pair", "GOOD,BAD", TEXT, SETTING(SUITE_PAGE | OF_SUITE, pair), NULL,
     "columns of the pairs (default: sentence_good,sentence_bad)"},
    {0, "group", "NAME", TEXT, SETTING(SUITE_PAGE | OF_SUITE, group), NULL,
     "and of their groups (default: field)"},
    {0, "corrected", NULL, FLAG, SETTING(SUITE_PAGE | OF_SUITE, corrected), NULL,
     "the suite compares surprisal, not uncorrected"},
    {0, "punctuation", "NAME", CHOICE,
     SETTING(SURPRISAL_PAGE | OF_SURPRISAL | OF_SUITE, punctuation), "word apart",
     "it belongs to the word that it touches (word), or\nhas rows of its own (apart)"},
    {0, "continue", NULL, FLAG, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, continues), NULL,
     "the items are one running text"},
    {0, "text-column", "COLUMN", TEXT, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, text_column), NULL,
     "rows with the same value there, one after the other, are one text"},
    {0, "context", "COUNT", TEXT, SETTING(SURPRISAL_PAGE | OF_SURPRISAL, context), NULL,
     "read each word behind COUNT tokens alone; 20w: words"},
    {0, "stride", "COUNT", COUNT, SETTING(SURPRISAL_PAGE | OF_SURPRISAL | OF_SUITE, stride),
     "1 1000000000",
     "the least tokens before a word where a text is longer than the context "
     "(default: 512, or half of it)"},
    {0, "no-bos", NULL, FLAG, SETTING(SURPRISAL_PAGE | OF_SURPRISAL | OF_SUITE, no_bos), NULL,
     "no beginning-of-text token: first words become NA"},
    {0, "special", NULL, FLAG, SETTING(SURPRISAL_PAGE | OF_SURPRISAL | OF_SUITE, special), NULL,
     "<|endoftext|> in a text is a token"},
    {0, "json", NULL, FLAG, SETTING(SURPRISAL_PAGE, json), NULL,
     "a JSON object a row, with the names of the columns"},
    {0, "batch", "COUNT", COUNT, SETTING(SURPRISAL_PAGE, batch), "1 256",
     "most texts at a time (default 64)"},
    {'t', "threads", "COUNT", COUNT, SETTING(SURPRISAL_PAGE, threads), THREADS,
     "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, SETTING(SURPRISAL_PAGE, isa), ISA_NAMES,
     "an instruction set (default: the best)"},
    {0, "skip-checksums", NULL, FLAG, SETTING(SURPRISAL_PAGE, skip_checksums), NULL,
     "open without verifying the file"},
    {'q', "quiet", NULL, FLAG, SETTING(SURPRISAL_PAGE, quiet), NULL, "no notes on standard error"},
    PROGRAM_OPTIONS(SURPRISAL_PAGE),
    /* of callers alone */
    {0, "texts", "TEXTS", COLUMN, 0, OF_SURPRISAL, NULL, "texts, each of which is read by itself"},
    {0, "file", "FILE", TEXT, SETTING(OF_SURPRISAL | OF_SUITE | OF_COLUMNS, file), NULL,
     "texts, one a line, or a table with a column of them; or a suite, or pairs of sentences"},
};
#undef SETTING

/* For --help columns: N stands for a number, LAYER for one of the model's, NAME for another column. Behind them are those of
 * the input. The suite `waist` compares them with answers. */
static const char *const surprisal_columns[][2] = {
    {"surprisal",
     "rows: text index | word tokens surprisal uncorrected entropy [entropy_reduction renyi "
     "surprisal.LAYER prevN_NAME token token_id region rank topN topN_probability]\n"
     "vectors: row width | value"},
    {"surprisal --suite, SyntaxGym",
     "rows: prediction | items hold share low high formula [holds]"},
    {"surprisal --suite, pairs", "rows: group | pairs right ties accuracy low high"},
    {"surprisal --suite --by region, SyntaxGym",
     "rows: item condition region | content tokens surprisal uncorrected"},
    {"surprisal --suite --by region, pairs", "rows: line | group better worse decision"},
    {NULL, NULL}};

enum {
    N_SURPRISAL_SETTINGS = sizeof surprisal_settings / sizeof surprisal_settings[0],
    N_SURPRISAL_OPTIONS = N_SURPRISAL_SETTINGS - 2 /* of the program */
};

#endif
