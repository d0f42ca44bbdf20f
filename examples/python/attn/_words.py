"""What TransformerLens calls things, and what the library's own messages call them, in the words of this package."""
from __future__ import annotations

import opcode
import re
import types
from typing import Optional

_NOTHING = "nothing: arrays are NumPy's, on the CPU, and a model has no training mode"
_LOSS = "model.score(tokens).nll, and model(tokens) for the logits"
_SAMPLING = "sampling=attn.Sampling({0}=...)"
_FEED = "model.session().feed(tokens, {0}=...)"
_PROCESS = "model.process_weights()"
_LOAD = 'attn.load("gpt2"), or attn.Model(path)'
_HOOK = "hook(name, function) of a session, model.session(), or model.run_with_hooks(tokens, [(name, function)])"
_RECORD = "model.session().record(names)"
_NO_TEXTS = "nothing: the package brings no data sets"
_PARTS = 'attn.lens.decompose_resid(model, tokens, "{0}")'

_PARTS_WORDS = {
    "decompose_resid": _PARTS.format("sublayers"),
    "accumulated_resid": _PARTS.format("streams"),
    "stack_head_results": _PARTS.format("heads"),
    "stack_neuron_results": _PARTS.format("neurons"),
    "get_full_resid_decomposition": _PARTS.format("heads") + ", and of neurons " + _PARTS.format("neurons"),
}
CONFIG = {
    "d_vocab": "n_vocab", "d_vocab_out": "n_vocab", "n_heads": "n_head", "n_layers": "n_layer", "eps": "ln_eps",
    "n_key_value_heads": "n_head", "tie_word_embeddings": "tied", "use_attn_scale": "unscaled_attn, which is the opposite",
    "attn_scale": "sqrt(d_head), and 1 if unscaled_attn", "model_name": "model.path", "tokenizer_name": "model.path",
    "n_params": "sum(model.tensor(name).size for name in model.tensor_names())",
    "default_prepend_bos": "prepend_bos of each call, which is False by itself",
    "normalization_type": "LayerNorm, which process_weights() folds into the weights",
    "positional_embedding_type": 'model.tensor("W_pos"), which is added to the embedding',
    "dtype": "float32 in every array", "device": _NOTHING,
    **dict.fromkeys(("use_attn_result", "use_split_qkv_input", "use_attn_in", "use_hook_mlp_in"),
                    'nothing: ask for the activation by its name, as in run_with_cache(tokens, ["*", "*.hook_result"])'),
}
ACTIVATIONS = {"attn": "pattern", "attn_logits": "attn_scores", "key": "k", "query": "q", "value": "v",
               "mlp_pre": "pre", "mlp_mid": "mid", "mlp_post": "post"}  # TransformerLens's other names in keys of a cache
