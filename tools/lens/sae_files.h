/* Reads sparse autoencoders and transcoders of SAELens, a directory with cfg.json and sae_weights.safetensors;
 * circuit-tracer's transcoders, a file for each layer (graph_files.h); and what torch.save wrote: {"cfg", "state_dict"}
 * as SAELens's first versions and Dunefsky et al. (2024) have it, or the weights alone, as NAME.pt beside NAME_cfg.json
 * (SAEs of hook_z). The transcoders of 2024 subtract b_dec from what they read, which is folded into b_enc, and add
 * b_dec_out. If cfg.json says "expected_average_only_in", as the checkpoints of SAELens's trainer do, the weights are for
 * activations times the factor in activation_scaler.json: the factor is folded into them.
 *
 *     lens_sae sae = ATTN_ZERO;
 *     if (lens_sae_open(&ctx, &sae, "gpt2-small-res-jb/blocks.8.hook_resid_pre") == ATTN_OK)
 *         printf("%zu features of %s\n", sae.m, sae.hook);
 *     lens_sae_free(&ctx, &sae);
 *
 * A hostile file gives a message. A setting whose numbers would differ from SAELens's is refused. */
#ifndef LENS_SAE_FILES_H
#define LENS_SAE_FILES_H

#include "tensor_files.h"
#include "panels.h"
#include "sae.h"

enum { LENS_SAE_MAX_CONFIG = 1 << 20, LENS_SAE_MAX_SIZE = 1 << 24 };
enum { LENS_SAE_UNFOLDED = 3 }; /* the index of "expected_average_only_in" */

/* The first of these members, with blanks between the keys, of cfg.json or of the "metadata" in it, that is not null; NULL:
 * none. */
LENS_FN const json_value *lens_sae_member(const json_value *cfg, const char *keys)
{
    static const char *const inside[] = {"metadata", "meta", "activation_fn_kwargs"};
    const json_value *v;
    for (size_t n; *keys; keys += n + (keys[n] == ' ')) {
        n = strcspn(keys, " ");
        v = json_find(cfg, keys, n);
        for (size_t i = 0; (!v || v->kind == JSON_NULL) && i < 3; i++)
            v = json_find(json_get(cfg, inside[i]), keys, n);
        if (v && v->kind != JSON_NULL)
            return v;
    }
    return NULL;
}

/* The index of a member's value among the names; 0 if there is no such member; -1 after a message. */
LENS_FN int lens_sae_choice(attn_ctx *ctx, const json_value *cfg, const char *key,
                            const char *const *names, int n)
{
    const json_value *v = lens_sae_member(cfg, key);
    shown found;
    if (!v)
        return 0;
    for (int i = 0; i < n; i++)
        if (v->kind == JSON_STRING && json_is(v, names[i]))
            return i;
    if (v->kind == JSON_STRING)
        attn_fail(ctx, ATTN_E_FORMAT, "cfg.json: %s is \"%s\", which is not known here", key,
                  show(found, v->text, v->size));
    else
        attn_fail(ctx, ATTN_E_FORMAT, "cfg.json: %s must be a text, such as \"%s\"", key, names[0]);
    return -1;
}

/* The index of normalize_activations among the names, as lens_sae_choice. Before SAELens 3 it was true or
 * false. */
LENS_FN int lens_sae_norm_choice(attn_ctx *ctx, const json_value *cfg, const char *const *names,
                                 int n)
{
    static const char key[] = "normalize_activations";
    const json_value *v = lens_sae_member(cfg, key);
    if (v && (v->kind == JSON_TRUE || v->kind == JSON_FALSE))
        return v->kind == JSON_TRUE ? LENS_SAE_UNFOLDED : 0;
    return lens_sae_choice(ctx, cfg, key, names, n);
}

