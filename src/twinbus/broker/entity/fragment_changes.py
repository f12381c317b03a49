"""Creating and deleting all fragments of an entity, or none (contract A6)."""

from collections.abc import Callable, Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.message_broker import MessageBroker
from twinbus.errors import FragmentUnavailable
from twinbus.store.changes import Change, FragmentCreated, FragmentDeleted

Done = Callable[[FragmentUnavailable | None], None]


def check_available(fragments: Sequence[Fragment]) -> None:
    """Raises the error of the first fragment whose store is ill."""
    for fragment in fragments:
        if not fragment.broker.is_available:
            raise fragment.broker.unavailable()


def create_fragments(fragments: Sequence[Fragment], done: Done) -> None:
    """Make them everywhere. Should a store fail meanwhile, those that were made elsewhere are taken away again."""

    def created(error: FragmentUnavailable | None) -> None:
        for broker, part in _by_broker(fragments):
            if error is None:
                broker.adopt(part)
            else:
                broker.commit([FragmentDeleted(fragment.key) for fragment in part], _as_it_is)
        done(error)

    if _can_be_changed(fragments, done):
        _commit_everywhere(fragments, lambda fragment: FragmentCreated(fragment.key), created)


def delete_fragments(fragments: Sequence[Fragment], done: Done) -> None:
    """Delete them everywhere; what comes for them meanwhile is refused, or goes with them.

    Should a store fail meanwhile, those that are gone are made anew, empty; deleting again deletes all.
    """
    groups = _by_broker(fragments)

    def deleted(error: FragmentUnavailable | None) -> None:
        for broker, part in groups:
            if error is None:
                broker.remove(part)
            else:
                broker.keep(part)
        done(error)

    if _can_be_changed(fragments, done):
        for broker, part in groups:
            broker.part_with(part)
        _commit_everywhere(fragments, lambda fragment: FragmentDeleted(fragment.key), deleted)


def _can_be_changed(fragments: Sequence[Fragment], done: Done) -> bool:
    """False if one of them is ill, and then `done` has been told."""
    try:
        check_available(fragments)
    except FragmentUnavailable as unavailable:
        done(unavailable)
        return False
    return True


def _commit_everywhere(fragments: Sequence[Fragment], change: Callable[[Fragment], Change], done: Done) -> None:
    groups = _by_broker(fragments)
    open_count = len(groups)
    first_error: FragmentUnavailable | None = None

    def committed(error: FragmentUnavailable | None) -> None:
        nonlocal open_count, first_error
        open_count -= 1
        first_error = first_error or error
        if open_count == 0:
            done(first_error)

    for broker, part in groups:
        broker.commit([change(fragment) for fragment in part], committed)


def _by_broker(fragments: Sequence[Fragment]) -> list[tuple[MessageBroker, list[Fragment]]]:
    groups: dict[int, tuple[MessageBroker, list[Fragment]]] = {}
    for fragment in fragments:
        groups.setdefault(fragment.broker.index, (fragment.broker, []))[1].append(fragment)
    return list(groups.values())


def _as_it_is(_: FragmentUnavailable | None) -> None:
    """A fragment left over in a store that failed is empty and belongs to an id that is never used again."""
