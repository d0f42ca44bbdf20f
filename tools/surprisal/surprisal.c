/* cc tools/surprisal/surprisal.c -I. -O2 -fopenmp -lm -o surprisal     (without -fopenmp: one thread)
 *
 * Says how surprising each word of a text is to a model: -log2 of its probability after the words before
 * it, as CSV. A word's probability is that of its tokens, and that the word ends where it does, which
 * most programs leave out: `surprisal --help formula`. The parts, each in a header beside this file:
 *
 *     run.h      the options, the input, the texts in progress, and the messages
 *     table.h    encodings, lines, CSV and TSV in
 *     words.h    words, regions, and the tokens of each
 *     measure.h  surprisal and entropy of the next token, from a row of logits
 *     layers.h   the same numbers from the stream behind each layer
 *     vectors.h  activations at the tokens of a row, as one vector
 *     rows.h     rows out, as CSV, JSON or a table
 *     formula.h  the formulas of a suite's predictions
 *     suite.h    suites of SyntaxGym, and pairs of sentences
 *     windows.h  several texts in one pass; long ones in windows
 *     check.h    refusals of wrong options and texts, before the first pass
 *     settings.h the table of options
 *     output.h   the program's output, and --resume
 *     vector_file.h  its file of vectors
 *     asked.h    questions of callers in the process: Python, R and the page
 *
 * output.h, vector_file.h and this file are the program alone. */

#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "surprisal"
#define INPUT   "texts, one a line"
#include "asked.h"
#include "tools/receipt/question.h"
#include "vector_file.h"

/* ---- the command line ---- */

