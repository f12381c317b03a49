"""Which fragment a lock token or a sequence number belongs to (contract A8)."""

from collections.abc import Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.locks import fragment_index_of
from twinbus.errors import MessageLockLost, MessageNotFound, NotAllowed
from twinbus.model.wire_names import SEQUENCE_BITS


def places_by_fragment(tokens: Sequence[bytes]) -> dict[int, Sequence[int]]:
    """Positions in `tokens` by index of the fragment; -1 for what is no token."""
    indexes = set(map(fragment_index_of, tokens))
    if len(indexes) == 1:
        return {indexes.pop(): range(len(tokens))}
    places: dict[int, list[int]] = {}
    for place, token in enumerate(tokens):
        places.setdefault(fragment_index_of(token), []).append(place)
    return dict(places)


def fragment_at(fragments: Sequence[Fragment], index: int) -> Fragment | None:
    return fragments[index] if 0 <= index < len(fragments) else None


def fragment_of_tokens(fragments: Sequence[Fragment], tokens: Sequence[bytes]) -> Fragment:
    """The one fragment that all of them belong to."""
    indexes = {fragment_index_of(token) for token in tokens}
    if len(indexes) > 1:
        raise _several_fragments("Settle")
    fragment = fragment_at(fragments, indexes.pop() if indexes else -1)
    if fragment is None:
        raise MessageLockLost("No message is locked with this token. Receive the message again.")
    return fragment


def fragment_of_numbers(fragments: Sequence[Fragment], numbers: Sequence[int]) -> Fragment:
    """The one fragment that all of them belong to."""
    indexes = {number >> SEQUENCE_BITS for number in numbers}
    if len(indexes) > 1:
        raise _several_fragments("Ask for")
    fragment = fragment_at(fragments, indexes.pop() if indexes else -1)
    if fragment is None:
        raise MessageNotFound("No message has this sequence number. Peek to see which ones there are.")
    if not fragment.is_available:
        raise fragment.broker.unavailable()
    return fragment


def _several_fragments(verb: str) -> NotAllowed:
    return NotAllowed(
        f"The messages lie in several parts of a partitioned entity. {verb} those with the same session id or "
        "partition key together, and others one by one."
    )
