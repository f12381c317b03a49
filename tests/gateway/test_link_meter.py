"""What a link did is in the book, message by message or added up, and none of it is missing or counted twice."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.performatives import Open
from twinbus.amqp.codec.types import Symbol, Value
from twinbus.broker.consumer import TakenMessage
from twinbus.gateway.addresses import resolve
from twinbus.gateway.links.link_meter import OVERHEAD, UNMETERED, LinkMeter, who_of
from twinbus.meter.book import OperationsBook
from twinbus.meter.operation import NO_FRAGMENT, UNIT_BYTES, WHO_LENGTH_MAX, Cause, EntityType, Operation
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import Message
from twinbus.model.paths import parse_address
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.changes import StoredMessage
from twinbus.testing.messages import make_message
from twinbus.testing.sim_clock import SimClock
from twinbus.testing.simulation import Simulation

Totals = Counter[tuple[Cause, int, str]]

BODY_OVERHEAD = len(make_message("m", body=bytes(UNIT_BYTES)).content) - OVERHEAD - UNIT_BYTES


def message_of(size: int) -> Message:
    """A message whose content has this many bytes."""
    made = make_message("m", body=bytes(size - BODY_OVERHEAD))
    assert len(made.content) - OVERHEAD == size
    return made


SMALL = make_message("m", body=b"abc")
UNIT, MORE_THAN_A_UNIT, TWO_UNITS, FOUR_UNITS = (
    message_of(size) for size in (UNIT_BYTES, UNIT_BYTES + 1, 2 * UNIT_BYTES, 200_000)
)
PING = make_message("m", is_ping=True, body=b"?")
UNITS = {id(SMALL): 1, id(UNIT): 1, id(MORE_THAN_A_UNIT): 2, id(TWO_UNITS): 2, id(FOUR_UNITS): 4, id(PING): 1}

SIZES = [SMALL, SMALL, SMALL, UNIT, MORE_THAN_A_UNIT, TWO_UNITS, FOUR_UNITS, PING]
bursts = st.lists(st.sampled_from(SIZES), max_size=8)
fragments = st.integers(0, 3)
reports = st.one_of(
    st.tuples(st.just("sent"), bursts, fragments, st.sampled_from([Cause.SEND, Cause.SCHEDULE])),
    st.tuples(st.just("sent again"), bursts, fragments, st.just(Cause.SEND)),
    st.tuples(st.just("committed"), bursts, fragments, st.sampled_from([Cause.SEND, Cause.SCHEDULE])),
    st.tuples(st.just("delivered"), bursts, fragments, st.just(Cause.RECEIVE)),
    st.tuples(st.just("shown"), bursts, fragments, st.just(Cause.PEEK)),
    st.tuples(st.just("paged"), bursts, fragments, st.just(Cause.PEEK)),
    st.tuples(st.just("settled"), bursts, fragments, st.just(Cause.SETTLE)),
    st.tuples(st.just("asked"), bursts, fragments, st.just(Cause.SEND)),
    st.tuples(st.just("time"), bursts, fragments, st.just(Cause.SEND)),
)


def meter_on(book: OperationsBook, *, is_partitioned: bool = False) -> LinkMeter:
    return LinkMeter(book, "orders", EntityType.QUEUE, "tests", is_partitioned=is_partitioned)


def added(rows: Sequence[Operation]) -> Totals:
    found: Totals = Counter()
    for row in rows:
        place = row.cause, row.fragment
        found[*place, "operations"] += row.operations
        found[*place, "messages"] += row.messages
        found[*place, "bytes"] += row.size
        found[*place, "units"] += row.units
    return +found


def expected(cause: Cause, fragment: int, messages: Sequence[Message]) -> Totals:
    found: Totals = Counter()
    for message in messages:
        is_ping = message.is_ping and cause in (Cause.SEND, Cause.SCHEDULE)
        place = Cause.PING if is_ping else cause, fragment
        found[*place, "operations"] += 1
        found[*place, "messages"] += 1
        found[*place, "bytes"] += len(message.content) - OVERHEAD
        found[*place, "units"] += UNITS[id(message)]
    return found


def settlements(count: int) -> Totals:
    place = Cause.SETTLE, NO_FRAGMENT
    return Counter({(*place, "operations"): count, (*place, "messages"): count})


def numbers_in(fragment: int, count: int) -> list[int]:
    return [(fragment << SEQUENCE_BITS) + place + 1 for place in range(count)]


def stored(fragment: int, messages: Sequence[Message]) -> list[StoredMessage]:
    numbers = numbers_in(fragment, len(messages))
    return [StoredMessage(number, each.content, 0, 0) for number, each in zip(numbers, messages, strict=True)]


def deliveries(fragment: int, messages: Sequence[Message]) -> list[TakenMessage]:
    return [TakenMessage(each, b"", 0) for each in stored(fragment, messages)]


@pytest.mark.rule("D1")
@given(st.lists(reports, max_size=25), st.sampled_from([0, 3, 20, 10_000]), st.booleans())
def test_counts_bytes_and_units_are_exact_at_every_rate(
    told: list[tuple[str, list[Message], int, Cause]], exact_max: int, is_partitioned: bool
) -> None:
    clock = SimClock()
    book = OperationsBook(clock, exact_max)
    meter = meter_on(book, is_partitioned=is_partitioned)
    rows: list[Operation] = []
    wanted: Totals = Counter()
    for kind, burst, fragment, cause in told:
        if not is_partitioned:
            fragment = 0
        match kind:
            case "sent":
                meter.sent(burst, numbers_in(fragment, len(burst)), cause)
                wanted += expected(cause, fragment, burst)
            case "sent again":
                meter.sent(burst, [0] * len(burst))
                wanted += expected(cause, NO_FRAGMENT, burst)
            case "committed":
                meter.sent(burst, None, cause, fragment)
                wanted += expected(cause, fragment, burst)
            case "delivered":
                meter.delivered(deliveries(fragment, burst))
                wanted += expected(cause, fragment, burst)
            case "shown" if burst:
                meter.peeked(stored(fragment, burst))
                wanted += expected(cause, fragment, burst)
            case "paged" if burst:
                meter.paged([len(message.content) for message in burst], fragment)
                wanted += expected(cause, fragment, burst)
            case "settled":
                meter.settled(len(burst))
                wanted += settlements(len(burst))
            case "asked":
                book.write_down()
            case "time":
                clock.advance(700)
                rows += book.take(is_behind=fragment == 3)
    assert added(rows + book.take_all()) == wanted


@pytest.mark.rule("D1")
@pytest.mark.parametrize("exact_max", [0, 1_000])
@pytest.mark.parametrize("cause", [Cause.SEND, Cause.SCHEDULE])
@pytest.mark.parametrize("burst", [[SMALL], [SMALL, UNIT], [SMALL, MORE_THAN_A_UNIT], [TWO_UNITS], [PING, SMALL]])
def test_what_is_sent_and_what_is_scheduled_are_counted_apart(
    exact_max: int, cause: Cause, burst: list[Message]
) -> None:
    book = OperationsBook(SimClock(), exact_max)
    meter = meter_on(book, is_partitioned=True)
    meter.sent(burst, numbers_in(2, len(burst)), cause)
    meter.sent(burst, None, cause, 3)
    assert added(book.take_all()) == expected(cause, 2, burst) + expected(cause, 3, burst)


@pytest.mark.rule("D1")
@pytest.mark.parametrize("exact_max", [0, 1_000])
@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("burst", [[SMALL], [SMALL, UNIT], [SMALL, MORE_THAN_A_UNIT]])
def test_what_is_delivered_peeked_and_settled_is_counted_apart(
    exact_max: int, is_partitioned: bool, burst: list[Message]
) -> None:
    book = OperationsBook(SimClock(), exact_max)
    meter = meter_on(book, is_partitioned=is_partitioned)
    fragment = 2 if is_partitioned else 0
    meter.delivered(deliveries(fragment, burst))
    meter.peeked(stored(fragment, burst))
    meter.paged([len(message.content) for message in burst], fragment)
    meter.settled(len(burst))
    shown = expected(Cause.PEEK, fragment, burst)
    wanted = expected(Cause.RECEIVE, fragment, burst) + shown + shown + settlements(len(burst))
    assert added(book.take_all()) == wanted


@pytest.mark.rule("D1")
@pytest.mark.parametrize("exact_max", [0, 1_000])
def test_a_burst_with_duplicates_counts_where_the_rest_of_it_lies(exact_max: int) -> None:
    book = OperationsBook(SimClock(), exact_max)
    number = numbers_in(5, 1)[0]
    for numbers in ([0, number, 0], [0, 0, number], [number, 0, 0]):
        meter_on(book, is_partitioned=True).sent([SMALL] * 3, numbers)
        found = book.take_all()
        assert {row.fragment for row in found} == {5}
        assert sum(row.operations for row in found) == 3
        if exact_max:
            assert [row.sequence_number for row in found] == [each or None for each in numbers]


@pytest.mark.rule("D1")
def test_deliveries_of_several_fragments_count_in_their_own() -> None:
    book = OperationsBook(SimClock(), exact_per_second_max=0)
    meter_on(book, is_partitioned=True).delivered(deliveries(2, [SMALL, FOUR_UNITS]) + deliveries(7, [SMALL]))
    assert added(book.take_all()) == expected(Cause.RECEIVE, 2, [SMALL, FOUR_UNITS]) + expected(
        Cause.RECEIVE, 7, [SMALL]
    )


@pytest.mark.rule("D1")
@pytest.mark.parametrize(
    ("cause", "count", "size", "units"),
    [
        (Cause.RENEW, 3, 0, 3),
        (Cause.RENEW, 1, 0, 1),
        (Cause.SESSION, 1, UNIT_BYTES, 1),
        (Cause.SESSION, 1, UNIT_BYTES + 1, 2),
    ],
)
def test_operations_of_which_only_the_count_is_known_have_a_unit_each_and_one_with_a_size_those_of_that(
    cause: Cause, count: int, size: int, units: int
) -> None:
    assert cause.is_billed
    book = OperationsBook(SimClock())
    meter_on(book).counted(cause, count, size=size)
    (row,) = book.take_all()
    assert (row.operations, row.size, row.units) == (count, size, units)


@pytest.mark.rule("D1")
@pytest.mark.parametrize(("count", "row_count"), [(2, 2), (3, 3), (4, 1)])
def test_a_burst_has_rows_of_its_own_up_to_the_limit_of_a_second(count: int, row_count: int) -> None:
    def rows_of(do: Callable[[LinkMeter], None]) -> list[int]:
        book = OperationsBook(SimClock(), exact_per_second_max=3)
        do(meter_on(book))
        return [row.operations for row in book.take_all()]

    messages = [SMALL] * count
    expected_rows = [count // row_count] * row_count
    assert rows_of(lambda meter: meter.sent(messages, numbers_in(0, count))) == expected_rows
    assert rows_of(lambda meter: meter.delivered(deliveries(0, messages))) == expected_rows
    assert rows_of(lambda meter: meter.peeked(stored(0, messages))) == expected_rows


def test_above_the_limit_nothing_of_a_message_is_held() -> None:
    book = OperationsBook(SimClock(), exact_per_second_max=2)
    meter = meter_on(book)
    burst, received = [make_message(str(place)) for place in range(3)], deliveries(0, [SMALL] * 3)
    before = [sys.getrefcount(held) for held in (burst, burst[0], burst[0].content, received, received[0].message)]
    meter.sent(burst, [1, 2, 3])
    meter.delivered(received)
    after = [sys.getrefcount(held) for held in (burst, burst[0], burst[0].content, received, received[0].message)]
    assert after == before


def test_a_link_asks_to_be_asked_once_for_many_bursts() -> None:
    class CountingBook(OperationsBook):
        asked = 0

        def ask_soon(self, reporter: object) -> None:
            self.asked += 1
            super().ask_soon(reporter)  # type: ignore[arg-type]

    book = CountingBook(SimClock(), exact_per_second_max=2)
    meter = meter_on(book)
    for burst in ([SMALL], [SMALL] * 3):
        for _ in range(4):
            meter.sent(burst, numbers_in(0, len(burst)))
            meter.delivered(deliveries(0, burst))
            meter.settled(len(burst))
    assert book.asked == 1
    book.write_down()
    assert book.asked == 1
    meter.settled(1)
    assert book.asked == 2


def test_without_a_book_a_meter_accepts_everything_and_keeps_nothing() -> None:
    before = sys.getrefcount(SMALL.content)
    UNMETERED.sent([SMALL], [1])
    UNMETERED.delivered(deliveries(0, [SMALL]))
    UNMETERED.settled(1)
    UNMETERED.handed_out(stored(0, [SMALL]))
    UNMETERED.peeked(stored(0, [SMALL]))
    UNMETERED.peeked([])
    UNMETERED.counted(Cause.EMPTY_RECEIVE)
    after = sys.getrefcount(SMALL.content)
    assert after == before


@pytest.mark.parametrize(
    ("path", "expected_type"),
    [
        ("q", EntityType.QUEUE),
        ("q/$deadletterqueue", EntityType.QUEUE),
        ("t", EntityType.TOPIC),
        ("t/subscriptions/s", EntityType.SUBSCRIPTION),
        ("t/subscriptions/s/$deadletterqueue", EntityType.SUBSCRIPTION),
    ],
)
def test_a_row_says_of_what_kind_its_entity_is(path: str, expected_type: EntityType) -> None:
    sim, book = Simulation(1), OperationsBook(SimClock())
    sim.queue(QueueDescription("q"))
    sim.topic(TopicDescription("t"))
    sim.subscription(SubscriptionDescription("t", "s"))
    meter = LinkMeter.of(book, resolve(sim.entities, parse_address(path)), "tests")
    meter.delivered(deliveries(0, [SMALL]))
    assert {row.entity_type for row in book.take_all()} == {expected_type}


@pytest.mark.parametrize(
    ("properties", "who"),
    [
        ({"product": "an sdk", "user-agent": "checkout an-sdk/7.15"}, "checkout"),
        ({"product": "an sdk"}, "an sdk"),
        ({}, "container"),
        (None, "container"),
        ({"product": "p" * 1_000}, "p" * WHO_LENGTH_MAX),
    ],
    ids=["user agent", "product", "neither", "nothing", "long"],
)
def test_a_client_is_called_what_it_calls_itself(properties: dict[str, str] | None, who: str) -> None:
    said: dict[Value, Value] | None = None
    if properties is not None:
        said = {Symbol(name): value for name, value in properties.items()}
    assert who_of(Open(container_id="container", properties=said)) == who
