"""Pictures as SVG: figures in, markup out. Colours are classes of the style sheet, so both themes have them."""

from collections.abc import Sequence
from dataclasses import dataclass

from twinbus.portal.html.markup import Markup, el, join

WIDTH, HEIGHT = 320, 72
HEAT_LEVELS = 8
CELLS_IN_ROW = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One value a step, the newest last. `shade` is a class: in, out."""

    name: str
    shade: str
    values: Sequence[float]


def line_plot(lines: Sequence[Line], title: str, count: int) -> Markup:
    """Lines over the last `count` steps; those that are not known yet stay empty."""
    top = max((value for line in lines for value in line.values), default=0.0) or 1.0
    step = WIDTH / max(1, count - 1)
    drawn = [
        el("polyline", class_=f"plot-{line.shade}", points=_points(line.values, count, step, top), fill="none")
        for line in lines
        if len(line.values) > 1
    ]
    now = "; ".join(f"{line.name} {line.values[-1] if line.values else 0:,.1f}" for line in lines)
    base = el("line", class_="plot-grid", x1=0, y1=HEIGHT - 1, x2=WIDTH, y2=HEIGHT - 1)
    middle = el("line", class_="plot-grid", x1=0, y1=HEIGHT / 2, x2=WIDTH, y2=HEIGHT / 2)
    size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "preserveAspectRatio": "none"}
    picture = el("svg", middle, base, *drawn, class_="plot", role="img", aria_label=f"{title}: {now}", **size)
    legend = [
        el("span", el("i", class_=f"dot plot-{line.shade}"), f"{line.name} ", el("b", _rate(line.values)))
        for line in lines
    ]
    return el("figure", picture, el("figcaption", join(legend), el("span", f"top {top:,.0f}/s", class_="faint")))


def _points(values: Sequence[float], count: int, step: float, top: float) -> str:
    shown = values[-count:]
    first = count - len(shown)
    return " ".join(
        f"{(first + index) * step:.1f},{(HEIGHT - 2) - value / top * (HEIGHT - 6):.1f}"
        for index, value in enumerate(shown)
    )


def _rate(values: Sequence[float]) -> str:
    return f"{values[-1]:,.1f}/s" if values else "–"


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A fragment: what colours it, what it says, and whether it is there at all."""

    label: str
    heat: float
    lines: Sequence[str]
    is_available: bool = True


def heat_map(cells: Sequence[HeatCell], title: str) -> Markup:
    """Coloured by share of the hottest. Also told in words, for those who do not see colours."""
    top = max((cell.heat for cell in cells), default=0.0)
    return el("ol", *(_cell(cell, top) for cell in cells), class_="heat", aria_label=title)


def _cell(cell: HeatCell, top: float) -> Markup:
    level = 0 if not cell.heat or not top else 1 + min(HEAT_LEVELS - 1, int(cell.heat / top * (HEAT_LEVELS - 1)))
    shade = f"heat-{level}" if cell.is_available else "heat-gone"
    state = None if cell.is_available else el("span", "unavailable", class_="tag bad")
    return el("li", el("b", cell.label), *(el("span", line) for line in cell.lines), state, class_=shade)
