"""Plots as SVG text: series in, markup out. Colours are classes, so that the page they stand in chooses them.

Every plot has the same time axis and shows each fault as a band, so that they can be read one below the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log10

from twinbus.rehearsal.sends import Span

WIDTH, HEIGHT = 900, 190
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 18, 26
SCALES = (1, 1.2, 1.6, 2, 3, 4, 6, 8, 10)
TIME_STEPS = (1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200)
TIME_LABELS_MAX = 14

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axes:
    """`until_s` at the right edge, `top` at the upper one; both above zero."""

    until_s: float
    top: float
    is_logarithmic: bool = False

    def x(self, at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(at_s, 0.0), self.until_s) / self.until_s

    def y(self, value: float) -> float:
        share = log10(max(value, 1.0)) / log10(self.top) if self.is_logarithmic else value / self.top
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(share, 1.0)


def plot(axes: Axes, label: str, faults: Sequence[Span], *layers: str) -> str:
    """The frame of every plot, with its layers between the bands of the faults and the axes."""
    return "".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">',
            *(_band(axes, span) for span in faults),
            *(_grid_line(axes, value) for value in _ticks(axes)),
            *layers,
            *(_time_label(axes, at_s) for at_s in _time_ticks(axes.until_s)),
            f'<text class="label" x="{LEFT}" y="{TOP - 6}">{escape(label)}</text>',
            "</svg>",
        ]
    )


def bars(axes: Axes, columns: Sequence[tuple[float, float, float]], css: str) -> str:
    """Each from one value up to another: (second, from, to)."""
    width = max(0.5, axes.x(1.0) - axes.x(0.0) - 0.8)
    return "".join(
        f'<rect class="{css}" x="{axes.x(at_s):.1f}" y="{axes.y(high):.1f}" width="{width:.1f}" '
        f'height="{max(0.0, axes.y(low) - axes.y(high)):.1f}"/>'
        for at_s, low, high in columns
        if high > low
    )


def line(axes: Axes, points: Sequence[Point | None], css: str) -> str:
    """Broken where there is None."""
    runs: list[list[Point]] = [[]]
    for point in points:
        if point is None:
            runs.append([])
        else:
            runs[-1].append(point)
    return "".join(f'<polyline class="{css}" points="{_joined(axes, run)}"/>' for run in runs if run)


def area(axes: Axes, points: Sequence[Point], css: str) -> str:
    if not points:
        return ""
    ends = [(points[0][0], 0.0), *points, (points[-1][0], 0.0)]
    return f'<polygon class="{css}" points="{_joined(axes, ends)}"/>'


def round_up(value: float) -> float:
    """To a scale that people read, also at its quarters."""
    if value <= 1:
        return 1.0
    power = 10 ** int(log10(value))
    return float(next(step * power for step in SCALES if step * power >= value))


def _joined(axes: Axes, points: Sequence[Point]) -> str:
    return " ".join(f"{axes.x(at_s):.1f},{axes.y(value):.1f}" for at_s, value in points)


def _band(axes: Axes, span: Span) -> str:
    left, right = axes.x(span.begin_s), axes.x(span.end_s)
    return (
        f'<rect class="fault" x="{left:.1f}" y="{TOP}" width="{max(1.5, right - left):.1f}" '
        f'height="{HEIGHT - TOP - BOTTOM}"/>'
    )


def _ticks(axes: Axes) -> list[float]:
    if axes.is_logarithmic:
        return [10.0**power for power in range(ceil(log10(axes.top)) + 1) if 10.0**power <= axes.top]
    return [axes.top * share / 4 for share in range(5)]


def _time_ticks(until_s: float) -> list[float]:
    step = next((step for step in TIME_STEPS if until_s / step <= TIME_LABELS_MAX), TIME_STEPS[-1])
    return [float(step * number) for number in range(int(until_s / step) + 1)]


def _grid_line(axes: Axes, value: float) -> str:
    height = axes.y(value)
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>'
        f'<text class="tick" text-anchor="end" x="{LEFT - 6}" y="{height + 4:.1f}">{value:g}</text>'
    )


def _time_label(axes: Axes, at_s: float) -> str:
    return (
        f'<text class="tick" text-anchor="middle" x="{axes.x(at_s):.1f}" y="{HEIGHT - BOTTOM + 16}">{at_s:g} s</text>'
    )
