"""Schedules of faults by seed, in both namespaces at once, and what the ledger of a rehearsal has to say about each."""

from random import Random

import pytest

from tests.rehearsal.runs import rehearse_with, rehearsed
from twinbus.rehearsal.chronicle import FRAGMENT_MARK, MomentKind
from twinbus.rehearsal.drain import ProcessDrain
from twinbus.rehearsal.ledger import Sender
from twinbus.rehearsal.rehearsal_settings import RehearsalSettings
from twinbus.rehearsal.report import FaultReport, RehearsalReport
from twinbus.rehearsal.script import SCRIPTS, STORE_COUNT, Fault, FaultKind, Script, Where
from twinbus.rehearsal.sends import Outcome

pytestmark = pytest.mark.skipif("sys.platform == 'win32'", reason="processes are killed by signals")

SEND_TIMEOUT_S = 10.0
NOTICED_S = SEND_TIMEOUT_S + 2.0
"""A send that began in a fault may end so much later."""


KINDS = (FaultKind.KILL, FaultKind.HANG, FaultKind.STORE_DOWN, FaultKind.SLOW_STORE, FaultKind.DISCONNECT)


def chaos(random: Random, duration_s: float) -> Script:
    """Faults of all kinds in both namespaces, drawn one after the other; the secondary has two thirds of its time in peace. The
    paired sender is restarted up to three times, whatever happens then."""
    faults: list[Fault] = []
    for where, peace in ((Where.PRIMARY, 1.0), (Where.SECONDARY, 3.0)):
        at_s = random.uniform(1, 4) * peace
        while at_s < duration_s - 6:
            kind = random.choice(KINDS)
            lasts_s = 0.0 if kind.is_momentary else min(random.uniform(0.3, 9.0) / peace, duration_s - 4 - at_s)
            store = random.choice((None, random.randrange(STORE_COUNT)))
            faults.append(Fault(kind, at_s, lasts_s, store, random.choice((80, 700)), where))
            at_s += lasts_s + random.uniform(1, 6) * peace
    restarts = sorted(random.uniform(2, duration_s - 4) for _ in range(random.randint(0, 3)))
    faults += [Fault(FaultKind.RESTART, at_s, where=Where.SENDER) for at_s in restarts]
    return Script(duration_s, tuple(sorted(faults, key=lambda fault: fault.at_s)), jitter_s=0.0)


def settings(seed: int, failover_interval_s: float = 0.0) -> RehearsalSettings:
    """Nothing is missed, however long a send has to wait for the one before it."""
    return RehearsalSettings(
        seed=seed,
        rate=25.0,
        failover_interval_s=failover_interval_s,
        ping_interval_s=1.0,
        send_timeout_s=SEND_TIMEOUT_S,
        patience_s=60.0,
    )


def near(faults: list[FaultReport], at_s: float, before_s: float = 1.0) -> bool:
    return any(fault.span.begin_s - before_s <= at_s <= fault.span.end_s + NOTICED_S for fault in faults)


def check(report: RehearsalReport) -> None:
    """0 lost, 0 doubled where duplicates are detected, 0 out of order, 0 refused while the backlog works, 0 false failovers."""
    assert report.is_balanced, report.balance
    paired = next(each for each in report.order if each.sender is Sender.PAIRED)
    assert paired.delivered > 0
    assert paired.reordered == 0
    at_secondary = [fault for fault in report.faults if "secondary" in fault.text]
    at_primary = [
        fault for fault in report.faults if not any(word in fault.text for word in ("secondary", "slower", "restarted"))
    ]
    # By when they were due: a send that waits for the primary first may meet a fault of the secondary that begins later.
    refused = [each.at_s for each in report.seconds[Sender.PAIRED] if each.failed]
    assert [at_s for at_s in refused if not near(at_secondary, at_s, NOTICED_S)] == []
    failovers = [moment.at_s for moment in report.moments if moment.kind is MomentKind.FAILED_OVER]
    assert [at_s for at_s in failovers if not near(at_primary, at_s)] == []


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.rule("B4", "B5", "B8")
@pytest.mark.parametrize("seed", [36])
def test_after_any_schedule_of_faults_nothing_is_lost_doubled_overtaken_or_refused(seed: int) -> None:
    check(rehearse_with(settings(seed), ProcessDrain(), chaos(Random(seed), 12.0)))


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(30))
def test_after_thirty_schedules_of_faults_nothing_is_lost_doubled_overtaken_or_refused(seed: int) -> None:
    check(rehearse_with(settings(seed), ProcessDrain(), chaos(Random(seed), 25.0)))


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_that_comes_with_it_is_survived(name: str) -> None:
    check(rehearse_with(settings(1), ProcessDrain(), SCRIPTS[name](30.0)))


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_what_flaps_is_not_failed_over_while_something_gets_through() -> None:
    """How long a blink really lasts, and how soon after it the SDK tries again, is up to the machine; a failover says that nothing got
    through for an interval. The rule itself is held on a simulated clock (tests/pairing/test_simulation.py)."""
    interval_s = 2.0
    report, sends = rehearsed(settings(1, failover_interval_s=interval_s), ProcessDrain(), SCRIPTS["flapping"](50.0))
    assert report.is_balanced
    long = report.faults[-1]
    assert long.failed_over_after_s is not None
    early = [
        (moment.text, moment.at_s)
        for moment in report.moments
        if moment.kind is MomentKind.FAILED_OVER
        and moment.at_s < long.span.begin_s
        and FRAGMENT_MARK not in moment.text
    ]
    through = [
        (send.entity, send.ended_s)
        for send in sends
        if send.sender is Sender.PAIRED and send.outcome is Outcome.ACCEPTED
    ]
    # Half of the interval: a thread may write down what got through a while after it did.
    false = [(path, at) for path, at in early if any(to == path and 0 < at - s < interval_s / 2 for to, s in through)]
    assert false == []


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_what_is_slow_is_not_failed_over() -> None:
    report = rehearse_with(settings(1, failover_interval_s=1.0), ProcessDrain(), SCRIPTS["slow"](30.0))
    assert report.is_balanced
    assert report.failovers == 0
