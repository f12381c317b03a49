"""Plots as SVG text: numbers in, drawings out that need no script, no font and no network.

Colours are CSS variables of the page (`--plot-0` and on), so that a dark page has its own; every bar has a tooltip.
"""

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10

WIDTH, HEIGHT = 920, 260
LEFT, RIGHT, TOP, BOTTOM = 84, 12, 14, 34
TICKS = 4
LABELS_MAX = 12
LABEL_WIDTH = 68
"""Room that a label under a bar needs."""
COLOURS = 13


def stacked_bars(
    title: str, labels: Sequence[str], series: Mapping[str, Sequence[int]], colours: Mapping[str, int]
) -> str:
    """One bar for each label, the series on top of each other in their order."""
    heights = [sum(values) for values in zip(*series.values(), strict=True)] if series else []
    top = _round_up(max(heights, default=0))
    parts = [_axis(top)]
    step = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    width = min(48.0, step * 0.82)
    for index, label in enumerate(labels):
        base = 0
        left = LEFT + step * index + (step - width) / 2
        for name, values in series.items():
            value = values[index]
            if value:
                text = f"{label}  {name}: {value:,}"
                parts.append(_bar(left, width, _y(base + value, top), _y(base, top), colours[name], text))
            base += value
    parts.append(_labels(labels, step))
    return _drawing(title, parts)


def lying_bars(title: str, values: Mapping[str, int], colours: Mapping[str, int]) -> str:
    """A bar for each name, one below the other."""
    height, left, step = 8 + 26 * len(values), 170, 26
    top = max(values.values(), default=0) or 1
    parts = []
    for index, (name, value) in enumerate(values.items()):
        y = 8 + step * index
        wide = (WIDTH - left - 110) * value / top
        parts.append(_text(left - 8, y + 13, name, "end"))
        parts.append(_bar(left, wide, y, y + 18, colours[name], f"{name}: {value:,}"))
        parts.append(_text(left + wide + 8, y + 13, f"{value:,}", "start"))
    return _drawing(title, parts, WIDTH, height)


def fragment_bars(title: str, values: Mapping[int, int]) -> str:
    """A bar for each fragment and a line at the mean."""
    width, height, left, bottom = 288, 118, 6, 18
    top = max(values.values()) or 1
    mean = sum(values.values()) / len(values)
    step = (width - left * 2) / len(values)
    parts = []
    for index, (fragment, value) in enumerate(values.items()):
        tall = (height - bottom - 8) * value / top
        at = left + step * index
        parts.append(
            _bar(at + 1, step - 2, height - bottom - tall, height - bottom, 0, f"fragment {fragment}: {value:,}")
        )
        parts.append(_text(at + step / 2, height - 5, str(fragment), "middle"))
    level = height - bottom - (height - bottom - 8) * mean / top
    parts.append(f'<line class="mean" x1="{left}" x2="{width - left}" y1="{level:.1f}" y2="{level:.1f}"/>')
    return _drawing(title, parts, width, height)


def legend(colours: Mapping[str, int]) -> str:
    entries = (
        f'<span><i style="background:var(--plot-{colour})"></i>{escape(name)}</span>'
        for name, colour in colours.items()
    )
    return f'<p class="legend">{"".join(entries)}</p>'


def _axis(top: int) -> str:
    parts = []
    for tick in range(TICKS + 1):
        value = top * tick // TICKS
        y = _y(value, top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{value:,}", "end"))
    return "".join(parts)


def _labels(labels: Sequence[str], step: float) -> str:
    """As many as there is room for."""
    every = max(1, -(-len(labels) // LABELS_MAX), -(-LABEL_WIDTH // max(1, int(step))))
    return "".join(
        _text(LEFT + step * (index + 0.5), HEIGHT - BOTTOM + 18, label, "middle")
        for index, label in enumerate(labels)
        if index % every == 0
    )


def _bar(left: float, width: float, top: float, bottom: float, colour: int, tooltip: str) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(width, 1):.1f}" height="{max(bottom - top, 0.5):.1f}" '
        f'fill="var(--plot-{colour % COLOURS})"><title>{escape(tooltip)}</title></rect>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _y(value: int, top: int) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top


def _drawing(title: str, parts: Sequence[str], width: int = WIDTH, height: int = HEIGHT) -> str:
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
    return f"{head}<title>{escape(title)}</title>{''.join(parts)}</svg>"


def _round_up(value: int) -> int:
    """The next value that divides into round ticks."""
    if value <= TICKS:
        return TICKS
    size = int(10 ** floor(log10(value)))
    return next(size * factor // 10 for factor in (12, 16, 20, 24, 32, 40, 60, 80, 100) if size * factor // 10 >= value)
