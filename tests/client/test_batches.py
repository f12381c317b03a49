"""How messages are put into batches, and that the broker reads of a batch what was put in."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.client.batches import plan_batches, read_identity_of
from twinbus.client.message import encode_message
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import MessagingError
from twinbus.model.message import read_message, split_batch
from twinbus.model.message_limits import BATCH_COUNT_MAX
from twinbus.model.wire_names import BATCH_FORMAT

SIZE_MAX = 2_000


def bodies(payload: bytes) -> list[str]:
    return [read_message(part, lambda: "drawn").message_id for part in split_batch(payload)]


def numbered(count: int, key: str | None = None) -> list[bytes]:
    return [encode_message(b"x" * 100, message_id=str(number), partition_key=key) for number in range(count)]


def test_a_batch_holds_whole_messages_in_order() -> None:
    (batch,) = plan_batches(numbered(5), SIZE_MAX, keeps_keys_apart=True).batches
    assert batch.message_format == BATCH_FORMAT
    assert list(batch.places) == [0, 1, 2, 3, 4]
    assert bodies(batch.payload) == ["0", "1", "2", "3", "4"]


def test_a_batch_ends_where_the_next_message_would_make_it_too_large() -> None:
    plan = plan_batches(numbered(100), SIZE_MAX, keeps_keys_apart=True)
    assert len(plan.batches) > 5
    assert all(len(batch.payload) <= SIZE_MAX for batch in plan.batches)
    assert [place for batch in plan.batches for place in batch.places] == list(range(100))


def test_a_batch_may_have_exactly_the_largest_size() -> None:
    payloads = numbered(2)
    (whole,) = plan_batches(payloads, SIZE_MAX, keeps_keys_apart=True).batches
    size = len(whole.payload)
    assert len(plan_batches(payloads, size, keeps_keys_apart=True).batches) == 1
    assert len(plan_batches(payloads, size - 1, keeps_keys_apart=True).batches) == 2


@pytest.mark.rule("A8.5")
def test_messages_of_different_keys_travel_apart_and_keep_their_order() -> None:
    payloads = [encode_message("x", message_id=str(n), partition_key="ab"[n % 2]) for n in range(10)]
    odd_and_even = plan_batches(payloads, SIZE_MAX, keeps_keys_apart=True).batches
    assert [bodies(batch.payload) for batch in odd_and_even] == [list("02468"), list("13579")]


def test_messages_of_one_session_keep_their_order_whatever_the_case_of_its_id() -> None:
    payloads = [encode_message("x", message_id=str(n), session_id=name) for n, name in enumerate(["a", "a", "A", "a"])]
    plan = plan_batches(payloads, SIZE_MAX, keeps_keys_apart=True)
    assert [list(batch.places) for batch in plan.batches] == [[0, 1], [2], [3]]


def test_session_ids_are_keys_too_and_messages_without_a_key_stay_together() -> None:
    payloads = [
        encode_message("x", message_id="0", session_id="s"),
        encode_message("x", message_id="1"),
        encode_message("x", message_id="2", session_id="s"),
        encode_message("x", message_id="3"),
    ]
    batches = plan_batches(payloads, SIZE_MAX, keeps_keys_apart=True).batches
    assert [bodies(batch.payload) for batch in batches] == [["0", "2"], ["1", "3"]]


def test_an_ordinary_entity_gets_messages_of_all_keys_in_one_batch_if_the_caller_says_so() -> None:
    payloads = [encode_message("x", message_id=str(n), partition_key=str(n)) for n in range(10)]
    assert len(plan_batches(payloads, SIZE_MAX, keeps_keys_apart=False).batches) == 1


def test_the_envelope_shows_the_key_that_all_share() -> None:
    (batch,) = plan_batches(numbered(3, key="k"), SIZE_MAX, keeps_keys_apart=True).batches
    envelope = ReceivedMessage(batch.payload)
    assert (envelope.partition_key, envelope.message_id) == ("k", "0")


def test_a_message_alone_is_sent_as_itself() -> None:
    (payload,) = numbered(1)
    (batch,) = plan_batches([payload], SIZE_MAX, keeps_keys_apart=True).batches
    assert (batch.payload, batch.message_format) == (payload, 0)


def test_a_message_over_the_limit_travels_alone() -> None:
    payloads = [encode_message(bytes(10)), encode_message(bytes(3 * SIZE_MAX)), encode_message(bytes(10))]
    batches = plan_batches(payloads, SIZE_MAX, keeps_keys_apart=True).batches
    assert sorted(list(batch.places) for batch in batches) == [[0], [1], [2]]


def test_what_is_no_message_is_refused_by_itself() -> None:
    plan = plan_batches([encode_message("a"), b"junk", encode_message("b")], SIZE_MAX, keeps_keys_apart=True)
    assert [place for place, _ in plan.refused] == [1]
    assert [list(batch.places) for batch in plan.batches] == [[0, 2]]


@given(st.binary(max_size=60))
def test_whatever_the_bytes_are_reading_their_ids_raises_nothing_but_our_own_errors(data: bytes) -> None:
    with suppress(MessagingError):
        read_identity_of(data)


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_message_that_was_cut_off_is_refused(cut: int) -> None:
    payload = encode_message("body", message_id="m", session_id="s", partition_key="s")
    plan = plan_batches([payload[:cut]], SIZE_MAX, keeps_keys_apart=True)
    assert len(plan.refused) == 1


def test_a_batch_has_no_more_messages_than_the_service_takes() -> None:
    payloads = [encode_message("") for _ in range(BATCH_COUNT_MAX + 1)]
    plan = plan_batches(payloads, 1_000_000, keeps_keys_apart=True)
    assert [len(batch.places) for batch in plan.batches] == [BATCH_COUNT_MAX, 1]
