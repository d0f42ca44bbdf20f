/* The options of lens, and its pages of help: one for each command, which lists the options that the
 * command knows. */
#ifndef LENS_HELP_H
#define LENS_HELP_H

#include "cmd_decompose.h"
#include "cmd_gradients.h"
#include "cmd_heads.h"

static const struct option lens_settings[] = {
#define AT(member) offsetof(lens_options, member)
    /* of all commands, or of all that read a text */
    {'m', "model", "FILE", TEXT, AT(model), ALL, NULL, "the model, if it is not the first word"},
    {'p', "prompt", "TEXT", TEXT, AT(text), OF_TEXTS, NULL, "the text, if it is not the next word"},
    {0, "corrupted", "TEXT", TEXT, AT(corrupted), OF_TWO_TEXTS, NULL,
     "TEXT2, if it is not the word behind TEXT"},
    {0, "names", "NAME", TEXTS, AT(names), PATCH | OF_TENSORS, NULL,
     "an activation, if it is no word behind the texts; may be given several times"},
    {0, "directory", "DIR", TEXT, AT(directory), SAE, NULL,
     "DIRECTORY, if it is not the next word"},
    {0, "task", "TASK", TEXT, AT(task), PAIRS, NULL, "TASK, if it is not the next word"},
    {'f', "file", "FILE", TEXT, AT(file), OF_TEXTS, NULL,
     "read the text from FILE (-: standard input)"},
    {0, "exact", NULL, FLAG, AT(exact), OF_TEXTS & ~EDGES, NULL, EXACT_HELP},
    {0, "ids", "IDS", TEXT, AT(ids), OF_TEXTS, NULL, "the text as token ids: \"464 995\""},
    {0, "bos", NULL, FLAG, AT(bos), OF_TEXTS, NULL, "begin with the beginning-of-text token"},
    {0, "special", NULL, FLAG, AT(special), OF_TEXTS, NULL, "<|endoftext|> in the text is a token"},
    {0, "receipt", "FILE", OUTPUT, AT(receipt), ALL & ~PROCESS, NULL, RECEIPT_HELP},
    {'o', "output", "FILE", OUTPUT, AT(output), OF_PICTURES & ~EDGES, NULL,
     "a picture: .html or .svg; the answer: .csv .json .npz"},
    {'o', "output", "FILE", OUTPUT, AT(output), EDGES, NULL,
     "FILE.html, .svg, .csv or .npz; .json: scores for MIB"},
    {'o', "output", "FILE", OUTPUT, AT(output), DECOMPOSE, NULL,
     "FILE.html or .svg: a picture; .csv or .json: the answer; .safetensors or .npz: all parts as one tensor"},
    {'o', "output", "FILE", OUTPUT, AT(output), GRADIENTS, NULL,
     "write the gradients: FILE.safetensors or FILE.npz"},
    {'o', "output", "FILE", OUTPUT, AT(output), RECORD, NULL,
     "write FILE.safetensors or FILE.npz; with --lines a directory for shards and their index"},
    {'o', "output", "FILE", OUTPUT, AT(output), PROCESS, NULL, "write the model: FILE.attn"},
    {'q', "quiet", NULL, FLAG, AT(quiet), ALL, NULL,
     "do not say what was written, nor --exact's memory"},
    {0, "json", NULL, FLAG, AT(json), ALL, NULL, "print JSON (its keys: COMMAND --help columns)"},
    {0, "table", "NAME", TEXT, AT(only), (OF_PICTURES | DECOMPOSE) & ~COMMON, NULL,
     "with -o FILE.csv: this table (default: the first)"},

    /* of two texts */
    {0, "estimate", NULL, FLAG, AT(estimate), PATCH, NULL,
     "estimate all cells by one backward pass (attribution patching)"},
    {0, "by", "KIND", CHOICE, AT(by), PATCH,
     "positions heads position-heads sources source-heads weights",
     "positions; heads, at all positions; position-heads, one head at one position; "
     "of patterns and scores sources or source-heads, one key of all queries, or weights, "
     "one query and one key (default: positions or heads, by NAME)"},
    {0, "from", "SENDER", TEXT, AT(from), PATH, NULL,
     "the sender: a head as 0.1 or L0H1, an MLP as 0.mlp, "
     "or embed (default: each head and MLP before the receiver)"},
    {0, "to", "NAME,...", TEXT, AT(to), PATH, NULL,
     "the receivers, all at once: blocks.L.hook_resid_pre, blocks.L.hook_mlp_in, or of head H "
     "blocks.L.hook_q_input.H, hook_k_input.H or hook_v_input.H (default: the final stream)"},
    {0, "mlps", "NAME", CHOICE, AT(mlps), PATH, "frozen through",
     "MLPs between sender and receiver: frozen, as in TEXT2 (default), or through: "
     "they pass on what the sender wrote"},
    {0, "edges", "COUNT", COUNT, AT(edges), EDGES, "1 10000000",
     "the size of the circuit (default 20)"},
    {0, "method", "NAME", CHOICE, AT(method), EDGES, METHOD_NAMES,
     "eap (default), eap-ig, gim, gim-norm, -softmax, -qkv"},
    {0, "method", "NAME", CHOICE, AT(method), GRADIENTS, NULL,
     "plain (default), or by the rules of gim, or by one of them alone: "
     "gim-norm (LayerNorm's scale is a constant), gim-softmax (temperature 2) or gim-qkv "
     "(q and k divided by 4, v by 2)"},
    {0, "method", "NAME", CHOICE, AT(method), PATCH, NULL,
     "with --estimate: by plain gradients (default), or by those of gim, gim-norm, gim-softmax "
     "or gim-qkv"},
    {0, "steps", "COUNT", COUNT, AT(steps), EDGES, "1 1000",
     "embeddings between the texts (default 1; eap-ig 5)"},
    {0, "exact", NULL, FLAG, AT(exact), EDGES, NULL,
     "true effects, by a run for each edge; --json: of all"},
    {0, "of", "KIND", CHOICE, AT(of_nodes), EDGES, "edges nodes",
     "with --exact: edges (default) or nodes"},
    {0, "curve", NULL, FLAG, AT(curve), EDGES, NULL,
     "circuits of 0.1 to 100 % of the edges; CPR and CMD"},
    {0, "circuit", "FILE", TEXT, AT(circuit), EDGES, NULL,
     "with --curve: by the scores of FILE too (MIB)"},
    {0, "interactions", NULL, FLAG, AT(interactions), EDGES, NULL,
     "effects of any two nodes beyond those of each alone"},
    {0, "shapley", "NODES", TEXT, AT(shapley), EDGES, NULL,
     "Shapley values of up to 20 nodes: input,a0.h1,m1"},
    {0, "ablation", "KIND", CHOICE, AT(ablation), EDGES, ABLATION_NAMES,
     "of these two: corrupted text (default), zero, mean"},
    {0, "prune", "AMOUNT", NUMBER, AT(prune), EDGES, "0 1000000",
     "with --exact: fewest edges that answer within AMOUNT"},
    {0, "state", "FILE", TEXT, AT(state), EDGES, NULL, "with --exact: keep what is done in FILE"},
    {0, "resume", NULL, FLAG, AT(resume), EDGES, NULL, "continue the run of --state FILE"},
    {0, "corrupted-ids", "IDS", TEXT, AT(corrupted_ids), OF_TWO_TEXTS, NULL, "TEXT2 as token ids"},
    {0, "pairs", "FILE", TEXT, AT(pairs), OF_TWO_TEXTS, NULL,
     "means over lines {\"clean\": TEXT, \"corrupted\": TEXT2, \"token\": TOKEN, "
     "\"against\": TOKEN}; TEXT may be ids"},
    {0, "pairs", "FILE", TEXT, AT(pairs), ABLATE, NULL,
     "means over the clean texts of many pairs, of the logits of their tokens (lens patch --help)"},
    {0, "each", "FILE", OUTPUT, AT(each), OF_PAIRS, NULL,
     "with --pairs: the numbers of every pair, JSON lines"},
    {0, "ci", NULL, FLAG, AT(ci), OF_PAIRS, NULL,
     "with --pairs: 95 % intervals and p-values of all cells"},

    /* which tokens, layers, heads and positions */
    {0, "top", "K", COUNT, AT(top), TOKENS | LENS, "0 1000000",
     "show the K likeliest tokens (default 5)"},
    {0, "top", "K", COUNT, AT(top), PATTERNS, NULL,
     "one head: show the K keys of each query with the largest weights (default 5)"},
    {0, "top", "K", COUNT, AT(top), CIRCUITS, NULL,
     "show K singular values, or pairs of heads (default 5)"},
    {0, "top", "K", COUNT, AT(top), DECOMPOSE, NULL, "show the K largest neurons (default 5)"},
    {0, "top", "K", COUNT, AT(top), QK, NULL, "show the K largest pairs of parts (default 5)"},
    {0, "top", "K", COUNT, AT(top), SAE, NULL,
     "show K features of each token, and K likely tokens (default 5)"},
    {0, "top", "K", COUNT, AT(top), STEER, NULL, "show the K likeliest tokens (default 5)"},
    {0, "layer", "L", COUNT, AT(layer), PATTERNS, "0 1000000", "only this layer"},
    {0, "layer", "L", COUNT, AT(layer), QK | CIRCUITS, NULL, "the layer of the head"},
    {0, "layer", "L", COUNT, AT(layer), DECOMPOSE, NULL,
     "the stream that enters this layer (default: the stream that the last LayerNorm reads)"},
    {0, "layer", "L", COUNT, AT(layer), STEER, NULL,
     "add the difference of two texts before this layer (default: the middle one); "
     "add a control vector behind this layer only"},
    {0, "head", "H", COUNT, AT(head), PATTERNS, "0 1000000", "only this head"},
    {0, "head", "H", COUNT, AT(head), QK, NULL, "the head"},
    {0, "head", "H", COUNT, AT(head), CIRCUITS, NULL,
     "the head whose singular vectors are shown, by tokens"},
    {0, "at", "POSITION", COUNT, AT(position), ATTRIBUTE | GRADIENTS, "0 1000000000",
     "the logit after this token, counted from 0 (default: the last)"},
    {0, "at", "POSITION", COUNT, AT(position), ABLATE, NULL,
     "a logit after this token, counted from 0, in place of the loss"},
    {0, "at", "POSITION", COUNT, AT(position), DECOMPOSE, NULL,
     "only at this position, counted from 0"},
    {0, "at", "POSITION", COUNT, AT(position), QK, NULL,
     "the position of the query, from 0 (default: the last)"},
    {0, "key", "POSITION", COUNT, AT(key), QK, "0 1000000000",
     "the position of the key (default: the key with the highest score)"},
    {0, "token", "TOKEN", TEXT, AT(token), OF_TWO_TEXTS, NULL,
     "whose logit: a text, or an id if --ids is used (default: the likeliest token after TEXT)"},
    {0, "token", "TOKEN", TEXT, AT(token), ATTRIBUTE | GRADIENTS, NULL,
     "whose logit: a text, or an id if --ids is used (default: the likeliest token)"},
    {0, "token", "TOKEN", TEXT, AT(token), ABLATE, NULL,
     "the logit of this token, a text or an id, in place of the loss"},
    {0, "token", "TOKEN", TEXT, AT(token), DECOMPOSE, NULL,
     "what each part adds to the logit of this token, a text or an id, in place of its length; with --layer, "
     "the product with the direction of that logit"},
    {0, "against", "TOKEN", TEXT, AT(against), OF_TWO_TEXTS, NULL,
     "minus this token's logit. Default without --token: the likeliest after TEXT2; "
     "if that is also TEXT's, the two likely tokens whose logits differ most"},
    {0, "against", "TOKEN", TEXT, AT(against), OF_ONE_LOGIT, NULL, "minus this token's logit"},

    /* of edits */
    {0, "edit", "EDIT", TEXTS, AT(edit), EDITED, NULL, "in a changed model: see lens --help edits"},
    {0, "second", "TEXT", TEXT, AT(second), EDITS, NULL, "the text of edits that set"},
    {0, "towards", "TEXT", TEXT, AT(towards), EDITS, NULL, "the text of edits that add"},
    {0, "towards", "TEXT", TEXT, AT(towards), STEER, NULL,
     "add the stream's mean over this text (ids, if --ids is used) ..."},
    {0, "away", "TEXT", TEXT, AT(away), EDITS | STEER, NULL, "... and the text that is subtracted"},

    /* of one command each */
    {0, "saved-scale", NULL, FLAG, AT(saved_scale), LENS, NULL,
     "with the scale of the last LayerNorm in the whole run, in place of each stream's own"},
    {0, "tuned", "FILE", TEXT, AT(tuned), LENS, NULL,
     "through a tuned or a Jacobian lens: the package's .pt, or a .safetensors file"},
    {0, "kind", "NAME", CHOICE, AT(kind), DECOMPOSE, PARTS_NAMES,
     "into streams, streams-mid, sublayers, attns, mlps, heads (default) or neurons"},
    {0, "mlp-input", NULL, FLAG, AT(mlp_input), DECOMPOSE, NULL,
     "the stream that enters the MLP of --layer"},
    {0, "no-embeds", NULL, FLAG, AT(no_embeds), DECOMPOSE, NULL, "leave the embeddings out"},
    {0, "apply-ln", NULL, FLAG, AT(apply_ln), DECOMPOSE, NULL,
     "divide the parts by the scale of the LayerNorm that reads the stream"},
    {0, "heads", "LIST", TEXT, AT(heads), HEADS, NULL,
     "only these heads, \"5.1 L5H5\"; the others get -1"},
    {0, "pattern", "FILE", TEXT, AT(pattern), HEADS, NULL,
     "how well heads fit this pattern, a number for each query and key"},
    {0, "measure", "NAME", CHOICE, AT(measure), HEADS, MEASURE_NAMES,
     "mul (default), the share of the attention, or abs, the absolute difference"},
    {0, "exclude-bos", NULL, FLAG, AT(exclude_bos), HEADS, NULL, "leave out the first key"},
    {0, "exclude-current-token", NULL, FLAG, AT(exclude_current_token), HEADS, NULL,
     "leave out the key at the query's own position"},
    {0, "metric", "NAME", CHOICE, AT(metric), GRADIENTS, METRIC_NAMES,
     "of a logit (default), of its log-prob, or of the loss, the mean over the text"},
    {0, "lines", "PATH", TEXT, AT(lines), RECORD, NULL,
     "many texts: JSON lines with \"text\" or \"ids\", or a folder, each file of which is a text"},
    {0, "rows", "COUNT", COUNT, AT(rows), RECORD, "1 1000000000",
     "with --lines: rows of a shard (default: 64 MiB of them), at least the model's context; "
     "with --shuffle: rows of an entry (default: the model's context)"},
    {0, "shuffle", "SEED", COUNT, AT(shuffle), RECORD, "0 4294967295",
     "with --lines: the rows of all texts in one random order, in a .npy file of each activation"},
    {0, "resume", NULL, FLAG, AT(resume), RECORD, NULL,
     "with --lines: go on after the last shard of -o"},
    {0, "count", "COUNT", COUNT, AT(count), PAIRS, "1 100000", "how many pairs (default 100)"},
    {0, "seed", "SEED", COUNT, AT(seed), PAIRS, "0 4294967295",
     "another seed draws other words (default 0)"},
    {0, "template", "K", COUNT, AT(form), PAIRS, "0 1000000",
     "all pairs by template K of TASK, from 0: as many tokens in each, which means over positions "
     "need (default: any)"},
    {0, "no-fold-ln", NULL, FLAG, AT(no_fold_ln), PROCESS, NULL,
     "do not fold gain and bias of LayerNorm into the weights that read it"},
    {0, "no-center-writing-weights", NULL, FLAG, AT(no_center_writing_weights), PROCESS, NULL,
     "do not centre what is written into the stream"},
    {0, "no-center-unembed", NULL, FLAG, AT(no_center_unembed), PROCESS, NULL,
     "do not centre the unembedding"},
    {0, "no-fold-value-biases", NULL, FLAG, AT(no_fold_value_biases), PROCESS, NULL,
     "do not fold b_V into b_O"},
    {0, "refactor", NULL, FLAG, AT(refactor), PROCESS, NULL,
     "W_Q, W_K, W_V and W_O in singular vectors (refactor_factored_attn_matrices)"},
    {0, "change", "CHANGE", TEXTS, AT(change), SAE, NULL,
     "set a feature (12=8), ablate it (12=0), multiply it (12*0.5) or steer it (12+4) "
     "at every position; may be given several times"},
    {0, "no-error", NULL, FLAG, AT(no_error), SAE, NULL,
     "with --change: run on the reconstruction only, without the error term"},
    {0, "transcoders", "DIR", TEXT, AT(transcoders), GRAPH, NULL,
     "a directory with one of SAELens's form for each transcoder, with .pt files (Dunefsky et al. "
     "2024), or with circuit-tracer's config.yaml and layer_0.safetensors ..."},
    {0, "keep", "COUNT", COUNT, AT(keep), GRAPH, "1 1000000000",
     "keep only the COUNT strongest edges into each node (default: all)"},
    {0, "node-threshold", "SHARE", NUMBER, AT(node_threshold), GRAPH, "0 1",
     "nodes stay that have this share of all influence (default 0.8)"},
    {0, "edge-threshold", "SHARE", NUMBER, AT(edge_threshold), GRAPH, "0 1",
     "edges stay that have this share of the scores (default 0.98)"},
    {0, "pruned", NULL, FLAG, AT(pruned), GRAPH, NULL,
     "with --json: print only the nodes and edges that stay"},
    {0, "check", NULL, FLAG, AT(check), GRAPH, NULL,
     "switch off each feature that stays in the model itself, and show what the graph claims of it "
     "beside what happens (both thresholds 1: all features)"},
    {0, "group", "FILE", TEXT, AT(group), GRAPH, NULL,
     "with --check: switch off features together; FILE.json is {\"name\": [\"feature 0.4.17\", "
     "...], ...}, with ids as --json has them; FILE may be that text itself"},
    {0, "nodes", "COUNT", COUNT, AT(nodes), GRAPH, "1 10000000",
     "show the COUNT nodes with the largest influence (default 20)"},
    {0, "vector", "FILE", TEXT, AT(vector), STEER, NULL,
     "add a control vector: llama.cpp's FILE.gguf, or FILE.safetensors with direction.N [width] "
     "or one tensor [layers, width]"},
    {0, "strength", "FACTOR", NUMBER, AT(strength), STEER, "-1000000 1000000",
     "add FACTOR times that (default 1; negative: the other way)"},
    {'n', "tokens", "COUNT", COUNT, AT(tokens), SAE | STEER, "0 1000000",
     "continue the text by COUNT tokens, the likeliest each time (default 20)"},

    {'t', "threads", "COUNT", COUNT, AT(threads), ALL, THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, AT(isa), ALL, ISA_NAMES, ISA_HELP},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), ALL, NULL,
     "open without verifying the file"},
    PROGRAM_OPTIONS(ALL),
};
enum { N_OPTIONS = sizeof lens_settings / sizeof lens_settings[0] };

