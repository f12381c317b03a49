"""The names of outcomes in requests to `$management`."""

import pytest

from twinbus.broker.outcomes import COMPLETE, Abandon, DeadLetter, Defer
from twinbus.errors import ArgumentError
from twinbus.gateway.nodes.request_message import Arguments
from twinbus.gateway.requests.locks import named_outcome


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