/* Reads a size, which must be there. */
LENS_FN attn_status lens_sae_size(attn_ctx *ctx, const json_value *cfg, const char *key,
                                  size_t *size)
{
    const json_value *v = lens_sae_member(cfg, key);
    uint64_t number;
    if (!v || !json_u64(v, &number) || number == 0 || number > LENS_SAE_MAX_SIZE)
        return attn_fail(ctx, ATTN_E_FORMAT, "cfg.json: %.*s must be a whole number from 1 to %d",
                         (int)strcspn(key, " "), key, (int)LENS_SAE_MAX_SIZE);
    *size = (size_t)number;
    return ATTN_OK;
}

/* Reads a flag as Python does, where null and 0 are false, and other numbers true. */
LENS_FN attn_status lens_sae_flag(attn_ctx *ctx, const json_value *cfg, const char *key,
                                  int otherwise, int *flag)
{
    const json_value *v = json_get(cfg, key);
    double number = 0;
    if (!v)
        v = lens_sae_member(cfg, key);
    *flag = v ? v->kind == JSON_TRUE : otherwise;
    if (!v || v->kind == JSON_NULL || v->kind == JSON_TRUE || v->kind == JSON_FALSE)
        return ATTN_OK;
    if (!json_double(v, &number))
        return attn_fail(ctx, ATTN_E_FORMAT, "cfg.json: %s must be true or false", key);
    *flag = number < 0 || number > 0;
    return ATTN_OK;
}

/* Turns TransformerLens's hook_normalized, a LayerNorm's value before its gain and bias, into attn.h's
 * hook_normalized.pre. */
LENS_FN void lens_sae_normalized(char name[64])
{
    static const char normalized[] = "hook_normalized";
    const size_t size = strlen(name), n = sizeof normalized - 1;
    if (size >= n && strcmp(name + size - n, normalized) == 0)
        memcpy(name + size, ".pre", sizeof ".pre");
}

/* Reads the name of an activation. */
LENS_FN attn_status lens_sae_name(attn_ctx *ctx, char name[64], const json_value *v,
                                  const char *key, const char *example)
{
    const size_t most = 64 - sizeof ".pre";
    if (!v || v->kind != JSON_STRING || v->size == 0 || v->size > most ||
        memchr(v->text, 0, v->size))
        return attn_fail(ctx, ATTN_E_FORMAT, "cfg.json: no %s, such as %s", key, example);
    memcpy(name, v->text, v->size);
    name[v->size] = 0;
    lens_sae_normalized(name);
    return ATTN_OK;
}

/* Reads the names of the activations that are encoded and, by a transcoder, predicted. */
LENS_FN attn_status lens_sae_point(attn_ctx *ctx, lens_sae *s, const json_value *cfg)
{
    if (lens_sae_name(ctx, s->hook, lens_sae_member(cfg, "hook_name hook_point act_name"),
                      "hook_name", "blocks.3.hook_resid_pre") ||
        (s->n_out &&
         lens_sae_name(ctx, s->hook_out, lens_sae_member(cfg, "hook_name_out out_hook_point"),
                       "hook_name_out", "blocks.3.hook_mlp_out")))
        return lens_failure(ctx);
    if (lens_sae_member(cfg, "hook_head_index hook_point_head_index"))
        return attn_fail(ctx, ATTN_E_FORMAT,
                         "cfg.json: autoencoders of a single head (hook_head_index) are not read");
    return ATTN_OK;
}

/* The architectures of cfg.json. */
typedef struct lens_sae_design {
    lens_sae_kind kind;
    int is_transcoder, has_skip;
} lens_sae_design;
static const char *const lens_sae_names[] = {"standard",
                                             "jumprelu",
                                             "topk",
                                             "gated",
                                             "transcoder",
                                             "skip_transcoder",
                                             "jumprelu_transcoder",
                                             "jumprelu_skip_transcoder"};
static const lens_sae_design lens_sae_designs[] = {
    {LENS_SAE_STANDARD, 0, 0}, {LENS_SAE_JUMPRELU, 0, 0}, {LENS_SAE_TOPK, 0, 0},
    {LENS_SAE_GATED, 0, 0},    {LENS_SAE_STANDARD, 1, 0}, {LENS_SAE_STANDARD, 1, 1},
    {LENS_SAE_JUMPRELU, 1, 0}, {LENS_SAE_JUMPRELU, 1, 1}};
