"""What was decided about rows of one fragment, collected into one commit.

Rows leave, change, or move to a dead-letter queue of the same fragment index: that lies in the same store, so a move is
one commit and a message is never in both places or in neither.
"""

from collections.abc import Callable, Mapping, Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hops import hops_of, with_hops, without_hops
from twinbus.clock import NEVER, Millis
from twinbus.errors import FragmentUnavailable
from twinbus.model import dead_letter_reasons, wire_names
from twinbus.model.content import with_annotations, with_application_properties
from twinbus.model.message import is_front_too_large
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import Altered, Change, Removed, StoredMessage


class Decision:
    """Messages given to it are out of their lane, or removed from it by the caller."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self._removed: list[int] = []
        self._altered: list[Change] = []
        self._altered_numbers: list[int] = []
        self._free: list[StoredMessage] = []
        self._moved: dict[int, tuple[Fragment, list[StoredMessage]]] = {}

    def remove(self, messages: Sequence[StoredMessage]) -> None:
        fragment = self.fragment
        fragment.count_rows(messages, -1)
        for message in messages:
            self._removed.append(message.sequence_number)
            fragment.deferred_locked.discard(message.sequence_number)

    def alter(
        self,
        message: StoredMessage,
        state: MessageState,
        *,
        due_at: Millis = 0,
        properties: Mapping[str, object] | None = None,
        annotations: Mapping[str, object] | None = None,
    ) -> bool:
        """A new state, the delivery count the message has by now, and new values of properties and annotations.

        False where those make the message too large: then it is dead-lettered instead, as it was.
        """
        fragment = self.fragment
        content = None
        if properties:
            content = with_application_properties(message.content, properties)
        if annotations:
            content = with_annotations(content or message.content, annotations)
        if content is not None and is_front_too_large(content):
            if fragment.dead_letters is not None:
                reason = dead_letter_reasons.HEADER_SIZE_EXCEEDED
                self.move(message, fragment.dead_letters, reason, dead_letter_reasons.HEADER_SIZE_EXCEEDED_TEXT)
                return False
            content = None  # a dead letter has nowhere to go, and keeps what it has
        fragment.count_state(message.state, -1)
        fragment.count_state(state, 1)
        if content is not None:
            fragment.size_bytes += len(content) - len(message.content)
            message.content = content
        message.state, message.due_at = state, due_at
        number = message.sequence_number
        fragment.deferred_locked.discard(number)
        self._altered_numbers.append(number)
        self._altered.append(
            Altered(fragment.key, number, state, message.delivery_count, due_at, message.expires_at, content)
        )
        return True

    def free(self, message: StoredMessage) -> None:
        """It goes back into its lane when the commit is durable."""
        self._free.append(message)

    def move(
        self,
        message: StoredMessage,
        target: Fragment,
        reason: str | None,
        description: str | None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """To a dead-letter queue: a new number there, which remembers the old one, and no more expiry."""
        self.remove([message])
        _, rows = self._moved.setdefault(target.key, (target, []))
        row = dead_letter_row(message, reason, description, properties)
        if target.forwards_to is None:
            row.enqueued_sequence_number = without_hops(row.enqueued_sequence_number)
        rows.append(row)

    def write(self, change: Change) -> None:
        """A change that concerns no row."""
        self._altered.append(change)

    def commit(
        self,
        effect: Callable[[], None] | None = None,
        failed: Callable[[FragmentUnavailable], None] | None = None,
    ) -> None:
        changes: list[Change] = []
        if self._removed:
            changes.append(Removed(self.fragment.key, self._removed))
        changes += self._altered
        changes += [target.number_rows(rows) for target, rows in self._moved.values()]

        def durable() -> None:
            for target, rows in self._moved.values():
                target.admit(rows, sum([len(row.content) for row in rows]))
            self.fragment.put_back(self._free)
            if effect is not None:
                effect()

        self.fragment.change(self._removed + self._altered_numbers, changes, durable, failed)


def dead_letter_row(
    message: StoredMessage,
    reason: str | None,
    description: str | None,
    properties: Mapping[str, object] | None = None,
) -> StoredMessage:
    reasons = {
        name: text
        for name, text in ((wire_names.DEAD_LETTER_REASON, reason), (wire_names.DEAD_LETTER_DESCRIPTION, description))
        if text is not None
    }
    changed = {**(properties or {}), **reasons}
    content = with_application_properties(message.content, changed) if changed else message.content
    if properties and is_front_too_large(content):
        # Why it is here matters more than what its receiver noted on it.
        content = with_application_properties(message.content, reasons)
    return StoredMessage(
        sequence_number=0,
        content=content,
        enqueued_at=message.enqueued_at,
        expires_at=NEVER,
        delivery_count=message.delivery_count,
        session_id=message.session_id,
        enqueued_sequence_number=_first_number(message),
    )


def _first_number(message: StoredMessage) -> int:
    """The number at the first point of submission, with the hops since then."""
    origin = message.enqueued_sequence_number
    return with_hops(without_hops(origin) or message.sequence_number, hops_of(origin))
