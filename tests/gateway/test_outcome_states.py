import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.delivery_state import (
    ACCEPTED,
    RELEASED,
    DeliveryState,
    Modified,
    Received,
    Rejected,
)
from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.amqp.codec.types import Symbol, Timestamp, UInt
from twinbus.broker.outcomes import COMPLETE, RELEASE, Abandon, DeadLetter, Defer, Outcome
from twinbus.gateway.links.outcome_states import confirmation, outcome_of, ranges


def rejected(info: dict[object, object] | None) -> Rejected:
    return Rejected(error=ErrorCondition(condition="com.microsoft:dead-letter", description="d", info=info))


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (ACCEPTED, COMPLETE),
        (RELEASED, RELEASE),
        (None, RELEASE),
        (Modified(), Abandon()),
        (Modified(delivery_failed=True, undeliverable_here=False), Abandon()),
        (Modified(undeliverable_here=True, message_annotations={Symbol("k"): 1}), Defer({"k": 1})),
        (Rejected(), DeadLetter()),
        (
            rejected({Symbol("DeadLetterReason"): "r", "DeadLetterErrorDescription": "d", "k": 2}),
            DeadLetter("r", "d", {"k": 2}),
        ),
        (
            rejected({Symbol("DeadLetterReason"): Timestamp(7), "DeadLetterErrorDescription": UInt(8)}),
            DeadLetter(Timestamp(7), UInt(8)),
        ),
        (rejected({"DeadLetterReason": "r"}), DeadLetter("r")),
        (rejected({"DeadLetterErrorDescription": "inner"}), DeadLetter(None, "inner")),
        (rejected({"k": 2}), DeadLetter(None, None, {"k": 2})),
        (rejected({}), DeadLetter(None, "d")),
        (rejected(None), DeadLetter(None, "d")),
        (Rejected(error=ErrorCondition(condition="acme:unfit", description="d")), DeadLetter("acme:unfit", "d")),
        (Received(section_number=0, section_offset=0), None),
    ],
)
def test_each_state_means_one_outcome(state: DeliveryState | None, outcome: Outcome | None) -> None:
    found = outcome_of(state)
    assert found == outcome
    if isinstance(found, DeadLetter) and isinstance(outcome, DeadLetter):
        assert (type(found.reason), type(found.description)) == (type(outcome.reason), type(outcome.description))


def test_a_dead_letter_is_confirmed_without_the_error_it_came_with() -> None:
    assert confirmation(rejected({"DeadLetterReason": "r"})) == Rejected()


@pytest.mark.parametrize(
    "state", [ACCEPTED, RELEASED, Modified(delivery_failed=True), Modified(undeliverable_here=True)]
)
def test_every_other_outcome_is_confirmed_as_it_came(state: DeliveryState) -> None:
    assert confirmation(state) == state


@pytest.mark.parametrize("state", [None, Received(section_number=0, section_offset=0)])
def test_what_is_no_outcome_is_confirmed_as_released(state: DeliveryState | None) -> None:
    assert confirmation(state) == RELEASED


@given(st.lists(st.integers(0, 60), unique=True))
def test_ranges_hold_every_number_once_and_no_other(numbers: list[int]) -> None:
    found = [number for first, last in ranges(numbers) for number in range(first, last + 1)]
    assert found == sorted(numbers)


def test_a_whole_burst_is_one_range() -> None:
    assert list(ranges(range(5, 1005))) == [(5, 1004)]
    assert list(ranges([5, 1, 3])) == [(1, 1), (3, 3), (5, 5)]
    assert list(ranges([4, 1, 3])) == [(1, 1), (3, 4)]


def test_deliveries_that_nobody_waits_for_make_no_range_with_others() -> None:
    assert [(first, last) for first, last in ranges([-1, 1, -1]) if last >= 0] == [(1, 1)]
    assert [(first, last) for first, last in ranges([-1, 2, -1, 3]) if last >= 0] == [(2, 3)]
