"""What a copied namespace says of itself, so that nobody serves half of a copy, or what was moved elsewhere.

    target    UNFINISHED, from where, and how far its stores are    from before the first row to after the last check
    source    MOVED, to where                                       from the last check on, until somebody removes the mark

A mark is a line of JSON: a file in a data folder, a row in a database.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Final

from twinbus.errors import ArgumentError, StoreDamaged

UNFINISHED: Final = "unfinished"
MOVED: Final = "moved"


@dataclass(frozen=True, slots=True)
class CopyMark:
    kind: str
    other: str  # where it is copied from, or was moved to
    sequences: dict[str, int] = field(default_factory=dict)
    """For each store that was begun: the number of the source's next commit, which a source that is used raises."""

    def text(self) -> str:
        return json.dumps(asdict(self))


def read_mark(text: str | None, place: str) -> CopyMark | None:
    """Raises StoreDamaged."""
    if text is None:
        return None
    try:
        mark = CopyMark(**json.loads(text))
    except (ValueError, TypeError):
        raise StoreDamaged(f"{place} is damaged: it says whether a copy is whole. Copy again.") from None
    return mark


def require_whole(mark: CopyMark | None, place: str) -> None:
    """Raises ArgumentError if the namespace must not be served. `place`: of the mark, for who wants to remove it."""
    if mark is None:
        return
    if mark.kind == MOVED:
        raise ArgumentError(
            f"The namespace was moved to {mark.other}. Serve it there, or remove {place} to serve it here."
        )
    raise ArgumentError(f"The copy from {mark.other} is unfinished. Run the same 'twinbus copy' again, then serve.")
