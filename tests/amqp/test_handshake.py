from typing import Any

import pytest

from tests.amqp.wire import NOON, Script, Wire, frames_in
from twinbus.amqp.codec import sasl
from twinbus.amqp.codec.composites import Composite, encode_composite
from twinbus.amqp.codec.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, encode_frame
from twinbus.amqp.codec.performatives import Open
from twinbus.amqp.codec.sasl import SaslCode, SaslCredentials, decode_sasl, plain_credentials, read_plain
from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.amqp.events import ConnectionClosed, Opened, SaslInit


def sasl_frame(frame: Composite) -> bytes:
    return encode_frame(0, encode_composite(frame), SASL_FRAME)


def init(mechanism: str = "ANONYMOUS", response: bytes = b"") -> bytes:
    return sasl_frame(sasl.Init(mechanism=mechanism, initial_response=response))


OPEN = encode_frame(0, encode_composite(Open(container_id="peer")))


@pytest.mark.parametrize(
    "credentials",
    [SaslCredentials(), SaslCredentials("MSSBCBS"), plain_credentials("RootManageSharedAccessKey", "key"), None],
)
def test_a_connection_opens_with_each_mechanism_and_with_none(credentials: SaslCredentials | None) -> None:
    wire = Wire(client={"sasl_credentials": credentials}).open()
    assert wire.server.only(Opened).open.container_id == "client"
    assert wire.client.only(Opened).open.container_id == "server"


def test_the_application_sees_mechanism_and_response() -> None:
    wire = Wire(client={"sasl_credentials": plain_credentials("user", "pass:word")}).open()
    event = wire.server.only(SaslInit)
    assert event.mechanism == "PLAIN"
    assert event.hostname == "here"
    assert read_plain(event.initial_response) == ("", "user", "pass:word")


@pytest.mark.parametrize("response", [b"", b"user\0password", b"\0a\0b\0c", b"\0\xff\0"])
def test_a_plain_response_of_another_form_has_no_parts(response: bytes) -> None:
    assert read_plain(response) is None


def test_refused_credentials_end_the_connection_on_both_sides() -> None:
    wire = Wire()
    wire.sasl_code = SaslCode.AUTH
    wire.open()
    for end in (wire.client, wire.server):
        error = end.only(ConnectionClosed).error
        assert error is not None
        assert error.condition == "amqp:unauthorized-access"
        assert end.connection.should_disconnect
        assert not end.take(Opened)


def test_a_mechanism_that_was_not_offered_is_refused_without_asking_the_application() -> None:
    script = Script()
    script.feed(SASL_HEADER + init("CRAM-MD5"))
    assert not script.end.take(SaslInit)
    assert script.raw().endswith(sasl_frame(sasl.Outcome(code=SaslCode.AUTH)))
    assert script.connection.should_disconnect


def test_a_client_gives_up_if_its_mechanism_is_not_offered() -> None:
    wire = Wire(client={"sasl_credentials": SaslCredentials("EXTERNAL")}).open()
    error = wire.client.only(ConnectionClosed).error
    assert error is not None
    assert "MSSBCBS, PLAIN, ANONYMOUS" in str(error)


def test_a_client_with_credentials_opens_after_the_outcome_and_not_before() -> None:
    settings = ConnectionSettings(container_id="client", hostname="here", sasl_credentials=SaslCredentials())
    client = Connection(Role.CLIENT, settings, NOON)
    client.open()
    assert client.data_to_send() == SASL_HEADER
    client.receive_data(SASL_HEADER, NOON)
    assert client.data_to_send() == b""
    client.receive_data(sasl_frame(sasl.Mechanisms(sasl_server_mechanisms=("ANONYMOUS",))), NOON)
    answer = client.data_to_send()
    assert decode_sasl(answer[8:]) == sasl.Init(mechanism="ANONYMOUS", initial_response=b"", hostname="here")
    client.receive_data(sasl_frame(sasl.Outcome(code=SaslCode.OK)), NOON)
    start = client.data_to_send()
    assert start.startswith(AMQP_HEADER)
    ((_, performative, _),) = frames_in(start[len(AMQP_HEADER) :])
    assert isinstance(performative, Open)
    client.receive_data(AMQP_HEADER, NOON)
    assert client.data_to_send() == b""


