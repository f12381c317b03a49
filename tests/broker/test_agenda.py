"""When a fragment asks its store what is due or has expired."""

import pytest

from twinbus.broker.fragment.agenda import Agenda
from twinbus.clock import NEVER


def test_the_store_is_asked_once_and_only_when_something_is_due() -> None:
    agenda = Agenda(next_due=10, next_expiry=NEVER)
    assert not agenda.start_activating(9)
    assert agenda.start_activating(10)
    agenda.will_be_due(5)
    assert not agenda.start_activating(20), "it was asked, and has not answered"
    agenda.stop_activating(30)
    assert agenda.next_due == 5
    assert agenda.start_activating(20)
    agenda.stop_activating(30)
    assert not agenda.start_activating(29)
    assert agenda.start_activating(30)


def test_the_store_is_asked_once_and_only_when_something_has_expired() -> None:
    agenda = Agenda(next_due=NEVER, next_expiry=10)
    assert not agenda.start_expiring(9)
    assert agenda.start_expiring(10)
    agenda.will_expire(5)
    assert not agenda.start_expiring(20), "it was asked, and has not answered"
    agenda.stop_expiring(30)
    assert agenda.start_expiring(20)


@pytest.mark.parametrize(("next_expiry", "expected"), [(NEVER, False), (10, True)])
def test_hand_over_looks_at_expiries_only_where_something_expires(next_expiry: int, expected: bool) -> None:
    agenda = Agenda(next_due=NEVER, next_expiry=next_expiry)
    assert agenda.has_expiring is expected
    agenda.will_expire(20)
    assert agenda.has_expiring
