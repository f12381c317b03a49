"""How large a message may be, and how many messages one request can ask for.

The namespace enforces these limits and clients keep to them. They need nothing else, so that a command line that only
shows one loads no codec.
"""

MESSAGE_SIZE_KB_DEFAULT = 256
"""Of one message, unless its queue or topic says otherwise."""
MESSAGE_SIZE_MAX = MESSAGE_SIZE_KB_DEFAULT * 1024

LARGE_MESSAGE_KB_MIN, LARGE_MESSAGE_KB_MAX = 1_025, 102_400
"""What a queue or topic may say instead: more than 1 MB, and no more than 100 MB."""
MESSAGE_SIZE_CEILING = LARGE_MESSAGE_KB_MAX * 1024

BATCH_SIZE_MAX = 1024 * 1024
"""Of a batch with several messages, however large a single message may be."""

BATCH_COUNT_MAX = 4_500
"""Messages in a batch, which is taken as a whole, and in a request that schedules messages. As many as the service takes."""

HEADER_SIZE_MAX = 64 * 1024
"""Of everything before the body."""

PROPERTY_SIZE_MAX = 32 * 1024

TIME_TO_LIVE_MAX = 2**32 - 1
"""Milliseconds that the header can hold; a longer one is in the properties (`lifetime` in `model.identity`)."""

DATE_MAX = 253_402_300_799_999
"""In milliseconds, the end of the year 9999: where clients let a message expire whose life is the longest they know."""

PEEK_COUNT_MAX = 250
"""Messages in one answer to the service's peek, and to a merged peek."""

RANGE_COUNT_MAX = 1_000
"""Messages in one page of a range."""

TIMES_COUNT_MAX = 256
"""Sequence numbers whose times can be asked for in one request."""
