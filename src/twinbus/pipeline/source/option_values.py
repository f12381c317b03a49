"""Texts of options in, values out; OptionError names the option and what it may be."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeVar

from twinbus.clock import Millis
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.source.ranges import fragment_of

E = TypeVar("E", bound=Enum)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def choice(name: str, text: str, kind: type[E]) -> E:
    for member in kind:
        if member.value.lower() == text.strip().lower():
            return member
    raise OptionError(f"{name} is '{text}'; it must be {' or '.join(member.value for member in kind)}.")


def whole_number(name: str, text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise OptionError(f"{name} is '{text}'; it must be a whole number from {least} to {most}.")
    return number


def truth(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name} is '{text}'; it must be true or false.")
    return text.strip().lower() == "true"


def seconds(name: str, text: str) -> float:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise OptionError(f"{name} is '{text}'; write a time as 500ms, 2s, 5m or 1h.")
    return float(match[1]) * _SECONDS[match[2]]


def items(name: str, text: str) -> list[str]:
    found = [item.strip() for item in text.split(",") if item.strip()]
    if not found:
        raise OptionError(f"{name} is empty; name at least one, separated by commas, or omit the option.")
    return list(dict.fromkeys(found))


def point_in_time(name: str, text: str) -> Millis:
    text = text.strip()
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise OptionError(
            f"{name} is '{text}'; write it as 2026-01-02T03:04:05Z, with its zone, or in milliseconds since 1970."
        )
    # Up to the next millisecond, in whole numbers: seconds as a float are not exact to the millisecond.
    return -((_EPOCH - time) // _MILLISECOND)


def positions(name: str, text: str, edges: Iterable[Enum]) -> dict[int, int]:
    """Sequence numbers by fragment, out of JSON. `edges` are what the option may be instead."""
    try:
        found = json.loads(text)
        numbers = {int(fragment): number for fragment, number in found.items()}
    except (ValueError, AttributeError):
        numbers = {}
    if not numbers or not all(type(number) is int and number >= 0 for number in numbers.values()):
        instead = " or ".join(str(edge.value) for edge in edges)
        raise OptionError(f"{name} is '{text}'; it must be {instead} or sequence numbers by fragment: {{\"0\": 17}}.")
    for fragment, number in numbers.items():
        if fragment_of(number) != fragment:
            raise OptionError(
                f"{name} has {number} for fragment {fragment}, but that is a number of fragment {fragment_of(number)}."
                " Take it from the column sequenceNumber."
            )
    return numbers
