"""What a peer's open, begin and attach may take of memory, where they stay."""

import pytest

from tests.attack.attacker import attach, frame
from twinbus.amqp.codec.delivery_state import Accepted
from twinbus.amqp.codec.frames import AMQP_HEADER
from twinbus.amqp.codec.performatives import RECEIVER, Attach, Begin, Detach, Open
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.codec.types import Array, Described, Symbol, ULong, Value
from twinbus.amqp.connection import Connection, Role, State
from twinbus.amqp.connection_settings import ConnectionSettings
from twinbus.amqp.errors import RESOURCE_LIMIT_EXCEEDED
from twinbus.amqp.events import LinkAttached
from twinbus.amqp.lasting import ELEMENTS_MAX, SIZE_MAX, STRANGER_SIZE_MAX

BEGIN = Begin(next_outgoing_id=0, incoming_window=5_000, outgoing_window=5_000)
LISTS: list[Value] = [[] for _ in range(60_000)]


@pytest.fixture
def connection() -> Connection:
    connection = Connection(Role.SERVER, ConnectionSettings(container_id="test"), 0)
    connection.receive_data(AMQP_HEADER + frame(Open(container_id="peer")) + frame(BEGIN), 0)
    assert connection.state is State.OPEN
    return connection


def attach_with(**fields: object) -> bytes:
    whole = {"source": Source(address="q"), "target": Target(), "name": "n", "handle": 0, "role": RECEIVER, **fields}
    return frame(Attach(**whole))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        attach_with(properties={Symbol("a"): LISTS}),
        attach_with(properties={Symbol("a"): [[None] * ELEMENTS_MAX, []]}),
        attach_with(properties={Symbol(str(number)): None for number in range(ELEMENTS_MAX + 1)}),
        attach_with(source=Source(address="q", filter={Symbol("a"): [None] * ELEMENTS_MAX})),
        attach_with(
            source=Source(address="q", filter={Symbol("a"): Described(Symbol("b"), [None] * (ELEMENTS_MAX + 1))})
        ),
        attach_with(source=Source(address="q", capabilities=tuple(["c"] * (ELEMENTS_MAX + 1)))),
        attach_with(properties={Symbol("a"): Array([1] * ELEMENTS_MAX)}),
        attach_with(name="n" * SIZE_MAX),
        frame(
            Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1, properties={Symbol("a"): LISTS}), channel=1
        ),
    ],
    ids=["many", "nested", "properties", "filter", "described", "capabilities", "array", "name", "begin"],
)
def test_a_frame_that_would_stay_and_take_much_closes_the_connection(connection: Connection, said: bytes) -> None:
    connection.receive_data(said, 0)
    assert connection.state is not State.OPEN
    assert RESOURCE_LIMIT_EXCEEDED.encode() in connection.data_to_send()


def test_an_open_that_would_take_much_closes_the_connection() -> None:
    connection = Connection(Role.SERVER, ConnectionSettings(container_id="test"), 0)
    connection.receive_data(AMQP_HEADER + frame(Open(container_id="peer", properties={Symbol("a"): LISTS})), 0)
    assert connection.remote_open is None


def test_what_clients_attach_has_room(connection: Connection) -> None:
    properties: dict[Value, Value] = {
        Symbol(f"com.microsoft:{number}"): "x" * 100 for number in range(ELEMENTS_MAX // 2)
    }
    connection.receive_data(attach_with(properties=properties), 0)
    assert connection.state is State.OPEN


@pytest.mark.parametrize(("count", "has_room"), [(ELEMENTS_MAX, True), (ELEMENTS_MAX + 1, False)])
def test_elements_count_in_all_lists_and_maps_together(connection: Connection, count: int, has_room: bool) -> None:
    connection.receive_data(attach_with(properties={Symbol("a"): [[None] * (count - 2)]}), 0)
    assert (connection.state is State.OPEN) is has_room


def test_unsettled_deliveries_that_a_peer_names_take_nothing(connection: Connection) -> None:
    """A link has nothing to resume here, however much a client has left unsettled on one that it lost."""
    accepted = Described(ULong(Accepted.CODE), [])
    unsettled = {number.to_bytes(16): accepted for number in range(2_500)}
    said = attach_with(unsettled=unsettled, incomplete_unsettled=True)
    assert SIZE_MAX < len(said) < connection.settings.frame_size_max
    (attached,) = connection.receive_data(said, 0)
    assert isinstance(attached, LinkAttached)
    assert attached.link.attach.unsettled is None
    assert attached.link.source == Source(address="q")


def test_what_stays_beside_unsettled_deliveries_has_its_limits(connection: Connection) -> None:
    connection.receive_data(attach_with(name="n" * SIZE_MAX, unsettled={b"tag": None}), 0)
    assert connection.state is not State.OPEN


def test_a_stranger_names_no_unsettled_deliveries_without_end(connection: Connection) -> None:
    connection.restrain()
    unsettled = {number.to_bytes(16): None for number in range(STRANGER_SIZE_MAX // 16)}
    connection.receive_data(attach_with(unsettled=unsettled), 0)
    assert connection.state is not State.OPEN


def test_a_stranger_has_little_for_all_of_them_together(connection: Connection) -> None:
    connection.restrain()
    said = attach("n" * 1_000, 0, Target(address="$cbs")) + frame(Detach(handle=0, closed=True))
    for _ in range(STRANGER_SIZE_MAX // 1_100):
        connection.receive_data(said, 0)
        assert connection.state is State.OPEN
    connection.trust()
    for _ in range(STRANGER_SIZE_MAX // 1_000):
        connection.receive_data(said, 0)
    assert connection.state is State.OPEN
    connection.restrain()
    for _ in range(3):
        connection.receive_data(said, 0)
    assert connection.state is not State.OPEN