MODULES = {"a": "attn", "attention": "attn", "m": "mlp", "b": None, "block": None, "blocks": None}  # and those of modules
HOOK_POINT = {
    "ctx": "a variable of your own, which the function may use", "remove_hooks": "remove() of what session.hook returned",
    "add_hook": _HOOK, "dir": "nothing: attn.lens.Backward(model).gradients(tokens, metric, names) has gradients",
}
MODEL = {
    **_PARTS_WORDS,
    "cfg": "model.config",
    "forward": "model(tokens)",
    "generate": "model.session().generate(prompt), an iterator over the text, or model.generate_many(prompts)",
    "loss_fn": "model.score(tokens).nll",
    **dict.fromkeys(("add_hook", "add_perma_hook", "check_and_add_hook", "check_hooks_to_add", "register_forward_hook"), _HOOK),
    "hooks": "model.run_with_hooks(tokens, [(name, function)]), or session.hook(name, function) in a `with` block",
    **dict.fromkeys(("reset_hooks", "remove_all_hook_fns", "clear_contexts"), "unhook_all() of the session that has the hooks"),
    "list_hooks": "what session.hook returned: keep it",
    **dict.fromkeys(("add_caching_hooks", "get_caching_hooks", "cache_some", "cache_all"), _RECORD),
    **dict.fromkeys(("hook_dict", "hook_points", "mod_dict", "named_modules"), "model.activation_names()"),
    "to_single_str_token": "model.to_string([token])",
    "tokens_to_residual_directions": "model.logit_directions(tokens)",
    **dict.fromkeys(("from_pretrained", "from_pretrained_no_processing", "load_state_dict", "load_and_process_state_dict"),
                    _LOAD + "; the program attn-convert makes the file of a checkpoint"),
    "generate_stream": "model.session().generate(prompt), an iterator over the text",
    "get_token_position": "model.to_str_tokens(text).index(token)",
    "input_to_embed": "model.session().feed(tokens, stop_at_layer=0)",
    "get_residual": "model.session().feed(tokens, stop_at_layer=layer)",
    "get_pos_offset": "len(session)",
    "n_params_total": CONFIG["n_params"],
    "set_tokenizer": "nothing: the tokenizer is in the file",
    "refactor_factored_attn_matrices": "attn.lens.refactor_attention(model, path)",
    "W_gate": "nothing: GPT-2's MLPs have no gate",
    **dict.fromkeys(("sample_datapoint", "load_sample_training_dataset"), _NO_TEXTS),
    **dict.fromkeys(("init_weights", "freeze"), "nothing: a model's weights are those of its file"),
    "embed": 'model.tensor("embed.W_E")',
    "pos_embed": 'model.tensor("pos_embed.W_pos")',
    "unembed": 'model.tensor("unembed.W_U") and model.tensor("unembed.b_U")',
    "ln_final": 'model.tensor("ln_final.w") and model.tensor("ln_final.b")',
    "W_E_pos": 'numpy.concatenate([model.tensor("W_E"), model.tensor("W_pos")])',
    "accumulated_bias": 'a sum of model.tensor("blocks.0.attn.b_O") and model.tensor("blocks.0.mlp.b_out") over layers',
    "tokenize": "model.to_tokens(text), and model.to_str_tokens(text) for the texts of tokens",
    "feed": "feed of a session: model.session().feed(tokens), or model(tokens)",
    "run_with_saes": "hook of an autoencoder: attn.lens.SAE(directory).hook(session, changes)",
    **dict.fromkeys(("modules", "children", "named_children", "buffers"), "model.tensor_names() and model.activation_names()"),
    **dict.fromkeys(("set_use_attn_result", "set_use_split_qkv_input", "set_use_attn_in", "set_use_hook_mlp_in"),
                    'nothing: ask for the activation by its name, as in run_with_cache(tokens, ["*", "*.hook_result"])'),
    "blocks": 'model.tensor("blocks.0.attn.W_Q") and the like, and model.config.n_layer',
    "OV": 'attn.lens.circuit(model, layer, head, "OV")',
    "QK": 'attn.lens.circuit(model, layer, head, "QK")',
    "all_composition_scores": 'attn.lens.composition_scores(model, "Q"), "K" or "V"',
    "all_head_labels": '[f"L{layer}H{head}" for layer in range(config.n_layer) for head in range(config.n_head)]',
    "state_dict": "{name: model.tensor(name) for name in model.tensor_names()}",
    **dict.fromkeys(("parameters", "named_parameters"), "model.tensor(name) for each of model.tensor_names()"),
    **dict.fromkeys(("eval", "train", "to", "cpu", "cuda", "mps", "device", "dtype", "float", "double", "half", "bfloat16", "compile",
                     "requires_grad_", "zero_grad", "move_model_modules_to_device"), _NOTHING),
    **dict.fromkeys(("register_full_backward_hook", "register_backward_hook"),
                    "attn.lens.Backward(model).gradients(tokens, metric, names)"),
    **dict.fromkeys(("process_weights_", "fold_layer_norm", "center_unembed", "center_writing_weights", "fold_value_biases"), _PROCESS),
}
CACHE = {
    **_PARTS_WORDS,
    "logit_attrs": "model.logit_attrs(parts.stack, parts.scale, model.logit_directions(tokens)), with parts = "
                   "attn.lens.decompose_resid(model, text)",
    "apply_ln_to_stack": "attn.lens.decompose_resid(model, tokens, apply_ln=True)",
    "compute_head_results": 'model.run_with_cache(tokens, ["*", "*.hook_result"])',
    "get_neuron_results": 'cache["post", layer] * model.tensor("blocks.0.mlp.W_out"), neuron by neuron, or ' +
                          _PARTS.format("neurons"),
    "stack_activation": 'numpy.stack([cache["z", layer] for layer in range(model.config.n_layer)])',
    "toggle_autodiff": "attn.lens.Backward(model).gradients(tokens, metric, names)",
    "cache_dict": "the cache itself; dict(cache) copies the table",
    **dict.fromkeys(("remove_batch_dim", "has_batch_dim", "apply_slice_to_batch_dim", "batch_size"),
                    "nothing: without batch_dim=True there is no batch dimension"),
    "model": "the model that made the cache: keep it",
    **dict.fromkeys(("to", "cpu", "cuda", "detach"), _NOTHING),
}
TOKENIZER = {
    "eos_token_id": "model.config.eos", "bos_token_id": "model.config.bos", "pad_token_id": "nothing: a call takes one text",
    "vocab_size": "len(model.tokenizer)", "batch_decode": "[model.to_string(ids) for ids in texts]",
    "batch_encode_plus": "[model.to_tokens(text) for text in texts]", "tokenize": "model.to_str_tokens(text)",
    "convert_ids_to_tokens": "model.to_str_tokens(ids)", "convert_tokens_to_ids": "model.to_single_token(text)",
    "from_pretrained": _LOAD + ", whose file has the tokenizer",
}
SAE = {
    "from_pretrained": "attn.lens.SAE(directory), of a directory with cfg.json and sae_weights.safetensors",
    "load_from_disk": "attn.lens.SAE(directory)", "cfg": "hook_name, d_in, d_sae and d_out of the autoencoder",
    "W_skip": "decode(features, x), which adds it", "forward": "decode(encode(x), x)",
    **dict.fromkeys(("to", "cpu", "cuda", "eval", "device", "dtype"), _NOTHING),
}
MODULE = {
    "from_pretrained": _LOAD,
    **dict.fromkeys(("HookedTransformer", "TransformerBridge", "HookedRootModule", "EasyTransformer", "loading", "pretrained",
                     "loading_from_pretrained"), _LOAD),
    **dict.fromkeys(("HookedEncoder", "HookedEncoderDecoder", "HookedAudioEncoder", "BertNextSentencePrediction"),
                    "nothing: the models are GPT-2's family"),
    **dict.fromkeys(("HookedSAE", "HookedSAETransformer", "SAE"), "attn.lens.SAE(directory)"),
    **dict.fromkeys(("HookedTransformerConfig", "TransformerBridgeConfig", "config"), "attn.Config, which model.config is"),
    **dict.fromkeys(("TransformerLensKeyValueCache", "TransformerLensKeyValueCacheEntry"),
                    "a session, model.session(), which keeps keys and values"),
    "SVDInterpreter": 'attn.lens.circuit(model, layer, head, "OV").svd()',
    "head_detector": "attn.lens.detect_head",
    "evals": "model.score(tokens)",
    "train": "nothing: the package runs models and does not train them",
    "components": "model.tensor(name) and model.activation_names()",
    "weight_processing": _PROCESS,
    "get_act_name": 'the short key of a cache, as in cache["pattern", 0], and the name in full elsewhere',
    "test_prompt": "model.score(text, k=10)",
    "lm_cross_entropy_loss": "model.score(tokens).nll",
    "sample_logits": "attn.Sampler(model, sampling).sample(logits)",
    "composition_scores": "attn.lens.composition_scores",
    "get_dataset": _NO_TEXTS,
    "to_numpy": "nothing: arrays are NumPy's",
    "ActivationCache": "attn.Record, what run_with_cache gives second",
    "hook_points": "model.activation_names(), and attn.HookPoint is what a hook is given",
    "patching": "attn.lens.patch",
    "FactoredMatrix": "attn.lens.FactoredMatrix",
    **dict.fromkeys(("utils", "utilities"), "the methods of attn.Model and the functions of attn.lens"),
}
_PATCH = 'attn.lens.patch(model, pair, "{0}", "{1}")'
LENS = {f"get_act_patch_{name}": _PATCH.format(f"hook_{name}", "positions") for name in
        ("resid_pre", "resid_mid", "attn_out", "mlp_out")}
