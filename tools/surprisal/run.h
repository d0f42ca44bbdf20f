/* The state of a run of surprisal: its options, its input, the texts in progress, and what it says. It knows
 * no file and no terminal: the program, the R package, the Python package and the page, which all compile
 * it, give texts and take rows, notes and messages. */
#ifndef SURPRISAL_RUN_H
#define SURPRISAL_RUN_H

#include "tools/common/json_out.h"
#include "tools/common/plain.h"
#include "tools/common/utf8.h"
#include "tools/lens/tuned.h"

/* NULL in a text: not given. An empty `column` is the name of a column. */
typedef struct surprisal_options {
    const char *column, *regions, *region_names, *layers, *vectors, *tuned;
    const char *pair, *group;      /* of a suite; NULL: BLiMP's names */
    size_t top, stride, spillover; /* stride 0: 512, or half of the context */
    float renyi;                   /* the order of this entropy; 0: it is not asked for */
    int has_stride, has_renyi;     /* 1: given, and 0 is then a number as any other */
    int by, unit, punctuation, pooling, continues, no_bos, rank, entropy_reduction;
    int is_suite, corrected; /* is_suite: `by` says whether there is a row for every region */
    int face;                /* whose words the messages use */
} surprisal_options;

/* Takes the options as R and the page hand them over, in this order. */
enum { N_WORDS = 8 };
TOOLS_FN void take_lists(surprisal_options *o, const char *const words[N_WORDS], const double *n)
{
    const char **const texts[N_WORDS] = {&o->column,  &o->regions, &o->region_names, &o->layers,
                                         &o->vectors, &o->tuned,   &o->pair,         &o->group};
    int *const choices[] = {&o->by,        &o->unit,    &o->punctuation,       &o->continues,
                            &o->no_bos,    &o->rank,    &o->entropy_reduction, &o->has_stride,
                            &o->has_renyi, &o->pooling, &o->is_suite,          &o->corrected};
    size_t i;
    for (i = 0; i < N_WORDS; i++)
        *texts[i] = words[i];
    for (i = 0; i < sizeof choices / sizeof choices[0]; i++)
        *choices[i] = (int)*n++;
    o->top = (size_t)n[0];
    o->stride = (size_t)n[1];
    o->spillover = (size_t)n[2];
    o->renyi = (float)n[3];
}

enum by { BY_WORD, BY_TOKEN, BY_REGION };
enum unit { BITS, NATS };
enum punctuation { WITH_WORD, APART };
enum pooling { POOL_MEAN, POOL_FIRST, POOL_LAST };
enum face { OF_PROGRAM, OF_R, OF_PYTHON, OF_PAGE, N_FACES };
enum form { AS_CSV, AS_JSON, AS_COLUMNS };
enum {
    FIRST_VALUE = 4, /* text, index, word and tokens are before surprisal */
    MAX_BATCH = 256,
    ROWS = 256,
    MOST_SPILLOVER = 100,
    MOST_TOP = 1000
}; /* ROWS: the most tokens of a pass, and the n_batch of the workspace */

typedef struct span {
    const char *text;
    size_t size;
} span;

