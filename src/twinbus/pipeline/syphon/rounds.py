"""The plan of a round: what waits where and how the pairs stand in, tasks out.

Plans travel to executors and hold no secrets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from twinbus.clock import Millis
from twinbus.pairing.syphon.destinations import PumpMemory
from twinbus.pairing.syphon.pump import BATCH_MAX
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.syphon.lanes import Lane, lanes_of, pack
from twinbus.pipeline.syphon.pace import PacePlan
from twinbus.pipeline.syphon.ramp import START_RATE
from twinbus.pipeline.syphon.settings import SyphonSettings
from twinbus.pipeline.syphon.standing import PairStanding


@dataclass(frozen=True, slots=True)
class LanePlan:
    lane: Lane
    memory: PumpMemory | None
    page_max: int


@dataclass(frozen=True, slots=True)
class PairPlan:
    """What a task has to know of a pair: where its namespaces are, and the task's share of what is limited."""

    primary: ConnectionOptions
    secondary: ConnectionOptions
    pace: PacePlan
    poison_quota: int


@dataclass(frozen=True, slots=True)
class TaskPlan:
    number: int
    lanes: Sequence[LanePlan]
    pairs: Mapping[int, PairPlan]
    budget_s: float
    keeps_order: bool
    stop_file: str | None = None
    """A file that ends the task when it appears, where driver and executors share a file system."""


@dataclass(frozen=True, slots=True)
class PairPlaces:
    """References to the connection strings of a pair's namespaces."""

    primary: ConnectionOptions
    secondary: ConnectionOptions


@dataclass(frozen=True, slots=True)
class Situation:
    """What a round is planned from. `depths` is by queue, for each pair that could be looked at."""

    places: Sequence[PairPlaces]
    standings: Sequence[PairStanding]
    depths: Mapping[int, Mapping[str, int]]
    tasks_max: int
    stop_file: str | None = None
    settings: SyphonSettings = field(default_factory=SyphonSettings)


def plan_round(situation: Situation, now: Millis) -> list[TaskPlan]:
    """No tasks where nothing waits, or only behind open breakers and in queues that rest."""
    packed = pack(_lanes(situation, now), situation.tasks_max)
    served_by = {
        pair: [number for number, lanes in enumerate(packed) if any(lane.pair == pair for lane in lanes)]
        for pair in range(len(situation.places))
    }
    return [
        TaskPlan(
            number,
            [_lane_plan(lane, situation, packed) for lane in lanes],
            {pair: _pair_plan(pair, number, served_by[pair], situation) for pair in {lane.pair for lane in lanes}},
            situation.settings.budget_s,
            situation.settings.keeps_order,
            situation.stop_file,
        )
        for number, lanes in enumerate(packed)
    ]


def share_out(count: int, places: int, place: int) -> int:
    """The whole of `count` over the places, the first ones with one more where it does not divide."""
    return count // places + (place < count % places)


def _lanes(situation: Situation, now: Millis) -> list[Lane]:
    settings = situation.settings
    return [
        lane
        for pair, depths in situation.depths.items()
        if situation.standings[pair].may_run(now)
        for queue, depth in depths.items()
        if situation.standings[pair].queue(queue).may_run(now)
        for lane in lanes_of(pair, queue, depth, settings.lane_target, settings.lanes_per_queue_max)
    ]


def _lane_plan(lane: Lane, situation: Situation, packed: Sequence[Sequence[Lane]]) -> LanePlan:
    settings = situation.settings
    memory = situation.standings[lane.pair].queue(lane.queue).memory if settings.keeps_order else None
    if settings.rate is None:
        return LanePlan(lane, memory, BATCH_MAX)
    # A page is locked while it waits for its turn: where turns are rare, pages are small.
    lanes = sum(each.pair == lane.pair for task in packed for each in task)
    return LanePlan(lane, memory, max(1, min(BATCH_MAX, int(settings.rate / lanes))))


def _pair_plan(pair: int, task: int, served_by: Sequence[int], situation: Situation) -> PairPlan:
    settings, standing, places = situation.settings, situation.standings[pair], situation.places[pair]
    share = 1 / len(served_by)
    pace = PacePlan(
        share,
        _share_of(settings.rate, share),
        _share_of(settings.destination_rate, share),
        START_RATE * share if standing.is_recovering else None,
        {path: rate * share for path, rate in standing.rates.items()},
    )
    quota = share_out(settings.poison_quota, len(served_by), served_by.index(task))
    return PairPlan(places.primary, places.secondary, pace, quota)


def _share_of(rate: float | None, share: float) -> float | None:
    return None if rate is None else rate * share