static const help_page surprisal_pages[] = {
    {NULL, NULL, "surprisal MODEL.attn [FILE] [options]",
     "Prints CSV, a row for each word of each line of FILE (or standard input): "
     "text (number of the line), index, word, tokens (how many), surprisal (bits), uncorrected "
     "(bits, the sum over its tokens), entropy (bits, of the next token before the word). "
     "The same bytes on every machine, with any --threads and --batch.",
     1, NULL, NULL},
    {"formula", "what the numbers are, and whom to cite", NULL,
     "P(word) = P(its tokens) * P(a word ends after it) / P(a word ended before it)\n\n"
     "Each probability is the model's, after the tokens before. "
     "A word ends where the next token begins with a blank or ends the text. "
     "For the first word the divisor is the probability of tokens that do not begin with a blank. "
     "surprisal = -log2 P(word).\n\n"
     "Without the two factors (uncorrected) the probabilities of all words add up to more than 1: "
     "\"the\" then has the probability of \"theory\" as well. See Pimentel and Meister 2024, "
     "How to Compute the Probability of a Word, arXiv 2406.14561, and Oh and Schuler 2024, "
     "Leading Whitespaces of Language Models' Subword Vocabulary Pose a Confound for Calculating "
     "Word Probabilities, arXiv 2406.10851. For GPT-2's vocabulary both say the same.\n\n"
     "The package wordsprobability 0.17 differs in one number: "
     "it counts the end-of-text token twice in the divisor of the first word. "
     "minicons 0.3.39 (bow_correction) has no divisor for the first word, "
     "and does not count the end of the text as the end of a word.\n\n"
     "--by token: uncorrected is the token's own, and surprisal has its share of the factors, "
     "so that a word's tokens add up to the word. --by region: the sum over its words.\n\n"
     "entropy = the sum of -p * log2 p over the tokens that may come first, p their probabilities. "
     "entropy_reduction = entropy - the entropy after the row's last token "
     "(Hale 2006, Uncertainty About the Rest of the Sentence, Cognitive Science 30: there it is the "
     "entropy of the whole rest, and what is less than 0 is 0). "
     "--renyi A: renyi = log2(sum of p^A) / (1 - A), for A = 1 entropy "
     "(Renyi 1961; Pimentel et al. 2023, On the Effect of Anticipation on Reading Times, "
     "arXiv 2211.14301, who find that A = 1/2 predicts reading times best).\n\n"
     "--layers 0,6: surprisal.0 and surprisal.6 are -log2 P(word) where the last LayerNorm and the "
     "unembedding follow layer 0 or 6 at once (the logit lens: nostalgebraist 2020; "
     "Kuribayashi et al. 2025, Large Language Models Are Human-Like Internally, "
     "arXiv 2502.01615, who find that early layers fit fast reading better). "
     "That of the last layer is surprisal. --tuned FILE: the maps of a tuned lens come before "
     "(Belrose et al. 2023, Eliciting Latent Predictions from Transformers with the Tuned Lens, arXiv 2303.08112), "
     "or the matrices of a Jacobian lens (Gurnee et al. 2026); tools/lens/transformerlens.md says how to make FILE.\n\n"
     "--spillover 2: prev1_surprisal is that of the row before, prev2_surprisal of the one before "
     "that, and so on for each number from surprisal on (a word slows the reading of the next "
     "ones: Mitchell 1984, An Evaluation of Subject-Paced Reading Tasks). NA where the text begins; with --continue there is one text.",
     2, NULL, NULL},
    {"input", "what a text and a word are, and --vectors of words", NULL,
     "Blanks, tabs and line feeds part words. Several count as one blank, and those around a text "
     "as none. No-break spaces and other blanks of Unicode part no words. Notes say of how many texts this "
     "and the like is so. "
     "An empty line is a text without words: its number is used, and it has no row. "
     "The file is UTF-8, with or without a byte order mark; lines end in LF or CR LF.\n\n"
     "--column: RFC 4180, with commas, tabs or semicolons, or blanks behind names in quotes. The first line has the names. "
     "text counts the records. A file named .csv or .tsv, or with as many tabs in each line, is a table. "
     "A carried column whose name the output has already is called input_NAME. "
     "A first line such as sep=; gives the separator.\n\n"
     "--regions MARK: the mark is read as a blank. "
     "--region-names COLUMN: names with blanks between them, one for each region (with --text-column or --continue one of one region may have blanks); "
     "without --regions one for each word, where equal neighbours are one region. "
     "With --by region, index is the region's number with --regions, and else that of its first "
     "word.\n\n"
     "--punctuation apart: punctuation is parted from letters and digits, also within a word, "
     "where a token begins with it. A word then also ends where the next token begins "
     "with punctuation, and punctuation ends where the next token does not. "
     "Punctuation that is not ASCII counts where a token has its first two bytes, "
     "as GPT-2's tokens do.\n\n"
     "--continue: the texts are joined by blanks. "
     "A text longer than the context is read in windows, which begin with the beginning-of-text "
     "token; every word has at least --stride tokens before it.\n\n"
     "--vectors NAME: an activation by its name, or several with commas or as blocks.*.hook_resid_post. "
     "--vectors-file has an array [rows, width] for each, with a row for each row of the CSV: "
     "the mean over its tokens, or the first or last (--pooling). The blank before a word is part of its "
     "first token, or is that token. It must not exist, and --resume needs it and -o.\n\n"
     "A character model's tokens are single characters, and one is the blank: "
     "words are parted by blanks as well, and the formula is the same.",
     4, NULL, NULL},
    {"suite", "test suites of syntax and pairs of sentences, --suite", NULL,
     "--suite reads SyntaxGym's JSON, or pairs of sentences in CSV or JSON lines, such as BLiMP's. "
     "It compares uncorrected surprisal, as these do, or surprisal (--corrected).\n\n"
     "SyntaxGym: a row for each prediction, with the number of items for which it holds; "
     "--json adds each item. --by region prints the regions instead. "
     "A formula compares numbers: (5;%name%) is region 5 of the condition, (*;%name%) all of them; "
     "+ - * / and sum(x, y) and mean(x, y); < > = (within 0.001, and 1e-5 of the right side); "
     "& or |, and parentheses. A sentence is its regions with blanks between them. "
     "A region counts with the sum over its tokens, or their mean if the suite's metric is mean.\n\n"
     "Pairs: a row for each group and one for all: pairs, right (the better sentence is likelier), ties, "
     "accuracy = right / pairs and its interval of 95 % (Wilson 1927). "
     "--by region prints each pair instead. The sentences follow the beginning-of-text token, without a "
     "blank. lm-evaluation-harness counts ties as right, and its task blimp puts a blank before each sentence.",
     8, NULL, NULL}};

/* ---- the run ---- */

typedef struct state {
    surprisal_run run; /* its options are the first member */
    output to;
    vector_file vectors;
    answer_units units;
} state;

static const lens_asked *const *asked_programs(void)
{
    static const lens_asked *const programs[] = {&asked_surprisal, NULL};
    return programs;
}

/* Without fused multiply-adds the fast kernels have other bits: see attn_isa. */
static void choose_kernels(state *s)
{
    const char *const name = attn_isa(&s->run.ctx);
    if (s->run.o.isa != ATTN_ISA_AUTO || !name || !strchr(name, '('))
        return;
    s->run.o.isa = ATTN_ISA_PORTABLE;
    if (!s->run.o.quiet)
        fprintf(stderr,
                "%s: the kernels here are %s: plain C gives the digits of other "
                "machines, slowly; --isa base is faster, with other last digits\n",
                called, name);
}

static void print_notes(const state *s)
{
    const answer *const a = &s->run.answer;
    for (size_t i = 0; !s->run.o.quiet && i < a->n_notes; i++)
        fprintf(stderr, "%s: %s\n", called, a->notes[i]);
}

