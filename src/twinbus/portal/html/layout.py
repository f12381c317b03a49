"""The frame of every page: what to show in, the whole document out."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import HTMLResponse

from twinbus.portal.html.markup import Child, Markup, el, join
from twinbus.portal.html.parts import address

DOCTYPE = "<!doctype html>\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """Around the content: which namespaces there are, which one this page is about, and who is looking."""

    namespaces: Sequence[str] = ()
    namespace: str | None = None
    screen: str = ""
    is_logged_in: bool = False
    is_bare: bool = False  # the login: nothing to navigate to


def page(
    frame: Frame, title: str, *content: Child, trail: Sequence[Markup] = (), tools: Child = None, status: int = 200
) -> HTMLResponse:
    """`trail` leads to this page; `tools` stand beside its title."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("title", f"{title} · twinbus"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="same-origin"),
        el("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        el("link", rel="stylesheet", href="/static/portal.css"),
        el("script", src="/static/portal.js"),
    )
    crumbs = (
        el("nav", *(join(each, " / ") for each in trail), class_="trail", aria_label="Where this is") if trail else None
    )
    top = el(
        "div", el("h1", title), el("div", tools, class_="tools") if tools is not None else None, class_="head title"
    )
    skip = el("a", "Skip to the content", href="#content", class_="skip")
    main = el("main", crumbs, top, *content, id="content", tabindex=-1)
    body = el(
        "body", skip, _header(frame), el("div", None if frame.is_bare else _navigation(frame), main, class_="columns")
    )
    return HTMLResponse(DOCTYPE + el("html", head, body, lang="en"), status_code=status)


def _header(frame: Frame) -> Markup:
    menu = None
    if not frame.is_bare:
        menu = el(
            "button",
            "Menu",
            type="button",
            class_="quiet small menu",
            data_menu_switch=True,
            aria_expanded="false",
            aria_controls="screens",
        )
    theme = el(
        "button",
        "Theme",
        type="button",
        class_="quiet small",
        data_theme_switch=True,
        title="Light, dark or system theme",
    )
    out = el("form", el("button", "Log out", class_="quiet small"), action="/logout", method="post")
    more = el("a", "Add a namespace", href="/login") if frame.is_logged_in else None
    brand = el("a", el("b", "twinbus"), " portal", href="/", class_="brand")
    return el("header", brand, el("div", menu, more, theme, out if frame.is_logged_in else None, class_="tools"))


def _navigation(frame: Frame) -> Markup:
    entries = [_entry(frame, "Overview", "/", "overview")]
    for name in frame.namespaces:
        is_here = name == frame.namespace
        inner = [
            _entry(frame, text, f"/ns/{name}/{screen}", screen if is_here else "-")
            for text, screen in (
                ("Entities", "entities"),
                ("Dead letters", "dead-letters"),
                ("Stores and faults", "stores"),
            )
        ]
        title = el("span", name, class_="name")
        entries.append(el("li", title, el("ul", *inner), class_="here" if is_here else None))
    entries += [_entry(frame, "Pairing", "/pairing", "pairing"), _entry(frame, "The bill", "/bill", "bill")]
    entries.append(_entry(frame, "Running work", "/jobs", "jobs"))
    return el("nav", el("ul", *entries), class_="side", id="screens", aria_label="Screens")


def _entry(frame: Frame, text: str, path: str, screen: str) -> Markup:
    return el("li", el("a", text, href=address(path), aria_current="page" if frame.screen == screen else None))
