"""Creating and deleting all fragments of an entity, or none (contract A6). Those in stores of other processes are left to them, and
only known here: a store may change hands."""

from collections.abc import Collection, Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import check_all_available
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.operations.steps import Steps, commit_each
from twinbus.errors import FragmentUnavailable
from twinbus.store.changes import FragmentCreated, FragmentDeleted


def create_fragments(fragments: Sequence[Fragment], elsewhere: Collection[int] | None = ()) -> Steps[None]:
    """Create them everywhere. Should a store fail meanwhile, those that were created elsewhere are deleted again."""
    check_all_available(fragments, elsewhere)
    groups = _by_broker(fragments)
    foreign = _by_broker(fragments, foreign=True)
    if not groups:
        for broker, part in foreign:
            broker.add(part)
        return
    try:
        now = yield from commit_each(
            [(broker, [FragmentCreated(each.key) for each in part]) for broker, part in groups]
        )
    except FragmentUnavailable:
        for broker, part in groups:
            # Nobody waits for it: what was asked for has failed, whether this succeeds or not. A fragment left over in a
            # store that failed is empty and belongs to an id that is never used again.
            broker.commit([FragmentDeleted(each.key) for each in part], None, None)
        raise
    for broker, part in groups:
        broker.adopt(part, now)
    for broker, part in foreign:
        broker.add(part)


def delete_fragments(fragments: Sequence[Fragment], elsewhere: Collection[int] | None = ()) -> Steps[None]:
    """Delete them everywhere; what comes for them meanwhile is refused, or goes with them.

    Should a store fail meanwhile, those that are gone are created again, empty; deleting again deletes all.
    """
    check_all_available(fragments, elsewhere)
    groups = _by_broker(fragments)
    foreign = _by_broker(fragments, foreign=True)
    if groups:
        for broker, part in groups:
            broker.part_with(part)
        try:
            yield from commit_each([(broker, [FragmentDeleted(each.key) for each in part]) for broker, part in groups])
        except FragmentUnavailable:
            for broker, part in groups:
                broker.keep(part)
            raise
    for fragment in fragments:
        fragment.settings.is_deleted = True  # before it is dropped: whoever loses something with it is told why
    for broker, part in [*groups, *foreign]:
        broker.remove(part)


def _by_broker(fragments: Sequence[Fragment], *, foreign: bool = False) -> list[tuple[MessageBroker, list[Fragment]]]:
    groups: dict[int, tuple[MessageBroker, list[Fragment]]] = {}
    for fragment in fragments:
        if fragment.broker.is_foreign is not foreign:
            continue
        groups.setdefault(fragment.broker.index, (fragment.broker, []))[1].append(fragment)
    return list(groups.values())