LENS.update({f"get_act_patch_attn_head_{name}_{end}": _PATCH.format(f"attn.hook_{hook}", by)
             for name, hook in (("out", "z"), ("q", "q"), ("k", "k"), ("v", "v"), ("pattern", "pattern"))
             for end, by in (("all_pos", "heads"), ("by_pos", "position_heads"))})
LENS["generic_activation_patch"] = _PATCH.format("attn.hook_z", "heads")
LENS.update(dict.fromkeys((f"layer_{what}_patch_setter" for what in (
    "pos", "pos_head_vector", "head_vector", "head_pattern", "head_pos_pattern", "head_dest_src_pos_pattern")),
    "a kind of attn.lens.patch: " + _PATCH.format("attn.hook_z", "position_heads")))
LENS.update({
    "get_act_patch_attn_head_all_pos_every": _PATCH.format("attn.hook_z", "heads") + ", and of q, k, v and pattern",
    "get_act_patch_attn_head_by_pos_every": _PATCH.format("attn.hook_z", "position_heads") + ", and of q, k, v and pattern",
    "get_act_patch_block_every": _PATCH.format("hook_resid_pre", "positions") + ", and of hook_attn_out and hook_mlp_out",
    **{name: MODULE[name] for name in ("SVDInterpreter", "get_act_name", "test_prompt")},
})
FACTORED = {
    "U": "svd()[0]", "V": "svd()[2]", "Vh": "svd()[2].T", "T": "attn.lens.FactoredMatrix(matrix.B.T, matrix.A.T)",
    "BA": "matrix.B @ matrix.A", "norm": "numpy.linalg.norm(matrix.S)", "get_corner": "matrix.AB[:3, :3]",
    "pair": "matrix.A and matrix.B", "ndim": "2", "make_even": "numpy.sqrt(S) times the columns of svd()[0] and svd()[2]",
    "collapse_l": "S[:, None] * V.T, with _, S, V = matrix.svd()", "collapse_r": "U * S, with U, S, _ = matrix.svd()",
    "unsqueeze": "nothing: it is one matrix",
}
LENS["get_act_patch_attn_head_pattern_dest_src_pos"] = _PATCH.format("attn.hook_pattern", "weights")

