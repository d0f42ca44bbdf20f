"""Where models are: attn.load, lens.load_sae."""
from __future__ import annotations

import os
import pathlib

_PACKAGE = pathlib.Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent.parent  # of a package that is not installed
_MADE_BY = {
    "tiny-stories": "make build/tiny-stories.attn",
    "induction": "make build/induction.attn",
    "gpt2": "make gpt2",
    **{f"gpt2-{size}": f"make gpt2 SIZE=gpt2-{size}" for size in ("medium", "large", "xl")},
}


def cache_directory() -> pathlib.Path:
    """Where a user keeps models that all of their projects share."""
    if os.name == "nt":
        return pathlib.Path(os.environ.get("LOCALAPPDATA") or os.path.expanduser("~")) / "attn"
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "attn"


def _directories() -> list[pathlib.Path]:
    """Where load looks, in this order."""
    named = filter(None, os.environ.get("ATTN_MODELS", "").split(os.pathsep))
    built = [_CHECKOUT / "build"] if (_CHECKOUT / "attn.h").exists() else []
    return [*map(pathlib.Path, named), _PACKAGE / "models", *built, pathlib.Path("build"), cache_directory()]


def model_path(name: str) -> pathlib.Path:
    """The file of a model's name."""
    if name.endswith(".attn") or os.path.basename(name) != name:
        raise ValueError(f'load takes the name of a model, such as "tiny-stories"; for the file {name} write '
                         f"attn.Model({name!r})")
    name = "gpt2" if name == "gpt2-small" else name  # as TransformerLens has it
    tried = [directory / f"{name}.attn" for directory in _directories()]
    for path in tried:
        if path.exists():
            return path
    made_by = _MADE_BY.get(name)
    raise FileNotFoundError(
        f"there is no model {name}: looked for {', '.join(map(str, tried))}; " +
        (f"`{made_by}` in a checkout of attn.h makes it" if made_by else
         "attn.convert(DIRECTORY, \"NAME.attn\") makes one of a checkpoint") +
        ", and $ATTN_MODELS names the directory where it is")


def sae_directory() -> pathlib.Path:
    """The autoencoder that is included, of tiny-stories; in it are the transcoders."""
    included = _PACKAGE / "models" / "sae"
    return included if included.exists() else _CHECKOUT / "examples" / "sae"
