"""One task of a round, on an executor: a plan in, a report for each of its lanes out.

All lanes of a task run on one event loop and share a connection to each namespace, as the pumps of the in-process syphon do. A
lane ends when its queue is empty, when the time is up, or when continuing would do harm; what it took is moved or given back.
"""

import asyncio
import os
import socket

from twinbus.clock import Clock, Millis
from twinbus.errors import MessagingError
from twinbus.pairing.events import PairingEvent
from twinbus.pairing.stock.failures import classify
from twinbus.pairing.stock.steps import run_async
from twinbus.pairing.syphon.bulk_transport import BulkTransport, syphon_links
from twinbus.pairing.syphon.pump import Pass, PoisonQuota, Pump
from twinbus.pairing.syphon.tasks import close_all
from twinbus.pairing.syphon.transport import Answer, Request
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.syphon.reports import LaneReport, LaneStatus, LaneTally
from twinbus.pipeline.syphon.rounds import LanePlan, PairPlan, TaskPlan
from twinbus.pipeline.syphon.task_pace import TaskPace

FIRST_WAIT_S = 3.0
"""Messages were counted in the queue, so they should come, even over a long distance or from a busy namespace."""
NEXT_WAIT_S = 0.2
"""A queue that just delivered messages and has more delivers those at once."""

REACH_S = 5.0
STOP_LOOK: Millis = 200


def run_task(plan: TaskPlan, attempt: int, clock: Clock) -> list[LaneReport]:
    """`attempt` counts from 0.

    Where order is kept, a repeated task does nothing: the first attempt died with messages locked, and whatever is taken before
    those locks end overtakes them. The driver lets the queues rest and plans again.
    """
    if attempt and plan.keeps_order:
        return _unopened(plan, attempt, clock, LaneStatus.LOST, None)
    try:
        works = {pair: PairWork(pair_plan, clock.now()) for pair, pair_plan in plan.pairs.items()}
    except OptionError as wrong:
        return _unopened(plan, attempt, clock, LaneStatus.MISCONFIGURED, str(wrong))
    return asyncio.run(_run(plan, works, attempt, clock))


def _unopened(plan: TaskPlan, attempt: int, clock: Clock, status: LaneStatus, error: str | None) -> list[LaneReport]:
    """Reports of lanes that were not started."""
    now = clock.now()
    return [
        LaneReport(
            task=plan.number,
            attempt=attempt,
            pair=each.lane.pair,
            queue=each.lane.queue,
            lane=each.lane.number,
            status=status,
            started_at=now,
            finished_at=now,
            error=error,
        )
        for each in plan.lanes
    ]


async def _run(plan: TaskPlan, works: "dict[int, PairWork]", attempt: int, clock: Clock) -> list[LaneReport]:
    ending = Ending(plan, clock)
    runs = [LaneRun(each, works[each.lane.pair], ending, clock) for each in plan.lanes]
    try:
        statuses = await asyncio.gather(*(each.drain() for each in runs))
    finally:
        links = [link for work in works.values() for link in (work.primary, work.secondary)]
        await close_all([each.transport for each in runs], *links)
    return [each.report(plan.number, attempt, status) for each, status in zip(runs, statuses, strict=True)]


class Ending:
    """When a task has to end: its budget is used up, or a stop was requested."""

    def __init__(self, plan: TaskPlan, clock: Clock) -> None:
        self._clock = clock
        self._deadline = clock.now() + int(plan.budget_s * 1000)
        self._stop_file = plan.stop_file
        self._look_at: Millis = 0
        self._is_asked_for = False

    def reason(self) -> LaneStatus | None:
        now = self._clock.now()
        if self._stop_file is not None and not self._is_asked_for and now >= self._look_at:
            self._look_at = now + STOP_LOOK
            self._is_asked_for = os.path.exists(self._stop_file)
        if self._is_asked_for:
            return LaneStatus.STOPPED
        return LaneStatus.BUDGET if now >= self._deadline else None


class PairWork:
    """What the lanes of one pair share in a task."""

    def __init__(self, plan: PairPlan, now: Millis) -> None:
        self.primary = syphon_links(plan.primary.resolve())
        self.secondary = syphon_links(plan.secondary.resolve())
        self.pace = TaskPace(plan.pace, now)
        self.poison_quota = PoisonQuota(plan.poison_quota)
        self.is_down = False

    async def is_reachable(self) -> bool:
        """Whether the primary answers at all; connects but sends nothing."""
        try:
            async with asyncio.timeout(REACH_S):
                await self.primary.reach()
        except (MessagingError, OSError) as error:  # a timeout is an OSError too
            self.is_down = classify(error).is_outage
        return not self.is_down


class LaneRun:
    """One pump on one backlog queue, until there is a reason to end."""

    def __init__(self, plan: LanePlan, work: PairWork, ending: Ending, clock: Clock) -> None:
        self._plan = plan
        self._work = work
        self._ending = ending
        self._clock = clock
        self._tally = LaneTally()
        self._started_at = clock.now()
        self._pump = Pump(
            plan.lane.queue,
            classify,
            work.pace,
            clock,
            self._heard,
            poison_quota=work.poison_quota,
            memory=plan.memory,
            page_max=plan.page_max,
        )
        self.transport = BulkTransport(
            plan.lane.queue, work.primary, work.secondary, self._is_stopping, credit=4 * plan.page_max
        )

    async def drain(self) -> LaneStatus:
        while True:
            reason = self._reason_before_pass()
            if reason is not None:
                return reason
            self._tally.begin_pass()
            wait_s = NEXT_WAIT_S if self._tally.moved else FIRST_WAIT_S
            came_of_it = await run_async(self._pump.do_pass(wait_s), self._perform)
            reason = await self._reason_after_pass(came_of_it)
            if reason is not None:
                return reason

    def report(self, task: int, attempt: int, status: LaneStatus) -> LaneReport:
        lane, tally = self._plan.lane, self._tally
        for path, rate in self._work.pace.rates().items():
            if path in tally.destinations:
                tally.destinations[path].rate = rate
        return LaneReport(
            task,
            attempt,
            lane.pair,
            lane.queue,
            lane.number,
            status,
            self._started_at,
            self._clock.now(),
            tally.destinations,
            tally.error,
            f"{socket.gethostname()}:{os.getpid()}",
            self._pump.memory,
        )

    def _reason_before_pass(self) -> LaneStatus | None:
        if self._work.is_down:
            return LaneStatus.DESTINATION_DOWN
        if self._work.poison_quota.is_used_up:
            return LaneStatus.POISON_QUOTA
        return self._ending.reason()

    async def _reason_after_pass(self, came_of_it: Pass) -> LaneStatus | None:
        tally = self._tally
        if tally.is_backlog_down:
            return LaneStatus.BACKLOG_DOWN
        if tally.has_outage and not tally.moved_in_pass and not await self._work.is_reachable():
            return LaneStatus.DESTINATION_DOWN
        if came_of_it is Pass.FUTILE:
            return LaneStatus.STUCK
        if came_of_it is Pass.EMPTY and not self._is_stopping():
            return LaneStatus.STUCK if self._pump.memory.left_count() else LaneStatus.EMPTY
        return None

    async def _perform(self, request: Request) -> Answer:
        try:
            return await self.transport.perform(request)
        finally:
            self._pump.is_stopping = self._is_stopping()

    def _is_stopping(self) -> bool:
        return self._work.is_down or self._ending.reason() is not None

    def _heard(self, event: PairingEvent) -> None:
        self._tally.count(event)
        self._work.pace.observe(event)
