"""Plots as SVG: numbers in, drawings out.

A colour is the name of a CSS variable of the page, so that a dark page has its own. Bars have tooltips.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log10

WIDTH = 920
LEFT, RIGHT, TOP, BOTTOM = 84, 12, 18, 30
BAR_HEIGHT, TIME_HEIGHT = 260, 190
TICKS = 4
SCALES = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)
LABELS_MAX = 12
LABEL_WIDTH = 68
"""Room that a label under a bar needs."""
TIME_STEPS = (1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200)
TIME_LABELS_MAX = 14

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axes:
    """`right` is the value at the right edge and `top` the one at the upper edge; both are above zero."""

    right: float
    top: float
    height: int = TIME_HEIGHT
    is_logarithmic: bool = False

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(value, 0.0), self.right) / self.right

    def y(self, value: float) -> float:
        share = log10(max(value, 1.0)) / log10(self.top) if self.is_logarithmic else value / self.top
        return self.height - BOTTOM - (self.height - TOP - BOTTOM) * min(share, 1.0)


def time_plot(axes: Axes, title: str, bands: Iterable[tuple[float, float, str]], *layers: str) -> str:
    """Layers over seconds. Each band, from one second to another, shows behind them in its colour."""
    behind = (
        _rect(axes.x(begin), max(1.5, axes.x(end) - axes.x(begin)), TOP, axes.height - BOTTOM, colour)
        for begin, end, colour in bands
    )
    step = next((step for step in TIME_STEPS if axes.right / step <= TIME_LABELS_MAX), TIME_STEPS[-1])
    times = (float(step * number) for number in range(int(axes.right / step) + 1))
    labels = (_text(axes.x(at_s), axes.height - BOTTOM + 16, f"{at_s:g} s", "middle") for at_s in times)
    name = f'<text class="label" x="{LEFT}" y="{TOP - 6}">{escape(title)}</text>'
    return _drawing(title, [*behind, _grid(axes), *layers, *labels, name], height=axes.height)


def columns(axes: Axes, values: Iterable[tuple[float, float, float]], colour: str) -> str:
    """Bars one unit wide, each from one value up to another: (at, from, to)."""
    width = max(0.5, axes.x(1.0) - axes.x(0.0) - 0.8)
    return "".join(
        _rect(axes.x(at), width, axes.y(high), axes.y(low), colour) for at, low, high in values if high > low
    )


def line(axes: Axes, points: Iterable[Point | None], colour: str) -> str:
    """Broken at each None."""
    runs: list[list[Point]] = [[]]
    for point in points:
        if point is None:
            runs.append([])
        else:
            runs[-1].append(point)
    return "".join(f'<polyline style="stroke:var(--{colour})" points="{_joined(axes, run)}"/>' for run in runs if run)


def area(axes: Axes, points: Sequence[Point], colour: str) -> str:
    if not points:
        return ""
    ends = [(points[0][0], 0.0), *points, (points[-1][0], 0.0)]
    return f'<polygon fill="var(--{colour})" points="{_joined(axes, ends)}"/>'


def stacked_bars(
    title: str, labels: Sequence[str], series: Mapping[str, Sequence[int]], colours: Mapping[str, str]
) -> str:
    """One bar for each label, the series on top of each other in their order."""
    heights = [sum(values) for values in zip(*series.values(), strict=True)] if series else []
    axes = Axes(max(1, len(labels)), max(TICKS, round_up(max(heights, default=0))), BAR_HEIGHT)
    step = axes.x(1) - axes.x(0)
    width = min(48.0, step * 0.82)
    parts = [_grid(axes)]
    for index, label in enumerate(labels):
        base = 0
        for name, values in series.items():
            value = values[index]
            if value:
                left, tooltip = axes.x(index) + (step - width) / 2, f"{label}  {name}: {value:,}"
                parts.append(_rect(left, width, axes.y(base + value), axes.y(base), colours[name], tooltip))
            base += value
    every = max(1, -(-len(labels) // LABELS_MAX), -(-LABEL_WIDTH // max(1, int(step))))
    parts += [
        _text(axes.x(index) + step / 2, BAR_HEIGHT - BOTTOM + 16, label, "middle")
        for index, label in enumerate(labels)
        if index % every == 0
    ]
    return _drawing(title, parts, height=BAR_HEIGHT)


def lying_bars(title: str, values: Mapping[str, int], colours: Mapping[str, str]) -> str:
    """A bar for each name, one below the other."""
    left, step = 170, 26
    top = max(values.values(), default=0) or 1
    parts = []
    for index, (name, value) in enumerate(values.items()):
        y = 8 + step * index
        wide = (WIDTH - left - 110) * value / top
        parts.append(_text(left - 8, y + 13, name, "end"))
        parts.append(_rect(left, wide, y, y + 18, colours[name], f"{name}: {value:,}"))
        parts.append(_text(left + wide + 8, y + 13, f"{value:,}", "start"))
    return _drawing(title, parts, height=8 + step * len(values))


def fragment_bars(title: str, values: Mapping[int, int], colour: str) -> str:
    """A bar for each fragment and a line at the mean."""
    width, height, left, bottom = 288, 118, 6, 18
    top = max(values.values()) or 1
    mean = sum(values.values()) / len(values)
    step = (width - left * 2) / len(values)
    floor, tall = height - bottom, height - bottom - 8
    parts = []
    for index, (fragment, value) in enumerate(values.items()):
        at = left + step * index
        tooltip = f"fragment {fragment}: {value:,}"
        parts.append(_rect(at + 1, step - 2, floor - tall * value / top, floor, colour, tooltip))
        parts.append(_text(at + step / 2, height - 5, str(fragment), "middle"))
    parts.append(_level("mean", left, width - left, floor - tall * mean / top))
    return _drawing(title, parts, width, height)


def round_up(value: float) -> float:
    """The next value of a readable scale, whose quarters are readable too."""
    if value <= 1:
        return 1.0
    power = 10 ** int(log10(value))
    return float(next(step * power for step in SCALES if step * power >= value))


def _grid(axes: Axes) -> str:
    if axes.is_logarithmic:
        ticks = [10.0**power for power in range(ceil(log10(axes.top)) + 1) if 10.0**power <= axes.top]
    else:
        ticks = [axes.top * share / TICKS for share in range(TICKS + 1)]
    return "".join(
        _level("grid", LEFT, WIDTH - RIGHT, axes.y(value)) + _text(LEFT - 8, axes.y(value) + 4, _number(value), "end")
        for value in ticks
    )


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _joined(axes: Axes, points: Sequence[Point]) -> str:
    return " ".join(f"{axes.x(at):.1f},{axes.y(value):.1f}" for at, value in points)


def _level(css: str, left: float, right: float, y: float) -> str:
    return f'<line class="{css}" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _rect(left: float, width: float, top: float, bottom: float, colour: str, tooltip: str = "") -> str:
    shape = (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(width, 0.5):.1f}" height="{max(bottom - top, 0.5):.1f}" '
        f'fill="var(--{colour})"'
    )
    return f"{shape}><title>{escape(tooltip)}</title></rect>" if tooltip else f"{shape}/>"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _drawing(title: str, parts: Iterable[str], width: int = WIDTH, height: int = BAR_HEIGHT) -> str:
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
    return f"{head}<title>{escape(title)}</title>{''.join(parts)}</svg>"
