import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.composites import Composite, encode_composite, to_described
from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.delivery_state import (
    ACCEPTED,
    Declared,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.error_condition import DESCRIPTION_LENGTH_MAX, ErrorCondition
from twinbus.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    ReceiverSettleMode,
    SenderSettleMode,
    Transfer,
    decode_performative,
)
from twinbus.amqp.codec.sasl import Mechanisms, Outcome, SaslCode
from twinbus.amqp.codec.terminus import Coordinator, Source, Target
from twinbus.amqp.codec.types import Array, Described, Int, Symbol, UInt, ULong
from twinbus.amqp.errors import DecodeError
from twinbus.errors import MessageLockLost

UINT = st.integers(0, 2**32 - 1)
TEXT = st.text(max_size=20)
SYMBOLS = st.lists(st.text("abc:-", min_size=1, max_size=8), min_size=1, max_size=3).map(tuple)
MAPS = st.dictionaries(TEXT.map(Symbol), st.none() | TEXT | st.booleans(), max_size=3)
ERRORS = st.builds(ErrorCondition, condition=TEXT, description=st.none() | TEXT, info=st.none() | MAPS)
OUTCOMES = st.one_of(
    st.just(ACCEPTED),
    st.just(Released()),
    st.builds(Rejected, error=st.none() | ERRORS),
    st.builds(
        Modified,
        delivery_failed=st.none() | st.booleans(),
        undeliverable_here=st.none() | st.booleans(),
        message_annotations=st.none() | MAPS,
    ),
    st.builds(Declared, txn_id=st.binary(max_size=9)),
)
STATES = st.one_of(
    OUTCOMES,
    st.builds(Received, section_number=UINT, section_offset=st.integers(0, 2**64 - 1)),
    st.builds(TransactionalState, txn_id=st.binary(max_size=9), outcome=st.none() | OUTCOMES),
)
SOURCES = st.builds(
    Source,
    address=st.none() | TEXT,
    durable=st.integers(0, 2),
    filter=st.none() | MAPS,
    default_outcome=st.none() | OUTCOMES,
    outcomes=st.none() | SYMBOLS,
    capabilities=st.none() | SYMBOLS,
)
TARGETS = st.builds(Target, address=st.none() | TEXT, capabilities=st.none() | SYMBOLS) | st.builds(
    Coordinator, capabilities=st.none() | SYMBOLS
)
PERFORMATIVES = st.one_of(
    st.builds(
        Open,
        container_id=TEXT,
        hostname=st.none() | TEXT,
        max_frame_size=UINT,
        channel_max=st.integers(0, 65535),
        idle_time_out=st.none() | UINT,
        desired_capabilities=st.none() | SYMBOLS,
        properties=st.none() | MAPS,
    ),
    st.builds(
        Begin,
        remote_channel=st.none() | st.integers(0, 65535),
        next_outgoing_id=UINT,
        incoming_window=UINT,
        outgoing_window=UINT,
    ),
    st.builds(
        Attach,
        name=TEXT,
        handle=UINT,
        role=st.booleans(),
        snd_settle_mode=st.sampled_from(SenderSettleMode),
        rcv_settle_mode=st.sampled_from(ReceiverSettleMode),
        source=st.none() | SOURCES,
        target=st.none() | TARGETS,
        initial_delivery_count=st.none() | UINT,
        max_message_size=st.none() | st.integers(0, 2**64 - 1),
        properties=st.none() | MAPS,
    ),
    st.builds(
        Flow,
        next_incoming_id=st.none() | UINT,
        incoming_window=UINT,
        next_outgoing_id=UINT,
        outgoing_window=UINT,
        handle=st.none() | UINT,
        delivery_count=st.none() | UINT,
        link_credit=st.none() | UINT,
        drain=st.booleans(),
    ),
    st.builds(Transfer, handle=UINT, delivery_id=st.none() | UINT, more=st.booleans(), state=st.none() | STATES),
    st.builds(Disposition, role=st.booleans(), first=UINT, last=st.none() | UINT, state=st.none() | STATES),
    st.builds(Detach, handle=UINT, closed=st.booleans(), error=st.none() | ERRORS),
    st.builds(End, error=st.none() | ERRORS),
    st.builds(Close, error=st.none() | ERRORS),
)


def decoded(code: int | Symbol, fields: list[object]) -> Performative:
    descriptor = ULong(code) if isinstance(code, int) else code
    return decode_performative(encode_value(Described(descriptor, fields)))[0]


@given(PERFORMATIVES, st.binary(max_size=10))
def test_a_performative_reads_back_as_it_was_written(performative: Performative, payload: bytes) -> None:
    body = encode_composite(performative)
    assert decode_performative(body + payload) == (performative, len(body))


@given(PERFORMATIVES)
def test_the_third_byte_tells_the_performative(performative: Performative) -> None:
    assert encode_composite(performative)[:3] == bytes((0x00, 0x53, performative.CODE))


