"""How long calls tell how far they are."""
from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, Optional, Union


def told(progress: Union[bool, Callable[[float], Any], None], what: str) -> Optional[Callable[[float], Any]]:
    """What is given the share that is done, from 0 to 1: the function, or for True a bar. None: nobody is told."""
    if not progress or callable(progress):
        return progress or None
    try:
        bar = importlib.import_module("tqdm.auto").tqdm(total=1.0, desc=what, bar_format="{l_bar}{bar}| {elapsed}<{remaining}")
    except ImportError:
        return lambda share: print(f"\r{what}: {share:4.0%}", end="\n" if share >= 1 else "", file=sys.stderr, flush=True)

    def show(share: float) -> None:
        bar.update(max(0.0, share - bar.n))
        if share >= 1:
            bar.close()

    return show
