"""Plays scenarios one after another and prints a line of JSON for each."""

import json
import os
import traceback
from collections.abc import Callable
from typing import TypeVar

E = TypeVar("E", bound=BaseException)

ONLY = os.environ.get("TWINBUS_ONLY", "")

_all: list[tuple[str, str, Callable[[], None]]] = []


def scenario(feature: str, name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def remember(play: Callable[[], None]) -> Callable[[], None]:
        _all.append((feature, name, play))
        return play

    return remember


def play_all() -> None:
    for feature, name, play in _all:
        if ONLY not in name:
            continue
        reason = ""
        try:
            play()
        except BaseException:
            reason = traceback.format_exc()
        said = {"feature": feature, "scenario": name, "outcome": "fail" if reason else "pass", "reason": reason}
        print(json.dumps(said), flush=True)


def raised(kind: type[E], call: Callable[[], object]) -> E:
    """What the call raises. Fails if it raises nothing, or something else."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
