"""What TransformerLens calls things, and what the library's own messages call them, in the words of this package."""
from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Optional, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

_NOTHING = "nothing: arrays are NumPy's, on the CPU, and a model has no training mode"
_LOSS = "model.score(tokens).nll, and model(tokens) for the logits"
_SAMPLING = "sampling=attn.Sampling({0}=...)"
_FEED = "model.session().feed(tokens, {0}=...)"
_PROCESS = "model.process_weights()"
_PARTS = 'attn.lens.decompose_resid(model, tokens, "{0}")'

_PARTS_WORDS = {
    "decompose_resid": _PARTS.format("sublayers"),
    "accumulated_resid": _PARTS.format("streams"),
    "stack_head_results": _PARTS.format("heads"),
    "stack_neuron_results": _PARTS.format("neurons"),
    "get_full_resid_decomposition": _PARTS.format("heads") + ", and of neurons " + _PARTS.format("neurons"),
}
CONFIG = {"d_vocab": "n_vocab", "n_heads": "n_head", "n_layers": "n_layer", "eps": "ln_eps"}
MODEL = {
    **_PARTS_WORDS,
    "cfg": "model.config",
    "forward": "model(tokens)",
    "generate": "model.session().generate(prompt), an iterator over the text, or model.generate_many(prompts)",
    "loss_fn": "model.score(tokens).nll",
    "add_hook": "hook(name, function) of a session, model.session(), or model.run_with_hooks(tokens, [(name, function)])",
    "hooks": "model.run_with_hooks(tokens, [(name, function)]), or session.hook(name, function) in a `with` block",
    "reset_hooks": "unhook_all() of the session that has the hooks",
    "add_caching_hooks": "model.session().record(names)",
    "hook_dict": "model.activation_names()",
    "hook_points": "model.activation_names()",
    "to_single_str_token": "model.to_string([token])",
    "tokens_to_residual_directions": "model.logit_directions(tokens)",
    "from_pretrained": 'attn.load("gpt2"), or attn.Model(path); the program attn-convert makes the file of a checkpoint',
    "embed": 'model.tensor("embed.W_E")',
    "pos_embed": 'model.tensor("pos_embed.W_pos")',
    "unembed": 'model.tensor("unembed.W_U") and model.tensor("unembed.b_U")',
    "ln_final": 'model.tensor("ln_final.w") and model.tensor("ln_final.b")',
    "W_E_pos": 'numpy.concatenate([model.tensor("W_E"), model.tensor("W_pos")])',
    "accumulated_bias": 'a sum of model.tensor("blocks.0.attn.b_O") and model.tensor("blocks.0.mlp.b_out") over layers',
    "tokenize": "model.to_tokens(text), and model.to_str_tokens(text) for the texts of tokens",
    "feed": "feed of a session: model.session().feed(tokens), or model(tokens)",
    "run_with_saes": "hook of an autoencoder: attn.lens.SAE(directory).hook(session, changes)",
    **dict.fromkeys(("set_use_attn_result", "set_use_split_qkv_input", "set_use_attn_in", "set_use_hook_mlp_in"),
                    'nothing: ask for the activation by its name, as in run_with_cache(tokens, ["*", "*.hook_result"])'),
    "blocks": 'model.tensor("blocks.0.attn.W_Q") and the like, and model.config.n_layer',
    "OV": 'attn.lens.circuit(model, layer, head, "OV")',
    "QK": 'attn.lens.circuit(model, layer, head, "QK")',
    "all_composition_scores": 'attn.lens.composition_scores(model, "Q"), "K" or "V"',
    "all_head_labels": '[f"L{layer}H{head}" for layer in range(config.n_layer) for head in range(config.n_head)]',
    "state_dict": "{name: model.tensor(name) for name in model.tensor_names()}",
    **dict.fromkeys(("parameters", "named_parameters"), "model.tensor(name) for each of model.tensor_names()"),
    **dict.fromkeys(("eval", "train", "to", "cpu", "cuda"), _NOTHING),
    **dict.fromkeys(("fold_layer_norm", "center_unembed", "center_writing_weights", "fold_value_biases"), _PROCESS),
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
    "remove_batch_dim": "nothing: without batch_dim=True there is no batch dimension",
    **dict.fromkeys(("to", "cpu", "cuda"), _NOTHING),
}
MODULE = {
    **dict.fromkeys(("HookedTransformer", "TransformerBridge"), 'attn.load("gpt2"), or attn.Model(path)'),
    "HookedSAE": "attn.lens.SAE(directory)",
    "ActivationCache": "attn.Record, what run_with_cache gives second",
    "hook_points": "model.activation_names(), and attn.HookPoint is what a hook is given",
    "patching": "attn.lens.patch",
    "FactoredMatrix": "attn.lens.FactoredMatrix",
    "utils": "the methods of attn.Model and the functions of attn.lens",
}
_PATCH = 'attn.lens.patch(model, pair, "{0}", "{1}")'
LENS = {f"get_act_patch_{name}": _PATCH.format(f"hook_{name}", "positions") for name in
        ("resid_pre", "resid_mid", "attn_out", "mlp_out")}