@pytest.mark.parametrize(
    ("composite", "count"),
    [
        (Open(container_id="me"), 10),
        (Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), 8),
        (Attach(name="link", handle=0, role=SENDER), 14),
        (Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1), 11),
        (Transfer(handle=0), 11),
        (Disposition(role=RECEIVER, first=0), 6),
        (Detach(handle=0), 3),
        (End(), 1),
        (Close(), 1),
        (ErrorCondition(condition="a:b"), 3),
        (Source(address="q"), 11),
        (Target(address="q"), 7),
        (Coordinator(), 1),
        (Rejected(), 1),
        (Modified(), 3),
        (TransactionalState(txn_id=b"1"), 2),
        (Mechanisms(sasl_server_mechanisms=("PLAIN",)), 1),
        (Outcome(code=SaslCode.OK), 2),
    ],
)
def test_a_composite_has_all_its_fields_on_the_wire(composite: Composite, count: int) -> None:
    """The Python SDK before 7.15 indexes the fields of whatever it receives."""
    assert len(to_described(composite).value) == count
    written, _ = decode_value(encode_composite(composite), 0)
    assert len(written.value) == count


def test_an_error_of_ours_is_reported_with_its_condition_and_text() -> None:
    rejected = Rejected.because(MessageLockLost("The lock ran out."))
    assert rejected.error == ErrorCondition(
        condition="com.microsoft:message-lock-lost", description="The lock ran out."
    )


def test_an_error_of_ours_is_reported_without_the_end_of_a_very_long_text() -> None:
    text = "x" * DESCRIPTION_LENGTH_MAX
    assert ErrorCondition.of(MessageLockLost(text)).description == text
    assert ErrorCondition.of(MessageLockLost(text + "y")).description == text


def test_an_empty_source_is_one_of_defaults() -> None:
    attach = decoded(0x12, ["name", UInt(0), SENDER, None, None, Described(ULong(0x28), [])])
    assert attach == Attach(name="name", handle=0, role=SENDER, source=Source())


def test_missing_and_null_fields_read_as_their_defaults() -> None:
    assert decoded(0x10, ["me"]) == decoded(0x10, ["me", None, None, None]) == Open(container_id="me")


def test_descriptors_may_be_symbols() -> None:
    assert decoded(Symbol("amqp:end:list"), []) == End()


def test_integers_of_another_width_are_integers() -> None:
    assert decoded(0x16, [Int(3), True]) == Detach(handle=3, closed=True)
    assert decoded(0x16, [ULong(2**32 - 1)]) == Detach(handle=2**32 - 1)
    assert decoded(0x10, ["me", None, None, UInt(2**16 - 1)]) == Open(container_id="me", channel_max=2**16 - 1)


def test_one_symbol_stands_for_an_array_of_one() -> None:
    single = decoded(0x10, ["me", None, None, None, None, None, None, Symbol("cap")])
    several = decoded(0x10, ["me", None, None, None, None, None, None, Array([Symbol("cap")], 0xA3)])
    assert single == several == Open(container_id="me", offered_capabilities=("cap",))


@pytest.mark.parametrize(
    ("code", "fields", "text"),
    [
        (0x10, [], "container_id, which is mandatory"),
        (0x16, ["handle"], "handle of amqp:detach:list is 'handle'"),
        (0x16, [Int(-1)], "has to be a uint"),
        (0x16, [ULong(2**32)], "has to be a uint"),
        (0x10, ["me", None, None, UInt(2**16)], "has to be a ushort"),
        (0x16, [True], "has to be a uint"),
        (0x12, ["name", UInt(0), SENDER, UInt(3)], "0, 1 or 2"),
        (0x17, [None, None], "at most 1"),
        (0x17, [Described(ULong(0x24), [])], "is not an error"),
        (0x15, [RECEIVER, UInt(0), None, None, "accepted"], "is not a delivery state"),
        (0x99, [], "is not a performative"),
    ],
)
def test_what_is_wrong_with_a_performative_is_said(code: int, fields: list[object], text: str) -> None:
    with pytest.raises(DecodeError, match=text):
        decoded(code, fields)


def test_a_descriptor_of_a_type_that_cannot_be_looked_up_is_refused() -> None:
    with pytest.raises(DecodeError, match="is not a performative"):
        decode_performative(encode_value(Described([ULong(0x10)], [])))


def test_an_error_shows_only_the_beginning_of_a_long_value() -> None:
    with pytest.raises(DecodeError) as caught:
        decoded(0x16, ["x" * 50_000])
    assert len(str(caught.value)) < 200


@given(STATES)
def test_a_delivery_state_is_nested_in_a_disposition(state: DeliveryState) -> None:
    disposition = Disposition(role=RECEIVER, first=0, settled=True, state=state)
    assert decode_performative(encode_composite(disposition))[0] == disposition
