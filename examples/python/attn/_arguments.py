"""What a function takes: its annotations say it, and here is what each of them means, checks, and is called."""
from __future__ import annotations

import functools
import inspect
import math
import operator
import os
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

import numpy as np

from . import _words

Kind = tuple[str, Callable[[Any], Any]]  # what is expected, and what makes it of a value, or fails


def shown(value: Any) -> str:
    """A value for a message: small ones as they are, of others the type."""
    if isinstance(value, (str, bytes, int, float, complex, type(None), np.generic)):
        text = repr(value.item() if isinstance(value, np.generic) else value)
        return text if len(text) <= 80 else text[:77] + "..."
    if isinstance(value, (list, tuple)) and len(repr(value)) <= 80:
        return repr(value)
    name = type(value).__name__
    shape = getattr(value, "shape", None)
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}" + (f" of shape {list(shape)}" if isinstance(shape, tuple) else "")


def wrong(function: str, name: str, value: Any, expected: str, kind: type[Exception] = TypeError) -> Exception:
    return kind(f"{function}{': ' if function else ''}{name} is {shown(value)}; expected {expected}")


def _whole(least: int, most: int, expected: str) -> Kind:
    def convert(value: Any) -> int:
        n = operator.index(value)
        if not least <= n <= most:
            raise ValueError
        return n
    return expected, convert


def _real(value: Any) -> float:
    if isinstance(value, (str, bytes, complex)) or np.ndim(value):
        raise TypeError
    if not math.isfinite(number := float(value)):
        raise ValueError
    return number


def _flag(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)) and (isinstance(value, float) or operator.index(value) not in (0, 1)):
        raise TypeError
    return bool(value)


