"""Peeks at what is left at the end: in the entities, the backlog queues and their dead-letter queues."""

from collections.abc import Iterable, Iterator

from twinbus.client.blocking import BlockingNamespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.model.descriptions import FRAGMENT_COUNT
from twinbus.model.message_limits import PEEK_COUNT_MAX
from twinbus.model.paths import dead_letter_path
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.rehearsal.entities import SESSIONS, EntityKind, RehearsedEntity
from twinbus.rehearsal.ledger import Arrival, Ledger
from twinbus.rehearsal.stage import Stage


def note_remains(stage: Stage, entities: Iterable[RehearsedEntity], backlog: Iterable[str], ledger: Ledger) -> None:
    with BlockingNamespace.connect(stage.primary.connection_string) as primary:
        for entity in entities:
            for outlet in entity.outlets:
                ledger.waiting(outlet, map(_arrival, _waiting(primary, entity, outlet)))
                ledger.dead_lettered(outlet, map(_arrival, _look(primary, dead_letter_path(outlet), entity)))
    with BlockingNamespace.connect(stage.secondary.connection_string) as secondary:
        for queue in backlog:
            ledger.in_backlog(_ids(_look(secondary, queue)))
            ledger.in_backlog(_ids(_look(secondary, dead_letter_path(queue))), is_dead_lettered=True)


def is_empty(stage: Stage, entities: Iterable[RehearsedEntity]) -> bool:
    """Whether nothing waits, locked or not, where the rehearsal receives."""
    with BlockingNamespace.connect(stage.primary.connection_string) as primary:
        return not any(
            next(_waiting(primary, entity, outlet), None) for entity in entities for outlet in entity.outlets
        )


def _waiting(namespace: BlockingNamespace, entity: RehearsedEntity, outlet: str) -> Iterator[ReceivedMessage]:
    if entity.kind is not EntityKind.SESSIONS:
        yield from _look(namespace, outlet, entity)
        return
    for session_id in SESSIONS:
        yield from _look(namespace, outlet, session_id=session_id)


def _look(
    namespace: BlockingNamespace, path: str, entity: RehearsedEntity | None = None, session_id: str | None = None
) -> Iterator[ReceivedMessage]:
    """Fragment by fragment: a page ends with its fragment, and the numbers of the next one are far higher."""
    is_partitioned = entity is not None and entity.kind is EntityKind.PARTITIONED
    node = namespace.entity(path)
    for fragment in range(FRAGMENT_COUNT if is_partitioned else 1):
        next_number = fragment << SEQUENCE_BITS
        while page := [
            message
            for message in namespace.run(node.peek(PEEK_COUNT_MAX, from_number=next_number, session_id=session_id))
            if not is_partitioned or (message.sequence_number or 0) >> SEQUENCE_BITS == fragment
        ]:
            yield from page
            next_number = max(message.sequence_number or 0 for message in page) + 1


def _arrival(message: ReceivedMessage) -> Arrival:
    body = message.body if isinstance(message.body, bytes) else b""
    return Arrival(
        str(message.message_id), message.sequence_number or 0, message.session_id, message.partition_key, body
    )


def _ids(messages: Iterable[ReceivedMessage]) -> Iterator[str]:
    return (str(message.message_id) for message in messages)
