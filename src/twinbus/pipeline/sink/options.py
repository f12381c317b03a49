"""The options of a sink: what the user wrote in, checked values out.

Nothing is looked up or connected here: it runs where the query is planned, and its value travels to the executors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from twinbus.errors import ArgumentError
from twinbus.model.message_limits import BATCH_SIZE_MAX
from twinbus.model.paths import check_entity_path
from twinbus.pipeline.connection_options import CONNECTION_OPTIONS, ConnectionOptions, OptionError

BATCH_BYTES_MIN = 1024
RATE_MAX = 1_000_000.0


class SinkOption(NamedTuple):
    name: str
    default: str
    meaning: str


QUEUE, TOPIC = "queue", "topic"
BATCH_BYTES, PROPERTY_VALUES, IDEMPOTENT = "batchBytes", "propertyValues", "idempotent"
ON_OVERSIZE, DEAD_LETTER_QUEUE, RATE = "onOversize", "deadLetterQueue", "maxMessagesPerSecond"

SINK_OPTIONS = (
    SinkOption(QUEUE, "", "The queue that all messages go to; the column `entity` is then ignored."),
    SinkOption(TOPIC, "", "The same for a topic."),
    SinkOption(
        BATCH_BYTES, "", "The maximum size of a batch in bytes, 1024 to 1048576; by default the namespace's limit."
    ),
    SinkOption(
        PROPERTY_VALUES,
        "json",
        "`json`: the texts in `properties` are JSON, as the source writes it; texts that are not JSON are strings. `text`: all "
        "of them are strings.",
    ),
    SinkOption(
        IDEMPOTENT,
        "false",
        "`true`: refuse to write unless ids are the same when a job is repeated, which needs a column `messageId` or a "
        "streaming query. An entity that detects duplicates then keeps each message once.",
    ),
    SinkOption(
        ON_OVERSIZE,
        "fail",
        "What to do with a message that is too large for the entity. `fail`: fail the task. `deadLetter`: send it without "
        "its body, with the reason, to `deadLetterQueue`; clients cannot write to the dead-letter queue of an entity.",
    ),
    SinkOption(DEAD_LETTER_QUEUE, "", "The queue for `onOversize` = `deadLetter`."),
    SinkOption(RATE, "", "The maximum number of messages per second that each task sends."),
)

_NAMES = {option.name.lower(): option.name for option in SINK_OPTIONS}
# What Spark itself puts among the options of a writer, and the data source needs none of.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
_CONNECTION = frozenset(name.lower() for name in CONNECTION_OPTIONS)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    connection: ConnectionOptions
    target: str | None = None
    batch_bytes: int = BATCH_SIZE_MAX
    has_text_properties: bool = False
    is_idempotent: bool = False
    oversize_queue: str | None = None
    """Where messages go that are too large, without their bodies; None: they fail the task."""
    rate: float | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "SinkOptions":
        """Raises OptionError."""
        known = _known(options)
        return cls(
            ConnectionOptions.from_options(options),
            _target(known),
            _batch_bytes(known.get(BATCH_BYTES)),
            _choice(known, PROPERTY_VALUES, "json", "text") == "text",
            _choice(known, IDEMPOTENT, "false", "true") == "true",
            _oversize_queue(known),
            _rate(known.get(RATE)),
        )


def _known(options: Mapping[str, str]) -> dict[str, str]:
    known: dict[str, str] = {}
    for given, value in options.items():
        name = given.lower()
        if name in _NAMES:
            known[_NAMES[name]] = value.strip()
        elif name == "path":
            raise OptionError(f"save() and start() do not accept a path here: name the entity with {QUEUE} or {TOPIC}.")
        # Names with a dot are those that catalogs put there.
        elif name not in _CONNECTION and name not in _SPARKS_OWN and "." not in name:
            names = ", ".join(sorted([*_NAMES.values(), *CONNECTION_OPTIONS]))
            raise OptionError(f"The sink has no option '{given}'. Its options are {names}.")
    return {name: value for name, value in known.items() if value}


def _target(known: Mapping[str, str]) -> str | None:
    if QUEUE in known and TOPIC in known:
        raise OptionError(f"{QUEUE} and {TOPIC} both say where the messages go. Set one of them.")
    name = QUEUE if QUEUE in known else TOPIC
    return _path(name, known[name]) if name in known else None


def _path(option: str, value: str) -> str:
    try:
        check_entity_path(value, TOPIC if option == TOPIC else QUEUE)
    except ArgumentError as wrong:
        raise OptionError(f"{option}: {wrong}") from None
    return value


def _choice(known: Mapping[str, str], name: str, *choices: str) -> str:
    """The first one is the default."""
    given = known.get(name, choices[0])
    chosen = next((choice for choice in choices if choice.lower() == given.lower()), None)
    if chosen is None:
        raise OptionError(f"{name} is '{given}'; it must be {' or '.join(choices)}.")
    return chosen


def _oversize_queue(known: Mapping[str, str]) -> str | None:
    takes_aside = _choice(known, ON_OVERSIZE, "fail", "deadLetter") == "deadLetter"
    queue = known.get(DEAD_LETTER_QUEUE)
    if takes_aside and queue is None:
        raise OptionError(
            f"{ON_OVERSIZE} = deadLetter needs {DEAD_LETTER_QUEUE}: a client cannot write to the dead-letter queue of an "
            f"entity. Name an ordinary queue."
        )
    if queue is not None and not takes_aside:
        raise OptionError(f"{DEAD_LETTER_QUEUE} is for {ON_OVERSIZE} = deadLetter. Set both or none.")
    return None if queue is None else _path(DEAD_LETTER_QUEUE, queue)


def _batch_bytes(text: str | None) -> int:
    if text is None:
        return BATCH_SIZE_MAX
    if not text.isdecimal() or not BATCH_BYTES_MIN <= int(text) <= BATCH_SIZE_MAX:
        raise OptionError(f"{BATCH_BYTES} is '{text}'; it must be from {BATCH_BYTES_MIN} to {BATCH_SIZE_MAX}.")
    return int(text)


def _rate(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= RATE_MAX:
        raise OptionError(f"{RATE} is '{text}'; it must be a number above 0, of at most {RATE_MAX:.0f}.")
    return rate
