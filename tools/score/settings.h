/* The settings of score: options of the program, and of questions of callers in the process. */
#ifndef SCORE_SETTINGS_H
#define SCORE_SETTINGS_H

#include "run.h"

/* Bits of the pages of help, and of the question of callers. */
enum { SCORE_PAGE = 1, KEYS_PAGE = 2, OF_SCORE = 4 };

static const struct option score_settings[] = {
#define SETTING(bits, member) offsetof(score_options, member), bits
    {'m', "model", "FILE", TEXT, SETTING(SCORE_PAGE, model), NULL,
     "the model, if it is not the first word"},
    {'f', "file", "FILE", TEXT, SETTING(SCORE_PAGE, file), NULL,
     "the lines, if it is not the next word"},
    {'o', "output", "FILE", OUTPUT, SETTING(SCORE_PAGE, output), NULL,
     "write the answers there (-: standard output)"},
    {0, "receipt", "FILE", OUTPUT, SETTING(SCORE_PAGE, receipt), NULL, RECEIPT_HELP},
    {0, "resume", NULL, FLAG, SETTING(SCORE_PAGE, resume), NULL,
     "go on where -o FILE ends, which without this is not overwritten; begin if there is no FILE. "
     "Its last answer is compared, earlier ones are not"},
    {0, "shard", "I/N", TEXT, SETTING(SCORE_PAGE, shard), NULL,
     "answer lines I, I + N, I + 2N .. only: one of N parts, which paste -d '\\n' PART1 PART2 ... "
     "| grep . puts together again"},
    {0, "task", "NAME", CHOICE, SETTING(SCORE_PAGE | OF_SCORE, task), TASKS,
     "the task of lines that name none (default: score)"},
    {0, "bos", NULL, FLAG, SETTING(SCORE_PAGE | OF_SCORE, bos), NULL,
     "begin each text with the beginning-of-text token"},
    {0, "special", NULL, FLAG, SETTING(SCORE_PAGE | OF_SCORE, special), NULL,
     "<|endoftext|> in a text is a token"},
    {0, "lines", NULL, FLAG, SETTING(SCORE_PAGE | OF_SCORE, lines), NULL,
     "FILE is plain text, and each line of it is a text"},
    {0, "carry", NULL, FLAG, SETTING(SCORE_PAGE | OF_SCORE, carry), NULL,
     "return keys that score does not know, under \"given\""},
    {0, "strict", NULL, FLAG, SETTING(SCORE_PAGE, strict), NULL,
     "exit code 1 if any line gets an error"},
    {0, "batch", "COUNT", COUNT, SETTING(SCORE_PAGE, batch), "1 256",
     "most texts at a time (default 64). 64 texts of 1000 tokens take 1.1 GB with GPT-2 124M"},
    {'t', "threads", "COUNT", COUNT, SETTING(SCORE_PAGE, threads), THREADS,
     "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, SETTING(SCORE_PAGE, isa), ISA_NAMES, ISA_HELP},
    {0, "f16-cache", NULL, FLAG, SETTING(SCORE_PAGE | OF_SCORE, f16_cache), NULL,
     "round keys and values to half the bytes"},
    {0, "skip-checksums", NULL, FLAG, SETTING(SCORE_PAGE, skip_checksums), NULL,
     "open without verifying the file"},
    {'q', "quiet", NULL, FLAG, SETTING(SCORE_PAGE, quiet), NULL,
     "no progress and statistics on standard error"},
    PROGRAM_OPTIONS(SCORE_PAGE),
    /* of callers alone */
    {0, "requests", "LINES", COLUMN, 0, OF_SCORE, NULL,
     "requests, one a line or one a text; with --lines the lines are texts"},
};
#undef SETTING

/* For --help columns: those in brackets are of some tasks. The suite `waist` compares them with answers. */
static const char *const score_columns[][2] = {
    {"score",
     "scores: line | task [id given error logprob greedy ids tokens logprobs ranks text reason "
     "embedding positions layers top labels logits]"},
    {NULL, NULL}};

enum {
    N_SCORE_SETTINGS = sizeof score_settings / sizeof score_settings[0],
    N_SCORE_OPTIONS = N_SCORE_SETTINGS - 1 /* of the program */
};

#endif
