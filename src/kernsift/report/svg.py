"""Pictures for the report, as SVG text that takes its colours from the page's style sheet.

matplotlib is not used, because colours follow the theme of the page, two hundred pictures must stay small, and the
report needs no plotting library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from kernsift.data.tables import spaced_rows
from kernsift.report.number_format import format_number
from kernsift.report.pictures import Bars, Boxes, Cloud, Histogram, Picture, range_without_outliers
from kernsift.report.text import abbreviations, p_name

if TYPE_CHECKING:
    from kernsift.result import Result

_WIDTH, _HEIGHT = 340, 190
# The width of a letter of the names of ticks.
_LETTER = 6.5
_SMALLEST_P = 1e-10
_MOST_ROWS = 40
_MOST_TICKS = 1500
# Periods between the ticks of an axis of dates, of which the shortest that leaves room for four is used.
_PERIODS = [("m", step) for step in (1, 5, 15, 60, 240, 720)]
_PERIODS += [("D", step) for step in (1, 2, 7, 14)] + [("M", step) for step in (1, 3, 6)]
_PERIODS += [("Y", step * power) for power in (1, 10, 100, 1000) for step in (1, 2, 5)]


@dataclass(frozen=True)
class Frame:
    """A plotting area, and the two scales that lead into it."""

    left: float
    top: float
    right: float
    bottom: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        """Pixels from the left."""
        low, high = self.x_range
        return self.left + (self.right - self.left) * ((value - low) / (high - low) if high > low else 0.5)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        low, high = self.y_range
        return self.bottom - (self.bottom - self.top) * ((value - low) / (high - low) if high > low else 0.5)


def draw_picture(picture: Picture) -> str:
    """One feature in several samples or against the response."""
    draw: dict[type, Callable[[Any], str]] = {Histogram: _histogram, Bars: _bars, Boxes: _boxes, Cloud: _cloud}
    return draw[type(picture)](picture)


# Features ------------------------------------------------------------------------------------------------------------


def _histogram(picture: Histogram) -> str:
    top = max(max(shares) for shares in picture.shares) or 1.0
    frame = Frame(34, 12, _WIDTH - 8, _HEIGHT - 26, (picture.edges[0], picture.edges[-1]), (0.0, top * 1.05))
    parts = [_x_axis(frame, _number, picture.origin), _y_axis(frame, _percent)]
    for i, shares in enumerate(picture.shares):
        steps = [f"M{_px(frame.x(picture.edges[0]))} {_px(frame.bottom)}"]
        for edge, end, share in zip(picture.edges[:-1], picture.edges[1:], shares, strict=True):
            steps.append(f"L{_px(frame.x(edge))} {_px(frame.y(share))}H{_px(frame.x(end))}")
        steps.append(f"V{_px(frame.bottom)}")
        parts.append(f'<path class="area c{i}" d="{"".join(steps)}"/>')
    return _svg("Distributions of " + picture.label, parts)


def _bars(picture: Bars) -> str:
    """Horizontal bars, which leave room for the names of categories."""
    groups = len(picture.shares)
    each = max(16.0, 7.0 * groups + 6.0)
    top = max(max(shares) for shares in picture.shares) or 1.0
    frame, starts, parts = _rows_of_levels(picture.levels, each, (0.0, top * 1.05), _percent)
    high = (each - 5) / groups
    for row, start in enumerate(starts):
        for i, shares in enumerate(picture.shares):
            wide = frame.x(shares[row]) - frame.left
            parts.append(
                f'<rect class="bar c{i}" x="{_px(frame.left)}" y="{_px(start + 2 + i * high)}" width="{_px(wide)}" '
                f'height="{_px(high - 1)}"/>'
            )
    return _svg("Shares of " + picture.label, parts, height=frame.bottom + 26)


def _boxes(picture: Boxes) -> str:
    low, high = min(q[0] for q in picture.quantiles), max(q[-1] for q in picture.quantiles)
    pad = 0.04 * (high - low)
    frame, starts, parts = _rows_of_levels(picture.levels, 20.0, (low - pad, high + pad), _number, picture.origin)
    for start, quantiles in zip(starts, picture.quantiles, strict=True):
        y = start + 10
        a, b, c, _, e = (_px(frame.x(value)) for value in quantiles)
        wide = max(1.0, frame.x(quantiles[3]) - frame.x(quantiles[1]))
        parts += [
            f'<path class="whisker" d="M{a} {_px(y)}H{e}"/>',
            f'<rect class="bar c0" x="{b}" y="{_px(y - 5)}" width="{_px(wide)}" height="10"/>',
            f'<path class="median" d="M{c} {_px(y - 7)}v14"/>',
        ]
    return _svg(f"{picture.label} by {picture.by}", parts, height=frame.bottom + 26)


def _rows_of_levels(
    levels: Sequence[str],
    each: float,
    x_range: tuple[float, float],
    words: Callable[[float], str],
    origin: float | None = None,
) -> tuple[Frame, list[float], list[str]]:
    """A frame with a row for each level, where the rows start, and the axis and the names of the levels.

    Names that are too long for the margin have lines of their own above their rows.
    """
    beside = max(map(len, levels)) <= 14
    above = 0.0 if beside else 1.0 + 13.0 * max(len(_lines(level)) for level in levels)
    bottom = 10.0 + (each + above) * len(levels)
    frame = Frame(92.0 if beside else 12.0, 8, _WIDTH - 12, bottom, x_range, (0.0, 1.0))
    starts = [8.0 + above + (each + above) * row for row in range(len(levels))]
    parts = [_x_axis(frame, words, origin)]
    for level, start in zip(levels, starts, strict=True):
        if beside:
            parts.append(_text(frame.left - 6, start + each / 2 + 3, level, "end"))
        else:
            parts += [_text(frame.left, start - above + 9 + 13 * i, line) for i, line in enumerate(_lines(level))]
    return frame, starts, parts


def _lines(level: str) -> list[str]:
    return wrap(level, 52, max_lines=4, placeholder="…") or [""]


def _cloud(picture: Cloud) -> str:
    xs, ys = zip(*picture.points, strict=True)
    x_range, y_range = _trimmed(xs), _trimmed([*ys, *(q for row in picture.quartiles for q in row)])
    names = [name for _, name in _named_ticks(*y_range, _number, picture.against_origin, 4)]
    left = max([44, *(8 + _LETTER * len(name) for name in names)])
    frame = Frame(left, 10, _WIDTH - 8, _HEIGHT - 26, x_range, y_range)
    inside = [(x, y) for x, y in picture.points if x_range[0] <= x <= x_range[1] and y_range[0] <= y <= y_range[1]]
    # A line of no length with round ends is a dot: one path for all points keeps two hundred pictures small.
    dots = "".join(f"M{_px(frame.x(x))} {_px(frame.y(y))}h0" for x, y in inside)
    places = [_px(frame.x(min(max(x, x_range[0]), x_range[1]))) for x in picture.middles]
    lower, middle, upper = (
        [f"{x} {_px(frame.y(y))}" for x, y in zip(places, quartile, strict=True)]
        for quartile in zip(*picture.quartiles, strict=True)
    )
    parts = [
        _x_axis(frame, _number, picture.origin),
        _y_axis(frame, _number, picture.against_origin),
        f'<path class="dots" d="{dots}"/>',
        f'<path class="band" d="M{"L".join([*upper, *reversed(lower)])}Z"/>',
        f'<path class="line" d="M{"L".join(middle)}"/>',
    ]
    return _svg(f"{picture.against} against {picture.label}", parts)


def _trimmed(values: Sequence[float]) -> tuple[float, float]:
    low, high = range_without_outliers(np.asarray(values))
    pad = 0.03 * (high - low)
    return float(low - pad), float(high + pad)


# The whole result ----------------------------------------------------------------------------------------------------


def draw_scores(result: Result, *, narrow: bool) -> str:
    """All scores best first, a line for each, the cut behind the last one of a short list."""
    chosen, found = set(result.selected.tolist()), set(result.selected[result.rejected].tolist())
    order = _drawn(result)
    values = result.scores[order]
    low, high = min(0.0, float(values.min())), max(float(values.max()), 1e-12)
    width, height = (360, 210) if narrow else (900, 260)
    frame = Frame(44, 22, width - 10, height - 26, (-0.5, len(order) - 0.5), (low, high * 1.06))
    stroke = min(14.0, max(0.6, 0.62 * (frame.right - frame.left) / len(order)))
    paths = {"significant": "", "selected": "", "left": ""}
    for place, i in enumerate(order.tolist()):
        kind = "significant" if i in found else "selected" if i in chosen else "left"
        paths[kind] += f"M{_px(frame.x(place))} {_px(frame.y(0.0))}V{_px(frame.y(float(result.scores[i])))}"
    parts = [_y_axis(frame, _number)]
    parts += [f'<path class="tick {kind}" stroke-width="{_px(stroke)}" d="{d}"/>' for kind, d in paths.items() if d]
    parts.append(f'<path class="axis" d="M{_px(frame.left)} {_px(frame.y(0.0))}H{_px(frame.right)}"/>')
    if 0 < len(chosen) < len(result.scores):
        cut = frame.x(len(chosen) - 0.5)
        beyond_middle = cut > (frame.left + frame.right) / 2
        parts.append(f'<path class="cut" d="M{_px(cut)} {_px(frame.top - 12)}V{_px(frame.bottom + 6)}"/>')
        words = f"cut behind the best {len(chosen)}"
        parts.append(
            _text(cut + (-5 if beyond_middle else 5), frame.top - 4, words, "end" if beyond_middle else "start")
        )
    parts.append(_text((frame.left + frame.right) / 2, height - 6, "all, best first", "middle"))
    return _svg("All scores, best first", parts, width, height, narrow)


def _drawn(result: Result) -> np.ndarray:
    """The features in the order of drawing: first those of a short list, thinned where lines would overlap."""
    if not result.listed:
        return result.selected[spaced_rows(len(result.selected), _MOST_TICKS)]
    order = np.argsort(-result.scores, kind="stable")
    rest = order[~np.isin(order, result.selected)]
    rest = rest[spaced_rows(len(rest), max(2, _MOST_TICKS - len(result.selected)))]
    return np.concatenate([result.selected, rest]).astype(int)


def draw_pvalues(result: Result, *, narrow: bool) -> str:
    """The p-values of each feature on a logarithmic scale: unconditional, selective in a short list, and corrected."""
    rows = min(len(result.names), _MOST_ROWS)
    width, left = (360, 112) if narrow else (900, 210)
    height = 34 + 18 * rows + 26
    kinds = {"hollow": result.unconditional_pvalues[:rows]}
    if p_name(result) != "p":
        kinds["dot"] = result.pvalues[:rows]
    if result.correction is not None:
        kinds["square"] = result.adjusted_pvalues[:rows]
    every = np.stack(list(kinds.values()))
    lowest = min(-2, math.floor(math.log10(max(float(every.min(initial=1.0)), _SMALLEST_P))))
    frame = Frame(left, 22, width - 16, height - 30, (lowest, 0.0), (float(rows), 0.0))
    powers = np.log10(np.maximum(every, 10.0**lowest))
    parts = _decades(frame, 2 if lowest < -5 or (narrow and lowest < -3) else 1)
    at = frame.x(math.log10(result.alpha))
    parts.append(f'<path class="cut" d="M{_px(at)} {_px(frame.top - 6)}V{_px(frame.bottom)}"/>')
    parts.append(_text(at, frame.top - 9, f"{result.alpha:g}", "middle"))
    names = abbreviations(result.names[:rows], 14 if narrow else 30)
    for row in range(rows):
        y = frame.top + 18 * (row + 0.5)
        places = dict(zip(kinds, (frame.x(float(power)) for power in powers[:, row]), strict=True))
        found = "significant" if result.rejected[row] else "selected"
        parts += [
            _text(frame.left - 10, y + 4, names[row], "end"),
            f'<path class="whisker" d="M{_px(min(places.values()))} {_px(y)}H{_px(max(places.values()))}"/>',
        ]
        parts += [_marker(kind, x, y, found, "square" in kinds) for kind, x in places.items()]
    return _svg("p-values", parts, width, height, narrow)


def _marker(kind: str, x: float, y: float, found: str, corrected: bool) -> str:
    """A ring, a dot or a square; the p-value that decides about significance is coloured."""
    if kind == "square":
        return f'<rect class="square {found}" x="{_px(x - 3.5)}" y="{_px(y - 3.5)}" width="7" height="7"/>'
    name = "hollow" if kind == "hollow" else f"dot {'plain' if corrected else found}"
    return f'<circle class="{name}" cx="{_px(x)}" cy="{_px(y)}" r="{4 if kind == "hollow" else 3}"/>'


def _decades(frame: Frame, every: int) -> list[str]:
    parts = []
    for power in range(0, int(frame.x_range[0]) - 1, -every):
        x = frame.x(power)
        parts.append(f'<path class="grid" d="M{_px(x)} {_px(frame.top)}V{_px(frame.bottom)}"/>')
        parts.append(_text(x, frame.bottom + 16, "1" if power == 0 else f"1e{power}", "middle"))
    return parts


def draw_effect(point: float, ends: tuple[float, float] | None) -> str:
    """A small ruler from 0 to 1 with the effect and its interval, for a cell of the table."""
    frame = Frame(4, 2, 86, 12, (0.0, 1.0), (0.0, 1.0))
    parts = [f'<path class="grid" d="M{_px(frame.left)} 7H{_px(frame.right)}"/>']
    if ends is not None:
        parts.append(f'<path class="interval" d="M{_px(frame.x(ends[0]))} 7H{_px(frame.x(ends[1]))}"/>')
    parts.append(f'<circle class="dot significant" cx="{_px(frame.x(point))}" cy="7" r="3.5"/>')
    return f'<svg class="ruler" viewBox="0 0 90 14" width="90" height="14" aria-hidden="true">{"".join(parts)}</svg>'


# Pieces --------------------------------------------------------------------------------------------------------------


def _svg(
    label: str, parts: Sequence[str], width: float = _WIDTH, height: float = _HEIGHT, narrow: bool | None = None
) -> str:
    """The picture; of two versions, one for wide and one for narrow windows, the style sheet shows one."""
    kind = "picture" if narrow is None else "picture for-phone" if narrow else "picture for-desk"
    box = f'viewBox="0 0 {_px(width)} {_px(height)}" role="img" aria-label="{escape(label)}"'
    return f'<svg class="{kind}" {box}>{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}">{escape(text)}</text>'


def _x_axis(frame: Frame, words: Callable[[float], str], origin: float | None) -> str:
    parts = [f'<path class="axis" d="M{_px(frame.left)} {_px(frame.bottom)}H{_px(frame.right)}"/>']
    named = _named_ticks(*frame.x_range, words, origin, 5)
    # Names that would touch each other are left out.
    crowded = _LETTER * sum(len(name) + 2 for _, name in named) / (frame.right - frame.left)
    for value, name in named[:: max(1, math.ceil(crowded))]:
        # Half of a name may lie on each side of its tick, and still inside the picture.
        half = _LETTER / 2 * len(name)
        middle = max(half, min(frame.x(value), frame.right + 8 - half))
        parts.append(_text(middle, frame.bottom + 15, name, "middle"))
    return "".join(parts)


def _y_axis(frame: Frame, words: Callable[[float], str], origin: float | None = None) -> str:
    parts = []
    for value, name in _named_ticks(*frame.y_range, words, origin, 4):
        y = frame.y(value)
        parts.append(f'<path class="grid" d="M{_px(frame.left)} {_px(y)}H{_px(frame.right)}"/>')
        parts.append(_text(frame.left - 5, y + 4, name, "end"))
    return "".join(parts)


def _named_ticks(
    low: float, high: float, words: Callable[[float], str], origin: float | None, most: int
) -> list[tuple[float, str]]:
    """Round numbers between the two; where `origin` is their first day since 1970, the first days of periods."""
    if origin is None:
        values = _ticks(low, high, most)
        names = [words(value) for value in values]
        # As many digits as make the names of close numbers differ.
        for digits in range(5, 16):
            if len(set(names)) == len(names):
                break
            names = [f"{value:,.0f}" if value == round(value) else f"{value:.{digits}g}" for value in values]
        return list(zip(values, names, strict=True))
    ends = np.array([round((origin + value) * 86400) for value in (low, high)]).astype("M8[s]")
    for unit, step in _PERIODS:
        first, last = ends.astype(f"M8[{unit}]").astype(int).tolist()
        if last // step - first // step > 5:  # minutes of centuries would fill the memory
            continue
        starts = np.arange(-(-first // step) * step, last + 1, step).astype(f"M8[{unit}]")
        starts = starts[(starts >= ends[0]) & (starts <= ends[1])]
        if len(starts) <= 4:
            break
    days = starts.astype("M8[s]").astype(int) / 86400 - origin
    names = [str(start)[5:].replace("T", " ") if unit == "m" else str(start) for start in starts]
    return list(zip(days.tolist(), names, strict=True))


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between the two."""
    if not high > low:
        return [low]
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [step * i for i in range(first, first + most + 2) if low - 1e-9 * step <= step * i <= high + 1e-9 * step]


def _number(value: float) -> str:
    size = abs(value)
    return "0" if size < 1e-300 else format_number(value, 4 if size < 1e7 else 3)


def _percent(value: float) -> str:
    return f"{100 * value:.3g}%"


def _px(value: float) -> str:
    """A coordinate to a tenth of a pixel, without trailing zeros."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text
