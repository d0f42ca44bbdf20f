"""Results that show themselves in a notebook, as a picture and without a script, and in a terminal as text. The
pictures are those of the program lens: libattn.so draws them (tools/lens/program/draw)."""
from __future__ import annotations

import base64
import ctypes
import functools
import html
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_void_p
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _arguments
from ._library import C, attn_ctx, lib

Array = npt.NDArray[np.float32]
Axis = Mapping[str, Sequence[Any]]  # the columns of to_pandas, with an entry for each place on an axis


@functools.lru_cache(maxsize=4096)
def visible(text: str) -> str:
    """A token as people can see it: spaces at its ends, line ends and control characters have a sign."""
    coded = text.encode("utf-8", "surrogatepass")
    shown = ctypes.create_string_buffer(8 * len(coded) + 8)
    lib.lens_show_token(shown, coded, len(coded))
    return shown.value.decode()


def _coded(text: str) -> bytes:
    return visible(text).encode() if text else b""


def _strings(texts: Sequence[str]) -> Any:
    return (c_char_p * len(texts))(*map(_coded, texts))


def _draw(function: Any, *arguments: Any) -> bytes:
    """The SVG that a function of C gives."""
    svg = c_void_p()
    attn_ctx().run(function, byref(svg), *arguments)
    try:
        return ctypes.string_at(svg)
    finally:
        lib.attn_free(svg)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most - 1] + "…"


