"""What tasks of our jobs do, as programs without a JVM, which start quickly enough to be killed hundreds of times.

    move SOURCE DESTINATION      `replay --dead-letters`: all dead letters of the source
    write DESTINATION COUNT      a sink: messages with numbers as ids and bodies, in small batches
    syphon PLAN                  a round of the syphon, as its driver pickled it

Connection strings are in BUS, and in the files that the plan of a syphon names.
"""

import asyncio
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

from twinbus.clock import SystemClock
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.source.ranges import Range

PIECE_COUNT = 100
BUS = {"connectionStringEnv": "BUS", "operationTimeout": "20"}


def move(source: str, destination: str) -> int:
    from twinbus.pipeline.replay.dead_letter_task import MovePlan, run_move

    connection = ConnectionOptions.from_options(BUS)
    path = f"{source}/$DeadLetterQueue"
    chosen = asyncio.run(_numbers(connection, path))
    report = run_move(MovePlan(connection, path, destination, chosen, is_renaming=True), SystemClock())
    print(report)
    return 1 if report.error or report.sent else 0


async def _numbers(connection: ConnectionOptions, path: str) -> list[Range]:
    async with await connection.connect() as namespace:
        heads = await namespace.extras(path).fragment_heads()
    return [(head.first_number, head.last_number + 1) for head in heads if head.first_number <= head.last_number]


def write(destination: str, count: str) -> int:
    import pyarrow as pa

    from twinbus.pipeline.sink.message_ids import TaskPlace
    from twinbus.pipeline.sink.options import SinkOptions
    from twinbus.pipeline.sink.writing import Writing

    numbers = [str(number) for number in range(int(count))]
    batch = pa.record_batch({"body": pa.array([each.encode() for each in numbers]), "messageId": pa.array(numbers)})
    writing = Writing(
        SinkOptions.from_options({**BUS, "queue": destination, "batchBytes": "4096"}), {"body": 0, "messageId": 1}
    )
    pieces = [batch.slice(start, PIECE_COUNT) for start in range(0, len(numbers), PIECE_COUNT)]
    writing.write(pieces, TaskPlace("job", 0))
    return 0


def syphon(plan: str) -> int:
    from twinbus.pipeline.syphon.reports import LaneStatus
    from twinbus.pipeline.syphon.task import run_task

    reports = run_task(pickle.loads(Path(plan).read_bytes()), 0, SystemClock())
    print(reports)
    return 0 if all(report.status is LaneStatus.EMPTY for report in reports) else 1


TASKS: dict[str, Callable[..., int]] = {"move": move, "write": write, "syphon": syphon}

if __name__ == "__main__":
    code = TASKS[sys.argv[1]](*sys.argv[2:])
    sys.stdout.flush()
    os._exit(code)
