"""`--store` in, connection strings out: `postgresql://pg{0-3}/bus` names four servers."""

import re

from twinbus.errors import ArgumentError

RANGE = re.compile(r"\{(\d+)-(\d+)\}|\{([^{}]*,[^{}]*)\}")
ADDRESSES_MAX = 64


def expand(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Each brace range or list in turn, in order. Raises ArgumentError."""
    found: list[str] = []
    waiting = list(texts)
    while waiting:
        text = waiting.pop(0)
        match = RANGE.search(text)
        if match is None:
            found.append(text)
        else:
            waiting[:0] = [text[: match.start()] + choice + text[match.end() :] for choice in _choices(match)]
        if len(found) + len(waiting) > ADDRESSES_MAX:
            raise ArgumentError(f"More than {ADDRESSES_MAX} servers are named for the messaging stores. Name fewer.")
    if len(set(found)) < len(found):
        raise ArgumentError("The same server is named twice for the messaging stores. Name each once.")
    return tuple(found)


def _choices(match: "re.Match[str]") -> list[str]:
    if match[3] is not None:
        return match[3].split(",")
    first, last = int(match[1]), int(match[2])
    if last < first or last - first >= ADDRESSES_MAX:
        raise ArgumentError(f"'{match[0]}' is not a range. Write {{0-3}} for 0, 1, 2 and 3.")
    width = len(match[1]) if match[1].startswith("0") else 1
    return [f"{number:0{width}}" for number in range(first, last + 1)]