def _number(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00")


def positions(tokens: Sequence[str], names: tuple[str, str] = ("position", "token")) -> Axis:
    """The axis of a text's positions."""
    return dict(zip(names, (range(len(tokens)), tokens)))


def parts(labels: Sequence[str]) -> Axis:
    """The axis of parts of the stream, such as "L1H0", "0_mlp_out" and "embed"."""
    found = [re.match(r"L?(\d+)(?:H(\d+))?", label) for label in labels]
    layer, head = ([int(match[i]) if match and match[i] else None for match in found] for i in (1, 2))
    axis: dict[str, Sequence[Any]] = {"part": labels, "layer": layer}
    return {**axis, "head": head} if any(number is not None for number in head) else axis


def table(*columns: Any, **how: Any) -> Any:
    """A pandas.DataFrame."""
    import pandas  # type: ignore[import-untyped, import-not-found, unused-ignore]
    return pandas.DataFrame(*columns, **how)


class Drawing:
    """What a notebook shows as a picture if it is the last line of a cell. print gives it as text."""

    title: str

    def _svg(self) -> bytes:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        # Notebooks that are not trusted leave out the elements of an SVG, but show an image.
        return (f'<div style="overflow-x:auto"><img alt="{html.escape(visible(self.title))}" style="max-width:none" '
                f'src="data:image/svg+xml;base64,{base64.b64encode(self._svg()).decode()}"></div>')

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the picture as an .svg file, in light and dark colours, or with CairoSVG as a .png."""
        name = os.fsdecode(_arguments.take("save()", "path", path, _arguments.KINDS["Path"]))
        if name.lower().endswith(".svg"):
            pathlib.Path(path).write_bytes(self._svg())
        elif not name.lower().endswith(".png"):
            raise ValueError(f"a picture is saved as .svg or .png, not as {name!r}; to_numpy() gives the numbers")
        else:
            try:
                import cairosvg  # type: ignore[import-untyped, import-not-found, unused-ignore]
            except (ImportError, OSError) as error:  # OSError: it does not find the library cairo
                raise ImportError(f"{name}: a .png needs CairoSVG (pip install cairosvg: {error}); .svg needs nothing") from error
            svg = self._svg().replace(b"ui-monospace", b"monospace", 1)  # it tries the first font alone
            cairosvg.svg2png(bytestring=svg, write_to=name, scale=2)


@dataclass(frozen=True, repr=False)
class Picture(Drawing):
    """Numbers [panels, rows, columns] that a notebook shows as a picture: the stronger a colour, the larger the
    magnitude; teal is positive and brown negative.

    The last line of a cell shows it; print gives the numbers as text. save("x.svg") writes the picture."""

    title: str
    values: Array  # [panels, rows, columns]
    panels: Sequence[str]
    rows: Sequence[str]
    columns: Sequence[str]
    axes: Optional[tuple[Axis, Axis, Axis]] = None  # of panels, rows, columns
    unsure: Optional[npt.NDArray[np.bool_]] = None  # as values: a dot, where the interval of a mean has 0

    def _axes(self) -> tuple[Axis, Axis, Axis]:
        return self.axes or ({"panel": self.panels}, {"row": self.rows}, {"column": self.columns})

    def to_numpy(self) -> Array:
        """[panels, rows, columns], or [rows, columns] of a single panel."""
        return self.values if len(self.panels) > 1 else self.values[0]

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each number: what it belongs to, in columns such as layer, head, position, token
        and part, and its value."""
        import pandas
        columns: dict[str, Any] = {}
        for axis, at in zip(self._axes(), np.indices(self.values.shape)):
            for name, entries in axis.items():
                kind = pandas.array(entries, dtype="Int64") if None in entries else \
                    np.asarray(entries, object if isinstance(entries[0] if len(entries) else 0, str) else None)
                columns[name] = kind[at.ravel()]
        return table({**columns, "value": self.values.ravel()})

    def _svg(self) -> bytes:
        values = np.ascontiguousarray(self.values, np.float32)
        texts = None if self.unsure is None else _strings([
            "·" * unsure + _number(value) for unsure, value in zip(self.unsure.ravel().tolist(), values.ravel().tolist())])
        names = [_coded(next(iter(axis))) if axis and self.axes else b"" for axis in self._axes()]
        picture = C.lens_picture(_coded(self.title), names[1], names[2], values.ctypes.data, _strings(self.panels), _strings(self.rows),
                                _strings(self.columns), texts, *values.shape)
        return _draw(lib.lens_draw_picture, byref(picture))

    def __repr__(self) -> str:
        """The same as text, for a terminal."""
        lines = [visible(self.title)]
        labels = [_cut(visible(row), 18) for row in self.rows]
        left = max(map(len, labels), default=0)
        for i, name in enumerate(self.panels):
            lines += [visible(name)] if name else []
            lines.append(" " * left + "".join(f" {_cut(visible(column), 7):>7}" for column in self.columns))
            for r, label in enumerate(labels):
                lines.append(f"{label:>{left}}" + "".join(f" {_number(value):>7}" for value in self.values[i, r].tolist()))
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class Chart(Picture):
    """A line for each row of the one panel, over shares from 0 to 1 on a logarithmic scale."""

    shares: Sequence[float] = ()  # [columns]
    share_of: str = ""
    ends: Optional[tuple[Array, Array]] = None  # [rows, columns] each: of whiskers

    def _svg(self) -> bytes:
        x, y = np.array(self.shares, np.float64), np.ascontiguousarray(self.values[0], np.float64)
        chart = C.lens_chart(_coded(self.title), _coded(self.share_of), x.ctypes.data, len(x), _strings(self.rows), y.ctypes.data,
                            len(y))
        ends = [np.ascontiguousarray(end, np.float64) for end in self.ends or ()]
        if ends:
            chart.low, chart.high = (end.ctypes.data for end in ends)
        return _draw(lib.lens_draw_chart, byref(chart))


@dataclass(frozen=True, repr=False)
class Losses(Drawing):
    """A text whose tokens stand on colours: the stronger, the less a token was expected."""

    title: str
    words: Sequence[str]
    values: Array  # [words]; NaN: none
    tips: Sequence[str]

    def _svg(self) -> bytes:
        values = np.ascontiguousarray(self.values, np.float32)
        tips = [f"{word}: {tip}" if tip else word for word, tip in zip(map(visible, self.words), self.tips)]
        losses = C.lens_losses(_coded(self.title), _strings(self.words), _strings(tips), values.ctypes.data, len(values))
        return _draw(lib.lens_draw_losses, byref(losses))

    def __repr__(self) -> str:
        width = max(map(len, map(visible, self.words)), default=0)
        lines = [f"{visible(word):>{width}} {'' if np.isnan(value) else _number(value):>7}" for word, value in
                 zip(self.words, self.values.tolist())]
        return "\n".join([visible(self.title), *lines])


@dataclass(frozen=True, repr=False)
class Graph(Drawing):
    """Edges between the parts of a model: the embeddings at the bottom, above them for each layer a row of heads and
    one of the MLP, and the logits at the top."""

    title: str
    edges: Sequence[tuple[str, str, float]]  # from, to, score; the largest magnitude first
    senders: Sequence[str]
    receivers: Sequence[str]
    n_layer: int
    n_head: int

    def _svg(self) -> bytes:
        first, last = ({name: i for i, name in enumerate(names)} for names in (self.senders, self.receivers))
        edges = (C.lens_edge * len(self.edges))(*[C.lens_edge(first[start], last[end], score) for start, end, score in self.edges])
        of = C.lens_graph(self.n_layer, self.n_head, len(first), len(last), 0)
        return _draw(lib.lens_draw_graph, _coded(self.title), byref(C.lens_drawn_graph(of, edges, len(edges))))

    def __repr__(self) -> str:
        width = max((len(start) for start, *_ in self.edges), default=0)
        return "\n".join([visible(self.title), *(f"{start:>{width}} -> {end:9} {score:9.3f}" for start, end, score in self.edges)])
