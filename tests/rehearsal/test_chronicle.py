"""What happened when: times to fail over and to recover."""

from itertools import count

import pytest

from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.rehearsal.chronicle import Chronicle, Moment, MomentKind, Outage, outages
from twinbus.rehearsal.script import Fault, FaultKind
from twinbus.rehearsal.sends import Span


def moment(at_s: float, kind: MomentKind, text: str = "orders") -> Moment:
    return Moment(at_s, kind, text)


def test_failing_over_is_counted_from_the_begin_of_the_fault_and_recovery_from_its_end() -> None:
    moments = [moment(11.5, MomentKind.FAILED_OVER), moment(32.0, MomentKind.RECOVERED)]
    assert outages(moments, Span(10.0, 30.0), 40.0) == {"orders": Outage(1.5, 2.0)}


def test_a_recovery_belongs_to_the_failover_before_it_even_when_the_next_fault_has_begun() -> None:
    moments = [
        moment(1.0, MomentKind.FAILED_OVER),
        moment(6.0, MomentKind.RECOVERED),
        moment(7.0, MomentKind.FAILED_OVER),
    ]
    assert outages(moments, Span(0.0, 5.0), 5.5) == {"orders": Outage(1.0, 1.0)}
    assert outages(moments, Span(5.5, 8.0), 9.0) == {"orders": Outage(1.5, None)}


def test_a_ping_that_is_quicker_than_the_one_who_mends_recovers_at_once() -> None:
    moments = [moment(1.0, MomentKind.FAILED_OVER), moment(4.9, MomentKind.RECOVERED)]
    assert outages(moments, Span(0.0, 5.0), 9.0)["orders"].recovered_after_s == 0.0


def test_entities_that_did_not_fail_over_have_no_outage() -> None:
    moments = [moment(1.0, MomentKind.FAILING), moment(2.0, MomentKind.FAILED_OVER, "other")]
    assert outages(moments, Span(0.0, 5.0), 9.0).keys() == {"other"}


def test_pings_and_backlog_sends_are_counted_and_the_rest_is_reported() -> None:
    heard: list[Moment] = []
    ticks = count(1)
    chronicle = Chronicle(lambda: float(next(ticks)), heard.append)
    chronicle.fault(Fault(FaultKind.KILL, 1.0, 2.0), False)
    for event in (
        PairingEvent(EventKind.TIMER_STARTED, 0, "orders"),
        PairingEvent(EventKind.FAILED_OVER, 0, "orders"),
        PairingEvent(EventKind.BACKLOG_SEND, 0, "orders", "q/0", 3),
        PairingEvent(EventKind.PING, 0, "orders", error=OSError()),
        PairingEvent(EventKind.PING, 0, "orders"),
        PairingEvent(EventKind.RECOVERED, 0, "orders"),
    ):
        chronicle.pairing(event)
    assert (chronicle.pings, chronicle.pings_answered, chronicle.backlog_sends["orders"]) == (2, 1, 3)
    kinds = [MomentKind.FAULT, MomentKind.FAILING, MomentKind.FAILED_OVER, MomentKind.RECOVERED]
    assert [each.kind for each in heard] == kinds
    assert [each.at_s for each in heard] == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault(FaultKind.KILL, 0, 20), "the primary is killed for 20 s"),
        (Fault(FaultKind.STORE_DOWN, 0, 5), "every messaging store is down for 5 s"),
        (Fault(FaultKind.SLOW_STORE, 0, 1.5, store=3), "messaging store 3 is 80 ms slower for 1.5 s"),
        (Fault(FaultKind.DISCONNECT, 0), "every connection to the primary is dropped"),
    ],
)
def test_a_fault_says_what_it_does(fault: Fault, text: str) -> None:
    assert str(fault) == text
