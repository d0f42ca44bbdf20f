"""Results that show themselves in a notebook, as SVG and without a script, and in a terminal as text."""
from __future__ import annotations

import html
import os
import pathlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

_LETTER, _LINE, _GAP = 7.3, 18, 14  # of 12 px monospace type, in pixels
_MORE, _LESS = "rgb(52,120,220)", "rgb(214,96,20)"
_FONT = "font:12px ui-monospace,Menlo,Consolas,monospace;fill:currentColor;white-space:pre"
_FILE_STYLE = ("<style>svg{color:#1b1f24;background:#fff}@media (prefers-color-scheme:dark){svg{color:#eceff3;"
               "background:#15181c}}</style>")
_ROW, _COLUMN = 58, 58  # of a graph


def visible(text: str) -> str:
    """A token as people can see it: a space in front and line ends have a sign."""
    return ("·" + text[1:] if text.startswith(" ") else text).replace("\n", "⏎") or "∅"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most - 1] + "…"


def _number(value: float) -> str:
    shown = f"{value:.2f}"
    return "0.00" if shown == "-0.00" else shown


def _text(x: float, y: float, text: str, anchor: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{f" text-anchor={anchor!r}" if anchor else ""}>{html.escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, value: float, most: float, tip: str) -> str:
    """A rectangle, the stronger the larger the value; faint without one."""
    share = min(1.0, abs(value) / most) if np.isfinite(value) else 0
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{_MORE if value >= 0 else _LESS}" '
            f'fill-opacity="{max(0.04, 0.75 * share):.2f}"><title>{html.escape(tip)}</title></rect>')


def _most(values: npt.ArrayLike) -> float:
    """The number that gets the full colour."""
    sizes = np.abs(np.asarray(values, np.float64))
    finite = sizes[np.isfinite(sizes)]
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0


def _legend(y: float, values: npt.ArrayLike) -> str:
    most, parts = _most(values), []
    for i, (colour, sign) in enumerate([(_MORE, ""), (_LESS, "-")] if (np.asarray(values) < 0).any() else [(_MORE, "")]):
        parts.append(f'<rect x="{90 * i}" y="{y - 9:.0f}" width="10" height="10" fill="{colour}" fill-opacity=".75"/>' +
                     _text(90 * i + 15, y, f"{sign}{most:.3g}"))
    return "".join(parts)


