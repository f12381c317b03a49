"""A script of faults from a file: TOML or JSON text in, a `Script` out.

duration = 60           # seconds of traffic
jitter = 1              # seconds by which the seed may delay a fault; default: 1

[[fault]]
kind = "kill"           # kill, hang, store-down, slow-store, disconnect, restart or command
at = 10                 # seconds since the first message
for = 20                # seconds; not for disconnect and restart
where = "secondary"     # default: primary; a restart is one of the sender

[[fault]]
kind = "slow-store"
at = 40
for = 10
store = 1               # default: all of them
ms = 200                # how much longer every call takes

[[fault]]
kind = "command"
at = 55
for = 5
name = "node b is killed"                       # as the report calls it; default: the command
begin = "docker compose kill b"                 # run when it begins, without a shell
end = "docker compose start b"                  # run when it is over; default: nothing
"""

import json
import shlex
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from twinbus.errors import ArgumentError
from twinbus.rehearsal.script import JITTER_DEFAULT_S, SCRIPTS, SLOW_MS_DEFAULT, Fault, FaultKind, Script, Where

Choice = TypeVar("Choice", bound=StrEnum)

SCRIPT_KEYS = {"duration": "a number", "jitter": "a number", "fault": "a list of tables"}
FAULT_KEYS = {
    "kind": "a text",
    "at": "a number",
    "for": "a number",
    "store": "a whole number",
    "ms": "a whole number",
    "where": "a text",
    "name": "a text",
    "begin": "a text",
    "end": "a text",
}
TYPES: Mapping[str, tuple[type, ...]] = {
    "a number": (int, float),
    "a whole number": (int,),
    "a text": (str,),
    "a list of tables": (list,),
}


def read_script(file: Path, duration_s: float | None = None) -> Script:
    """`duration_s` replaces the one in the file. Raises ArgumentError, with what to change, for a file with an error."""
    try:
        text = file.read_text()
        document = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as fault:
        known = ", ".join(SCRIPTS)
        raise ArgumentError(f"{file} cannot be read: {fault.strerror}. Name a file, or one of {known}.") from None
    except (ValueError, tomllib.TOMLDecodeError) as wrong:
        raise ArgumentError(f"{file} is not {'JSON' if file.suffix == '.json' else 'TOML'}: {wrong}.") from None
    try:
        return parse_script(document, duration_s)
    except ArgumentError as wrong:
        raise ArgumentError(f"{file}: {wrong}") from None


def parse_script(document: object, duration_s: float | None = None) -> Script:
    table = _table(document, SCRIPT_KEYS, "A script")
    faults = sorted((_fault(each) for each in table.get("fault", [])), key=lambda fault: fault.at_s)
    duration = duration_s if duration_s is not None else table.get("duration")
    if duration is None:
        raise ArgumentError("A script needs 'duration', the seconds of traffic.")
    return Script(float(duration), tuple(faults), float(table.get("jitter", JITTER_DEFAULT_S)))


def _fault(document: object) -> Fault:
    table = _table(document, FAULT_KEYS, "A fault")
    if "kind" not in table or "at" not in table:
        raise ArgumentError("A fault needs 'kind' and 'at'.")
    kind = _chosen(FaultKind, table["kind"], "a kind of fault")
    return Fault(
        kind,
        float(table["at"]),
        float(table.get("for", 0.0)),
        table.get("store"),
        table.get("ms", SLOW_MS_DEFAULT),
        _chosen(Where, table.get("where", _usual_place(kind)), "a place for a fault"),
        table.get("name", ""),
        _words(table.get("begin", "")),
        _words(table.get("end", "")),
    )


def _usual_place(kind: FaultKind) -> Where:
    return Where.SENDER if kind is FaultKind.RESTART else Where.PRIMARY


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as wrong:
        raise ArgumentError(f"'{command}' is not a command: {wrong}.") from None


def _chosen(kind: type[Choice], text: str, what: str) -> Choice:
    try:
        return kind(text)
    except ValueError:
        raise ArgumentError(f"'{text}' is not {what}. Use {', '.join(kind)}.") from None


def _table(document: object, keys: Mapping[str, str], what: str) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise ArgumentError(f"{what} must be a table.")
    for key, value in document.items():
        if key not in keys:
            raise ArgumentError(f"{what} cannot have '{key}'. Use {', '.join(keys)}.")
        # A bool counts as a number in Python, but not in a script.
        if isinstance(value, bool) or not isinstance(value, TYPES[keys[key]]):
            raise ArgumentError(f"'{key}' must be {keys[key]}.")
    return document