def _if(test: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Takes values of which the test is true, as they are."""
    def convert(value: Any) -> Any:
        if not test(value):
            raise TypeError
        return value
    return convert


def instance(of: Any, expected: str) -> Kind:
    return expected, _if(lambda value: isinstance(value, of))


_str = instance(str, "a str")[1]


def _text(value: Any) -> Any:
    coded(_str(value))
    return value


def coded(text: str) -> bytes:
    """A name or a text for C, where it ends before a NUL."""
    if "\0" in text:
        raise ValueError(f"{text!r} has a NUL character, before which the library would cut it")
    return text.encode()


def _path(value: Any) -> Any:
    if b"\0" in os.fsencode(value):
        raise ValueError(f"the path {value!r} has a NUL character")
    return value


def _each(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    path = os.fsdecode(_path(value))
    if not path.endswith(".npz"):
        raise ValueError
    return path


def _texts(value: Any) -> list[str]:
    if isinstance(value, (bytes, dict)) or hasattr(value, "columns"):
        raise TypeError
    return [_text(text) for text in ([value] if isinstance(value, str) else value)]


def is_table(value: Any) -> bool:
    return isinstance(value, (dict, set, frozenset)) or hasattr(value, "columns")


def floats(value: Any) -> Any:
    """Numbers as an array of f32."""
    if value is None or is_table(value) or isinstance(value, (str, bytes)):
        raise TypeError
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError
    return np.asarray(array, np.float32)


def _tensor(value: Any) -> Any:
    array = floats(value)
    if array.ndim > 4:
        raise ValueError
    return np.atleast_1d(array)


def listed(value: Any) -> Any:
    if isinstance(value, (str, bytes)) or is_table(value):
        raise TypeError
    return list(value)


def _span(value: Any) -> Any:
    """One, a range or neighbours, as a slice."""
    if value is None:
        return None
    if isinstance(value, (list, tuple, range, np.ndarray)) and np.ndim(value):
        numbers = [operator.index(n) for n in value]
        if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise ValueError(f"must be neighbours, as in [2, 3, 4]; for {numbers} make one edit for each")
        value = slice(numbers[0], numbers[-1] + 1)
    if not isinstance(value, slice):
        value = slice(operator.index(value), operator.index(value) + 1)
    first, end = operator.index(value.start or 0), value.stop if value.stop is None else operator.index(value.stop)
    if value.step not in (None, 1) or not 0 <= first <= sys.maxsize or end is not None and not first < end <= sys.maxsize:
        raise ValueError
    return slice(first, end)


def one_of(options: Iterable[str]) -> Kind:
    options = tuple(options)

    def convert(value: Any) -> Any:
        if _str(value) not in options:
            raise ValueError
        return value
    return " or ".join(options) if len(options) == 2 else f"one of {', '.join(options)}", convert


# Annotations as they are written, without Optional. A module adds those that it defines.
KINDS: dict[str, Kind] = {
    "int": _whole(0, sys.maxsize, "a whole number from 0 on"),
    "Positive": _whole(1, sys.maxsize, "a whole number from 1 on"),
    "Threads": _whole(0, 256, "a whole number from 1 to 256, or 0 for what the library chooses"),
    "Seed": _whole(0, 2**64 - 1, "a whole number from 0 to 2^64 - 1"),
    "Union[int, str]": ("the number of a layer, or a name", lambda value: _text(value) if isinstance(value, str) else operator.index(value)),
    "float": ("a finite number", _real), "bool": ("True or False", _flag), "str": ("a str", _text),
    "EachFile": ("True, or the name of an .npz file", _each),
    "Path": ("the path of a file", _path), "Texts": ("a str, or several", _texts),
    "Progress": ("True or a function",
                 _if(lambda value: callable(value) or isinstance(value, (bool, np.bool_, type(None))))),
    "SomeNames": ("a name, several, or a function that chooses them",
                  lambda value: value if callable(value) else _texts(value)),
    "npt.ArrayLike": ("numbers, an array of 1 to 4 dimensions", _tensor),
    "Tokens": ("a text, or the ids of its tokens", _if(lambda value: not (
        value is None or is_table(value) or isinstance(value, (int, float, complex)) or callable(value)))),
    "Span": ("a number from 0 on, neighbours such as [2, 3], or a slice like slice(2, 5)", _span),
    "Prompts": ("a text, or a list of texts",
                lambda value: [value] if isinstance(value, (str, bytes)) else listed(value)),
}
KINDS["Names"] = KINDS["SomeNames"]


def _kind_of(annotation: str, names: dict[str, Any]) -> Optional[tuple[bool, Kind]]:
    """Whether None will do, and the kind."""
    optional = annotation in ("Names", "Span", "Progress")
    if annotation.startswith("Optional["):
        annotation, optional = annotation[9:-1], True
    short = annotation.replace("attn.", "")
    if short in KINDS:
        return optional, KINDS[short]
    if short.startswith(("Callable[", "HookFn")):
        return optional, ("a function", _if(callable))
    if short.startswith("Mapping["):
        return optional, instance(Mapping, "a dictionary")
    if short.startswith(("Sequence[", "Iterable[")):
        return optional, ("a list", listed)
    if short.startswith("Literal") or short in names and typing.get_origin(names[short]) is typing.Literal:
        return optional, one_of(typing.get_args(eval(annotation, names)))
    return None


def take(function: str, name: str, value: Any, kind: Kind) -> Any:
    """The value as the kind has it, or an error in one sentence: the argument, its value, what is expected."""
    expected, convert = kind
    try:
        return convert(value)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        of = ValueError if isinstance(error, (ValueError, OverflowError)) else TypeError
        if of is ValueError and str(error) and expected.startswith(("the path", "a number", "a str", "a name")):
            raise ValueError(f"{function}: {name}: {error}") from None
        cure = ", such as table.to_numpy()" if expected.startswith("numbers") else ', such as table["sentence"]' if "text" in expected else ""
        raise wrong(function, name, value, expected + (cure if hasattr(value, "columns") else ""), of) from None


def checked(function: Any, called_as: str) -> Any:
    """The function with its arguments taken as the annotations say. A keyword of TransformerLens is an error that names
    the one of this package."""
    code = function.__code__
    taken = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    kinds = {name: _kind_of(function.__annotations__.get(name, ""), function.__globals__) for name in taken}

    def one(name: str, value: Any) -> Any:
        optional, kind = kinds.get(name) or (True, None)
        return value if kind is None or value is None and optional else take(called_as, name, value, kind)

    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        listed = [*map(one, taken[:code.co_argcount], arguments), *arguments[code.co_argcount:]]
        for name, value in keywords.items():
            keywords[name] = one(name, value)
            if name not in taken and not code.co_flags & inspect.CO_VARKEYWORDS and (word := _words.keyword(function.__name__, name, taken)):
                raise TypeError(f"{called_as} takes no {name}; here it is {word}")
        return function(*listed, **keywords)

    return called


def check_all(module: dict[str, Any]) -> None:
    """Checks the arguments of a module's public functions, of the methods of its public classes, and of what makes them."""
    for name in module["__all__"]:
        thing = module.get(name)
        if getattr(thing, "__module__", None) != module["__name__"]:
            continue
        if inspect.isfunction(thing):
            module[name] = checked(thing, f"{name}()")
        elif inspect.isclass(thing):
            for key, method in list(vars(thing).items()):
                called_as = {"__init__": f"{name}()", "__call__": f"{name.lower()}()"}.get(key, f"{key}()")
                if inspect.isfunction(method) and (not key.startswith("_") or key in ("__init__", "__call__")):
                    setattr(thing, key, checked(method, called_as))
