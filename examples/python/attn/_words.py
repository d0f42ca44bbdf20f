"""What TransformerLens calls things, and what the library's own messages call them, in the words of this package."""
from __future__ import annotations

import functools
import opcode
import pathlib
import re
import types
from typing import Optional

ACTIVATIONS = {"attn": "pattern", "attn_logits": "attn_scores", "key": "k", "query": "q", "value": "v",
               "mlp_pre": "pre", "mlp_mid": "mid", "mlp_post": "post"}  # TransformerLens's other names in keys of a cache
MODULES = {"a": "attn", "attention": "attn", "m": "mlp", "b": None, "block": None, "blocks": None}  # and those of modules
WEIGHTS = {"W_E": "embed", "W_pos": "pos_embed", "W_U": "unembed", "b_U": "unembed"}
WEIGHTS.update({f"{kind}_{part}": "attn" for kind in "Wb" for part in "QKVO"})
WEIGHTS.update({f"{kind}_{part}": "mlp" for kind in "Wb" for part in ("in", "out")})


@functools.lru_cache(maxsize=None)
def _words() -> dict[tuple[str, str], str]:
    """The word for a name of TransformerLens, by what has it, a class, a module or "arguments": from the tables of the page."""
    page = pathlib.Path(__file__).with_name("transformerlens.txt").read_text("utf-8")
    found: dict[tuple[str, str], str] = {}
    of: list[str] = []
    for left, right in re.findall(r"^\| (.*?) \| (.*) \|$", page, re.M):
        names = re.findall("`(.*?)`", left)
        if right == "here":  # a table begins
            of = names
        else:
            found.update({(owner, name): re.sub(r"\\?`", lambda mark: mark[0][1:], right) for owner in of for name in names})
    return found


def word(of: str, name: str) -> Optional[str]:
    """What to write here for a name that TransformerLens has."""
    module = WEIGHTS.get(name) if of == "Model" else None
    if module in ("attn", "mlp"):
        return f'model.tensor("blocks.0.{module}.{name}"), a layer at a time'
    return f'model.tensor("{module}.{name}")' if module else _words().get((of, name))


class Layer(int):
    """The number of a layer, which says so where TransformerLens's hook.layer() is written."""

    def __call__(self) -> int:
        raise TypeError("layer is a number here: point.layer, without ()")


def missing(of: str, name: str, called: Optional[str] = None) -> AttributeError:
    """The error for an attribute that is not there, with the word of this package if there is one."""
    found = word(of, name)
    return AttributeError(f"{called or 'a ' + of} has no {name}" + (f"; here it is {found}" if found else ""))


def missing_in_module(module: str, name: str, caller: types.FrameType) -> Exception:
    """The same for a module. `from attn import NAME` drops the text of an AttributeError, and keeps that of an ImportError."""
    imports = caller.f_code.co_code[caller.f_lasti] == opcode.opmap["IMPORT_FROM"] if caller.f_lasti >= 0 else False
    error = missing(module, name, module)
    return ImportError(str(error)) if imports and word(module, name) else error


def keyword(function: str, name: str, taken: tuple[str, ...]) -> Optional[str]:
    """What to write here for a keyword of TransformerLens, of a function that takes others."""
    if name == "top_k" and "k" in taken:
        return "k"
    found = word("arguments", name)
    if found and (keywords := re.fullmatch(r"(\w+)(?: or (\w+))?(?:=.*)?", found)):  # perhaps of other functions
        known = next((one for one in keywords.groups() if one in taken), None)
        return found if known and "=" in found else known
    if found and found.startswith("model.session().feed") and function == "generate":
        return "nothing: a text needs all layers"
    return found


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
