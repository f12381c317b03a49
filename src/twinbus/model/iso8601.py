"""Durations and times as XML writes them: ISO 8601 text in, milliseconds out, and back.

The service's longest duration is that of .NET, `P10675199DT2H48M5.4775807S`; it means "never" and so does all that
is longer.
"""

import re
from datetime import UTC, datetime, timedelta

from twinbus.clock import NEVER, Millis
from twinbus.errors import ArgumentError

NEVER_TEXT = "P10675199DT2H48M5.4775807S"
NEVER_FROM: Millis = 922_337_203_685_477
DURATION = re.compile(
    r"P(?:(?P<weeks>\d{1,9})W)?(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,12})(?:\.(?P<fraction>\d{1,9}))?S)?)?",
    re.ASCII,
)
UNITS_MS = {"weeks": 604_800_000, "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def read_duration(text: str, what: str) -> Millis:
    """Raises ArgumentError, naming `what`, for text that is not a duration. Negative ones and months are not accepted."""
    found = DURATION.fullmatch(text)
    if found is None or not any(found.groups()) or text.endswith("T"):
        raise ArgumentError(f"{what} is '{text[:64]}', which is not a duration. Write it like PT30S, PT10M or P7D.")
    total = sum(int(found[unit] or 0) * size for unit, size in UNITS_MS.items())
    total += int((found["fraction"] or "0").ljust(3, "0")[:3])
    return NEVER if total >= NEVER_FROM else total


def write_duration(duration: Millis) -> str:
    if duration >= NEVER_FROM:
        return NEVER_TEXT
    days, rest = divmod(duration, UNITS_MS["days"])
    hours, rest = divmod(rest, UNITS_MS["hours"])
    minutes, rest = divmod(rest, UNITS_MS["minutes"])
    seconds, millis = divmod(rest, UNITS_MS["seconds"])
    fraction = f".{millis:03}".rstrip("0") if millis else ""
    clock = f"{hours}H" * (hours > 0) + f"{minutes}M" * (minutes > 0)
    clock += f"{seconds}{fraction}S" * (seconds > 0 or millis > 0)
    if not days and not clock:
        return "PT0S"
    return "P" + f"{days}D" * (days > 0) + f"T{clock}" * bool(clock)


def write_time(at: Millis) -> str:
    """UTC with milliseconds and Z, which every SDK reads."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at % 1000:03}Z"
