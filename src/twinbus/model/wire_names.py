"""Names that a namespace and its clients use on the wire, each spelled once for both sides.

The service defines those with `x-opt-`, `x-ms-` and `com.microsoft:`; those with `com.twinbus:` are ours, and a client that
knows nothing of them never meets one. Names of error conditions are with the errors, in `twinbus.errors`.
"""

from enum import IntEnum

# Message annotations. The broker alone writes the first group: a message that is received and sent again brings them back.

SEQUENCE_NUMBER = "x-opt-sequence-number"
ENQUEUED_TIME = "x-opt-enqueued-time"
ENQUEUED_SEQUENCE_NUMBER = "x-opt-enqueue-sequence-number"
LOCKED_UNTIL = "x-opt-locked-until"
MESSAGE_STATE = "x-opt-message-state"
DEAD_LETTER_SOURCE = "x-opt-deadletter-source"
PARTITION_ID = "x-opt-partition-id"

PARTITION_KEY = "x-opt-partition-key"
VIA_PARTITION_KEY = "x-opt-via-partition-key"
SCHEDULED_ENQUEUE_TIME = "x-opt-scheduled-enqueue-time"

TRANSFER_DESTINATION = "x-opt-transfer-destination"
"""Where a message that is sent via another entity is to go. Never leaves the broker."""

CLAIMED_BY = "x-opt-claimed-by"
"""The owner of a claim (`CLAIM`); an application property where a namespace does not know that operation."""

DELIVERY_TIME = "x-opt-delivery-time"
"""In a modified outcome: when the message comes again, at the earliest, in milliseconds since 1970. Not the service's."""

LOCK_TOKEN = "x-opt-lock-token"
"""A delivery annotation."""


class MessageState(IntEnum):
    """Values of `MESSAGE_STATE`."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


SEQUENCE_BITS = 48
"""A sequence number is `fragment << SEQUENCE_BITS | n`, where n counts from 1 in each fragment."""

# Application properties of a dead letter.

DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION = "DeadLetterErrorDescription"

# Properties and filters of links.

SESSION_FILTER = "com.microsoft:session-filter"
SELECTOR_FILTER = "apache.org:selector-filter:string"
SELECTOR_FILTER_CODE = 0x0000_468C_0000_0004
NON_EXCLUSIVE_SESSION_FILTER = "com.microsoft:non-exclusive-session-filter:list"
"""Descriptor of a filter that is a list of session id and lock token, both of which may be null."""
NON_EXCLUSIVE_SESSION_CODE = 0x137000000E
SESSION_LOCKED_UNTIL = "com.microsoft:locked-until-utc"
SESSION_TIMEOUT = "com.microsoft:timeout"
TRANSFER_DESTINATION_ADDRESS = "com.microsoft:transfer-destination-address"
BATCH_SIZE_MAX = "com.microsoft:max-message-batch-size"
BATCH_FORMAT = 0x80013700
"""The message-format of a batch: a message whose data sections each hold a whole message."""

DEAD_LETTER_CONDITION = "com.microsoft:dead-letter"
"""Condition of a rejected outcome by which a receiver dead-letters a message."""

# Operations of `$management`. A request may carry `SERVER_TIMEOUT`.

SERVER_TIMEOUT = "com.microsoft:server-timeout"

RENEW_LOCK = "com.microsoft:renew-lock"
UPDATE_DISPOSITION = "com.microsoft:update-disposition"
PEEK_MESSAGE = "com.microsoft:peek-message"
RECEIVE_BY_SEQUENCE_NUMBER = "com.microsoft:receive-by-sequence-number"
SCHEDULE_MESSAGE = "com.microsoft:schedule-message"
CANCEL_SCHEDULED_MESSAGE = "com.microsoft:cancel-scheduled-message"
RENEW_SESSION_LOCK = "com.microsoft:renew-session-lock"
GET_SESSION_STATE = "com.microsoft:get-session-state"
SET_SESSION_STATE = "com.microsoft:set-session-state"
GET_MESSAGE_SESSIONS = "com.microsoft:get-message-sessions"
BATCH_DELETE_MESSAGES = "com.microsoft:batch-delete-messages"
ADD_RULE = "com.microsoft:add-rule"
REMOVE_RULE = "com.microsoft:remove-rule"
ENUMERATE_RULES = "com.microsoft:enumerate-rules"

PEEK_MERGED = "com.twinbus:peek-merged"
PEEK_RANGE = "com.twinbus:peek-range"
PURGE = "com.twinbus:purge"
UNDEFER = "com.twinbus:undefer"
FRAGMENT_HEADS = "com.twinbus:fragment-heads"
ENQUEUED_TIMES = "com.twinbus:enqueued-times"
CLAIM = "com.twinbus:claim"
DELETE_CLAIMED = "com.twinbus:delete-claimed"
BACKLOG = "com.twinbus:backlog"
COUNT_SESSIONS = "com.twinbus:count-sessions"
REPAIR = "com.twinbus:repair"
PREVIEW_REPAIR = "com.twinbus:preview-repair"

ABANDON_DELAY = "com.twinbus:delay"
"""A field of `UPDATE_DISPOSITION`: how long an abandoned message stays hidden."""

# Pairing.

PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"

TRANSFER_SEGMENT = "x-servicebus-transfer"
"""Second part of the path of every backlog queue, behind the name of its primary."""

# Application properties of a message in a backlog queue: where it is to go, and what its sender set that would act there.

TRANSFER_PATH = "x-ms-path"
TRANSFER_SESSION_ID = "x-ms-sessionid"
TRANSFER_TIME_TO_LIVE = "x-ms-timetolive"
TRANSFER_SCHEDULED_ENQUEUE_TIME = "x-ms-scheduledenqueuetimeutc"
TRANSFER_FOLLOWS = "x-twinbus-follows"
"""Of a message session that went on in this backlog queue because another one failed: see `pairing/rewriting/stages.py`."""
