"""The options of a source: what the user wrote in, checked values out.

Nothing is looked up or connected here: it runs where the query is planned, and its value travels to the executors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any

from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.model.paths import check_entity_path, check_subscription_name, dead_letter_path, subscription_path
from twinbus.model.rules.parser import parse_filter
from twinbus.model.wire_names import MessageState
from twinbus.pipeline.connection_options import CONNECTION_OPTIONS, ConnectionOptions, OptionError
from twinbus.pipeline.source import option_table as names
from twinbus.pipeline.source.option_table import BATCH, BOTH, SOURCE_OPTIONS
from twinbus.pipeline.source.option_values import choice, items, point_in_time, positions, seconds, truth, whole_number

FRAGMENT_MAX = 15
COUNT_MAX = 1_000_000_000
_NAMES = {option.name.lower(): option for option in SOURCE_OPTIONS}
_CONNECTION = frozenset(name.lower() for name in CONNECTION_OPTIONS)
_OF_TABLES = "provider"
"""What Spark adds to the options where a table is created."""
_BROWSE_ONLY = (
    names.STARTING_OFFSETS,
    names.STARTING_TIMESTAMP,
    names.INCLUDE_STATES,
    names.FAIL_ON_DATA_LOSS,
    names.VISIBILITY_LAG,
    names.FILTER,
)


class Mode(Enum):
    BROWSE = "browse"
    CONSUME = "consume"


class AdoptDeferred(Enum):
    TRUE = "true"
    FALSE = "false"
    FAIL = "fail"


class Edge(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


class SubQueue(Enum):
    NONE = "none"
    DEAD_LETTER = "deadLetter"


Start = Edge | dict[int, int] | Millis
"""Where a new query starts: at an edge, at sequence numbers by fragment, or at a time."""


@dataclass(frozen=True)
class SourceOptions:
    connection: ConnectionOptions
    paths: tuple[str, ...]
    mode: Mode = Mode.BROWSE
    start: Start = Edge.EARLIEST
    ending: dict[int, int] | None = None
    """By fragment, the number to end before; None: what is there when the query is planned."""
    count_max: int | None = None
    bytes_max: int | None = None
    partitions_min: int = 1
    partitions_max: int = names.MAX_PARTITIONS_DEFAULT
    fragments: frozenset[int] | None = None
    page_count: int = names.PREFETCH_COUNT_DEFAULT
    poll_interval_s: float = 1.0
    has_bodies: bool = True
    states: tuple[MessageState, ...] = (MessageState.ACTIVE,)
    fails_on_data_loss: bool = False
    adopt_deferred: AdoptDeferred = AdoptDeferred.FALSE
    visibility_lag_s: float = 0.0
    condition: str | None = None
    """A SQL filter that the namespace applies."""

    @classmethod
    def from_options(cls, options: Mapping[str, str], used_by: str = BOTH) -> "SourceOptions":
        """`used_by`: the kind of query, batch or stream, that must have no options of the other; both: not known yet.

        Raises OptionError.
        """
        known = _known(options)
        _check_kind(known, used_by)
        made = {field: read(name, known[name]) for name, (field, read) in _READERS.items() if name in known}
        mode = made.get("mode", Mode.BROWSE)
        _check_mode(known, mode, used_by)
        if mode is Mode.CONSUME:
            made.setdefault("count_max", names.CONSUME_COUNT_DEFAULT)
        made.setdefault("partitions_max", max(names.MAX_PARTITIONS_DEFAULT, made.get("partitions_min", 1)))
        found = cls(ConnectionOptions.from_options(options), _paths(known), start=_start(known, used_by), **made)
        return found._checked()

    @property
    def path(self) -> str:
        """Of a query that reads one entity."""
        assert len(self.paths) == 1
        return self.paths[0]

    @property
    def has_dead_letters(self) -> bool:
        """They keep the times at which their entity took them, so their numbers and times do not rise together."""
        return self.paths[0].endswith(dead_letter_path(""))

    @property
    def oldest(self) -> Millis | None:
        """Messages enqueued before this time are filtered out, where a time does not name a place to start at."""
        return self.start if isinstance(self.start, int) and self.has_dead_letters else None

    def wants(self, fragment: int) -> bool:
        return self.fragments is None or fragment in self.fragments

    def _checked(self) -> "SourceOptions":
        if self.partitions_min > self.partitions_max:
            raise OptionError(
                f"{names.MIN_PARTITIONS} is {self.partitions_min}, above {names.MAX_PARTITIONS}, {self.partitions_max}."
            )
        if self.visibility_lag_s and self.has_dead_letters:
            raise OptionError(f"{names.VISIBILITY_LAG}: dead letters keep the times of their entity. Omit it.")
        if len(self.paths) > 1 and (isinstance(self.start, dict) or self.ending is not None):
            raise OptionError(f"Sequence numbers are those of one entity: with {names.QUEUES} start at a timestamp.")
        return self


def _known(options: Mapping[str, str]) -> dict[str, str]:
    known: dict[str, str] = {}
    for given, value in options.items():
        name = given.lower()
        if name in _NAMES:
            known[_NAMES[name].name] = value
        elif name == "path":
            raise OptionError(
                f"load() does not accept a path here: name the entity with {names.QUEUE}, or {names.TOPIC}."
            )
        elif name == _OF_TABLES:
            raise OptionError(
                "Spark does not pass a table's options to Python data sources when it is read. Use CREATE TEMPORARY"
                " VIEW … USING servicebus OPTIONS (…), which takes the same options."
            )
        # Names with a dot are those that catalogs put there.
        elif name not in _CONNECTION and "." not in name:
            near = get_close_matches(name, [*_NAMES, *_CONNECTION], 1)
            spelt = {lower: option.name for lower, option in _NAMES.items()} | {
                n.lower(): n for n in CONNECTION_OPTIONS
            }
            hint = f"Do you mean {spelt[near[0]]}?" if near else "See the page on options of the source."
            raise OptionError(f"The source has no option '{given}'. {hint}")
    return known


def _check_kind(known: Mapping[str, str], used_by: str) -> None:
    for name in known:
        wanted = _NAMES[name.lower()].used_by
        if used_by != BOTH and wanted not in (BOTH, used_by):
            raise OptionError(f"{name} is for a {wanted} query only: omit it in this {used_by} query.")


def _check_mode(known: Mapping[str, str], mode: Mode, used_by: str) -> None:
    if mode is Mode.CONSUME and used_by == BATCH:
        raise OptionError(
            "mode=consume needs readStream: a batch query never reports that it is done, so nothing could be "
            "removed. Use trigger(availableNow=True) to read what is present."
        )
    if mode is Mode.CONSUME:
        wrong = next((name for name in _BROWSE_ONLY if name in known), None)
        if wrong is not None:
            raise OptionError(f"{wrong} goes with mode=browse: mode=consume reads every active message.")
    elif names.ADOPT_DEFERRED in known:
        raise OptionError(f"{names.ADOPT_DEFERRED} goes with mode=consume.")


def _paths(known: Mapping[str, str]) -> tuple[str, ...]:
    entities = [name for name in (names.QUEUE, names.QUEUES, names.TOPIC) if name in known]
    if len(entities) != 1:
        said = "No option says" if not entities else f"{' and '.join(entities)} both say"
        raise OptionError(
            f"{said} which entity to read. Set one of {names.QUEUE}, {names.QUEUES}, or {names.TOPIC} and"
            f" {names.SUBSCRIPTION}."
        )
    if (names.TOPIC in known) != (names.SUBSCRIPTION in known):
        raise OptionError(f"{names.TOPIC} and {names.SUBSCRIPTION} go together: messages are in subscriptions.")
    paths = items(entities[0], known[entities[0]]) if entities[0] == names.QUEUES else [known[entities[0]].strip()]
    for path in paths:
        _check(entities[0], check_entity_path, path, names.TOPIC if entities[0] == names.TOPIC else names.QUEUE)
    if names.SUBSCRIPTION in known:
        subscription = known[names.SUBSCRIPTION].strip()
        _check(names.SUBSCRIPTION, check_subscription_name, subscription, names.SUBSCRIPTION)
        paths = [subscription_path(paths[0], subscription)]
    below = choice(names.SUB_QUEUE, known.get(names.SUB_QUEUE, "none"), SubQueue)
    return tuple(dead_letter_path(path) if below is SubQueue.DEAD_LETTER else path for path in paths)


def _check(name: str, check: Callable[..., object], *values: str) -> None:
    try:
        check(*values)
    except ArgumentError as wrong:
        raise OptionError(f"{name}: {wrong}") from None


def _start(known: Mapping[str, str], used_by: str) -> Start:
    offsets, time = known.get(names.STARTING_OFFSETS), known.get(names.STARTING_TIMESTAMP)
    if time is not None:
        if offsets is not None:
            raise OptionError(f"{names.STARTING_OFFSETS} and {names.STARTING_TIMESTAMP} both say where to start.")
        return point_in_time(names.STARTING_TIMESTAMP, time)
    text = offsets or Edge.EARLIEST.value
    edge = next((edge for edge in Edge if edge.value == text.strip().lower()), None)
    if edge is Edge.LATEST and used_by == BATCH:
        raise OptionError(f"{names.STARTING_OFFSETS}=latest leaves a batch query nothing to read.")
    return positions(names.STARTING_OFFSETS, text, Edge) if edge is None else edge


def _ending(name: str, text: str) -> dict[int, int] | None:
    return None if text.strip().lower() == Edge.LATEST.value else positions(name, text, [Edge.LATEST])


def _fragments(name: str, text: str) -> frozenset[int] | None:
    if text.strip().lower() == "all":
        return None
    return frozenset(whole_number(name, item, 0, FRAGMENT_MAX) for item in items(name, text))


def _condition(name: str, text: str) -> str:
    _check(name, parse_filter, text)
    return text


def _states(name: str, text: str) -> tuple[MessageState, ...]:
    found = items(name, text)
    known = {state.name.lower(): state for state in MessageState}
    for item in found:
        if item.lower() not in known:
            raise OptionError(f"{name} has '{item}'; there are {', '.join(known)} messages.")
    return tuple(known[item.lower()] for item in found)


_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    names.MODE: ("mode", lambda name, text: choice(name, text, Mode)),
    names.ENDING_OFFSETS: ("ending", _ending),
    names.MAX_MESSAGES: ("count_max", lambda name, text: whole_number(name, text, 1, COUNT_MAX)),
    names.MAX_BYTES: ("bytes_max", lambda name, text: whole_number(name, text, 1, 1 << 50)),
    names.MIN_PARTITIONS: ("partitions_min", lambda name, text: whole_number(name, text, 1, 10_000)),
    names.MAX_PARTITIONS: ("partitions_max", lambda name, text: whole_number(name, text, 1, 10_000)),
    names.FRAGMENTS: ("fragments", _fragments),
    names.PREFETCH_COUNT: ("page_count", lambda name, text: whole_number(name, text, 1, names.PREFETCH_COUNT_DEFAULT)),
    names.MIN_POLL_INTERVAL: ("poll_interval_s", seconds),
    names.INCLUDE_BODY: ("has_bodies", truth),
    names.INCLUDE_STATES: ("states", _states),
    names.FAIL_ON_DATA_LOSS: ("fails_on_data_loss", truth),
    names.ADOPT_DEFERRED: ("adopt_deferred", lambda name, text: choice(name, text, AdoptDeferred)),
    names.VISIBILITY_LAG: ("visibility_lag_s", seconds),
    names.FILTER: ("condition", _condition),
}
"""By option: the field it is for, and how its text is read."""
