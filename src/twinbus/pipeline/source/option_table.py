"""The options of a source: one table that parsing and the reference page are made of."""

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

MAX_PARTITIONS_DEFAULT = 16
PREFETCH_COUNT_DEFAULT = 1_000
CONSUME_COUNT_DEFAULT = 100_000

SOURCE_OPTIONS = (
    SourceOption(QUEUE, "", BOTH, "The queue to read."),
    SourceOption(QUEUES, "", BATCH, "Several of them, with commas between."),
    SourceOption(TOPIC, "", BOTH, "The topic whose `subscription` is to be read."),
    SourceOption(SUBSCRIPTION, "", BOTH, ""),
    SourceOption(SUB_QUEUE, "none", BOTH, "`deadLetter`: the dead-letter queue of the entity instead of itself."),
    SourceOption(
        MODE,
        "browse",
        BOTH,
        "`browse`: look at messages and leave them. `consume` (streams only): claim them, by deferring, and remove them "
        "once the batch they were in is committed.",
    ),
    SourceOption(
        STARTING_OFFSETS,
        "earliest",
        BOTH,
        '`earliest`, `latest` (streams only), or the first sequence number by fragment: `{"0": 17}`; a fragment that is '
        "not named is read from its first message. Counts for a new query: a checkpoint goes on where it was. Not for "
        "`consume`.",
    ),
    SourceOption(
        STARTING_TIMESTAMP,
        "",
        BOTH,
        "The first enqueued time wanted, in ISO 8601 with a zone or in milliseconds since 1970; instead of "
        "`startingOffsets`. Dead letters keep the times at which their entity took them: with `subQueue` older ones are "
        "left out wherever they lie, in every run of a query.",
    ),
    SourceOption(
        ENDING_OFFSETS, "latest", BATCH, '`latest`, or by fragment the sequence number to end before: `{"0": 42}`.'
    ),
    SourceOption(
        MAX_MESSAGES,
        f"none; {CONSUME_COUNT_DEFAULT} for `consume`",
        STREAM,
        "The most messages in one batch; fragments get equal shares of it.",
    ),
    SourceOption(
        MAX_BYTES, "", STREAM, "About the most bytes in one batch, by the mean size of the messages in the entity."
    ),
    SourceOption(MIN_PARTITIONS, "1", BOTH, "The fewest tasks to read with, if there are as many messages."),
    SourceOption(MAX_PARTITIONS, str(MAX_PARTITIONS_DEFAULT), BOTH, "The most tasks to read with."),
    SourceOption(
        FRAGMENTS, "all", BOTH, "Read these only: `0,3,5`. Not for `consume` where the namespace is not twinbus."
    ),
    SourceOption(
        PREFETCH_COUNT, str(PREFETCH_COUNT_DEFAULT), BOTH, "The most messages to ask for in one request, 1 to 1000."
    ),
    SourceOption(
        MIN_POLL_INTERVAL,
        "1s",
        STREAM,
        "While there is nothing new, the namespace is asked so often and not whenever Spark asks, which is 70 times a "
        "second. Requests are billed. `500ms`, `2s`, `5m`; a bare number is seconds.",
    ),
    SourceOption(INCLUDE_BODY, "true", BOTH, "`false`: bodies are null, and do not leave the namespace."),
    SourceOption(
        INCLUDE_STATES,
        "active",
        BOTH,
        "Which messages to show: some of `active`, `deferred` and `scheduled`, with commas between. Not for `consume`.",
    ),
    SourceOption(
        FAIL_ON_DATA_LOSS,
        "false",
        BOTH,
        "`true`: fail if messages were removed or expired before they were read, as far as that shows: by the first "
        "message of a fragment, which lies behind where the query is then. Otherwise it is a warning, since that is "
        "what queues are for. Not for `consume`, whose messages nobody else gets.",
    ),
    SourceOption(
        ADOPT_DEFERRED,
        "false",
        STREAM,
        "For `consume`, messages that somebody had deferred without a claim when the query started: `false` leaves them, "
        "`true` reads them too, `fail` fails if there are any. What a query claimed itself and lost in a crash is always read again.",
    ),
    SourceOption(
        VISIBILITY_LAG,
        "0s",
        BOTH,
        "Leave messages for later that are younger than this. Not for `consume`, nor for dead letters.",
    ),
)
