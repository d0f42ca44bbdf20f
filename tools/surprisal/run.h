/* The state of a run of surprisal: its options, its input, and the texts in progress. */
#ifndef SURPRISAL_RUN_H
#define SURPRISAL_RUN_H

#include "tools/common/json_out.h"
#include "tools/common/prompt.h"
#include "tools/write/new_file.h"

typedef struct options {
    const char *model, *file, *output, *column, *regions, *region_names;
    size_t top, stride, batch, threads;
    int by, unit, punctuation, continues, no_bos, rank, json, resume, isa, skip_checksums, quiet;
} options;

enum by { BY_WORD, BY_TOKEN, BY_REGION };
enum unit { BITS, NATS };
enum punctuation { WITH_WORD, APART };
enum {
    MAX_BATCH = 256,
    ROWS = 256
}; /* ROWS: the most tokens of a pass, and the n_batch of the workspace */

typedef struct span {
    const char *text;
    size_t size;
} span;

/* The input. A plain text is a table of one column without names, and each line is a record. */
typedef struct table {
    span *names, *cells; /* [n_columns], [n_records, n_columns] */
    uint64_t *lines;     /* [n_records]: the line on which each begins, from 1 */
    size_t n_columns, n_records, room;
    size_t column, regions; /* which column has the texts, and which the names of regions */
    int has_names, has_regions;
} table;

/* What a position of a text says about the next token, in nats. A position is the number of tokens
 * before it. */
typedef struct position {
    double nll;     /* -log of the probability of the next token */
    double entropy; /* of the next token */
    double ends;    /* log of the probability that the word before it ends here; at position 0, that
                       the text begins with a word */
    size_t rank;    /* number of tokens that are likelier than the next one */
} position;

typedef struct word {
    size_t item, index, region; /* index and region from 0, within the item */
    size_t begin, size;         /* bytes in passage.text */
    size_t token, n_tokens;     /* the first token, and how many */
} word;

/* A text that the model reads: an item, or all of them (--continue), with one blank between words. */
typedef struct passage {
    arena memory;
    char *text;
    size_t size;
    word *words;
    size_t n_words, n_written; /* n_written: words whose rows were written */
    attn_token *ids;
    size_t n;                 /* tokens */
    position *positions;      /* [n + 1] */
    attn_prediction *best;    /* [n + 1, top]; NULL without --top */
    unsigned char *sets;      /* [n + 1]: which tokens end a word there; see token_set */
    size_t n_planned, n_done; /* positions that a window measures, and those that are known */
    size_t n_kept;            /* --resume: positions of rows that an earlier run wrote */
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
typedef struct window {
    passage *from;
    attn_session *session;
    attn_token *ids; /* [n]: the beginning-of-text token, and tokens of the passage */
    size_t n;
    size_t begin, first, end; /* positions: before its first token; those that it measures */
} window;

typedef struct run {
    options o;
    attn_ctx ctx;
    arena memory;
    span *names; /* [n_names]: of the regions of item names_of - 1 */
    size_t names_of, n_names, name_room;
    attn_model *model;
    const attn_config *config;
    const attn_tokenizer *tokenizer;
    attn_workspace *workspace;
    const char *name; /* of the input, for messages */
    table input;
    size_t n_vocab, n_ctx;
    unsigned char *starts, *ends; /* [n_vocab]: the kind of a token's first and last character */
    int32_t *sets[N_SETS];
    size_t set_sizes[N_SETS];
    float *logits, *less, *powers; /* [ROWS, n_vocab]; [n_vocab]: logits - the largest, exp of it */
    window windows[MAX_BATCH];     /* that are fed together */
    size_t n_windows, n_ids;       /* n_ids: tokens of the windows */
    passage *passages;             /* [MAX_BATCH]: those that are not written yet, in their order */
    size_t n_passages, n_taken;    /* n_taken: items that are in passages, or done */
    uint64_t n_all, n_read;        /* tokens of the input, and those that were read */
    uint64_t n_blank, n_spaced, n_unbroken, n_long; /* items, for the notes */
    progress line;
    json_out row;
    FILE *output;
    char *part;         /* the path that the output has until it is whole */
    const char *target; /* its path then: where symbolic links lead */
    char *kept;         /* --resume: what an earlier run wrote */
    size_t n_kept, kept_at;
    uint64_t n_records, n_counted; /* rows that were made, and those of all passages so far */
    uint64_t skip;                 /* --resume: how many rows need not be written again */
} run;

#endif
