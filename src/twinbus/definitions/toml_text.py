"""TOML out of tables, lists and plain values: what `tomllib` reads back as the same document.

A list of tables is written as `[[name]]` sections, everything else on one line, including tables.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
DELETE = "\x7f"


def write_toml(document: Mapping[str, Any]) -> str:
    return "\n".join(_lines(document, ())).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    below = {key: value for key, value in table.items() if _is_sections(value)}
    for key, value in table.items():
        if key not in below:
            yield f"{_key(key)} = {_value(value)}"
    for key, sections in below.items():
        inner = (*path, key)
        for section in sections:
            yield f"\n[[{'.'.join(map(_key, inner))}]]"
            yield from _lines(section, inner)


def _is_sections(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _text(key)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float(value)
        case Mapping():
            inner = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            return _text(str(value))


def _float(value: float) -> str:
    if math.isinf(value) or math.isnan(value):
        return str(value)
    # TOML wants digits on both sides of the point, and an exponent without a point is fine.
    return repr(value)


def _text(text: str) -> str:
    """JSON's escapes are among those of TOML, which wants one more character escaped."""
    return json.dumps(text, ensure_ascii=False).replace(DELETE, "\\u007f")