class Drawing:
    """What a notebook shows as a picture if it is the last line of a cell. print gives it as text."""

    title: str

    def _drawn(self) -> tuple[float, float, Iterable[str]]:
        """Width, height, and the elements below the title, which has a line of 18 pixels."""
        raise NotImplementedError

    def _svg(self, style: str) -> str:
        width, height, parts = self._drawn()
        width = max(width, _LETTER * len(self.title) + 8, 180)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" role="img" '
                f'aria-label="{html.escape(self.title)}" style="{_FONT}">{style}{_text(0, 14, self.title)}{"".join(parts)}</svg>')

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self._svg("")}</div>'

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the picture as an .svg file, in light and dark colours."""
        if not os.fspath(path).endswith(".svg"):
            raise ValueError(f"a picture is saved as .svg, not as {os.fspath(path)}; to_numpy() gives the numbers")
        pathlib.Path(path).write_text(self._svg(_FILE_STYLE), encoding="utf-8")


@dataclass(frozen=True, repr=False)
class Picture(Drawing):
    """Numbers [panels, rows, columns] that a notebook shows as a picture: the stronger a colour, the larger the
    magnitude; blue is positive and orange negative.

    The last line of a cell shows it; print gives the numbers as text. save("x.svg") writes the picture."""

    title: str
    values: Array  # [panels, rows, columns]
    panels: Sequence[str]
    rows: Sequence[str]
    columns: Sequence[str]
    texts: Optional[Sequence[Sequence[str]]] = None  # [rows][columns], in the cells of the one panel

    def to_numpy(self) -> Array:
        """[panels, rows, columns], or [rows, columns] of a single panel."""
        return self.values if len(self.panels) > 1 else self.values[0]

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each number: panel, row, column, value."""
        import pandas  # type: ignore[import-untyped, import-not-found, unused-ignore]
        panel, row, column = (part.ravel() for part in np.indices(self.values.shape))
        return pandas.DataFrame({"panel": np.asarray(self.panels)[panel], "row": row, "column": column,
                                 "value": self.values.ravel()})

    def _drawn(self) -> tuple[float, float, Iterable[str]]:
        labels = [_cut(visible(row), 18) for row in self.rows]
        cell = 62 if self.texts else 44 if self.values.shape[0] == 1 and len(self.columns) <= 20 else 13
        high = _LINE if cell > 13 else cell
        left = _LETTER * max(map(len, labels), default=0) + 8
        wide, tall = left + cell * len(self.columns) + _GAP, high * len(self.rows) + 2 * _LINE + _GAP
        across = max(1, min(len(self.panels), int(960 // wide)))
        parts, height = [], 0.0
        for i, name in enumerate(self.panels):
            x, y = left + wide * (i % across), 1.5 * _LINE + tall * (i // across)
            parts += self._panel(i, name, labels, x, y, cell, high)
            height = y + tall
        parts.append(_legend(height + 4, self.values))
        return wide * across, height + _LINE, parts

    def _panel(self, i: int, name: str, labels: Sequence[str], x: float, y: float, cell: int, high: int) -> list[str]:
        parts, most = [_text(x, y + 12, name)] if name else [], _most(self.values)
        if cell > 13:
            parts += [_text(x + cell * (j + 0.5), y + _LINE + 12, _cut(visible(column), int(cell // _LETTER)), "middle")
                      for j, column in enumerate(self.columns)]
        y += 2 * _LINE if cell > 13 else _LINE
        for r, label in enumerate(labels):
            parts.append(_text(x - 5, y + high * (r + 0.5) + 4, label, "end"))
            for c, value in enumerate(self.values[i, r].tolist()):
                tip = f"{label}, {visible(self.columns[c])}: {value:.3g}"
                parts.append(_box(x + cell * c, y + high * r, cell - 1, high - 1, value, most, tip))
                if cell > 13:
                    shown = visible(self.texts[r][c]) if self.texts else _number(value)
                    parts.append(_text(x + cell * (c + 0.5), y + high * r + 13, _cut(shown, int(cell // _LETTER)), "middle"))
        return parts

    def __repr__(self) -> str:
        """The same as text, for a terminal."""
        lines = [self.title]
        labels = [_cut(visible(row), 18) for row in self.rows]
        left = max(map(len, labels), default=0)
        for i, name in enumerate(self.panels):
            lines += [name] if name else []
            lines.append(" " * left + "".join(f" {_cut(visible(column), 7):>7}" for column in self.columns))
            for r, label in enumerate(labels):
                shown = [_cut(visible(text), 7) for text in self.texts[r]] if self.texts else \
                    [_number(value) for value in self.values[i, r].tolist()]
                lines.append(f"{label:>{left}}" + "".join(f" {text:>7}" for text in shown))
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class Words(Drawing):
    """A text whose tokens stand on colours: the stronger, the larger the token's number."""

    title: str
    words: Sequence[str]
    values: Array  # [words]; NaN: none
    tips: Sequence[str]

    def _drawn(self) -> tuple[float, float, Iterable[str]]:
        most, letters, at, line, parts = _most(self.values), 100, 0, 0, []
        for word, value, tip in zip(self.words, self.values.tolist(), self.tips):
            shown = _cut(visible(word), letters)
            if at + len(shown) > letters:
                at, line = 0, line + 1
            x, y = _LETTER * at, 1.6 * _LINE + 1.3 * _LINE * line
            parts += [_box(x, y, _LETTER * len(shown) - 1, _LINE + 2, value, most, f"{shown}: {tip}" if tip else shown),
                      f'<text x="{x:.1f}" y="{y + 14:.1f}" textLength="{_LETTER * len(shown) - 1:.1f}" '
                      f'lengthAdjust="spacingAndGlyphs">{html.escape(shown)}</text>']
            at += len(shown)
            if "\n" in word:
                at, line = 0, line + 1
        height = 1.6 * _LINE + 1.3 * _LINE * (line + 1) + _LINE
        parts.append(_legend(height, self.values))
        return _LETTER * letters, height + 6, parts

    def __repr__(self) -> str:
        width = max(map(len, map(visible, self.words)), default=0)
        lines = [f"{visible(word):>{width}} {'' if np.isnan(value) else _number(value):>7}" for word, value in
                 zip(self.words, self.values.tolist())]
        return "\n".join([self.title, *lines])


@dataclass(frozen=True, repr=False)
class Graph(Drawing):
    """Edges between the parts of a model: the embeddings at the bottom, above them for each layer a row of heads and
    one of the MLP, and the logits at the top."""

    title: str
    edges: Sequence[tuple[str, str, float]]  # from, to, score; the largest magnitude first
    n_layer: int
    n_head: int

    def _place(self, name: str, height: float) -> tuple[float, float]:
        """The middle of a node, "a3.h5" or "m3". Queries, keys and values enter a head side by side."""
        node, _, side = name.partition("<")
        middle, row = self.n_head * _COLUMN / 2, 0
        if node == "logits":
            row = 2 * self.n_layer + 1
        elif node != "input":
            layer, _, head = node[1:].partition(".h")
            row = 2 * int(layer) + (1 if head else 2)
            if head:
                middle = (int(head) + 0.5) * _COLUMN + 12 * ("qkv".index(side[0]) - 1 if side else 0)
        return middle, height - _ROW * (row + 0.5)

    def _drawn(self) -> tuple[float, float, Iterable[str]]:
        height = 2.0 * _LINE + _ROW * (2 * self.n_layer + 2)
        scores = [score for *_, score in self.edges]
        most, parts, nodes = _most(scores or [1]), [], {"logits": None}
        for start, end, score in self.edges:
            (ax, ay), (bx, by) = self._place(start, height), self._place(end, height)
            parts.append(f'<path d="M{ax:.1f} {ay - 12:.1f}C{ax:.1f} {ay - 36:.1f} {bx:.1f} {by + 36:.1f} {bx:.1f} {by + 12:.1f}" '
                         f'fill="none" stroke="{_MORE if score >= 0 else _LESS}" stroke-opacity=".75" '
                         f'stroke-width="{0.5 + 4 * abs(score) / most:.2f}"><title>{html.escape(f"{start} to {end}: {score:.4f}")}'
                         "</title></path>")
            nodes.update({start: None, end.partition("<")[0]: None})
        for name in nodes:
            x, y = self._place(name, height)
            parts += [f'<rect x="{x - 26:.1f}" y="{y - 12:.1f}" width="52" height="24" rx="5" fill="gray" fill-opacity=".25" '
                      'stroke="gray"/>', _text(x, y + 4, name, "middle")]
        parts.append(_legend(height + 4, scores or [1]))
        return float(self.n_head * _COLUMN + 20), height + _LINE, parts

    def __repr__(self) -> str:
        width = max((len(start) for start, *_ in self.edges), default=0)
        return "\n".join([self.title, *(f"{start:>{width}} -> {end:9} {score:9.3f}" for start, end, score in self.edges)])