def test_a_client_without_credentials_opens_at_once_and_once() -> None:
    client = Connection(Role.CLIENT, ConnectionSettings(container_id="client", sasl_credentials=None), NOON)
    client.open()
    start = client.data_to_send()
    assert start.startswith(AMQP_HEADER)
    assert [type(performative) for _, performative, _ in frames_in(start[len(AMQP_HEADER) :])] == [Open]
    client.receive_data(AMQP_HEADER, NOON)
    assert client.data_to_send() == b""


def test_the_server_offers_its_mechanisms_with_its_header() -> None:
    script = Script(sasl_mechanisms=("ANONYMOUS", "PLAIN"))
    script.feed(SASL_HEADER)
    answer = script.raw()
    assert answer[:8] == SASL_HEADER
    assert decode_sasl(answer[16:]) == sasl.Mechanisms(sasl_server_mechanisms=("ANONYMOUS", "PLAIN"))


def test_what_the_peer_sends_without_waiting_for_the_outcome_is_read_after_it() -> None:
    script = Script()
    script.feed(SASL_HEADER + init() + AMQP_HEADER + OPEN)
    assert [type(event) for event in script.end.events] == [SaslInit]
    events = script.connection.sasl_outcome(SaslCode.OK)
    assert [type(event) for event in events] == [Opened]


def test_nothing_is_read_while_the_application_decides() -> None:
    script = Script()
    script.feed(SASL_HEADER + init())
    script.raw()
    script.feed(AMQP_HEADER)
    assert script.raw() == b""
    script.connection.sasl_outcome(SaslCode.OK)
    assert script.raw() == sasl_frame(sasl.Outcome(code=SaslCode.OK)) + AMQP_HEADER


def test_a_peer_that_does_not_wait_for_the_outcome_is_kept_short() -> None:
    script = Script(frame_size_max=512)
    script.feed(SASL_HEADER + init())
    script.feed(bytes(512))
    assert not script.connection.should_disconnect
    script.feed(b"x")
    assert script.connection.should_disconnect


def test_a_peer_without_sasl_is_served_unless_sasl_is_required() -> None:
    script = Script(is_sasl_required=True)
    script.feed(AMQP_HEADER)
    assert script.raw() == SASL_HEADER
    assert script.connection.should_disconnect


@pytest.mark.parametrize("header", [b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"GET / HT"])
def test_a_wrong_header_is_answered_with_ours_and_the_end(header: bytes) -> None:
    script = Script()
    script.feed(header + b"whatever follows")
    assert script.raw() == AMQP_HEADER
    assert script.connection.should_disconnect
    assert script.end.only(ConnectionClosed).error is not None
    script.feed(b"more of it")
    assert script.raw() == b""


def test_an_open_in_the_middle_of_sasl_does_not_open_the_connection() -> None:
    script = Script()
    script.feed(SASL_HEADER + OPEN)
    assert not script.end.take(Opened)
    assert script.connection.should_disconnect


@pytest.mark.parametrize(
    "frame",
    [
        sasl.Outcome(code=SaslCode.OK),
        sasl.Mechanisms(sasl_server_mechanisms=("PLAIN",)),
        sasl.Response(response=b""),
        sasl.Challenge(challenge=b""),
    ],
)
def test_a_server_takes_nothing_but_an_init(frame: Any) -> None:
    script = Script()
    script.feed(SASL_HEADER + sasl_frame(frame))
    assert script.connection.should_disconnect


def test_a_sasl_frame_after_the_exchange_closes_the_connection() -> None:
    script = Script().open()
    script.feed(init())
    error = script.end.only(ConnectionClosed).error
    assert error is not None
    assert error.condition == "amqp:illegal-state"


def test_a_client_refuses_a_server_that_answers_with_another_header() -> None:
    client = Connection(Role.CLIENT, ConnectionSettings(container_id="client"), NOON)
    client.open()
    assert client.data_to_send() == SASL_HEADER
    (closed,) = client.receive_data(AMQP_HEADER, NOON)
    assert isinstance(closed, ConnectionClosed)
    assert client.should_disconnect
