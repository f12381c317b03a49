"""The names of outcomes in requests to `$management`."""

import pytest

from twinbus.amqp.codec.types import Value
from twinbus.broker.outcomes import COMPLETE, DELAY_MAX, Abandon, DeadLetter, Defer, Outcome
from twinbus.errors import ArgumentError
from twinbus.gateway.nodes.request_message import Arguments
from twinbus.gateway.requests.locks import named_outcome
from twinbus.model.wire_names import ABANDON_DELAY


@pytest.mark.parametrize(
    ("status", "expected"),
    [("completed", type(COMPLETE)), ("Abandoned", Abandon), ("defered", Defer), ("SUSPENDED", DeadLetter)],
)
def test_a_status_names_an_outcome_in_any_case(status: str, expected: type) -> None:
    assert isinstance(named_outcome(Arguments({"disposition-status": status})), expected)


@pytest.mark.parametrize("status", ["deferred", "released", ""])
def test_a_status_that_names_none_is_refused(status: str) -> None:
    with pytest.raises(ArgumentError, match="is not a disposition status"):
        named_outcome(Arguments({"disposition-status": status}))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"disposition-status": "abandoned"}, Abandon({}, 7)),
        ({"disposition-status": "abandoned", "properties-to-modify": {"k": 1}}, Abandon({"k": 1}, 7)),
        ({"disposition-status": "defered", "properties-to-modify": {"k": 1}}, Defer({"k": 1})),
        (
            {
                "disposition-status": "suspended",
                "deadletter-reason": "r",
                "deadletter-description": "d",
                "properties-to-modify": {"k": 1},
            },
            DeadLetter("r", "d", {"k": 1}),
        ),
        ({"disposition-status": "suspended"}, DeadLetter(None, None, {})),
    ],
)
def test_an_outcome_has_what_the_request_says_of_it(fields: dict[str, Value], expected: Outcome) -> None:
    assert named_outcome(Arguments({**fields, ABANDON_DELAY: 7})) == expected


@pytest.mark.parametrize(("delay", "is_taken"), [(-1, False), (0, True), (DELAY_MAX, True), (DELAY_MAX + 1, False)])
def test_an_abandoned_message_is_hidden_for_a_limited_time(delay: int, is_taken: bool) -> None:
    arguments = Arguments({"disposition-status": "abandoned", ABANDON_DELAY: delay})
    if is_taken:
        assert named_outcome(arguments) == Abandon({}, delay)
    else:
        with pytest.raises(ArgumentError, match="milliseconds"):
            named_outcome(arguments)
