"""When two session ids mean the same message session: an id in, what it is compared by out.

Session ids are compared without case, as names of entities are: who accepts `order-7` gets the messages of `Order-7`. A message
keeps the id that it was sent with.
"""

from twinbus.model.partition_key import folded


def session_key(session_id: str) -> str:
    """The id in upper case, which is what the hash that places a message is taken of.

    So all messages of a session are in one fragment. With another fold they might not be: `casefold` makes the Kelvin sign
    a letter k, and the hash does not. Stores keep keys, so a change of this function needs a new version of their tables.
    """
    return folded(session_id)


def is_same_session(one: str | None, other: str | None) -> bool:
    return one == other if one is None or other is None else session_key(one) == session_key(other)
