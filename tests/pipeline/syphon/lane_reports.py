"""Reports and places as tests need them."""

from typing import Any

from twinbus.pairing.syphon.destinations import PumpMemory
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.syphon.reports import DestinationTally, LaneReport, LaneStatus
from twinbus.pipeline.syphon.rounds import PairPlaces

PLACES = PairPlaces(
    ConnectionOptions.from_options({"connectionStringEnv": "PRIMARY"}),
    ConnectionOptions.from_options({"connectionStringEnv": "SECONDARY"}),
)


def report(
    status: LaneStatus = LaneStatus.EMPTY,
    *,
    queue: str = "q",
    pair: int = 0,
    task: int = 0,
    path: str = "orders",
    memory: PumpMemory | None = None,
    error: str | None = None,
    **counts: Any,
) -> LaneReport:
    made = LaneReport(task, 0, pair, queue, 0, status, 0, 0, error=error, memory=memory or PumpMemory())
    if counts:
        made.destinations[path] = DestinationTally(**counts)
    return made
