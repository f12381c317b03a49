"""The bill of a rehearsal against an account that was made on the side of its clients, line by line.

Lines are of a namespace, an entity, a cause and a path; operations, units and bytes have to be within what the clients
know. Where nothing came between a client and the answer that is one number.
"""

import pytest

from tests.rehearsal.counted_lines import Bounds, LineKey, Step, add_up, by_key, differences
from tests.rehearsal.watched_rehearsal import watched_rehearsal
from twinbus.meter.operation import Cause, Path
from twinbus.rehearsal.bill import Bill, EntityLine
from twinbus.rehearsal.script import Fault, FaultKind, Script

pytestmark = pytest.mark.skipif("sys.platform == 'win32'", reason="processes are killed by signals")

ILL_STORES = (
    Fault(FaultKind.STORE_DOWN, 1.0, 0.8, store=1),
    Fault(FaultKind.SLOW_STORE, 2.0, 0.8, store=3),
)
OUTAGE = (Fault(FaultKind.KILL, 2.5, 1.0), Fault(FaultKind.DISCONNECT, 5.0))
ANSWERED = (Cause.PING, Cause.MANAGEMENT)
"""What a client of these rehearsals always gets an answer to, or knows that it was not done."""


def of_clients(bill: Bill) -> list[EntityLine]:
    """Without peeks: a pair looks into its backlog while sessions catch up, and the rehearsal where it has to wait for long."""
    return [line for line in bill.entities if line.cause != Cause.PEEK]


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.rule("D1", "D5")
def test_a_bill_equals_the_clients_account_where_no_connection_is_cut() -> None:
    report, counted = watched_rehearsal(Script(3.5, ILL_STORES, jitter_s=0.0), seed=21, is_gentle=True)
    assert report.bill is not None
    assert list(differences(counted, of_clients(report.bill))) == []
    # At its close the SDK waits for no answer to what it gives back.
    doubtful = {key: line for key, line in counted.items() if not line.is_exact}
    assert {key.cause for key in doubtful} <= {Cause.EMPTY_RECEIVE, Cause.SETTLE}
    assert {key.cause for key in counted} >= {"send", "receive", "settle", "copy", "session", "management"}


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.rule("D1", "D4", "D5")
def test_a_bill_of_an_outage_differs_from_the_clients_account_by_lost_answers_only() -> None:
    """The primary is away in good order, so its log is whole; then every connection is cut."""
    report, counted = watched_rehearsal(Script(5.5, OUTAGE, jitter_s=0.0), seed=22, is_gentle=True)
    assert report.bill is not None
    assert list(differences(counted, of_clients(report.bill))) == []
    exact = {key for key, line in counted.items() if line.is_exact}
    for key in counted:
        is_told = key.cause in ANSWERED or key.path in (Path.BACKLOG, Path.SYPHON)
        assert key in exact or not is_told or key.cause == Cause.EMPTY_RECEIVE, key
    billed = by_key(of_clients(report.bill))
    aside = sum(line.operations for key, line in billed.items() if (key.cause, key.path) == ("send", "backlog"))
    home = sum(line.operations for key, line in billed.items() if (key.cause, key.path) == ("send", "syphon"))
    assert aside == home == sum(report.backlog_sends.values()) > 0


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.rule("D1")
def test_the_log_of_a_killed_namespace_has_lost_nothing_but_what_was_just_done() -> None:
    """Both bounds matter: never more than the clients did, and nothing is missing that was old enough."""
    report, counted = watched_rehearsal(Script(5.5, OUTAGE, jitter_s=0.0), seed=23, is_gentle=False)
    assert report.bill is not None
    assert list(differences(counted, of_clients(report.bill))) == []
    assert all(line.is_exact for key, line in counted.items() if key.cause == Cause.MANAGEMENT)


def test_a_contradiction_is_named_whoever_has_the_line() -> None:
    sent, pinged = (LineKey("primary", "q", cause, "primary") for cause in ("send", "ping"))
    sends = [Step(0.0, sent, 2, Bounds(90, 110), is_sure) for is_sure in (True, False)]
    counted = add_up([*sends, Step(0.0, pinged, 1, None, True)])

    def billed(operations: int, units: int, size: int) -> list[str]:
        ping = EntityLine(*pinged, 1, 1, 1, 7)
        return list(differences(counted, [EntityLine(*sent, operations, operations, units, size), ping]))

    assert billed(1, 2, 100) == billed(2, 4, 220) == []
    assert billed(3, 4, 220) == ["primary q send primary: 3 operations billed, 1 to 2 counted"]
    assert billed(1, 1, 89) == [
        "primary q send primary: 1 units billed, 2 to 4 counted",
        "primary q send primary: 89 bytes billed, 90 to 220 counted",
    ]
    assert "primary q ping primary: 0 operations billed, 1 counted" in list(differences(counted, []))
    stranger = EntityLine("primary", "q", "peek", "primary", 1, 1, 1, 1)
    assert "primary q peek primary: 1 operations billed, 0 counted" in list(differences(counted, [stranger]))
