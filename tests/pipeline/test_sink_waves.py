from hypothesis import given
from hypothesis import strategies as st

from twinbus.client.batches import plan_batches
from twinbus.client.message import encode_message
from twinbus.client.received_message import ReceivedMessage
from twinbus.pipeline.sink.delivery import ENVELOPE_ALLOWANCE, MESSAGE_OVERHEAD, waves_of
from twinbus.pipeline.sink.messages import Outgoing
from twinbus.pipeline.sink.send_rate import SendRate
from twinbus.pipeline.sink.writing import CHUNK_COUNT_MAX, CHUNK_SIZE_MAX, chunks_of

SIZE_MAX = ENVELOPE_ALLOWANCE + 3 * (10 + MESSAGE_OVERHEAD)  # three messages of ten bytes


def message(number: int, key: str | None = None, entity: str = "q") -> Outgoing:
    return Outgoing(entity, key, b"%010d" % number)


def test_messages_without_a_key_are_all_under_way_together() -> None:
    messages = [message(number) for number in range(10)]
    assert waves_of(messages, SIZE_MAX) == [{"q": [each.payload for each in messages]}]


def test_a_wave_holds_one_batch_of_each_key() -> None:
    messages = [message(number, key) for number in range(4) for key in "ab"]
    first, second = waves_of(messages, SIZE_MAX)
    assert first["q"] == [b"%010d" % number for number in (0, 0, 1, 1, 2, 2)]
    assert second["q"] == [b"%010d" % 3] * 2


def test_the_same_key_of_two_entities_is_two_keys() -> None:
    messages = [message(number, "a", entity) for number in range(3) for entity in "xy"]
    (wave,) = waves_of(messages, SIZE_MAX)
    assert [len(payloads) for payloads in wave.values()] == [3, 3]


def test_a_message_larger_than_a_batch_has_a_wave_of_its_key_for_itself() -> None:
    large = Outgoing("q", "a", b"x" * 2 * SIZE_MAX)
    waves = waves_of([message(0, "a"), large, message(1, "a")], SIZE_MAX)
    assert [len(wave["q"]) for wave in waves] == [1, 1, 1]


@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from(["x", "y"])), max_size=40))
def test_order_is_kept_within_each_key(given: list[tuple[str | None, str]]) -> None:
    messages = [message(number, key, entity) for number, (key, entity) in enumerate(given)]
    keys = {each.payload: (each.entity, each.key) for each in messages}
    sent = [payload for wave in waves_of(messages, SIZE_MAX) for payloads in wave.values() for payload in payloads]
    assert sorted(sent) == [each.payload for each in messages]
    for place in set(keys.values()):
        assert [each for each in sent if keys[each] == place] == sorted(each for each in sent if keys[each] == place)


@given(
    st.lists(st.tuples(st.sampled_from(["Order-7", "order-7", "order-8"]), st.sampled_from(["q", "Q"])), max_size=12)
)
def test_a_wave_holds_one_transfer_at_most_for_each_message_session(given: list[tuple[str, str]]) -> None:
    """Ids are compared without case, and so are names of entities, but what differs in case is not sent together: the first of two
    such transfers may be refused for now, and then the second must not be there before it."""
    messages = [
        Outgoing(entity, key, encode_message(b"%d" % number, session_id=key))
        for number, (key, entity) in enumerate(given)
    ]
    for wave in waves_of(messages, SIZE_MAX):
        sessions: list[tuple[str, str]] = []
        for entity, payloads in wave.items():
            plan = plan_batches(payloads, 10 * SIZE_MAX, keeps_keys_apart=True)
            ids = [ReceivedMessage(payloads[batch.places[0]]).session_id or "" for batch in plan.batches]
            sessions += [(entity.lower(), each.lower()) for each in ids]
        assert len(sessions) == len(set(sessions))


def test_chunks_have_a_bound_in_number_and_in_bytes() -> None:
    many = [message(number) for number in range(CHUNK_COUNT_MAX + 1)]
    assert [len(chunk) for chunk in chunks_of(many, None)] == [CHUNK_COUNT_MAX, 1]
    large = [Outgoing("q", None, bytes(CHUNK_SIZE_MAX // 2))] * 3
    assert [len(chunk) for chunk in chunks_of(large, None)] == [2, 1]
    assert list(chunks_of([], None)) == []


def test_at_a_low_rate_chunks_are_small() -> None:
    assert [len(chunk) for chunk in chunks_of([message(0)] * 5, SendRate(4))] == [2, 2, 1]
    assert [len(chunk) for chunk in chunks_of([message(0)] * 2, SendRate(0.1))] == [1, 1]


def test_a_pace_spreads_messages_over_time() -> None:
    pace = SendRate(10)
    assert pace.wait_s(5, now=100.0) == 0
    assert pace.wait_s(5, now=100.25) == 0.25
    assert pace.wait_s(5, now=100.5) == 0.5


def test_a_pause_is_not_made_up_for() -> None:
    pace = SendRate(10)
    pace.wait_s(5, now=0.0)
    assert pace.wait_s(5, now=60.0) == 0
    assert pace.wait_s(5, now=60.0) == 0.5
