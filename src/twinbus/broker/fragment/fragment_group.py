"""The fragments of one queue or topic together: which of them is meant, how full they are, which of them are there."""

from collections.abc import Collection, Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.locks import TOKEN_SIZE, fragment_index_of
from twinbus.broker.replies import QueueCounts
from twinbus.errors import FragmentUnavailable, MessageLockLost, MessageNotFound, NotAllowed
from twinbus.model.wire_names import SEQUENCE_BITS

# Which one is meant (contract A8)


def places_by_fragment(tokens: Sequence[bytes]) -> dict[int, Sequence[int]]:
    """Positions in `tokens` by index of the fragment; -1 for what is not a token."""
    # Nearly always all are tokens of one fragment: their first bytes are the same then, as their sizes are.
    if len(tokens) > 1 and len({token[:1] for token in tokens}) == 1 and {*map(len, tokens)} == {TOKEN_SIZE}:
        return {fragment_index_of(tokens[0]): range(len(tokens))}
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


# How full they are


def counts_of(fragments: Sequence[Fragment]) -> QueueCounts:
    """The sum of those that are available. What another process owns, that one counts."""
    own = [fragment for fragment in fragments if not fragment.broker.is_foreign]
    served = [fragment for fragment in own if fragment.is_available]
    return QueueCounts(
        active=sum(fragment.tally.active_count for fragment in served),
        deferred=sum(fragment.tally.deferred_count for fragment in served),
        scheduled=sum(fragment.tally.scheduled_count for fragment in served),
        size_bytes=sum(fragment.tally.size_bytes for fragment in served),
        is_limited=len(served) < len(own),
        is_unknown=not served,
    )


# Which of them are there


def check_all_available(fragments: Sequence[Fragment], elsewhere: Collection[int] | None = ()) -> None:
    """Raises FragmentUnavailable for the first fragment whose store is lost. For changes that all of them take part in.

    `elsewhere`: the stores of other processes that work; None where those do not matter.
    """
    for fragment in fragments:
        broker = fragment.broker
        if broker.is_foreign:
            is_there = elsewhere is None or broker.index in elsewhere
        else:
            is_there = broker.is_available
        if not is_there:
            raise FragmentUnavailable(
                f"'{fragment.settings.path}' has fragments in messaging store {fragment.broker.index}, which is "
                "unavailable. It can be created, changed and deleted when that store is back."
            )


def check_any_available(fragments: Sequence[Fragment]) -> None:
    """Raises FragmentUnavailable if none of them is available. For what needs an answer now."""
    if not any(fragment.is_available for fragment in fragments):
        raise fragments[0].broker.unavailable()


def check_any_store(fragments: Sequence[Fragment]) -> None:
    """Raises FragmentUnavailable if all of their stores are lost. For receivers, which can wait until a fragment is read
    from a store that has returned."""
    if not any(fragment.broker.is_available for fragment in fragments):
        raise fragments[0].broker.unavailable()
