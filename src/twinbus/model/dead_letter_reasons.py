"""Why the broker itself moves a message to a dead-letter queue: the names that applications compare, and the texts beside them.

A receiver gives reasons of its own. A message that cannot be forwarded gets the name of the error as its reason.
"""

from twinbus.model.message_limits import HEADER_SIZE_MAX

MAX_DELIVERY_COUNT_EXCEEDED = "MaxDeliveryCountExceeded"
TTL_EXPIRED = "TTLExpiredException"
HEADER_SIZE_EXCEEDED = "HeaderSizeExceeded"
SESSION_ID_IS_NULL = "Session ID is null"
HOP_COUNT_EXCEEDED = "MaxTransferHopCountExceeded"
FILTER_FAILED = "FilterError"

TTL_EXPIRED_TEXT = "The message expired and was dead lettered."
HEADER_SIZE_EXCEEDED_TEXT = f"Properties that were set made all before the body larger than {HEADER_SIZE_MAX} bytes."
SESSION_ID_IS_NULL_TEXT = "The subscription requires message sessions and the message has no session id."


def max_delivery_count_text(delivery_count: int, limit: int) -> str:
    often = "once" if delivery_count == 1 else f"{delivery_count} times"
    return f"The message was delivered {often} without being completed; the limit is {limit}."


def hop_count_text(limit: int) -> str:
    return f"The message was forwarded {limit} times, which is the limit. Shorten the chain of forwarding."
