"""What the estimate says beforehand is what the meter counts: the pair's own decisions on a simulated clock."""

from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from azure.servicebus import ServiceBusMessage

from tests.cost.made_logs import BACKLOG, PRIMARY, SECONDARY, millis, operation, write_log
from twinbus.clock import Millis
from twinbus.cost.deployment import Deployment
from twinbus.cost.estimate import Estimate, estimate
from twinbus.cost.log_reading import open_logs
from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.cost.what_if import Counted, count_log
from twinbus.meter import BACKLOG_SEGMENT, Cause, Operation
from twinbus.pairing.failover import Route
from twinbus.pairing.failures import classify
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.send_availability import SendAvailability
from twinbus.pairing.syphon.metering import metered
from twinbus.pairing.syphon.pump import Pump
from twinbus.pairing.syphon.rate_cap import RateCap
from twinbus.pairing.syphon.transport import Answer, Receive, Request, SendAll, Taken, Transfer
from twinbus.testing.sim_clock import SimClock

START = millis("2026-11-01 00:00")
PLAN = read_price_sheet(None).plan("standard")
HOUR: Millis = 3_600_000
SECOND: Millis = 1_000
SIZE = 1_000


class Recorded:
    """A meter that keeps what it is told."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def record(self, operation: Operation, /) -> None:
        self.operations.append(operation)


def measured(folder: Path, operations: Sequence[Operation]) -> Counted:
    """Through the log and its reader, as a bill is made."""
    for namespace, is_backlog in ((PRIMARY, False), (SECONDARY, True)):
        own = [each for each in operations if (BACKLOG_SEGMENT in each.entity) is is_backlog]
        (folder / namespace).mkdir()
        write_log(folder / namespace, own, namespace=namespace)
    return count_log(open_logs([folder / PRIMARY, folder / SECONDARY]))


def units(counted: Counted, cause: Cause, path: str) -> int:
    return sum(each.units for each in counted.counts if (each.cause, each.path) == (cause, path))


def line_of(result: Estimate, name: str) -> int:
    return next(line.in_outage for line in result.lines if line.name == name)


def run_pump(queue: str, waiting: list[Taken], meter: Recorded, start: Millis, end: Millis) -> None:
    """A syphon's pump until `end`: a receive comes back at once with messages, or empty when its wait is over."""
    clock = SimClock(start)
    pump = Pump(queue, classify, RateCap(None), clock, lambda _: None)
    steps = metered(pump.run(), queue, meter, clock)
    request: Request = next(steps)
    while True:
        answer: Answer = None
        if isinstance(request, Receive):
            answer = waiting[: request.count_max]
            del waiting[: request.count_max]
            if not answer:
                clock.advance(int(request.wait_s * 1000))
                # The receive that is under way at the end comes back in the next hour, and is billed there.
                if clock.now() > end:
                    return
        elif isinstance(request, SendAll):
            answer = [None] * len(request.chunks)
        request = steps.send(answer)


@pytest.mark.parametrize(("hours", "receives"), [(1, 40), (24, 960)])
@pytest.mark.rule("D2")
def test_idle_hours_of_a_syphon_cost_what_was_estimated(tmp_path: Path, hours: int, receives: int) -> None:
    meter = Recorded()
    for number in range(10):
        run_pump(BACKLOG.format(number), [], meter, START, START + hours * HOUR)
    idle = next(line for line in estimate(Deployment(), PLAN).lines if line.name == "idle receives")
    assert units(measured(tmp_path, meter.operations), Cause.EMPTY_RECEIVE, "syphon") == receives
    assert idle.operations(hours) == receives


@pytest.mark.parametrize(("outage_s", "rate"), [(600, 1), (601, 1), (900, 2), (90, 5), (45, 1)])
@pytest.mark.rule("D3", "D4")
def test_an_outage_costs_what_was_estimated(tmp_path: Path, outage_s: int, rate: int) -> None:
    meter = Recorded()
    options = SendAvailabilityPairedNamespaceOptions(ping_jitter=0, meter=meter)
    pair = SendAvailability(options, {number: BACKLOG.format(number) for number in range(10)}, Random(1))
    failed_over = live_through(pair, outage_s, rate)
    bring_home(failed_over, meter, START + outage_s * SECOND)
    for each in [each for each in meter.operations if (each.cause, each.path) == (Cause.SEND, "syphon")]:
        meter.record(operation(each.at + SECOND, Cause.RECEIVE, size=SIZE, count=each.operations))
    deployment = Deployment(rate=Fraction(rate), size=SIZE, outage=timedelta(seconds=outage_s))
    expected = estimate(deployment, PLAN)
    found = measured(tmp_path, meter.operations)
    assert len(failed_over) == deployment.failed_over_messages
    assert units(found, Cause.PING, "primary") == line_of(expected, "pings")
    assert units(found, Cause.SEND, "backlog") == line_of(expected, "sends to backlog")
    assert units(found, Cause.RECEIVE, "syphon") == line_of(expected, "receives from backlog")
    assert units(found, Cause.SEND, "syphon") == line_of(expected, "sends home")
    assert units(found, Cause.RECEIVE, "primary") == line_of(expected, "receives at home")


def live_through(pair: SendAvailability, outage_s: int, rate: int) -> list[tuple[int, str]]:
    """Sends at a steady rate and pings as they are due, until the entity is back. Queue and id of what failed over."""
    failed_over: list[tuple[int, str]] = []
    error = ConnectionError("the primary is away")
    for tick in range(outage_s * rate + 1):
        now = START + tick * SECOND // rate
        is_away = now < START + outage_s * SECOND
        for path in pair.advance(now):
            if is_away:
                pair.ping_failed(path, error, now)
            else:
                pair.ping_answered(path, now)
        if is_away and (
            pair.route("orders", now) is Route.BACKLOG or pair.primary_failed("orders", error, now) is Route.BACKLOG
        ):
            queue = pair.choose_queue(None, now)
            assert queue is not None
            pair.backlog_sent("orders", queue, [ServiceBusMessage(b"x" * SIZE)], now)
            failed_over.append((queue, f"m-{tick}"))
    ping_until_answered(pair, START + outage_s * SECOND)
    return failed_over


def ping_until_answered(pair: SendAvailability, now: Millis) -> None:
    """The primary is back; an entity that had failed over learns it from its next ping."""
    while pair.route("orders", now) is Route.BACKLOG:
        now = pair.next_action_at()
        for path in pair.advance(now):
            pair.ping_answered(path, now)


def bring_home(failed_over: Sequence[tuple[int, str]], meter: Recorded, start: Millis) -> None:
    for queue in {queue for queue, _ in failed_over}:
        own = [message for number, message in failed_over if number == queue]
        waiting = [
            Taken(message, number, start + 60_000, Transfer("orders", message, SIZE, None, None))
            for number, message in enumerate(own, 1)
        ]
        run_pump(BACKLOG.format(queue), waiting, meter, start, start + 60_000)
