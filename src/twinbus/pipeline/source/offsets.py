"""Offsets of a stream as Spark keeps them: JSON in and out, nothing secret in them, and nothing else needed to read a batch.

    new query   {"v": 1}
    browse      {"v": 1, "mode": "browse", "entity": "orders", "from": {"0": 17}, "to": {"0": 42}, "tasks": 1, "created": 17…}
    consume     {"v": 1, "mode": "consume", "entity": "orders", "owner": "…", "claim": {"0": [[17, 20], [25, 42]]}, "tasks": 1,
                 "created": 17…}

Spark asks for the initial offset again whenever a query starts again, so that one is a constant, and the end of a batch
says all about the batch, also by how many tasks it is read: a sink may make ids of where a row stands, and a batch that is
run again, by a later release or with other options, has to make the same ones. Streams of Spark 4.0 and 4.1 do not say it
(`unbounded_stream_reader`). Ranges are half-open. The owner of claims is generated once and kept in every offset, so that a
query knows its own claims again after a crash.

Numbers are those of one entity, and one that is deleted and created again under its name gives them again: so an offset says
when its entity was created, in milliseconds since 1970, where the namespace does. Elsewhere one of a browsing query has some
messages that were `"seen"`, as pairs of number and enqueued time: another message under such a number is one of another entity.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.pipeline.source.access.entity_access import Seen
from twinbus.pipeline.source.ranges import Range, by_fragment

VERSION = 1
JsonOffset: TypeAlias = dict[str, Any]
Positions: TypeAlias = dict[int, int]
"""By fragment, a sequence number."""

NEW_QUERY: JsonOffset = {"v": VERSION}
OLDEST = "oldest"
"""In what is reported: when the oldest message was enqueued that no batch has yet, in milliseconds since 1970."""
_BROWSE, _CONSUME = "browse", "consume"
_TASKS, _CREATED, _SEEN = "tasks", "created", "seen"


class OffsetError(ArgumentError):
    """A checkpoint does not fit the query."""


@dataclass(frozen=True, slots=True)
class BrowseOffset:
    """The batch that ends here reads `start` to `end`; the next one continues at `end`."""

    entity: str
    start: Positions
    end: Positions
    tasks: int | None = None
    created_at: Millis | None = None
    seen: Mapping[int, Sequence[Seen]] = field(default_factory=dict)
    """By fragment, where nobody says when the entity was created."""

    def to_json(self) -> JsonOffset:
        seen = {str(fragment): [list(each) for each in found] for fragment, found in sorted(self.seen.items())}
        return {
            "v": VERSION,
            "mode": _BROWSE,
            "entity": self.entity,
            "from": _named(self.start),
            "to": _named(self.end),
            **_known({_TASKS: self.tasks, _CREATED: self.created_at}),
            **({_SEEN: seen} if seen else {}),
        }

    def ranges(self) -> list[Range]:
        """What the batch reads."""
        return [(self.start[fragment], end) for fragment, end in sorted(self.end.items()) if self.start[fragment] < end]

    @classmethod
    def from_json(cls, offset: Mapping[str, Any], entity: str) -> "BrowseOffset | None":
        """None for a new query. Raises OffsetError."""
        with _well_formed():
            if not _is_of(offset, _BROWSE, entity):
                return None
            seen = {int(fragment): [Seen(*each) for each in found] for fragment, found in offset.get(_SEEN, {}).items()}
            start, end = _numbered(offset["from"]), _numbered(offset["to"])
            return cls(entity, start, end, offset.get(_TASKS), offset.get(_CREATED), seen)


@dataclass(frozen=True, slots=True)
class ConsumeOffset:
    """The batch that ends here reads what was claimed for it; the claim is deleted when a later batch is planned."""

    entity: str
    owner: str
    claim: tuple[Range, ...] = ()
    tasks: int | None = None
    created_at: Millis | None = None

    def to_json(self) -> JsonOffset:
        claim = {
            str(fragment): [list(item) for item in ranges]
            for fragment, ranges in sorted(by_fragment(self.claim).items())
        }
        return {
            "v": VERSION,
            "mode": _CONSUME,
            "entity": self.entity,
            "owner": self.owner,
            "claim": claim,
            **_known({_TASKS: self.tasks, _CREATED: self.created_at}),
        }

    @classmethod
    def from_json(cls, offset: Mapping[str, Any], entity: str) -> "ConsumeOffset | None":
        """None for a new query. Raises OffsetError."""
        with _well_formed():
            if not _is_of(offset, _CONSUME, entity):
                return None
            claim = tuple((int(first), int(end)) for ranges in offset["claim"].values() for first, end in ranges)
            return cls(entity, str(offset["owner"]), claim, offset.get(_TASKS), offset.get(_CREATED))


def reported_ends(entity: str, ends: Positions) -> JsonOffset:
    """How far a browsing query could read now; `lag` compares it with where a batch ended."""
    return {"v": VERSION, "mode": _BROWSE, "entity": entity, "to": _named(ends)}


def reported_waiting(entity: str, counts: Mapping[int, int]) -> JsonOffset:
    """How many messages wait to be claimed."""
    return {"v": VERSION, "mode": _CONSUME, "entity": entity, "waiting": _named(counts)}


def lag(end: Mapping[str, Any], latest: Mapping[str, Any]) -> dict[int, int]:
    """Messages behind, by fragment, of a query whose progress has these end and latest offsets.

    Of a browsing query it is the distance in sequence numbers, which counts messages that are gone too.
    """
    if "waiting" in latest:
        return _numbered(latest["waiting"])
    reached = _numbered(end.get("to", {}))
    return {
        fragment: max(0, to - reached.get(fragment, to)) for fragment, to in _numbered(latest.get("to", {})).items()
    }


@contextmanager
def _well_formed() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise OffsetError(f"The checkpoint is damaged: an offset in it cannot be read ({wrong!r}).") from None


def _is_of(offset: Mapping[str, Any], mode: str, entity: str) -> bool:
    """Whether it is one of this query; False for a new one."""
    if offset.get("v") != VERSION:
        raise OffsetError(f"The checkpoint has offsets of version {offset.get('v')}; this source reads {VERSION}.")
    if "mode" not in offset:
        return False
    if offset["mode"] != mode or offset["entity"] != entity:
        raise OffsetError(
            f"The checkpoint belongs to mode={offset['mode']} of '{offset['entity']}', not to mode={mode} of '{entity}'."
            " Use another checkpointLocation; for a capture, another lake."
        )
    return True


def _known(facts: Mapping[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in facts.items() if value is not None}


def _named(positions: Mapping[int, int]) -> dict[str, int]:
    return {str(fragment): number for fragment, number in sorted(positions.items())}


def _numbered(positions: Mapping[str, Any]) -> Positions:
    return {int(fragment): int(number) for fragment, number in positions.items()}
