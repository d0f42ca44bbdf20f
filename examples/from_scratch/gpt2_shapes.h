/* The shapes of GPT-2's activations and parameters, under TransformerLens's names. */
#ifndef GPT2_SHAPES_H
#define GPT2_SHAPES_H

#include "notebook.h"

/* In letters: T positions, C d_model, H heads, d d_head, F d_mlp, V vocabulary, N
 * longest context. They follow from the configuration alone. */

typedef struct named_shape {
    const char *name, *letters;
} named_shape;

static const named_shape activations[] = {{"hook_embed", "1TC"},
                                          {"hook_pos_embed", "1TC"},
                                          {"blocks.0.hook_resid_pre", "1TC"},
                                          {"blocks.0.ln1.hook_scale", "1T1"},
                                          {"blocks.0.ln1.hook_normalized", "1TC"},
                                          {"blocks.0.attn.hook_q", "1THd"},
                                          {"blocks.0.attn.hook_k", "1THd"},
                                          {"blocks.0.attn.hook_v", "1THd"},
                                          {"blocks.0.attn.hook_attn_scores", "1HTT"},
                                          {"blocks.0.attn.hook_pattern", "1HTT"},
                                          {"blocks.0.attn.hook_z", "1THd"},
                                          {"blocks.0.hook_attn_out", "1TC"},
                                          {"blocks.0.hook_resid_mid", "1TC"},
                                          {"blocks.0.ln2.hook_scale", "1T1"},
                                          {"blocks.0.ln2.hook_normalized", "1TC"},
                                          {"blocks.0.mlp.hook_pre", "1TF"},
                                          {"blocks.0.mlp.hook_post", "1TF"},
                                          {"blocks.0.hook_mlp_out", "1TC"},
                                          {"blocks.0.hook_resid_post", "1TC"},
                                          {"ln_final.hook_scale", "1T1"},
                                          {"ln_final.hook_normalized", "1TC"}};
static const named_shape parameters[] = {
    {"embed.W_E", "VC"},          {"pos_embed.W_pos", "NC"},    {"blocks.0.ln1.w", "C"},
    {"blocks.0.ln1.b", "C"},      {"blocks.0.ln2.w", "C"},      {"blocks.0.ln2.b", "C"},
    {"blocks.0.attn.W_Q", "HCd"}, {"blocks.0.attn.W_O", "HdC"}, {"blocks.0.attn.b_Q", "Hd"},
    {"blocks.0.attn.b_O", "C"},   {"blocks.0.attn.W_K", "HCd"}, {"blocks.0.attn.W_V", "HCd"},
    {"blocks.0.attn.b_K", "Hd"},  {"blocks.0.attn.b_V", "Hd"},  {"blocks.0.mlp.W_in", "CF"},
    {"blocks.0.mlp.b_in", "F"},   {"blocks.0.mlp.W_out", "FC"}, {"blocks.0.mlp.b_out", "C"},
    {"ln_final.w", "C"},          {"ln_final.b", "C"},          {"unembed.W_U", "CV"}};
enum { N_ACTIVATIONS = sizeof activations / sizeof *activations };
enum { N_PARAMETERS = sizeof parameters / sizeof *parameters };

static size_t dimension(char letter, const attn_config *c, size_t n_tokens)
{
    switch (letter) {
    case 'T':
        return n_tokens;
    case 'C':
        return c->d_model;
    case 'H':
        return c->n_head;
    case 'd':
        return c->d_head;
    case 'F':
        return c->d_mlp;
    case 'V':
        return c->n_vocab;
    case 'N':
        return c->n_ctx;
    default:
        return 1;
    }
}

static void print_shapes(const named_shape *list, int n, const attn_config *c, size_t n_tokens)
{
    int i, j;
    for (i = 0; i < n; i++) {
        printf("%-30s (", list[i].name);
        for (j = 0; list[i].letters[j]; j++)
            printf(j ? ", %d" : "%d", (int)dimension(list[i].letters[j], c, n_tokens));
        printf(j == 1 ? ",)\n" : ")\n");
    }
}

/* ---- the engine's activations, held against the list ---- */

typedef struct listed {
    const char *letters;
    const attn_config *c;
    size_t n_tokens;
    int as_listed;
} listed;

static int look(const attn_activation *a, void *user)
{
    listed *l = (listed *)user;
    int i = 0; /* letters[0] is the batch, which an activation of one sequence does not have */
    while (i < a->value.ndim &&
           a->value.shape[i] == dimension(l->letters[i + 1], l->c, l->n_tokens))
        i++;
    l->as_listed = i == a->value.ndim && l->letters[i + 1] == 0;
    return 0;
}

/* Feeds the ids and counts the activations of the list that came by in the listed shape. */
static int count_as_listed(attn_ctx *ctx, const attn_model *model, const int32_t *ids, size_t n)
{
    listed l[N_ACTIVATIONS];
    attn_session *session = NULL;
    char name[64];
    int i, count = 0;
    attn_session_new(ctx, &session, model, NULL);
    for (i = 0; i < N_ACTIVATIONS && session; i++) { /* .pre is before gain and bias, .post after */
        l[i].letters = activations[i].letters;
        l[i].c = attn_model_config(model);
        l[i].n_tokens = n;
        l[i].as_listed = 0;
        snprintf(name, sizeof name, "%s%s", activations[i].name,
                 strstr(activations[i].name, "normalized") ? ".post" : "");
        attn_hook(ctx, session, name, look, &l[i]);
    }
    if (session && attn_feed(ctx, session, ids, n) == ATTN_OK)
        for (i = 0; i < N_ACTIVATIONS; i++)
            count += l[i].as_listed;
    attn_session_free(session);
    return count;
}

#endif