static const help_page lens_pages[] = {
    {NULL, NULL, "lens MODEL.attn [COMMAND] TEXT [options]",
     "What a model makes of a text, from the inside. TEXT may be - for standard input; "
     "piped text is TEXT if there is no other. "
     "The command may stand before MODEL.attn or follow TEXT. "
     "Tables have colour on a terminal unless NO_COLOR is set.",
     COMMON, NULL, NULL},
    {"tokens", "ids, losses and likeliest next tokens (if no command is named)",
     "lens MODEL.attn [tokens] TEXT [options]",
     "For each token of the text its id, loss in nats, probability and rank, "
     "and the likeliest next tokens. A picture shows the text on the colours of its losses.",
     TOKENS, NULL, "lens model.attn \"Once upon a time\""},
    {"loss", "what each token cost, and the mean", "lens MODEL.attn loss TEXT [options]",
     "The loss of each token in nats, as a bar, and the mean loss and perplexity of the text. "
     "A picture shows the text on the colours of its losses.",
     LOSS, NULL,
     "lens model.attn loss \"Once upon a time\"\n"
     "lens model.attn loss \"Once upon a time\" -o loss.html"},
    {"logit-lens", "what each layer would say next", "lens MODEL.attn logit-lens TEXT [options]",
     "The residual stream after each layer, unembedded as if it were the last one "
     "(nostalgebraist 2020): the likeliest next token at each layer and position.",
     LENS, NULL,
     "lens model.attn logit-lens \"Once upon a time\"\n"
     "lens model.attn logit-lens \"Once upon a time\" -o lens.html"},
    {"patterns", "where each head looks", "lens MODEL.attn patterns TEXT [options]",
     "Attention patterns: for each head means over the text, and for one head the keys that each "
     "query looks at most. A page (-o FILE.html) shows the patterns of all heads.",
     PATTERNS, NULL,
     "lens model.attn patterns \"Once upon a time\" --layer 1 --head 2\n"
     "lens model.attn patterns \"Once upon a time\" -o heads.html"},
    {"patch", "which activations of TEXT repair TEXT2",
     "lens MODEL.attn patch TEXT TEXT2 [NAME...] [options]\n"
     "lens MODEL.attn patch --pairs FILE [NAME...] [options]",
     "Activation patching: TEXT2 runs with one activation of TEXT at a time. "
     "Each cell is the share of the difference between the two answers that this restores. "
     "NAME is hook_resid_pre, hook_attn_out, hook_mlp_out, attn.hook_z, "
     "attn.hook_pattern and so on.",
     PATCH, NULL, "lens model.attn patch \"Tom was a boy. He\" \"Tom was a girl. He\" attn.hook_z"},
    {"path", "which heads and MLPs of TEXT repair TEXT2 through one receiver",
     "lens MODEL.attn path TEXT TEXT2 [options]\n"
     "lens MODEL.attn path --pairs FILE [options]",
     "Path patching: TEXT2 runs, and the receivers read what they would read if one sender had "
     "written as in TEXT. Each cell is the share of the difference that this restores.",
     PATH, NULL,
     "lens model.attn path \"Tom was a boy. He\" \"Tom was a girl. He\"\n"
     "lens model.attn path \"Tom was a boy. He\" \"Tom was a girl. He\" --from 1.mlp"},
    {"edges", "which connections tell TEXT from TEXT2 (EAP)",
     "lens MODEL.attn edges TEXT TEXT2 [options]\n"
     "lens MODEL.attn edges --pairs FILE [options]",
     "Edge attribution patching: the edges between heads and MLPs that matter most "
     "for the difference between two texts, and the answer of the circuit that they make.",
     EDGES, NULL,
     "lens model.attn edges \"Tom was a boy. He\" \"Tom was a girl. He\" --steps 5\n"
     "lens model.attn edges \"Tom was a boy. He\" \"Tom was a girl. He\" --exact"},
    {"attribute", "which heads and layers make a logit", "lens MODEL.attn attribute TEXT [options]",
     "Direct logit attribution: "
     "the logit as a sum of what each head and each MLP writes into the stream.",
     ATTRIBUTE, NULL,
     "lens model.attn attribute \"Once upon a time\"\n"
     "lens model.attn attribute \"Once upon a time\" --token \" was\" --against \" had\""},
    {"decompose", "the stream at any layer, as a sum of its parts",
     "lens MODEL.attn decompose TEXT [options]",
     "The stream that a layer reads, as a sum of parts. "
     "A cell is the length of a part at a position.",
     DECOMPOSE, NULL,
     "lens model.attn decompose \"Once upon a time\" --layer 2 --kind sublayers\n"
     "lens model.attn decompose \"Once upon a time\" -o parts.safetensors"},
    {"ablate", "what the loss or a logit becomes without each head",
     "lens MODEL.attn ablate TEXT [options]\n"
     "lens MODEL.attn ablate --pairs FILE [options]",
     "Sets one head at a time to zero and runs the text again. "
     "A cell is the change of the mean loss, or of a logit.",
     ABLATE, NULL,
     "lens model.attn ablate \"Once upon a time\"\n"
     "lens model.attn ablate \"Once upon a\" --token \" time\""},
    {"heads", "previous-token, duplicate-token and induction heads",
     "lens MODEL.attn heads [TEXT] [options]",
     "How much of its attention each head gives to the previous token, to earlier places "
     "of the same token, and to the tokens after those. Without TEXT: 25 random tokens twice.",
     HEADS, NULL,
     "lens model.attn heads\n"
     "lens model.attn heads --measure abs --heads \"1.1 1.2\""},
    {"circuits", "what the weights of heads do (no text)", "lens MODEL.attn circuits [options]",
     "Singular values and copying scores of the QK and OV circuits of all heads, "
     "and which heads compose (Elhage et al. 2021). With --layer and --head: "
     "the singular vectors of one head, by the tokens along them.",
     CIRCUITS, NULL,
     "lens model.attn circuits\n"
     "lens model.attn circuits --layer 1 --head 2"},
    {"qk", "which parts of the stream make a head attend from --at to --key",
     "lens MODEL.attn qk TEXT --layer L --head H [options]",
     "The score of one query and one key as a sum over pairs: "
     "what each part of the stream gives the query, with what each part gives the key.",
     QK, NULL, "lens model.attn qk \"Tom saw Lily. Tom\" --layer 1 --head 2"},
    {"sae", "active features of an autoencoder or transcoder",
     "lens MODEL.attn sae DIRECTORY TEXT [--change CHANGE] [options]",
     "The features of a sparse autoencoder that are active at each token, or of a transcoder, "
     "which predicts one activation from another. "
     "DIRECTORY has SAELens's files cfg.json and sae_weights.safetensors, or is a .pt file with its "
     "configuration, or beside NAME_cfg.json. "
     "With --change: logits and text with some features changed, beside those without.",
     SAE, NULL,
     "lens model.attn sae examples/sae --bos \"Once upon a time\"\n"
     "lens model.attn sae examples/sae --bos \"Once upon a time\" --change 12=8"},
    {"graph", "attribution graph: how features cause the next token",
     "lens MODEL.attn graph TEXT --transcoders DIR [options]",
     "The complete attribution graph of a text: all active features of transcoders, one for each "
     "layer, and what each adds to later features and to the likeliest next tokens, along the "
     "residual stream and the heads as they attend in this text. A layer without a transcoder is "
     "an error node. Nodes and edges that matter are found by the rule of Ameisen et al. (2025). "
     "-o FILE.json is for the front end of circuit-tracer and Neuronpedia.",
     GRAPH, NULL,
     "lens model.attn graph \"Once upon a time\" --transcoders my-transcoders\n"
     "lens model.attn graph \"Once upon a time\" --transcoders my-transcoders --check"},
    {"steer", "what adding a direction to the stream does",
     "lens MODEL.attn steer TEXT --towards TEXT --away TEXT [options]\n"
     "lens MODEL.attn steer TEXT --vector FILE [options]",
     "Logits and text with a direction added to the stream at every position, "
     "beside those without.",
     STEER, NULL,
     "lens model.attn steer \"The toy broke. He\" --towards \"so happy\" --away \"so sad\""},
    {"gradients", "how a logit or a loss changes with each activation",
     "lens MODEL.attn gradients TEXT [NAME...] -o FILE [options]",
     "Writes d metric / d activation for each activation that a NAME or a pattern matches, such "
     "as blocks.0.attn.hook_z or *.hook_resid_post; without NAME, for all but those on request.",
     GRADIENTS, NULL,
     "lens model.attn gradients \"Once upon a time\" \"*.hook_resid_pre\" -o d.npz"},
    {"pairs", "pairs of texts for known tasks, which --pairs reads (no text)",
     "lens MODEL.attn pairs TASK [--count COUNT] [--seed SEED] >FILE.jsonl",
     "Different pairs of texts for TASK, a JSON object a line (lens patch --help). TASK is ioi, "
     "greater-than, pronouns, agreement or capitals. Words that are not one token of the model's "
     "vocabulary are left out, and years that are not two. "
     "The same seed and vocabulary give the same bytes everywhere.",
     PAIRS, NULL, "lens model.attn pairs ioi --count 20"},
    {"process", "a model with LayerNorm folded away, as TransformerLens has it",
     "lens MODEL.attn process -o FILE.attn [options]",
     "Writes the model that TransformerLens's from_pretrained makes by default: "
     "LayerNorm folded, weights centred.",
     PROCESS, NULL, "lens model.attn process -o processed.attn"},
    {"record", "activations into a .safetensors or .npz file",
     "lens MODEL.attn record TEXT [NAME...] -o FILE [options]\n"
     "lens MODEL.attn record --lines PATH NAME... -o DIRECTORY [options]",
     "Writes each activation that a NAME or a pattern matches, such as blocks.0.attn.hook_pattern "
     "or *.hook_resid_post; without NAME, all but those on request.",
     RECORD, NULL,
     "lens model.attn record \"Once upon a time\" \"*.hook_resid_post\" -o resid.npz"},
    {"edits", "how --edit changes the model", "lens MODEL.attn COMMAND TEXT --edit EDIT [options]",
     "tokens, loss, logit-lens, patterns, attribute, patch, path, "
     "edges and gradients can run in a changed model. "
     "Several edits: --edit again, or ; between them. NAME is an activation or a pattern.",
     EDITS, NULL,
     "lens model.attn loss \"Once upon a\" --edit \"zero blocks.2.attn.hook_z head 3\"\n"
     "lens model.attn \"Once upon a\" --edit \"scale blocks.1.hook_mlp_out by 0.5 at 2\""}};
enum { N_PAGES = sizeof lens_pages / sizeof lens_pages[0] };

#endif
