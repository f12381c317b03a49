"""XML text from names and values. Prefixes are written as given: one SDK reads them literally."""

import re
from xml.sax.saxutils import escape, quoteattr

# What XML 1.0 cannot hold even escaped. Such text can only have arrived by AMQP or JSON.
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"


def clean(text: str) -> str:
    return FORBIDDEN.sub(REPLACEMENT, text)


def attribute(name: str, value: str) -> str:
    return f" {name}={quoteattr(clean(value))}"


def leaf(name: str, value: str | int | bool | None, attributes: str = "") -> str:
    """An element with text. None omits the element; true and false are written in lower case."""
    if value is None:
        return ""
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return node(name, escape(clean(text)), attributes)


def node(name: str, content: str, attributes: str = "") -> str:
    """An element around content that is XML already."""
    return f"<{name}{attributes}>{content}</{name}>" if content else f"<{name}{attributes}/>"
