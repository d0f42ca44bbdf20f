/* The state of a run of surprisal: its options, its input, the texts in progress, and what it says. It knows
 * no terminal: the program, and callers in the process (asked.h), give texts and take rows, notes and messages. */
#ifndef SURPRISAL_RUN_H
#define SURPRISAL_RUN_H

#include "tools/common/plain.h"
#include "tools/common/program.h"
#include "tools/lens/tuned.h"
#include "tools/waist/units.h"

/* NULL in a text: not given. An empty `column` is the name of a column. */
typedef struct surprisal_options {
    const char *file, *column, *regions, *region_names, *text_column, *layers, *tuned, *context;
    const char *pair, *group; /* of a suite; NULL: BLiMP's names */
    text_list vectors;
    size_t top, stride, spillover; /* stride 0: 512, or half of the context */
    float renyi;                   /* the order of this entropy; 0: it is not asked for */
    int by, unit, punctuation, pooling, continues, no_bos, special, rank, entropy_reduction;
    int is_suite, corrected; /* is_suite: `by` says whether there is a row for every region */
    /* of the program alone */
    const char *model, *output, *vectors_file, *receipt;
    size_t batch, threads;
    int json, resume, isa, skip_checksums, quiet, dtype;
} surprisal_options;

enum by { BY_WORD, BY_TOKEN, BY_REGION };
enum unit { BITS, NATS };
enum punctuation { WITH_WORD, APART };
enum pooling { POOL_MEAN, POOL_FIRST, POOL_LAST };
enum form { AS_CSV, AS_JSON, AS_TABLE }; /* AS_TABLE: the rows stay, for a caller in the process */
enum {
    FIRST_VALUE = 4, /* text, index, word and tokens are before surprisal */
    MOST_TEXTS = 256,
    MOST_TOKENS = 256
}; /* MOST_TOKENS: the most tokens of a pass, and the n_batch of the workspace */

typedef struct text_span {
    const char *text;
    size_t size;
} text_span;

/* The input. A plain text is a table of one column without names, and each line is a record. */
typedef struct text_table {
    text_span *names, *cells; /* [n_columns], [n_records, n_columns] */
    text_span *texts, *lists; /* [n_records]: what is measured, and the names of its regions */
    text_span *of_text;       /* [n_records], with --text-column: equal neighbours are one text */
    uint64_t *lines;          /* [n_records]: the line on which each begins, from 1 */
    size_t n_columns, n_records, room;
    size_t column, regions, text; /* those of --column, --region-names and --text-column */
    int has_names;
} text_table;

/* How likely the next token and the end of the word before it are, in nats. */
typedef struct likelihood {
    double nll; /* -log of the probability of the next token */
    double
        ends; /* log of the probability that the word before it ends here; at position 0, that the
                    text begins with a word */
} likelihood;

/* What a position of a text says about the next token. A position is the number of tokens before it. */
typedef struct text_position {
    likelihood of;
    double entropy, renyi; /* of the next token, in nats */
    size_t rank;           /* number of tokens that are likelier than the next one */
} text_position;

typedef struct text_word {
    size_t item, index, region; /* index and region from 0, within the item */
    size_t begin, size;         /* bytes in passage.text */
    size_t token, n_tokens;     /* the first token, and how many */
    text_span name;             /* of its region, if the regions have names */
} text_word;

/* A text that the model reads: an item, or all of them (--continue), with one blank between words. */
typedef struct passage {
    arena memory;
    char *text;
    size_t size;
    text_word *words;
    size_t n_words, n_written; /* n_written: words whose rows were written */
    attn_token *ids;
    size_t n;                 /* tokens */
    text_position *positions; /* [n + 1] */
    attn_prediction *best;    /* [n + 1, top]; NULL without --top */
    likelihood *by_layer;     /* [n + 1, n_layers] */
    double *values;      /* [1 + spillover, n_values]: of the latest row, and of those before */
    unsigned char *sets; /* [n + 1]: which tokens end a word there; see token_set */
    size_t n_planned, n_done; /* positions that a window measures, and those that are known */
    size_t n_kept;            /* --resume: positions of rows that an earlier run wrote */
    float *
        held; /* [n_held, width]: the vectors of tokens from first_held on, until their rows are written */
    size_t first_held, n_held, held_room;
    int begins_text; /* --context: its row is the first one of a text */
} passage;

/* The tokens that may stand where a word ends. */
enum token_set {
    NO_SET,
    AT_BEGIN,   /* those that do not begin with a blank */
    AFTER_WORD, /* those that begin with a blank, or end the text; with --punctuation apart, or begin
                   with punctuation */
    AFTER_MARK, /* --punctuation apart: all but punctuation that goes on */
    N_SETS
};

/* A part of a passage that fits into the context. */
typedef struct text_window {
    passage *from;
    attn_session *session;
    attn_token *ids; /* [n]: the beginning-of-text token, and tokens of the passage */
    size_t n;
    size_t begin, first, end; /* positions: before its first token; those that it measures */
} text_window;

/* The values of a column of the output so far. A text is bytes [ends[i - 1], ends[i]) of `texts`; where there is none, its
 * number is NaN. */
typedef struct row_values {
    double *numbers;
    uint64_t *ends;
    json_out texts;
    size_t n, room;
} row_values;

typedef char value_name[64];

/* An activation of --vectors: numbers [begin, begin + width) of a row's vector. */
typedef struct vector_part {
    value_name name;
    size_t begin, width;
} vector_part;

/* The measured surprisal of a region of a suite, or of a sentence of a pair. */
typedef struct region_sums {
    double n_tokens, sums[2]; /* its uncorrected and corrected surprisal */
    size_t end;               /* words of its sentence up to its end */
    size_t item;
    unsigned long number;
    const json_value *condition, *content; /* the name of its condition, and its text */
} region_sums;

