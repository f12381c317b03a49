"""HTML elements as values: names, attributes and children in, markup out.

    el("a", "Fish & chips", href="/menu")   ->   <a href="/menu">Fish &amp; chips</a>

Whatever is not markup already is text and is escaped, so what a message, a name or a namespace says can never become an
element. Addresses of links and forms must be ours: a scheme such as `javascript:` is an error here, not on the page.
"""

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

VOID = frozenset({"br", "hr", "input", "link", "meta"})
SHAPES = frozenset({"line", "polyline"})
"""Of SVG, where an element without content has to close itself."""
ADDRESSES = frozenset({"href", "action", "src", "formaction", "data-live", "data-check"})


class Markup(str):
    """HTML that is complete and safe as it stands. Made by `el` and `join` alone."""

    __slots__ = ()


Child: TypeAlias = "Markup | str | int | float | Iterable[Child] | None"


def join(*children: Child) -> Markup:
    """Everything one after another; None is nothing."""
    return Markup("".join(map(_child, children)))


def el(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """`class_` and `for_` for words that Python keeps, `data_x` for `data-x`. True is a bare attribute; False and None are none."""
    start = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}"
    start += "/>" if name in SHAPES else ">"
    if name in VOID or name in SHAPES:
        assert not children, f"<{name}> has no content"
        return Markup(start)
    return Markup(f"{start}{''.join(map(_child, children))}</{name}>")


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(_printable(child))
    if isinstance(child, int | float):
        return str(child)
    return "".join(map(_child, child))


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = _printable(str(value))
    if name in ADDRESSES and not text.startswith(("/", "#", "?")):
        raise ValueError(f"'{text[:40]}' is not an address on this server.")
    # Two slashes would be another host.
    if name in ADDRESSES and text.startswith(("//", "/\\")):
        raise ValueError(f"'{text[:40]}' is an address on another server.")
    return f' {name}="{escape(text)}"'


def _printable(text: str) -> str:
    """Without what HTML cannot hold: NUL, and halves of characters, which no encoder takes."""
    if text.isprintable():
        return text
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()
