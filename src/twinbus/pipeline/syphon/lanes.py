"""Lanes by depth: how many messages wait in, which lanes a round has and which task runs which of them out.

A lane is one pump on one backlog queue. A sender uses one backlog queue, and a pump moves a queue in order, so one lane
keeps the order of each sender and each message session. Two lanes on a queue take turns at its messages and overtake
each other. Many lanes of different queues share a task: a pump spends most of its time waiting for an answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lane:
    """`pair` is its place among the pairs of the job, `depth` its share of what waits in the queue."""

    pair: int
    queue: str
    number: int
    depth: int


def lane_count(depth: int, target: int, lanes_max: int) -> int:
    """None for an empty queue: looking at it would be a receive that is paid for."""
    if depth <= 0:
        return 0
    return max(1, min(-(-depth // target), lanes_max))


def lanes_of(pair: int, queue: str, depth: int, target: int, lanes_max: int) -> list[Lane]:
    count = lane_count(depth, target, lanes_max)
    return [Lane(pair, queue, number, depth // count) for number in range(count)]


def pack(lanes: Sequence[Lane], tasks_max: int) -> list[list[Lane]]:
    """Lanes by task, each task with about the same to do: the deepest lane first, to whoever has the least."""
    tasks: list[list[Lane]] = [[] for _ in range(min(len(lanes), tasks_max))]
    loads = [0] * len(tasks)
    for lane in sorted(lanes, key=lambda each: (-each.depth, each.pair, each.queue, each.number)):
        place = min(range(len(tasks)), key=lambda index: (loads[index], len(tasks[index])))
        tasks[place].append(lane)
        loads[place] += lane.depth
    return tasks