enum { LENS_SAE_DESIGNS = sizeof lens_sae_designs / sizeof lens_sae_designs[0] };

/* Reads what a transcoder has besides. */
LENS_FN attn_status lens_sae_transcoder(attn_ctx *ctx, lens_sae *s, int unfolded,
                                        const json_value *cfg)
{
    if (s->apply_b_dec)
        return attn_fail(ctx, ATTN_E_FORMAT,
                         "cfg.json: apply_b_dec_to_input is true, but a transcoder's b_dec belongs "
                         "to its output");
    if (unfolded)
        return attn_fail(ctx, ATTN_E_FORMAT,
                         "cfg.json: a transcoder for scaled activations (normalize_activations) is "
                         "not read; fold the factors into its weights");
    return lens_sae_size(ctx, cfg, "d_out", &s->n_out);
}

/* *unfolded becomes 1 if the weights are for activations times a factor, *has_skip if there is a W_skip. */
LENS_FN attn_status lens_sae_config(attn_ctx *ctx, lens_sae *s, int *unfolded, int *has_skip,
                                    const json_value *cfg)
{
    static const char *const acts[] = {"relu", "topk"};
    static const char *const norms[] = {"none", "constant_norm_rescale", "layer_norm",
                                        "expected_average_only_in"};
    const int kind = lens_sae_choice(ctx, cfg, "architecture", lens_sae_names, LENS_SAE_DESIGNS);
    lens_sae_design design = lens_sae_designs[kind < 0 ? 0 : kind];
    const char *const act_key =
        lens_sae_member(cfg, "activation_fn_str") ? "activation_fn_str" : "activation_fn";
    const int act =
        design.kind == LENS_SAE_STANDARD ? lens_sae_choice(ctx, cfg, act_key, acts, 2) : 0;
    const int norm = lens_sae_norm_choice(ctx, cfg, norms, 4);
    int scales = 0;
    if (kind < 0 || act < 0 || norm < 0 ||
        (!design.is_transcoder &&
         lens_sae_flag(ctx, cfg, "is_transcoder", 0, &design.is_transcoder)))
        return lens_failure(ctx);
    s->kind = act == 1 ? LENS_SAE_TOPK : design.kind; /* older files of top-k */
    *has_skip = design.has_skip;
    *unfolded = norm == LENS_SAE_UNFOLDED;
    s->norm = *unfolded ? LENS_SAE_NORM_NONE : (lens_sae_norm)norm;
    if (lens_sae_flag(ctx, cfg, "apply_b_dec_to_input", !design.is_transcoder, &s->apply_b_dec) ||
        lens_sae_flag(ctx, cfg, "rescale_acts_by_decoder_norm", 0, &s->by_decoder_norm) ||
        lens_sae_flag(ctx, cfg, "finetuning_scaling_factor", 0, &scales))
        return lens_failure(ctx);
    if (s->by_decoder_norm && s->kind != LENS_SAE_TOPK)
        return attn_fail(ctx, ATTN_E_FORMAT,
                         "cfg.json: rescale_acts_by_decoder_norm is read for top-k only");
    if (scales)
        return attn_fail(ctx, ATTN_E_FORMAT,
                         "cfg.json: finetuning_scaling_factor is not known here; fold it into "
                         "W_dec before saving");
    if (lens_sae_size(ctx, cfg, "d_in act_size", &s->n) ||
        lens_sae_size(ctx, cfg, "d_sae dict_size", &s->m))
        return lens_failure(ctx);
    if ((s->kind == LENS_SAE_TOPK && lens_sae_size(ctx, cfg, "k", &s->k)) ||
        (design.is_transcoder && lens_sae_transcoder(ctx, s, *unfolded, cfg)))
        return lens_failure(ctx);
    return lens_sae_point(ctx, s, cfg);
}

