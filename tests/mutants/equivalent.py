"""Changes that change nothing anybody could notice, listed by hand with the reason: `equivalent.toml`.

A change is recognised by its file, function, kind and the line before and after, so that it stays listed when lines move. A
constant that is listed as tunable may have any value near its own.
"""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutations import Mutation

LIST = Path(__file__).with_name("equivalent.toml")


class Equivalent(NamedTuple):
    file: str
    function: str
    kind: str
    before: str
    after: str

    @staticmethod
    def of(file: str, mutation: Mutation, source: bytes) -> "Equivalent":
        changed = mutation.apply(source)
        end = mutation.start + len(mutation.replacement)
        before = _lines_around(source, mutation.start, mutation.end)
        return Equivalent(file, mutation.function, mutation.kind, before, _lines_around(changed, mutation.start, end))


class Equivalents:
    def __init__(self, reasons: dict[Equivalent, str], tunable: dict[tuple[str, str], str]) -> None:
        self.reasons = reasons
        self.tunable = tunable  # by file and name

    @staticmethod
    def load(path: Path = LIST) -> "Equivalents":
        found = tomllib.loads(path.read_text())
        entries, constants = found["equivalent"], found["tunable"]
        return Equivalents(
            {Equivalent(*[entry[name] for name in Equivalent._fields]): entry["reason"] for entry in entries},
            {(entry["file"], entry["name"]): entry["reason"] for entry in constants},
        )

    def has(self, file: str, mutation: Mutation, source: bytes) -> bool:
        change = Equivalent.of(file, mutation, source)
        name = re.match(r"\w*", change.before)
        assert name is not None
        is_tuned = not mutation.function and (file, name[0]) in self.tunable
        return is_tuned or change in self.reasons


def _lines_around(text: bytes, start: int, end: int) -> str:
    """The lines that a piece is in, without the spaces around each."""
    first, last = text.rfind(b"\n", 0, start) + 1, text.find(b"\n", end)
    piece = text[first : len(text) if last < 0 else last].decode()
    return " ".join(line.strip() for line in piece.splitlines())
