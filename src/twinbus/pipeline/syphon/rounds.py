"""The plan of a round: depths of backlog queues and the state of pairs in, tasks out.

A lane is one pump on one backlog queue. A sender uses one backlog queue, and a pump moves a queue in order, so one lane keeps the
order of each sender and each message session. Two lanes on a queue take turns at its messages and overtake each other. Many lanes
of different queues share a task: a pump spends most of its time waiting for an answer.

Plans travel to executors and contain no secrets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from twinbus.clock import Millis
from twinbus.pairing.syphon.destinations import PumpMemory
from twinbus.pairing.syphon.pump import BATCH_MAX
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.syphon.standing import PairStanding
from twinbus.pipeline.syphon.syphon_settings import SyphonSettings
from twinbus.pipeline.syphon.task_pace import START_RATE, PacePlan


@dataclass(frozen=True, slots=True)
class Lane:
    """`pair` is the index of its pair in the job, `depth` its share of the messages waiting in the queue."""

    pair: int
    queue: str
    number: int
    depth: int


def lane_count(depth: int, target: int, lanes_max: int) -> int:
    """0 for an empty queue: a receive from it would be billed."""
    if depth <= 0:
        return 0
    return max(1, min(-(-depth // target), lanes_max))


def lanes_of(pair: int, queue: str, depth: int, target: int, lanes_max: int) -> list[Lane]:
    count = lane_count(depth, target, lanes_max)
    return [Lane(pair, queue, number, depth // count) for number in range(count)]


def pack(lanes: Sequence[Lane], tasks_max: int) -> list[list[Lane]]:
    """Lanes by task, about the same work for each: the deepest lane first, to the task with the least."""
    tasks: list[list[Lane]] = [[] for _ in range(min(len(lanes), tasks_max))]
    loads = [0] * len(tasks)
    for lane in sorted(lanes, key=lambda each: (-each.depth, each.pair, each.queue, each.number)):
        place = min(range(len(tasks)), key=lambda index: (loads[index], len(tasks[index])))
        tasks[place].append(lane)
        loads[place] += lane.depth
    return tasks


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