/* See suite.h. */
typedef struct suite {
    json_value *root;        /* of SyntaxGym's JSON; NULL: pairs */
    const json_value *items; /* an array */
    size_t *first_record;    /* [items]: of an item's conditions */
    size_t *first_region;    /* [records] */
    region_sums *regions;    /* those of all records; of pairs one for each sentence */
    size_t n_regions;
    text_span *groups;     /* [pairs] */
    int is_mean, has_each; /* has_each: a row for every region or pair */
} suite;

/* Items, for the notes. */
typedef struct text_findings {
    uint64_t n_blank, n_spaced, n_unbroken, n_long, n_hyphens, n_unparted, n_loose, n_joined,
        n_numbers, n_na, n_single, n_special, n_signs;
    uint32_t blank; /* the first blank of Unicode */
} text_findings;

typedef struct surprisal_run {
    surprisal_options o;
    size_t n_pass; /* most tokens of a pass, up to MOST_TOKENS */
    int form;
    attn_ctx ctx;
    arena memory;
    attn_model *model;
    const attn_config *config;
    const attn_tokenizer *tokenizer;
    attn_workspace *workspace;
    const char *name;       /* of the input, for messages; NULL: it is no file */
    const char *model_name; /* for messages */
    text_table input;
    size_t n_vocab, n_ctx;
    unsigned char *starts, *ends; /* [n_vocab]: the kind of a token's first and last character */
    int32_t *sets[N_SETS];
    size_t set_sizes[N_SETS];
    float *logits, *less,
        *powers; /* [MOST_TOKENS, n_vocab]; [n_vocab]: logits - the largest, exp of it */
    text_window windows[MOST_TEXTS];                     /* that are fed together */
    attn_feed_item items[MOST_TEXTS], parts[MOST_TEXTS]; /* parts: for some of the layers */
    size_t rows[MOST_TOKENS];
    size_t n_windows, n_ids;    /* n_ids: tokens of the windows */
    passage *passages;          /* [MOST_TEXTS]: those that are not written yet, in their order */
    size_t n_passages, n_taken; /* n_taken: items that are in passages, or done */
    size_t context;             /* --context: the number of words, or of tokens, before a row */
    int is_in_words;            /* context counts words */
    passage whole;              /* --context: the whole text; each of its rows becomes a passage */
    size_t n_cut;               /* words of `whole` that are in such passages, or done */
    size_t cut_token, cut_byte; /* where the latest context of tokens begins */
    double *latest;             /* --context: passage.values of all passages */
    size_t n_fed;               /* tokens of the windows that were fed */
    int is_feeding;
    uint64_t n_all, n_read, n_passes; /* tokens of the input, and those that were read; passes */
    uint64_t n_rows;                  /* that the input will have */
    text_findings found;
    const char **carried; /* [n_columns]: the names in the output of the input's columns */
    size_t n_values; /* numbers of a row, from column FIRST_VALUE on [1 + spillover, n_values] */
    size_t *layers;  /* [n_layers]: of --layers, ascending */
    size_t n_layers;
    float *
        streams; /* [n_layers, MOST_TOKENS, d_model]: those of a pass behind each of these layers */
    lens_tuned tuned;             /* of --tuned; else zeros */
    float *translated;            /* [MOST_TOKENS, d_model]: by this lens */
    vector_part *parts_of_vector; /* [n_parts] */
    size_t n_parts, width;
    float *at_tokens,
        *pooled; /* [MOST_TOKENS, width], [width]: at the tokens of a pass, and of a row */
    int (*vector_fn)(struct surprisal_run *r, uint64_t row); /* takes `pooled`; as row_fn */
    json_out vectors; /* floats [rows, width], for a caller in the process */
    json_out row;
    suite tests;                                             /* of --suite */
    int (*row_fn)(struct surprisal_run *r, uint64_t number); /* takes `row`; not 0: end the run */
    void *user;
    answer answer;                 /* its notes; its rows, if they stay */
    answer_table *table;           /* the rows, or the latest */
    row_values *values;            /* [columns of the table] */
    size_t n_cells;                /* of the row that is being made */
    uint64_t n_records, n_counted; /* rows that were made, and those of all passages so far */
    answer_units *units;           /* for a receipt, or NULL */
    uint64_t skip;                 /* --resume: how many rows need not be written again */
} surprisal_run;

/* >> Messages ================================================================================== */

/* "a.csv, line 7", or "text 7" where texts come without a file. */
typedef char place_text[320];
static const char *place_of(place_text out, const surprisal_run *r, uint64_t number)
{
    snprintf(out, sizeof(place_text), "%.256s%s %llu", r->name ? r->name : "",
             r->name ? ", line" : "text", TOOLS_LLU(number));
    return out;
}
static const char *place_of_item(place_text out, const surprisal_run *r, size_t item)
{
    return place_of(out, r, r->name ? r->input.lines[item] : item + 1);
}

/* What the input is called in a sentence about all of it. */
static const char *name_of(const surprisal_run *r)
{
    return r->name ? r->name : r->input.has_names ? "the table" : "the text";
}

static int is_stopped(const surprisal_run *r)
{
    return r->ctx.stop_flag && *r->ctx.stop_flag;
}

/* Ends a failure of the run, or of the library, with a sentence. Returns the exit code. */
TOOLS_FN int fail_run(const surprisal_run *r)
{
    return is_stopped(r)                      ? INTERRUPTED
           : r->ctx.status == ATTN_E_ARGUMENT ? fail(USAGE, "%s", message_of(&r->ctx))
                                              : fail_ctx(&r->ctx);
}

#endif
