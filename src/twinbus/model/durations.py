"""Durations as people type them: `30s`, `5m`, `1h`, `7d`, `never`, or ISO 8601 such as PT30S."""

import re
from datetime import timedelta

from twinbus.clock import NEVER, Millis
from twinbus.errors import ArgumentError
from twinbus.model.iso8601 import NEVER_FROM, read_duration

SHORT = re.compile(r"(\d{1,9})(ms|s|m|h|d)", re.ASCII)
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
NEVER_DELTA = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477580)
"""The longest duration of the official clients."""


def parse_duration(text: str) -> timedelta:
    if text.lower() == "never":
        return NEVER_DELTA
    short = SHORT.fullmatch(text.lower())
    if short is not None:
        return timedelta(milliseconds=int(short[1]) * UNITS_MS[short[2]])
    try:
        duration = read_duration(text.upper(), "The duration")
    except ArgumentError:
        raise ArgumentError(f"'{text}' is not a duration. Write it like 30s, 5m, 1h, 7d, never or PT30S.") from None
    return NEVER_DELTA if duration == NEVER else timedelta(milliseconds=duration)


def short_duration(duration: Millis) -> str:
    """In the largest unit that needs no fraction."""
    if duration >= NEVER_FROM:
        return "never"
    unit = next(unit for unit in reversed(UNITS_MS) if duration % UNITS_MS[unit] == 0)
    return f"{duration // UNITS_MS[unit]}{unit}"


def millis_of(duration: timedelta) -> Millis:
    millis = duration // timedelta(milliseconds=1)
    return NEVER if millis >= NEVER_FROM else millis
