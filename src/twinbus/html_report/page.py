"""The parts of a report page: texts and figures in, HTML out. Every text is escaped here."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources

STYLE = "style.css"

Cell = str | int


def page(title: str, parts: Iterable[str]) -> str:
    """The whole document. `parts` are HTML."""
    style = resources.files("twinbus.html_report").joinpath(STYLE).read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>\n{style}</style></head>\n'
        f"<body><main>\n<h1>{escape(title)}</h1>\n{''.join(parts)}</main></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>\n"


def folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def note(text: str, css: str = "faint") -> str:
    return f'<p class="{css}">{escape(text)}</p>'


def figures(values: Iterable[tuple[str, str]]) -> str:
    """The few numbers that matter most, each with what it means."""
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(text)}</span></div>" for value, text in values)
    return f'<div class="figures">{cells}</div>\n'


def legend(colours: Mapping[str, str]) -> str:
    """Name to colour, as for plots."""
    entries = (
        f'<span><i style="background:var(--{colour})"></i>{escape(name)}</span>' for name, colour in colours.items()
    )
    return f'<p class="legend">{"".join(entries)}</p>'


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Cell]], names: int = 1, total: Sequence[Cell] | None = None
) -> str:
    """The first `names` columns are texts, the rest figures. `total` is an emphasised last row."""
    head = _cells("th", heads, names)
    body = "".join(f"<tr>{_cells('td', row, names)}</tr>\n" for row in rows)
    last = "" if total is None else f'<tr class="sum">{_cells("td", total, names)}</tr>'
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}{last}</tbody></table></div>'


def _cells(tag: str, cells: Sequence[Cell], names: int) -> str:
    return "".join(
        f"<{tag}{' class=name' if index < names else ''}>{escape(str(cell))}</{tag}>"
        for index, cell in enumerate(cells)
    )
