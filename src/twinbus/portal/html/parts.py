"""The parts that pages are made of: values in, markup out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from twinbus.portal.html.markup import Child, Markup, el, join


@dataclass(frozen=True, slots=True)
class Cell:
    """What a table shows, and the value that is copied as JSON, if that is another one."""

    shown: Child
    value: str | int | float | None = None
    is_number: bool = False


TableCell = Cell | Markup | str | int | float | None


def table(heads: Sequence[str], rows: Iterable[Sequence[TableCell]], name: str, *, empty: str = "") -> Markup:
    """With a button that copies it as JSON. `name` is the caption that screen readers read."""
    listed = list(rows)
    if not listed:
        return el("p", empty or "There is nothing to show.", class_="faint empty")
    numbers = [any(_is_number(row[index]) for row in listed) for index in range(len(heads))]
    body = [el("tr", *map(_cell, row, numbers)) for row in listed]
    head = el("thead", el("tr", *map(_head, heads, numbers)))
    caption = el("caption", name, class_="unseen")
    copy = el("button", "Copy as JSON", type="button", class_="small quiet", data_copy=True)
    # Scrolls sideways on a narrow screen, so the keyboard has to reach it.
    wide = el(
        "div", el("table", caption, head, el("tbody", *body)), class_="wide", tabindex=0, role="region", aria_label=name
    )
    return el("div", wide, el("p", copy, class_="under"), class_="table")


def _is_number(cell: TableCell) -> bool:
    return isinstance(cell, int | float) or (isinstance(cell, Cell) and cell.is_number)


def _head(text: str, is_above_numbers: bool) -> Markup:
    """Above numbers it stands at the right, as they do. A column of buttons has no name."""
    return el(
        "th" if text else "td", text, scope="col" if text else None, class_="number" if is_above_numbers else None
    )


def _cell(cell: TableCell, is_among_numbers: bool) -> Markup:
    """What is missing stands where the numbers of its column do."""
    if isinstance(cell, Cell):
        return el("td", cell.shown, class_="number" if cell.is_number else None, data_value=cell.value)
    if isinstance(cell, int | float):
        return el("td", figure(cell), class_="number", data_value=cell)
    if cell is None:
        return el("td", "–", class_="number" if is_among_numbers else None, data_value="")
    return el("td", cell)


def figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def size_text(size: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TB"


def time_text(at: datetime | None) -> Markup | None:
    """In UTC; the page's script adds the reader's own time as a tip."""
    if at is None:
        return None
    text = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return el("time", text, datetime=at.astimezone(UTC).isoformat())


def notice(kind: str, *text: Child) -> Markup:
    """`kind`: good, bad, warn or plain."""
    return el("p", *text, class_=f"notice {kind}", role="alert" if kind == "bad" else "status")


def section(title: str, *parts: Child, tools: Child = None, id_: str | None = None) -> Markup:
    head = el("div", el("h2", title), el("div", tools, class_="tools") if tools is not None else None, class_="head")
    return el("section", head, *parts, id=id_)


def figures(values: Iterable[tuple[str, Child]]) -> Markup:
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in values), class_="figures")


def tag(text: str, kind: str = "") -> Markup:
    return el("span", text, class_=f"tag {kind}".strip())


def link(text: Child, path: str, /, **query: str | int | None) -> Markup:
    # A number is one word, whatever the width.
    is_number = isinstance(text, str) and text.isdigit()
    return el("a", text, href=address(path, **query), class_="nowrap" if is_number else None)


def button_link(text: Child, path: str, kind: str = "", /, **query: str | int | None) -> Markup:
    return el("a", text, href=address(path, **query), class_=f"button {kind}".strip())


def address(path: str, /, **query: str | int | None) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def form(action: str, /, *parts: Child, method: str = "post", **attributes: str | bool | None) -> Markup:
    return el("form", *parts, action=action, method=method, **attributes)


def hidden(**values: str | int | None) -> Markup:
    return join(
        [el("input", type="hidden", name=name, value=value) for name, value in values.items() if value is not None]
    )


def field(label: Child, control: Markup, hint: Child = None) -> Markup:
    return el("label", el("span", label), control, el("small", hint, class_="faint") if hint else None, class_="field")


def text_input(name: str, value: str | None = "", **attributes: str | int | bool | None) -> Markup:
    return el("input", **{"name": name, "value": value or "", "type": "text", **attributes})


def text_area(name: str, value: str = "", rows: int = 6, **attributes: str | int | bool | None) -> Markup:
    # The first line break after the start of the element is not part of its value.
    return el("textarea", "\n" + value, name=name, rows=rows, spellcheck="false", **attributes)


def choice(name: str, options: Mapping[str, str] | Sequence[str], chosen: str = "", **attributes: str | None) -> Markup:
    named = options if isinstance(options, Mapping) else {each: each for each in options}
    shown = [el("option", text, value=value, selected=value == chosen) for value, text in named.items()]
    return el("select", *shown, name=name, **attributes)


def check_box(name: str, label: Child, *, is_checked: bool = False, **attributes: str | int | bool | None) -> Markup:
    box = el("input", type="checkbox", name=name, value="on", checked=is_checked, **attributes)
    return el("label", box, el("span", label), class_="check")


def button(text: str, kind: str = "", **attributes: str | bool | None) -> Markup:
    return el("button", text, **{"type": "submit", "class_": kind or None, **attributes})


def facts(record: Mapping[str, Any]) -> Markup:
    """Names and values, one below the other."""
    rows = [(name, value) for name, value in record.items() if value not in (None, "")]
    return el("dl", *(join(el("dt", name), el("dd", value)) for name, value in rows), class_="facts")