KEYWORDS = {
    "names_filter": "names", "return_type": _LOSS, "loss_per_token": _LOSS, "max_new_tokens": "max_tokens",
    "topk": "k", "top_k": _SAMPLING.format("top_k"), "top_p": _SAMPLING.format("top_p"),
    "temperature": _SAMPLING.format("temperature"), "seed": _SAMPLING.format("seed"),
    "freq_penalty": _SAMPLING.format("repeat_penalty"), "do_sample": _SAMPLING.format("temperature"),
    "stop_at_eos": "ignore_eos", "head": "heads", "pos": "positions", "position": "positions",
    "stop_at_layer": _FEED.format("stop_at_layer"), "start_at_layer": _FEED.format("start_at_layer"),
    **dict.fromkeys(("past_kv_cache", "use_past_kv_cache"), "a session, model.session(), which keeps keys and values"),
    **dict.fromkeys(("shortformer_pos_embed", "attention_mask"), "nothing: positions count from 0, and a call takes one text"),
    "eos_token_id": "stop=..., the texts that end it, or ignore_eos",
    "truncate": "n_ctx of model.config, which a text must fit",
    "model_name": "name", "default_prepend_bos": "prepend_bos of each call",
    "refactor_factored_attn_matrices": "attn.lens.refactor_attention(model, path)",
    **dict.fromkeys(("checkpoint_index", "checkpoint_value", "checkpoint_label", "hf_model", "tokenizer"),
                    "nothing: the file of a model has all; the program attn-convert makes it of a checkpoint"),
    "first_n_layers": _FEED.format("stop_at_layer"), "n_ctx": "model.session(n_ctx)",
    "hook": "fn", "level": "nothing: a hook lives as long as its session or its `with` block", "incl_mid": 'kind="streams_mid"',
    "is_permanent": "nothing: a hook lives as long as its session or its `with` block",
    "prepend": "nothing: hooks are called in the order in which they were made",
    "dir": "attn.lens.Backward(model).gradients(tokens, metric, names)", "cache": "what record() returns",
    "mode": 'kind="sublayers", "attns" or "mlps"', "expand_neurons": 'kind="neurons", or "heads"',
    "return_labels": "labels of what is returned", "project_output_onto": "project",
    "incorrect_tokens": "model.logit_directions(tokens, against)", "patching_metric": "the metric of a Pair",
    "bwd_hooks": "attn.lens.Backward(model).gradients(tokens, metric, names)",
    "incl_bwd": "attn.lens.Backward(model).gradients(tokens, metric, names)",
    "remove_batch_dim": "nothing: without batch_dim=True there is no batch dimension",
    "pos_slice": "record(names, first=..., n_positions=...) of a session",
    **dict.fromkeys(("batch_slice", "has_batch_dim"), "nothing: there is no batch dimension"),
    **dict.fromkeys(("return_cache_object", "device", "dtype", "move_to_device", "verbose", "padding_side",
                     "default_padding_side", "n_devices", "reset_hooks_end", "clear_contexts"),
                    "nothing: leave it out"),
    **dict.fromkeys(("fold_ln", "center_unembed", "center_writing_weights", "fold_value_biases"), _PROCESS),
}
WEIGHTS = {"W_E": "embed", "W_pos": "pos_embed", "W_U": "unembed", "b_U": "unembed"}
WEIGHTS.update({f"{kind}_{part}": "attn" for kind in "Wb" for part in "QKVO"})
WEIGHTS.update({f"{kind}_{part}": "mlp" for kind in "Wb" for part in ("in", "out")})


