"""attn.convert, attn.download, and the programs attn-convert and attn-download. C converts, and says which files to download."""
from __future__ import annotations

import argparse
import http.client
import os
import pathlib
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable
from typing import Any, Optional

import attn
from . import _files, _query
from ._arguments import check_all, wrong
from ._library import attn_ctx, lib

__all__ = ["convert", "download"]

_TRIES = 4
_BLOCK = 1 << 20


class _NoModel(attn.Model):
    """What a question is asked of that needs no model."""

    _handle: Any = None

    def __init__(self) -> None:
        pass

    def _context(self) -> attn_ctx:
        return attn_ctx()


def _asked(command: str, settings: dict[str, Any], progress: attn.Progress = None) -> _query.Answer:
    """A question that needs no model."""
    answer = _query.Answer(_NoModel(), command)
    known = {setting.name: setting for setting in reversed([*_query.settings_of(command)])}
    for name, value in settings.items():
        if value is False or name not in known:  # what has an opposite, as no-tokenizer; C refuses what it does not know
            name, value = ("no-" + name, b"1") if value is False else (name, b"")
            answer._run(lib.lens_query_set, answer._query, name.encode(), value, len(value))
        elif value is not None:
            answer._run(*_query.value_for(answer, name, known[name], value))
    return answer._asked(progress)


def convert(checkpoint: attn.Path, output: attn.Path, /, *, progress: attn.Progress = None, **settings: Any) -> _query.Answer:
    """Makes the .attn file `output` of a checkpoint: a folder of Hugging Face's, a training state of PyTorch's (.pt), a
    GGUF or llm.c file. Of a .attn file it makes a folder, or output.gguf. The settings are those of the program attn-convert:

    dtype: "f32", "f16", "q8" or "q4"; else the smallest that loses nothing. tokenizer: the folder of the vocabulary, or False.
    prefix: which of several models in a file. name, source, license: what the file says of the model.

    The answer has facts and notes; notes are warnings, too."""
    answer = _asked("convert", {"model": checkpoint, "output": output, **settings}, progress)
    for note in answer.notes:
        warnings.warn(note, stacklevel=4)  # of who called the function, past the check of its arguments
    return answer


def _open(url: str, begin: int = 0) -> http.client.HTTPResponse:
    """Asks for a file from a byte on. The key of $HF_TOKEN goes to the hub, and nowhere that it leads to."""
    request = urllib.request.Request(url, headers={"User-Agent": f"attn/{attn.version()}", **({"Range": f"bytes={begin}-"} if begin else {})})
    if key := os.environ.get("HF_TOKEN"):
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=60)
    return response


def _fetch(url: str, part: pathlib.Path, begin: int, tell: Callable[[int], Any]) -> None:
    """Appends to a file what it lacks, or begins it again where the server gives all of it."""
    with _open(url, begin) as response, open(part, "ab" if begin and response.status == 206 else "wb") as file:
        while block := response.read(_BLOCK):
            file.write(block)
            tell(len(block))


def _repository(name: str) -> str:
    return {"distilgpt2": "distilbert/distilgpt2"}.get(name, name if "/" in name else f"openai-community/{name}")


def download(name: str, /, revision: str = "main", directory: Optional[attn.Path] = None, *, progress: attn.Progress = None) -> str:
    """Fetches the files of a GPT-2 from the Hugging Face hub into a folder, and gives its path: attn.convert takes it.

    name: "gpt2", "gpt2-medium" ..., or OWNER/NAME. revision: a branch, tag or commit, as "chck_1M" of a series. directory: else a
    folder of the user's cache for each name and revision. $HF_ENDPOINT names a mirror, and $HF_TOKEN has the key of what is
    not public. What was cut short goes on from there at the next call; sizes and SHA-256 are the hub's."""
    hub, repository = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/"), urllib.parse.quote(_repository(name))
    revised = urllib.parse.quote(revision, safe="")
    folder = pathlib.Path(os.fsdecode(directory)) if directory is not None else (
        _files.cache_directory() / "checkpoints" / repository.replace("/", "--") / revised)
    show = attn._told(progress, f"downloading {name}")
    failure: Exception = OSError("the hub closed the connection early")
    try:
        with _open(f"{hub}/api/models/{repository}/revision/{revised}?blobs=true") as response:
            listing = response.read()
    except urllib.error.HTTPError as error:
        raise FileNotFoundError(f"{hub} has no {repository} with the revision {revision}, or does not give it out ({error}); "
                                "$HF_TOKEN has the key of what is not public") from None
    except OSError as error:
        raise ConnectionError(f"cannot reach {hub} ({error}): is there a network? $HF_ENDPOINT names a mirror") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise wrong("download()", "directory", directory, "a folder, and this is a file", ValueError) from None
    for attempt in range(_TRIES + 1):
        answer = _asked("checkpoint", {"listing": listing, "folder": folder})
        files = answer.tables["files"]
        wanted, done = sum(files["bytes"]), sum(files["here"])
        left = [row for row, complete in enumerate(files["complete"]) if not complete]
        if not left:
            if show:
                show(1)
            return str(folder)
        if attempt == _TRIES:
            break
        time.sleep(min(attempt, 1))

        def tell(n: int) -> None:
            nonlocal done
            done += n
            if show:
                show(min(done / wanted, 1))

        for row in left:
            try:
                _fetch(f"{hub}/{repository}/resolve/{answer.facts['commit'] or revised}/{files['file'][row]}",
                       folder / f"{files['file'][row]}.part", int(files["here"][row]), tell)
            except (OSError, http.client.HTTPException) as error:
                failure = error
    raise ConnectionError(f"{files['file'][left[0]]} did not arrive whole ({'; '.join(answer.notes) or failure}). Call download again: "
                          f"it goes on from there, in {folder}")


# ---- the programs ----


def _ended(work: Callable[[], Any]) -> None:
    """Runs a program's work; a failure is a sentence."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(f"note: {message}", file=sys.stderr)
            warnings.simplefilter("always")
            work()
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, ValueError, attn.Error) as error:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {error}")


def convert_program() -> None:
    """attn-convert INPUT OUTPUT [--dtype TYPE ...]."""
    parser = argparse.ArgumentParser("attn-convert", description="Makes a .attn file of a GPT-2 checkpoint.")
    words = []
    for setting in _query.settings_of("convert"):
        if setting.word:
            words.append(parser.add_argument(setting.name, help=setting.help).dest)
        elif setting.kind == "flag":
            parser.add_argument(f"--no-{setting.name}", dest=setting.name, action="store_const", const=False, help=setting.help)
        else:
            parser.add_argument(f"--{setting.name}", choices=setting.takes or None, help=setting.help)
    given = vars(parser.parse_args())
    _ended(lambda: print(convert(*(given.pop(word) for word in words), progress=True, **given)))


def download_program() -> None:
    """attn-download NAME [--revision REVISION] [--directory DIRECTORY]."""
    parser = argparse.ArgumentParser("attn-download", description="Fetches a GPT-2 from the Hugging Face hub, and prints its folder.")
    parser.add_argument("name", help="gpt2, gpt2-medium ..., or OWNER/NAME")
    parser.add_argument("--revision", default="main", help="a branch, tag or commit")
    parser.add_argument("--directory", help="where the files go")
    given = parser.parse_args()
    _ended(lambda: print(download(given.name, given.revision, given.directory, progress=True)))


check_all(globals())
