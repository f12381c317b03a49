"""The options of a source: one table for the parser and the reference page."""

from typing import NamedTuple

BATCH, STREAM, BOTH = "batch", "stream", "both"


class SourceOption(NamedTuple):
    name: str
    default: str
    used_by: str
    meaning: str


QUEUE, QUEUES, TOPIC, SUBSCRIPTION, SUB_QUEUE = "queue", "queues", "topic", "subscription", "subQueue"
MODE = "mode"
STARTING_OFFSETS, STARTING_TIMESTAMP, ENDING_OFFSETS = "startingOffsets", "startingTimestamp", "endingOffsets"
MAX_MESSAGES, MAX_BYTES = "maxMessagesPerTrigger", "maxBytesPerTrigger"
MIN_PARTITIONS, MAX_PARTITIONS = "minPartitions", "maxPartitions"
FRAGMENTS, PREFETCH_COUNT, MIN_POLL_INTERVAL = "fragments", "prefetchCount", "minPollInterval"
INCLUDE_BODY, INCLUDE_STATES = "includeBody", "includeStates"
FAIL_ON_DATA_LOSS, ADOPT_DEFERRED, VISIBILITY_LAG = "failOnDataLoss", "adoptDeferred", "visibilityLag"
FILTER = "filter"

MAX_PARTITIONS_DEFAULT = 16
PREFETCH_COUNT_DEFAULT = 1_000
CONSUME_COUNT_DEFAULT = 100_000

SOURCE_OPTIONS = (
    SourceOption(QUEUE, "", BOTH, "The queue to read."),
    SourceOption(QUEUES, "", BATCH, "Several queues, separated by commas."),
    SourceOption(TOPIC, "", BOTH, "The topic whose `subscription` to read."),
    SourceOption(SUBSCRIPTION, "", BOTH, "The subscription of `topic` to read."),
    SourceOption(SUB_QUEUE, "none", BOTH, "`deadLetter`: read the dead-letter queue of the entity."),
    SourceOption(
        MODE,
        "browse",
        BOTH,
        "`browse`: read messages and leave them in place. `consume` (streams only): claim them, by deferring, and remove "
        "them once their batch is committed.",
    ),
    SourceOption(
        STARTING_OFFSETS,
        "earliest",
        BOTH,
        '`earliest`, `latest` (streams only), or the first sequence number by fragment: `{"0": 17}`; a fragment that is '
        "not listed is read from its first message. Applies to a new query; a checkpoint continues where it stopped. Not "
        "for `consume`.",
    ),
    SourceOption(
        STARTING_TIMESTAMP,
        "",
        BOTH,
        "The earliest enqueued time to read, in ISO 8601 with a zone or in milliseconds since 1970; instead of "
        "`startingOffsets`. Dead letters keep their original enqueued times, so with `subQueue` older ones are filtered "
        "out one by one, in every run of a query.",
    ),
    SourceOption(
        ENDING_OFFSETS, "latest", BATCH, '`latest`, or by fragment the sequence number to end before: `{"0": 42}`.'
    ),
    SourceOption(
        MAX_MESSAGES,
        f"none; {CONSUME_COUNT_DEFAULT} for `consume`",
        STREAM,
        "The maximum number of messages in one batch: the oldest of all fragments, so that their enqueued times advance together. "
        "Divided equally among the fragments if the namespace is not twinbus, and for dead letters.",
    ),
    SourceOption(
        MAX_BYTES,
        "",
        STREAM,
        "The approximate limit of a batch in bytes, by the mean size of the messages in the entity.",
    ),
    SourceOption(MIN_PARTITIONS, "1", BOTH, "The minimum number of tasks, if there are that many messages."),
    SourceOption(MAX_PARTITIONS, str(MAX_PARTITIONS_DEFAULT), BOTH, "The maximum number of tasks."),
    SourceOption(
        FRAGMENTS, "all", BOTH, "Read only these: `0,3,5`. Not for `consume` unless the namespace is twinbus."
    ),
    SourceOption(
        PREFETCH_COUNT,
        str(PREFETCH_COUNT_DEFAULT),
        BOTH,
        "The maximum number of messages to fetch in one request, 1 to 1000.",
    ),
    SourceOption(
        MIN_POLL_INTERVAL,
        "1s",
        STREAM,
        "How often to poll the namespace while there is nothing new; Spark would ask 70 times a second, and requests are "
        "billed. `500ms`, `2s`, `5m`; a bare number is seconds.",
    ),
    SourceOption(INCLUDE_BODY, "true", BOTH, "`false`: bodies are null and are not transferred."),
    SourceOption(
        INCLUDE_STATES,
        "active",
        BOTH,
        "Which messages to read: `active`, `deferred`, `scheduled`, separated by commas. Not for `consume`.",
    ),
    SourceOption(
        FAIL_ON_DATA_LOSS,
        "false",
        BOTH,
        "`true`: fail if messages were removed or expired before they were read, as far as that can be detected: when the "
        "first message of a fragment is beyond the query's position. Otherwise log a warning. Not for `consume`, whose "
        "messages nobody else can remove.",
    ),
    SourceOption(
        ADOPT_DEFERRED,
        "false",
        STREAM,
        "For `consume`: what to do with messages that were deferred without a claim when the query started. `false` leaves "
        "them, `true` reads them too, `fail` fails if there are any. A query always finds its own claims after a crash.",
    ),
    SourceOption(
        VISIBILITY_LAG,
        "0s",
        BOTH,
        "Do not read messages younger than this. Not for `consume`, nor for dead letters.",
    ),
    SourceOption(
        FILTER,
        "",
        BOTH,
        "A SQL filter as in the rules of subscriptions, `sys.Label = 'new' AND quantity > 3`: the namespace sends only messages that "
        "match. Needs a twinbus namespace. Not for `consume`.",
    ),
)
