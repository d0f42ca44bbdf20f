"""Tables of numbers that show themselves in a notebook, as SVG and without a script, and in a terminal as text."""
from __future__ import annotations

import html
import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

_LETTER, _LINE, _GAP = 7.3, 18, 14  # of 12 px monospace type, in pixels
_MORE, _LESS = "rgb(52,120,220)", "rgb(214,96,20)"
_STYLE = ("<style>text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:currentColor;white-space:pre}"
          ".c{text-anchor:middle}.r{text-anchor:end}</style>")
_FILE_STYLE = ("<style>svg{color:#1b1f24;background:#fff}@media (prefers-color-scheme:dark){svg{color:#eceff3;"
               "background:#15181c}}</style>")


def visible(text: str) -> str:
    """A token as people can see it: a space in front and line ends have a sign."""
    return ("·" + text[1:] if text.startswith(" ") else text).replace("\n", "⏎") or "∅"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most - 1] + "…"


def _number(value: float) -> str:
    shown = f"{value:.2f}"
    return "0.00" if shown == "-0.00" else shown


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{f" class={kind!r}" if kind else ""}>{html.escape(text)}</text>'


@dataclass(frozen=True, repr=False)
class Picture:
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

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the picture as an .svg file, in light and dark colours."""
        if not os.fspath(path).endswith(".svg"):
            raise ValueError(f"a picture is saved as .svg, not as {os.fspath(path)}; to_numpy() gives the numbers")
        pathlib.Path(path).write_text(self._svg(_FILE_STYLE), encoding="utf-8")

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self._svg("")}</div>'

    def _most(self) -> float:
        finite = np.abs(self.values[np.isfinite(self.values)])
        return float(finite.max()) if finite.size and finite.max() > 0 else 1.0

    def _svg(self, style: str) -> str:
        labels = [_cut(visible(row), 18) for row in self.rows]
        cell = 62 if self.texts else 44 if self.values.shape[0] == 1 and len(self.columns) <= 20 else 13
        high = _LINE if cell > 13 else cell
        left = _LETTER * max(map(len, labels), default=0) + 8
        wide, tall = left + cell * len(self.columns) + _GAP, high * len(self.rows) + 2 * _LINE + _GAP
        across = max(1, min(len(self.panels), int(960 // wide)))
        width, height = max(wide * across, _LETTER * len(self.title) + 8), 0.0
        parts = [_text(0, 14, self.title)]
        for i, name in enumerate(self.panels):
            x, y = left + wide * (i % across), 1.5 * _LINE + tall * (i // across)
            parts += self._panel(i, name, labels, x, y, cell, high)
            height = y + tall
        parts.append(self._legend(height + 4))
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height + _LINE:.0f}" role="img" '
                f'aria-label="{html.escape(self.title)}">{_STYLE}{style}{"".join(parts)}</svg>')

    def _panel(self, i: int, name: str, labels: Sequence[str], x: float, y: float, cell: int, high: int) -> list[str]:
        parts, most = [_text(x, y + 12, name)] if name else [], self._most()
        if cell > 13:
            parts += [_text(x + cell * (j + 0.5), y + _LINE + 12, _cut(visible(column), int(cell // _LETTER)), "c")
                      for j, column in enumerate(self.columns)]
        y += 2 * _LINE if cell > 13 else _LINE
        for r, label in enumerate(labels):
            parts.append(_text(x - 5, y + high * (r + 0.5) + 4, label, "r"))
            for c, value in enumerate(self.values[i, r].tolist()):
                share = min(1.0, abs(value) / most) if np.isfinite(value) else 0
                at = f'x="{x + cell * c:.1f}" y="{y + high * r:.1f}"'
                tip = f"{label}, {visible(self.columns[c])}: {value:.3g}"
                parts.append(f'<rect {at} width="{cell - 1}" height="{high - 1}" fill="{_MORE if value >= 0 else _LESS}" '
                             f'fill-opacity="{max(0.04, 0.75 * share):.2f}"><title>{html.escape(tip)}</title></rect>')
                if cell > 13:
                    shown = visible(self.texts[r][c]) if self.texts else _number(value)
                    parts.append(_text(x + cell * (c + 0.5), y + high * r + 13, _cut(shown, int(cell // _LETTER)), "c"))
        return parts

    def _legend(self, y: float) -> str:
        has_less = bool((self.values < 0).any())
        return (f'<rect x="0" y="{y - 9:.0f}" width="10" height="10" fill="{_MORE}" fill-opacity=".75"/>' +
                _text(15, y, f"{self._most():.3g}") +
                (f'<rect x="90" y="{y - 9:.0f}" width="10" height="10" fill="{_LESS}" fill-opacity=".75"/>' +
                 _text(105, y, f"-{self._most():.3g}") if has_less else ""))

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