/* Reads the input, and looks at all of it. */
static int take_input(state *s)
{
    surprisal_run *const r = &s->run;
    const char *text = NULL;
    size_t size = 0;
    const int code = read_text(&r->ctx, &r->memory, s->run.o.file, 1, &text, &size);
    r->name = strcmp(s->run.o.file, "-") == 0 ? "standard input" : s->run.o.file;
    if (code != FINE)
        return code;
    if (read_input(r, (char *)text, size) || check_input(r))
        return fail_run(r);
    print_notes(s);
    return make_room(r) ? fail_run(r) : FINE;
}

/* After a call that may have failed: the code, also of the output. */
static int code_of(const state *s, attn_status status)
{
    return s->to.code ? s->to.code : status || interrupted ? fail_run(&s->run) : FINE;
}

static int read_all_texts(state *s, int code)
{
    progress line;
    double done = 0;
    progress_begin(&line, "reading");
    while (code == FINE && done < 1) {
        code = code_of(s, surprisal_pass(&s->run, &done));
        if (code == FINE && s->to.file && fflush(s->to.file) != 0)
            code = fail_output(&s->to);
        progress_at(&line, done);
    }
    progress_end(&line);
    return code;
}

static int run_all(state *s)
{
    surprisal_run *const r = &s->run;
    const surprisal_options before = r->o; /* the run completes its own */
    const receipt_asked asked = {&asked_surprisal, r->o.is_suite ? "suite" : "surprisal", &before,
                                 before.file, &r->answer};
    int code;
    r->ctx.n_threads = (int)r->o.threads;
    r->ctx.stop_flag = &interrupted;
    r->n_pass = MOST_TOKENS;
    r->form = s->run.o.json ? AS_JSON : AS_CSV;
    r->row_fn = write_row;
    r->user = &s->to;
    s->to.run = r;
    s->to.o = &s->run.o;
    if ((code = check_vector_usage(&r->o)) != FINE)
        return code;
    if (check_settings(r))
        return fail_run(r);
    choose_kernels(s);
    if (r->o.receipt && (code = receipt_begin(&r->ctx, r->o.isa)) != FINE)
        return code;
    if ((code = open_model(&r->ctx, &r->model, s->run.o.model, s->run.o.isa,
                           s->run.o.skip_checksums)) != FINE)
        return code;
    signal(SIGINT, on_interrupt);
    r->model_name = s->run.o.model;
    if (check_for_model(r))
        return fail_run(r);
    r->units = r->o.receipt ? &s->units : NULL;
    if ((code = take_input(s)) == FINE && (code = open_output(r, &s->to)) == FINE &&
        (code = open_vectors(r, &s->vectors, &s->to)) == FINE)
        code = read_all_texts(s, code_of(s, write_header(r)));
    if (code == FINE && r->units)
        code = receipt_of_question(&r->ctx, &asked, r->units, r->model, r->o.model, r->o.receipt);
    return code;
}

/* Refuses what changes rows of texts, and so nothing of a suite: callers' command "suite" has no such setting. */
static int refuse_settings_of_rows(const arguments *given)
{
    for (size_t i = 0; i < N_SURPRISAL_OPTIONS; i++)
        if (given->given[i] && !(surprisal_settings[i].commands & OF_SUITE) &&
            surprisal_settings[i].commands & (OF_SURPRISAL | VECTORS_PAGE))
            return fail(USAGE, "--%s means nothing to --suite", surprisal_settings[i].name);
    return FINE;
}

static int run_line(const program *self, arguments *given, void *user)
{
    state *const s = (state *)user;
    int code = take_words(self, given, &s->run.o.model, &s->run.o.file, "MODEL.attn FILE");
    if (code == FINE && s->run.o.is_suite)
        code = refuse_settings_of_rows(given);
    if (code != FINE)
        return code;
    s->run.o.file = s->run.o.file ? s->run.o.file : "-";
    if (s->run.o.resume && (!s->run.o.output || strcmp(s->run.o.output, "-") == 0))
        return fail(USAGE, "--resume continues a file: give it with -o");
    if (s->run.o.resume && s->run.o.receipt)
        return fail(USAGE, "--receipt needs the numbers of all rows: leave out --resume");
    code = end_vectors(&s->run, &s->vectors, run_all(s));
    code = name_vectors(&s->vectors, finish_rows(&s->to, code));
    if (code == INTERRUPTED && s->to.part)
        fprintf(stderr, "%s: interrupted; the rows so far are in %s, and --resume goes on\n",
                called, s->to.part);
    units_free(&s->units);
    free_surprisal(&s->run);
    attn_model_close(s->run.model);
    return code;
}

int main(int argc, char **argv)
{
    static state s;
    const program self = {surprisal_settings,
                          N_SURPRISAL_OPTIONS,
                          2,
                          "give one file of texts",
                          surprisal_pages,
                          4,
                          "Further help (--help formula)",
                          NULL,
                          surprisal_columns};
    s.run.o.batch = 64;
    return program_main(&self, argc, argv, &s, run_line);
}