class Layer(int):
    """The number of a layer, which says so where TransformerLens's hook.layer() is written."""

    def __call__(self) -> int:
        raise TypeError("layer is a number here: point.layer, without ()")


def missing(what: str, name: str, word: Optional[str]) -> AttributeError:
    """The error for an attribute that is not there, with the word of this package if there is one."""
    return AttributeError(f"{what} has no {name}" + (f"; here it is {word}" if word else ""))


def missing_in_module(what: str, name: str, word: Optional[str], caller: types.FrameType) -> Exception:
    """The same for a module. `from attn import NAME` drops the text of an AttributeError, and keeps that of an ImportError."""
    imports = caller.f_code.co_code[caller.f_lasti] == opcode.opmap["IMPORT_FROM"] if caller.f_lasti >= 0 else False
    error = missing(what, name, word)
    return ImportError(str(error)) if word and imports else error


def model_word(name: str) -> Optional[str]:
    """What to write here for an attribute of TransformerLens's model."""
    module = WEIGHTS.get(name)
    if module in ("attn", "mlp"):
        return f'model.tensor("blocks.0.{module}.{name}"), a layer at a time'
    return f'model.tensor("{module}.{name}")' if module else MODEL.get(name)


def keyword(function: str, name: str, taken: tuple[str, ...]) -> Optional[str]:
    """What to write here for a keyword of TransformerLens, of a function that takes others."""
    word = KEYWORDS.get(name)
    if name == "top_k" and "k" in taken:
        return "k"
    if word and word.startswith("model.session().feed") and function == "generate":
        return "nothing: a text needs all layers"
    return word


# ---- the library's messages ----

_PYTHON = {
    "attn_session_truncate": "truncate()", "attn_session_copy": "copy()", "attn_record_free": "close() of the record",
    "attn_workspace_new": "model.workspace()", "attn_session_new": "model.session()", "attn_hook_edit": "edit()",
    "attn_session_desc.workspace": "model.session(workspace=...)", "attn_workspace_desc.n_ctx": "n_ctx of the workspace",
    "attn_workspace_desc": "model.workspace()", "attn_session_get_cache": "cache_get()",
    "attn_session_set_cache": "cache_set()", "attn_model_open": "Model()", "attn_model_tensor": "tensor()",
    "lens_model_save": "save()", "attn_record_new": "record()", "attn_text_token": "to_single_token()",
    "attn_feed": "feed()", "attn_feed_batch": "feed_batch()", "attn_unhook": "remove()", "attn_score": "score()",
    "lens_patch_paths": "path_patch()", "lens_decompose": "decompose_resid()",
}


FUNCTIONS: set[str] = set()  # of C, that the package calls


def in_python(message: str) -> str:
    """A message of the library with Python's names for its functions."""
    def named(found: re.Match[str]) -> str:
        name = found[0]
        if name in _PYTHON:
            return _PYTHON[name]
        return name.split("_", 1)[1] + "()" if name in FUNCTIONS else name

    return re.sub(r"(?<![\w/.-])(?:attn|lens)_\w+(?:\.\w+)?", named, message)