/* The input. A plain text is a table of one column without names, and each line is a record. */
typedef struct text_table {
    span *names, *cells; /* [n_columns], [n_records, n_columns] */
    span *texts, *lists; /* [n_records]: what is measured, and the names of its regions */
    uint64_t *lines;     /* [n_records]: the line on which each begins, from 1 */
    size_t n_columns, n_records, room;
    size_t column, regions; /* which column has the texts, and which the names of regions */
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
typedef struct position {
    likelihood of;
    double entropy, renyi; /* of the next token, in nats */
    size_t rank;           /* number of tokens that are likelier than the next one */
} position;

typedef struct text_word {
    size_t item, index, region; /* index and region from 0, within the item */
    size_t begin, size;         /* bytes in passage.text */
    size_t token, n_tokens;     /* the first token, and how many */
    span name;                  /* of its region, if the regions have names */
} text_word;

/* A text that the model reads: an item, or all of them (--continue), with one blank between words. */
typedef struct passage {
    arena memory;
    char *text;
    size_t size;
    text_word *words;
    size_t n_words, n_written; /* n_written: words whose rows were written */
    attn_token *ids;
    size_t n;              /* tokens */
    position *positions;   /* [n + 1] */
    attn_prediction *best; /* [n + 1, top]; NULL without --top */
    likelihood *by_layer;  /* [n + 1, n_layers] */
    double *values;        /* [1 + spillover, n_values]: of the latest row, and of those before */
    unsigned char *sets;   /* [n + 1]: which tokens end a word there; see token_set */
    size_t n_planned, n_done; /* positions that a window measures, and those that are known */
    size_t n_kept;            /* --resume: positions of rows that an earlier run wrote */
    float *
        held; /* [n_held, width]: the vectors of tokens from first_held on, until their rows are written */
    size_t first_held, n_held, held_room;
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

/* A column of the output, for a caller that takes columns. A text is bytes [ends[i - 1], ends[i]) of
 * `texts`; where there is none, its number is NaN. */
enum column_kind { A_COUNT, A_NUMBER, A_TEXT, CARRIED };
typedef struct out_column {
    const char *name;
    int kind;
    size_t source; /* CARRIED: the number of the input's column */
    double *numbers;
    uint64_t *ends;
    json_out texts;
    size_t n, room;
} out_column;

typedef char value_name[64];

/* A column that is not carried from the input. */
typedef struct own_column {
    value_name name;
    int kind;
} own_column;

/* An activation of --vectors: numbers [begin, begin + width) of a row's vector. */
typedef struct vector_part {
    value_name name;
    size_t begin, width;
} vector_part;

/* The measured surprisal of a region of a suite, or of a sentence of a pair. */
typedef struct measured {
    double n_tokens, sums[2]; /* its uncorrected and corrected surprisal */
    size_t end;               /* words of its sentence up to its end */
    size_t item;
    unsigned long number;
    const json_value *condition, *content; /* the name of its condition, and its text */
} measured;

/* See suite.h. */
typedef struct suite {
    json_value *root;        /* of SyntaxGym's JSON; NULL: pairs */
    const json_value *items; /* an array */
    size_t *first_record;    /* [items]: of an item's conditions */
    size_t *first_region;    /* [records] */
    measured *regions;       /* those of all records; of pairs one for each sentence */
    size_t n_regions;
    span *groups;          /* [pairs] */
    int is_mean, has_each; /* has_each: a row for every region or pair */
} suite;

/* Items, for the notes. */
typedef struct findings {
    uint64_t n_blank, n_spaced, n_unbroken, n_long, n_hyphens, n_unparted, n_loose, n_joined,
        n_numbers, n_na;
    uint32_t blank; /* the first blank of Unicode */
} findings;

typedef struct surprisal_run {
    surprisal_options o;
    size_t batch;  /* most texts at a time */
    size_t n_pass; /* most tokens of a pass, up to ROWS */
    int form;
    attn_ctx ctx;
    arena memory;
    span *names; /* [n_names]: of the regions of item names_of - 1 */
    size_t names_of, n_names, name_room;
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
    float *logits, *less, *powers; /* [ROWS, n_vocab]; [n_vocab]: logits - the largest, exp of it */
    window windows[MAX_BATCH];     /* that are fed together */
    attn_feed_item items[MAX_BATCH], parts[MAX_BATCH]; /* parts: for some of the layers */
    size_t rows[ROWS];
    size_t n_windows, n_ids;    /* n_ids: tokens of the windows */
    passage *passages;          /* [MAX_BATCH]: those that are not written yet, in their order */
    size_t n_passages, n_taken; /* n_taken: items that are in passages, or done */
    size_t n_fed;               /* tokens of the windows that were fed */
    int is_feeding;
    uint64_t n_all, n_read, n_passes; /* tokens of the input, and those that were read; passes */
    uint64_t n_rows;                  /* that the input will have */
    findings found;
    json_out notes;       /* sentences, each with a line feed behind it */
    const char **carried; /* [n_columns]: the names in the output of the input's columns */
    own_column *own; /* [n_own]; from FIRST_VALUE on [1 + spillover, n_values] numbers of a row */
    size_t n_own, n_values, first_top;
    size_t *layers; /* [n_layers]: of --layers, ascending */
    size_t n_layers;
    float *streams;    /* [n_layers, ROWS, d_model]: those of a pass behind each of these layers */
    lens_tuned tuned;  /* of --tuned; else zeros */
    float *translated; /* [ROWS, d_model]: by this lens */
    vector_part *parts_of_vector; /* [n_parts] */
    size_t n_parts, width;
    float *at_tokens, *pooled; /* [ROWS, width], [width]: at the tokens of a pass, and of a row */
    int (*vector_fn)(struct surprisal_run *r, uint64_t row); /* takes `pooled`; as row_fn */
    json_out vectors; /* floats [rows, width], for a caller that takes columns */
    json_out row;
    suite tests;                                             /* of --suite */
    int (*row_fn)(struct surprisal_run *r, uint64_t number); /* takes `row`; not 0: end the run */
    void *user;
    out_column *columns;
    size_t n_columns, n_cells;     /* n_cells: of the row that is being made */
    uint64_t n_records, n_counted; /* rows that were made, and those of all passages so far */
    uint64_t skip;                 /* --resume: how many rows need not be written again */
} surprisal_run;

/* >> Messages ================================================================================== */

/* How each face spells an option, longest first where one begins like another. */
static const char *const spellings[][N_FACES] = {
    {"--no-bos", "bos = FALSE", "bos=False", "bos: false"},
    {"--suite", "suite", "suite", "suite"},
    {"--pair", "pair", "pair", "pair"},
    {"--group", "group", "group", "group"},
    {"--corrected", "corrected", "corrected", "corrected"},
    {"--continue", "continues", "continues", "continues"},
    {"--by token", "by = \"token\"", "by=\"token\"", "by: \"token\""},
    {"--by region", "by = \"region\"", "by=\"region\"", "by: \"region\""},
    {"--region-names COLUMN", "region_names", "region_names", "regionNames"},
    {"--region-names", "region_names", "region_names", "regionNames"},
    {"--regions MARK", "regions", "regions", "regions"},
    {"--regions", "regions", "regions", "regions"},
    {"--column", "column", "column", "column"},
    {"--layers", "layers", "layers", "layers"},
    {"--vectors", "layer", "layer", "layer"},
    {"--tuned", "tuned", "tuned", "tuned"},
    {"--stride", "stride", "stride", "stride"},
    {"--renyi", "renyi", "renyi", "renyi"},
    {"--spillover", "spillover", "spillover", "spillover"},
    {"--top", "top", "top", "top"}};

/* Copies a sentence with the options as the caller's face spells them. */
static void spell(char *out, size_t room, const char *text, int face)
{
    const size_t n = sizeof spellings / sizeof spellings[0];
    size_t i, used = 0;
    while (*text && used + 1 < room) {
        for (i = 0; i < n &&
                    strncmp(text, spellings[i][OF_PROGRAM], strlen(spellings[i][OF_PROGRAM])) != 0;)
            i++;
        if (i == n || face == OF_PROGRAM) {
            out[used++] = *text++;
            continue;
        }
        text += strlen(spellings[i][OF_PROGRAM]);
        used += (size_t)snprintf(out + used, room - used, "%s", spellings[i][face]);
        used = used < room ? used : room - 1;
    }
    out[used] = 0;
}

static attn_status refuse(surprisal_run *r, attn_status status, const char *format, ...)
    TOOLS_PRINTF(3, 4);
static attn_status refuse(surprisal_run *r, attn_status status, const char *format, ...)
{
    char text[1024], spelled[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    spell(spelled, sizeof spelled, text, r->o.face);
    return tool_fail(&r->ctx, status, "%s", spelled);
}
#ifdef __clang_analyzer__ /* as tool_fail */
#define refuse(r, kind, ...) (refuse(r, kind, __VA_ARGS__), (r)->ctx.status = (kind))
#endif

/* "a.csv, line 7", or "text 7" where texts come without a file. */
typedef char place[320];
static const char *place_of(place out, const surprisal_run *r, uint64_t number)
{
    snprintf(out, sizeof(place), "%.256s%s %llu", r->name ? r->name : "",
             r->name ? ", line" : "text", TOOLS_LLU(number));
    return out;
}
static const char *place_of_item(place out, const surprisal_run *r, size_t item)
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

#endif