/* A file of weights. */
typedef struct lens_sae_file {
    source *from;
    double factor; /* the weights are for activations times this factor */
    int has_skip;
    int is_tracer; /* circuit-tracer's, whose W_enc is [m, n] */
} lens_sae_file;

/* Reads a tensor [rows, columns] of the weights, or [columns] if rows is 0. */
LENS_FN attn_status lens_sae_tensor(attn_ctx *ctx, attn_tensor *out, const lens_sae_file *file,
                                    const char *name, size_t rows, size_t columns)
{
    return lens_read_named(ctx, out, file->from, name,
                           rows ? attn_shape2(rows, columns) : attn_shape1(columns),
                           file->is_tracer ? ", as W_enc says" : ", as cfg.json says");
}

/* Reads the transpose of a matrix [rows, columns]. */
LENS_FN attn_status lens_sae_transposed(attn_ctx *ctx, attn_tensor *out, const lens_sae_file *file,
                                        const char *name, size_t rows, size_t columns)
{
    attn_tensor w = ATTN_ZERO;
    const int failed = lens_sae_tensor(ctx, &w, file, name, rows, columns) ||
                       attn_copy(ctx, out, attn_transpose(w, 0, 1));
    attn_tensor_free(ctx, &w);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* norms [m] of the rows of W_dec. */
LENS_FN attn_status lens_sae_norms(attn_ctx *ctx, lens_sae *s)
{
    attn_tensor squares = ATTN_ZERO, sums = ATTN_ZERO;
    const int failed = attn_mul(ctx, &squares, s->w_dec, s->w_dec) ||
                       attn_sum(ctx, &sums, squares) ||
                       attn_zeros(ctx, &s->norms, ATTN_F32, attn_shape1(s->m));
    for (size_t i = 0; i < s->m && !failed; i++)
        ((float *)s->norms.data)[i] = sqrtf(((const float *)sums.data)[i]);
    attn_tensor_free(ctx, &squares);
    attn_tensor_free(ctx, &sums);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Packs a matrix into panels if 16 divides its number of columns. */
LENS_FN attn_status lens_sae_pack(attn_ctx *ctx, attn_tensor *w)
{
    attn_tensor panels = ATTN_ZERO;
    if (w->shape[1] % 16 != 0)
        return ATTN_OK;
    if (lens_pack(ctx, &panels, *w) != ATTN_OK)
        return lens_failure(ctx);
    attn_tensor_free(ctx, w);
    *w = panels;
    return ATTN_OK;
}

/* Makes weights for activations times the factor those for the activations, as SAELens's
 * fold_activation_norm_scaling_factor. */
LENS_FN attn_status lens_sae_fold(attn_ctx *ctx, lens_sae *s, double factor)
{
    const float by = (float)factor, back = (float)(1 / factor);
    return attn_scale(ctx, &s->w_enc, s->w_enc, by) || attn_scale(ctx, &s->w_dec, s->w_dec, back) ||
                   attn_scale(ctx, &s->b_dec, s->b_dec, back)
               ? lens_failure(ctx)
               : ATTN_OK;
}

/* Takes from b_enc what b_dec takes from the input of a transcoder of 2024: b_dec · W_enc. */
LENS_FN attn_status lens_sae_centre(attn_ctx *ctx, lens_sae *s, const lens_sae_file *file)
{
    attn_tensor b_dec = ATTN_ZERO;
    if (lens_sae_tensor(ctx, &b_dec, file, "b_dec", 0, s->n) != ATTN_OK)
        return lens_failure(ctx);
    const float *const w = (const float *)s->w_enc.data, *const b = (const float *)b_dec.data;
    for (size_t k = 0; k < s->m; k++) {
        double sum = (double)((float *)s->b_enc.data)[k];
        for (size_t i = 0; i < s->n; i++)
            sum -= (double)b[i] * (double)w[i * s->m + k];
        ((float *)s->b_enc.data)[k] = (float)sum;
    }
    attn_tensor_free(ctx, &b_dec);
    return ATTN_OK;
}

/* Reads the weights. */
LENS_FN attn_status lens_sae_weights(attn_ctx *ctx, lens_sae *s, const lens_sae_file *from)
{
    const char *const threshold = from->is_tracer ? "activation_function.threshold" : "threshold";
    const int gated = s->kind == LENS_SAE_GATED;
    const int centred = source_find(from->from, "b_dec_out") != NULL;
    const size_t width = lens_sae_width(s);
    if (centred && !s->n_out)
        return attn_fail(ctx, ATTN_E_FORMAT,
                         "%s has b_dec_out, so its cfg should say is_transcoder, hook_point and "
                         "out_hook_point",
                         lens_file_name(from->from));
    const int failed =
        (from->is_tracer ? lens_sae_transposed(ctx, &s->w_enc, from, "W_enc", s->m, s->n)
                         : lens_sae_tensor(ctx, &s->w_enc, from, "W_enc", s->n, s->m)) ||
        lens_sae_tensor(ctx, &s->w_dec, from, "W_dec", s->m, width) ||
        lens_sae_tensor(ctx, &s->b_dec, from, centred ? "b_dec_out" : "b_dec", 0, width) ||
        (from->has_skip && (lens_sae_transposed(ctx, &s->w_skip, from, "W_skip", s->n_out, s->n) ||
                            lens_sae_pack(ctx, &s->w_skip))) ||
        lens_sae_tensor(ctx, &s->b_enc, from, gated ? "b_gate" : "b_enc", 0, s->m) ||
        (centred && lens_sae_centre(ctx, s, from)) ||
        (s->kind == LENS_SAE_JUMPRELU &&
         lens_sae_tensor(ctx, &s->threshold, from, threshold, 0, s->m)) ||
        (gated && (lens_sae_tensor(ctx, &s->gain, from, "r_mag", 0, s->m) ||
                   lens_sae_tensor(ctx, &s->b_mag, from, "b_mag", 0, s->m) ||
                   attn_exp(ctx, &s->gain, s->gain))) ||
        (from->factor != 1 && lens_sae_fold(ctx, s, from->factor)) ||
        (s->by_decoder_norm && lens_sae_norms(ctx, s)) || lens_sae_pack(ctx, &s->w_enc) ||
        lens_sae_pack(ctx, &s->w_dec);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Reads a JSON object. The caller frees *root. */
LENS_FN attn_status lens_sae_json(attn_ctx *ctx, json_value **root, arena *memory, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    if (!path || read_file(ctx, memory, path, LENS_SAE_MAX_CONFIG, &text, &size) ||
        json_parse(ctx, path, text, size, root))
        return ctx->status;
    return *root && (*root)->kind == JSON_OBJECT
               ? ATTN_OK
               : attn_fail(ctx, ATTN_E_FORMAT, "%s is not a JSON object", path);
}

/* Reads the factor of weights that are not folded. */
LENS_FN attn_status lens_sae_factor(attn_ctx *ctx, double *factor, arena *memory,
                                    const char *directory)
{
    static const char name[] = "activation_scaler.json";
    json_value *root = NULL;
    char *path = arena_path(ctx, memory, directory, name);
    const json_value *v;
    if (!path)
        return ctx->status;
    if (!system_exists(path))
        return attn_fail(ctx, ATTN_E_FORMAT,
                         "cfg.json: normalize_activations says that the weights are for scaled "
                         "activations, but the factor is not there: %s is missing. If SAELens "
                         "folded it into the weights, write \"none\"",
                         name);
    if (lens_sae_json(ctx, &root, memory, path) == ATTN_OK) {
        v = json_get(root, "scaling_factor");
        if (!v || !json_double(v, factor) || !(*factor > 1e-30 && *factor < 1e30))
            attn_fail(ctx, ATTN_E_FORMAT, "%s: scaling_factor must be a number above 0", name);
    }
    free(root);
    return ctx->status;
}

/* Opens the weights of a file of torch.save, and the configuration in it, or beside it. */
LENS_FN attn_status lens_sae_pickle(attn_ctx *ctx, lens_sae_file *file, json_value **cfg,
                                    arena *memory, const char *path)
{
    const size_t size = strlen(path);
    char *const beside = (char *)arena_alloc(ctx, memory, size + sizeof "_cfg.json", 1);
    file->from = beside ? lens_open_tensors(ctx, path, cfg) : NULL;
    if (!file->from || *cfg)
        return ctx->status;
    sprintf(beside, "%.*s_cfg.json",
            (int)(size > 3 && strcmp(path + size - 3, ".pt") == 0 ? size - 3 : size), path);
    return lens_sae_json(ctx, cfg, memory, beside);
}

/* Reads the autoencoder of a directory, or of a file of torch.save. *s must be zeroed; after a failure it is zeroed
 * again. */
LENS_FN attn_status lens_sae_open(attn_ctx *ctx, lens_sae *s, const char *path)
{
    arena memory = {NULL};
    lens_sae_file file = {NULL, 1, 0, 0};
    json_value *cfg = NULL;
    char *weights;
    int unfolded = 0;
    ctx->status = ATTN_OK; /* the readers check it, so an earlier failure must not be there */
    attn_status status =
        lens_is_pickle(path) ? lens_sae_pickle(ctx, &file, &cfg, &memory, path)
        : system_exists(path) && !system_is_directory(path)
            ? attn_fail(ctx, ATTN_E_IO,
                        "%s is a file; give its directory, which has cfg.json and "
                        "sae_weights.safetensors",
                        path)
            : lens_sae_json(ctx, &cfg, &memory, arena_path(ctx, &memory, path, "cfg.json"));
    if (status == ATTN_OK)
        status = lens_sae_config(ctx, s, &unfolded, &file.has_skip, cfg);
    if (status == ATTN_OK && unfolded)
        status = lens_sae_factor(ctx, &file.factor, &memory, path);
    if (status == ATTN_OK && !file.from) {
        weights = arena_path(ctx, &memory, path, "sae_weights.safetensors");
        file.from = weights ? lens_open_tensors(ctx, weights, NULL) : NULL;
    }
    if (status == ATTN_OK)
        status = file.from ? lens_sae_weights(ctx, s, &file) : ctx->status;
    free(cfg);
    arena_free(&memory);
    lens_close_file(file.from);
    if (status != ATTN_OK)
        lens_sae_free(ctx, s);
    return status;
}

/* ---- circuit-tracer's directory ---- */

/* Reads the value of a line "key: value" of config.yaml, without quotes; "" if no line has the key. */
LENS_FN void lens_tracer_value(char value[32], const char *text, const char *key)
{
    const size_t n = strlen(key);
    const char *line;
    size_t size = 0;
    for (line = text; line && size == 0; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            line += n + 1;
            line += strspn(line, " \t'\"");
            size = strcspn(line, " \t'\"#\r\n");
            size = size < 31 ? size : 31;
            memcpy(value, line, size);
        }
    }
    value[size] = 0;
}

/* config.yaml, about the transcoders of all layers. */
typedef struct lens_tracer {
    char hook[32], hook_out[32]; /* where they read and write; "" without the file */
    size_t k;                    /* of top-k; 0: another activation */
} lens_tracer;

/* Reads "activation" and the "k" of top-k. Whether another one is ReLU or JumpReLU shows in the weights. */
LENS_FN attn_status lens_tracer_activation(attn_ctx *ctx, lens_tracer *t, const char *text)
{
    char name[32], k[32], *end;
    lens_tracer_value(name, text, "activation");
    lens_tracer_value(k, text, "k");
    t->k = strcmp(name, "topk") == 0 ? (size_t)strtoul(k, &end, 10) : 0;
    if (strcmp(name, "topk") == 0
            ? t->k == 0 || t->k > LENS_SAE_MAX_SIZE || *end
            : *name && strcmp(name, "relu") != 0 && strcmp(name, "jumprelu") != 0)
        return attn_fail(ctx, ATTN_E_FORMAT,
                         "activation is \"%s\", k is \"%s\"; expected relu, jumprelu, or topk with "
                         "a whole number k above 0",
                         name, k);
    return ATTN_OK;
}

/* Reads config.yaml. */
LENS_FN attn_status lens_tracer_config(attn_ctx *ctx, lens_tracer *t, arena *memory,
                                       const char *path)
{
    char *text = NULL, kind[32];
    size_t size;
    ctx->status = ATTN_OK; /* the reader checks it */
    if (read_file(ctx, memory, path, LENS_SAE_MAX_CONFIG, &text, &size) != ATTN_OK)
        return ctx->status;
    lens_tracer_value(kind, text, "model_kind");
    lens_tracer_value(t->hook, text, "feature_input_hook");
    lens_tracer_value(t->hook_out, text, "feature_output_hook");
    if (strcmp(kind, "transcoder_set") != 0)
        return attn_fail(ctx, ATTN_E_FORMAT,
                         "model_kind is \"%s\"; expected transcoder_set, a transcoder for each "
                         "layer: cross-layer transcoders are not read",
                         kind);
    if (!*t->hook || !*t->hook_out)
        return attn_fail(ctx, ATTN_E_FORMAT, "no %s; expected one such as %s",
                         *t->hook ? "feature_output_hook" : "feature_input_hook",
                         *t->hook ? "hook_mlp_out" : "mlp.hook_in");
    if (strcmp(t->hook, "mlp.hook_in") == 0)
        memcpy(t->hook, "ln2.hook_normalized.post", sizeof "ln2.hook_normalized.post");
    if (strcmp(t->hook_out, "mlp.hook_out") == 0)
        memcpy(t->hook_out, "hook_mlp_out", sizeof "hook_mlp_out");
    return lens_tracer_activation(ctx, t, text);
}

/* Opens the transcoder of one layer. *s must be zeroed. */
LENS_FN attn_status lens_tracer_open(attn_ctx *ctx, lens_sae *s, const lens_tracer *t,
                                     const char *path, size_t layer)
{
    source *const from = lens_open_tensors(ctx, path, NULL);
    const source_tensor *const enc = from ? source_find(from, "W_enc") : NULL;
    const source_tensor *const dec = from ? source_find(from, "W_dec") : NULL;
    attn_status status = ctx->status;
    if (from &&
        (!enc || !dec || enc->ndim != 2 || dec->ndim != 2 || enc->shape[0] > LENS_SAE_MAX_SIZE ||
         enc->shape[1] > LENS_SAE_MAX_SIZE || dec->shape[1] > LENS_SAE_MAX_SIZE)) {
        status = attn_fail(ctx, ATTN_E_FORMAT,
                           "expected matrices W_enc and W_dec [features, width], as circuit-tracer "
                           "has them for a layer");
    } else if (from) {
        const lens_sae_file file = {from, 1, source_find(from, "W_skip") != NULL, 1};
        s->m = (size_t)enc->shape[0];
        s->n = (size_t)enc->shape[1];
        s->n_out = (size_t)dec->shape[1];
        s->k = t->k;
        s->is_signed = 1;
        s->kind = t->k                                                 ? LENS_SAE_TOPK
                  : source_find(from, "activation_function.threshold") ? LENS_SAE_JUMPRELU
                                                                       : LENS_SAE_STANDARD;
        snprintf(s->hook, sizeof s->hook, "blocks.%zu.%s", layer, t->hook);
        lens_sae_normalized(s->hook);
        snprintf(s->hook_out, sizeof s->hook_out, "blocks.%zu.%s", layer, t->hook_out);
        status = lens_sae_weights(ctx, s, &file);
    }
    lens_close_file(from);
    return status;
}

#endif
