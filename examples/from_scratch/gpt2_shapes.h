/* The shapes of GPT-2's activations and parameters, under TransformerLens's names. */
#ifndef GPT2_SHAPES_H
#define GPT2_SHAPES_H

#include "notebook.h"
#include "tools/write/model_file.h"

/* In letters: T positions, C d_model, H heads, d d_head, F d_mlp, V vocabulary, N longest context.
 * The numbers follow from the configuration alone. The %zu is the layer. */

typedef struct named_shape {
    const char *name, *letters;
} named_shape;

static const named_shape activations[] = {{"hook_embed", "1TC"},
                                          {"hook_pos_embed", "1TC"},
                                          {"blocks.%zu.hook_resid_pre", "1TC"},
                                          {"blocks.%zu.ln1.hook_scale", "1T1"},
                                          {"blocks.%zu.ln1.hook_normalized", "1TC"},
                                          {"blocks.%zu.attn.hook_q", "1THd"},
                                          {"blocks.%zu.attn.hook_k", "1THd"},
                                          {"blocks.%zu.attn.hook_v", "1THd"},
                                          {"blocks.%zu.attn.hook_attn_scores", "1HTT"},
                                          {"blocks.%zu.attn.hook_pattern", "1HTT"},
                                          {"blocks.%zu.attn.hook_z", "1THd"},
                                          {"blocks.%zu.hook_attn_out", "1TC"},
                                          {"blocks.%zu.hook_resid_mid", "1TC"},
                                          {"blocks.%zu.ln2.hook_scale", "1T1"},
                                          {"blocks.%zu.ln2.hook_normalized", "1TC"},
                                          {"blocks.%zu.mlp.hook_pre", "1TF"},
                                          {"blocks.%zu.mlp.hook_post", "1TF"},
                                          {"blocks.%zu.hook_mlp_out", "1TC"},
                                          {"blocks.%zu.hook_resid_post", "1TC"},
                                          {"ln_final.hook_scale", "1T1"},
                                          {"ln_final.hook_normalized", "1TC"}};

/* Those of the embeddings, of one block, and of the end, in TransformerLens's order */
static const named_shape parameters[] = {{"embed.W_E", "VC"},
                                         {"pos_embed.W_pos", "NC"},
                                         {"blocks.%zu.ln1.w", "C"},
                                         {"blocks.%zu.ln1.b", "C"},
                                         {"blocks.%zu.ln2.w", "C"},
                                         {"blocks.%zu.ln2.b", "C"},
                                         {"blocks.%zu.attn.W_Q", "HCd"},
                                         {"blocks.%zu.attn.W_O", "HdC"},
                                         {"blocks.%zu.attn.b_Q", "Hd"},
                                         {"blocks.%zu.attn.b_O", "C"},
                                         {"blocks.%zu.attn.W_K", "HCd"},
                                         {"blocks.%zu.attn.W_V", "HCd"},
                                         {"blocks.%zu.attn.b_K", "Hd"},
                                         {"blocks.%zu.attn.b_V", "Hd"},
                                         {"blocks.%zu.mlp.W_in", "CF"},
                                         {"blocks.%zu.mlp.b_in", "F"},
                                         {"blocks.%zu.mlp.W_out", "FC"},
                                         {"blocks.%zu.mlp.b_out", "C"},
                                         {"ln_final.w", "C"},
                                         {"ln_final.b", "C"},
                                         {"unembed.W_U", "CV"}};
enum { N_ACTIVATIONS = sizeof activations / sizeof *activations };
enum { N_EMBEDDINGS = 2, N_IN_BLOCK = 16, N_PARAMETERS = sizeof parameters / sizeof *parameters };

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

static void print_shapes(const named_shape *list, int n, size_t layer, const attn_config *c,
                         size_t n_tokens)
{
    char name[64];
    int j;
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, list[i].name, layer);
        printf("%-30s (", name);
        for (j = 0; list[i].letters[j]; j++)
            printf(j ? ", %d" : "%d", (int)dimension(list[i].letters[j], c, n_tokens));
        printf(j == 1 ? ",)\n" : ")\n");
    }
}

/* ---- a model's weights, held against the list ---- */

/* A file keeps W_Q, W_K and W_V side by side as W_QKV: three of the list in one. */
static int is_part(const char *listed, const char *stored)
{
    const size_t n = strlen(listed) - 1;
    return strncmp(listed, stored, n) == 0 &&
           (strcmp(listed + n, stored + n) == 0 ||
            (strcmp(stored + n, "QKV") == 0 && strchr("QKV", listed[n])));
}

/* Heads lie side by side in the file too, so of [H, C, d] only the size is compared. */
static int is_as_listed(const char *name, attn_tensor stored, const attn_config *c)
{
    char listed[64];
    size_t size = 0, layer = 0;
    int rows_fit = 1;
    sscanf(name, "blocks.%zu.", &layer); /* NOLINT(cert-err34-c): a name that attn.h made */
    for (int i = 0; i < N_PARAMETERS; i++) {
        const char *letters = parameters[i].letters;
        size_t product = 1;
        snprintf(listed, sizeof listed, parameters[i].name, layer);
        if (!is_part(listed, name))
            continue;
        for (int j = 0; letters[j]; j++)
            product *= dimension(letters[j], c, 0);
        size += product;
        rows_fit = letters[0] == 'H' || stored.shape[0] == dimension(letters[0], c, 0);
    }
    return rows_fit && size == attn_count(stored);
}

/* How many of the model's tensors have the names and shapes of the list */
static int count_parameters(attn_ctx *ctx, const attn_model *model)
{
    int count = 0;
    for (size_t i = 0; i < model_n_tensors(model); i++) {
        const model_tensor info = model_tensor_at(model, i);
        attn_tensor w = none;
        if (attn_model_tensor(ctx, &w, model, info.name) == ATTN_OK)
            count += is_as_listed(info.name, w, attn_model_config(model));
        attn_tensor_free(ctx, &w);
    }
    return count;
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
static int count_activations(attn_ctx *ctx, const attn_model *model, const attn_token *ids,
                             size_t n)
{
    listed l[N_ACTIVATIONS];
    attn_session *session = NULL;
    char name[64];
    int count = 0;
    attn_session_new(ctx, &session, model, NULL);
    for (int i = 0; i < N_ACTIVATIONS && session;
         i++) { /* .pre is before gain and bias, .post after */
        l[i].letters = activations[i].letters;
        l[i].c = attn_model_config(model);
        l[i].n_tokens = n;
        l[i].as_listed = 0;
        snprintf(name, sizeof name, activations[i].name, 0);
        if (strstr(name, "normalized"))
            snprintf(name + strlen(name), sizeof name - strlen(name), ".post");
        attn_hook(ctx, NULL, session, name, look, &l[i]);
    }
    if (session && attn_feed(ctx, session, ids, n) == ATTN_OK)
        for (int i = 0; i < N_ACTIVATIONS; i++)
            count += l[i].as_listed;
    attn_session_free(session);
    return count;
}

#endif