LENS.update({f"get_act_patch_attn_head_{name}_{end}": _PATCH.format(f"attn.hook_{hook}", by)
             for name, hook in (("out", "z"), ("q", "q"), ("k", "k"), ("v", "v"), ("pattern", "pattern"))
             for end, by in (("all_pos", "heads"), ("by_pos", "position_heads"))})
LENS["generic_activation_patch"] = _PATCH.format("attn.hook_z", "heads")
LENS["get_act_patch_attn_head_pattern_dest_src_pos"] = _PATCH.format("attn.hook_pattern", "weights")

KEYWORDS = {
    "names_filter": "names", "return_type": _LOSS, "loss_per_token": _LOSS, "max_new_tokens": "max_tokens",
    "topk": "k", "top_k": _SAMPLING.format("top_k"), "top_p": _SAMPLING.format("top_p"),
    "temperature": _SAMPLING.format("temperature"), "seed": _SAMPLING.format("seed"),
    "freq_penalty": _SAMPLING.format("repeat_penalty"), "do_sample": _SAMPLING.format("temperature"),
    "stop_at_eos": "ignore_eos", "head": "heads", "pos": "positions", "position": "positions",
    "stop_at_layer": _FEED.format("stop_at_layer"), "start_at_layer": _FEED.format("start_at_layer"),
    "past_kv_cache": "a session, model.session(), which keeps keys and values",
    "bwd_hooks": "attn.lens.Backward(model).gradients(tokens, metric, names)",
    "incl_bwd": "attn.lens.Backward(model).gradients(tokens, metric, names)",
    "remove_batch_dim": "nothing: without batch_dim=True there is no batch dimension",
    "pos_slice": "record(names, first=..., n_positions=...) of a session",
    **dict.fromkeys(("return_cache_object", "device", "dtype", "move_to_device", "verbose", "padding_side", "reset_hooks_end", "clear_contexts"),
                    "nothing: leave it out"),
    **dict.fromkeys(("fold_ln", "center_unembed", "center_writing_weights", "fold_value_biases"), _PROCESS),
}
WEIGHTS = {"W_E": "embed", "W_pos": "pos_embed", "W_U": "unembed", "b_U": "unembed"}
WEIGHTS.update({f"{kind}_{part}": "attn" for kind in "Wb" for part in "QKVO"})
WEIGHTS.update({f"{kind}_{part}": "mlp" for kind in "Wb" for part in ("in", "out")})


def missing(what: str, name: str, word: Optional[str]) -> AttributeError:
    """The error for an attribute that is not there, with the word of this package if there is one."""
    return AttributeError(f"{what} has no {name}" + (f"; here it is {word}" if word else ""))


def model_word(name: str) -> Optional[str]:
    """What to write here for an attribute of TransformerLens's model."""
    module = WEIGHTS.get(name)
    if module in ("attn", "mlp"):
        return f'model.tensor("blocks.0.{module}.{name}"), a layer at a time'
    return f'model.tensor("{module}.{name}")' if module else MODEL.get(name)


def answers(function: _F) -> _F:
    """Makes a keyword of TransformerLens an error that names the one of this package."""
    taken = function.__code__.co_varnames[:function.__code__.co_argcount + function.__code__.co_kwonlyargcount]

    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        for name in keywords:
            if name not in taken and name in KEYWORDS:
                word = KEYWORDS[name]
                if name == "top_k" and "k" in taken:
                    word = "k"
                elif word.startswith("model.session().feed") and function.__name__ == "generate":
                    word = "nothing: a text needs all layers"
                called_as = "model" if function.__name__ == "__call__" else function.__name__
                raise TypeError(f"{called_as}() takes no {name}; here it is {word}")
        return function(*arguments, **keywords)

    wrapped: Any = called
    return wrapped  # type: ignore[no-any-return]


# ---- the library's messages ----

_PYTHON = {
    "attn_session_truncate": "truncate()", "attn_session_copy": "copy()", "attn_record_free": "close() of the record",
    "attn_workspace_new": "model.workspace()", "attn_session_new": "model.session()", "attn_hook_edit": "edit()",
    "attn_session_desc.workspace": "model.session(workspace=...)", "attn_workspace_desc.n_ctx": "n_ctx of the workspace",
    "attn_workspace_desc": "model.workspace()", "attn_session_get_cache": "cache_get()",
    "attn_session_set_cache": "cache_set()", "attn_model_open": "Model()", "attn_model_tensor": "tensor()",
    "attn_model_save": "save()", "attn_record_new": "record()", "attn_text_token": "to_single_token()",
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
