"""The ledger balances when nothing goes wrong, and says so when something does."""

from dataclasses import replace

import pytest

from twinbus.rehearsal.entities import EntityKind, RehearsedEntity, rehearsed_entities
from twinbus.rehearsal.ledger import Arrival, Ledger, LedgerLine, Sender
from twinbus.rehearsal.traffic import PlannedMessage

ENTITIES = {entity.kind: entity for entity in rehearsed_entities("")}
ORDINARY, PARTITIONED = ENTITIES[EntityKind.ORDINARY], ENTITIES[EntityKind.PARTITIONED]
SESSIONS, TOPIC = ENTITIES[EntityKind.SESSIONS], ENTITIES[EntityKind.TOPIC]


class Book:
    """A ledger, and messages that are sent and received in one line."""

    def __init__(self) -> None:
        self.ledger = Ledger(ENTITIES.values())
        self.planned: dict[str, PlannedMessage] = {}

    def accept(self, number: int, entity: RehearsedEntity = PARTITIONED, session_id: str | None = None) -> str:
        name = self.attempt(number, entity, session_id)
        self.ledger.accepted(name)
        return name

    def attempt(self, number: int, entity: RehearsedEntity = PARTITIONED, session_id: str | None = None) -> str:
        planned = PlannedMessage(number, float(number), entity, 0, 100, session_id)
        name = self.ledger.sending(planned, Sender.PAIRED)
        self.planned[name] = planned
        return name

    def arrival(self, name: str, sequence_number: int = 1) -> Arrival:
        planned = self.planned[name]
        return Arrival(name, sequence_number, planned.session_id, planned.partition_key, planned.body(name))

    def deliver(self, name: str, sequence_number: int = 1, outlet: str | None = None) -> None:
        self.ledger.delivered(outlet or self.planned[name].entity.outlets[0], self.arrival(name, sequence_number))

    def line(self, outlet: str) -> LedgerLine:
        lines = self.ledger.balance().lines
        return next(line for line in lines if (line.sender, line.outlet) == (Sender.PAIRED, outlet))


@pytest.fixture
def book() -> Book:
    return Book()


def test_it_balances_when_all_that_was_accepted_is_somewhere(book: Book) -> None:
    names = [book.accept(number) for number in range(3)]
    book.deliver(names[0])
    book.ledger.waiting("partitioned", [book.arrival(names[1])])
    book.ledger.dead_lettered("partitioned", [book.arrival(names[2])])
    line = book.line("partitioned")
    assert (line.accepted, line.delivered, line.waiting, line.dead_lettered, line.lost) == (3, 1, 1, 1, 0)
    assert book.ledger.balance().is_balanced


def test_a_message_that_is_nowhere_is_lost(book: Book) -> None:
    book.deliver(book.accept(1))
    book.accept(2)
    assert book.ledger.outstanding() == 1
    assert book.line("partitioned").lost == 1
    assert not book.ledger.balance().is_balanced


def test_what_is_outstanding_is_known_at_any_time_whatever_comes_first(book: Book) -> None:
    early, late = book.attempt(1, TOPIC), book.accept(2)
    audit, billing = TOPIC.outlets
    book.deliver(early, outlet=audit)
    assert book.ledger.outstanding() == 1
    book.ledger.accepted(early)  # its sender reads the answer after a receiver has it
    assert book.ledger.outstanding() == 2
    book.deliver(late)
    book.deliver(late)
    book.deliver(early, outlet=billing)
    assert book.ledger.outstanding() == 0


def test_a_subscription_that_misses_a_message_of_its_topic_has_lost_it(book: Book) -> None:
    name = book.accept(1, TOPIC)
    audit, billing = TOPIC.outlets
    book.deliver(name, outlet=audit)
    assert (book.line(audit).lost, book.line(billing).lost) == (0, 1)


def test_a_refused_message_owes_nothing_and_is_unconfirmed_if_it_comes(book: Book) -> None:
    book.attempt(1)
    book.deliver(book.attempt(2))
    line = book.line("partitioned")
    assert (line.accepted, line.delivered, line.lost, line.unconfirmed) == (0, 0, 0, 1)
    assert line.is_balanced


def test_a_second_number_is_a_duplicate_and_the_same_number_a_redelivery(book: Book) -> None:
    name = book.accept(1)
    for sequence_number in (5, 5, 9):
        book.deliver(name, sequence_number)
    line = book.line("partitioned")
    assert (line.delivered, line.duplicates, line.redelivered) == (1, 1, 1)
    assert line.is_balanced


def test_a_copy_that_is_left_behind_is_a_duplicate_too(book: Book) -> None:
    name = book.accept(1)
    book.deliver(name, 5)
    book.ledger.waiting("partitioned", [book.arrival(name, 6)])
    assert book.line("partitioned").duplicates == 1


def test_copies_that_nobody_received_are_duplicates_too(book: Book) -> None:
    first, second = book.accept(1, ORDINARY), book.accept(2, ORDINARY)
    book.ledger.waiting("ordinary", [book.arrival(first, 5), book.arrival(first, 6), book.arrival(second, 7)])
    book.ledger.dead_lettered("ordinary", [book.arrival(second, 8)])
    assert book.line("ordinary").duplicates == 2
    assert not book.ledger.balance().is_balanced


def test_a_duplicate_where_duplicates_are_detected_does_not_balance(book: Book) -> None:
    name = book.accept(1, ORDINARY)
    book.deliver(name, 5)
    assert book.ledger.balance().is_balanced
    book.deliver(name, 6)
    assert not book.ledger.balance().is_balanced


@pytest.mark.parametrize(
    "change", [{"body": b"other"}, {"session_id": "s"}, {"partition_key": "k"}], ids=["body", "session", "key"]
)
def test_a_message_that_is_not_what_was_sent_does_not_balance(book: Book, change: dict[str, object]) -> None:
    name = book.accept(1)
    book.ledger.delivered("partitioned", replace(book.arrival(name), **change))  # type: ignore[arg-type]
    assert book.line("partitioned").altered == 1
    assert not book.ledger.balance().is_balanced


def test_a_stranger_does_not_balance(book: Book) -> None:
    stranger = Arrival("somebody-else", 1, None, None, b"")
    book.ledger.delivered("partitioned", stranger)
    assert book.ledger.balance().strangers == ("somebody-else",)
    assert not book.ledger.balance().is_balanced


def test_what_waits_in_the_backlog_waits_for_every_outlet_of_its_entity(book: Book) -> None:
    book.ledger.in_backlog([book.accept(1, TOPIC)])
    book.ledger.in_backlog([book.accept(2)], is_dead_lettered=True)
    assert [book.line(outlet).waiting for outlet in TOPIC.outlets] == [1, 1]
    assert book.line("partitioned").dead_lettered == 1
    assert book.ledger.balance().is_balanced


def test_messages_of_a_session_that_come_after_a_later_one_are_counted(book: Book) -> None:
    names = [book.accept(number, SESSIONS, "s") for number in range(4)]
    other = book.accept(9, SESSIONS, "t")
    for place, name in enumerate([names[0], other, names[3], names[1], names[2]]):
        book.deliver(name, place)
    book.deliver(names[1], 3)  # again: its place was counted
    assert book.line("sessions").reordered == 2
    orders = {each.session_id: (each.delivered, each.reordered) for each in book.ledger.balance().sessions}
    assert orders == {"s": (4, 2), "t": (1, 0)}
    assert book.ledger.balance().is_balanced
