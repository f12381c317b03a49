"""A job that is going to be killed, as a program. Arguments: the job, the source, the target, a folder.

`forward`  consume the queue by a stream and send to the other one
`capture`  consume the queue into a lake in the folder
`browse`   the same, and leave the messages

It ends when all that was there is done. The connection string is in BUS. DEATH_NOTE may name a note that says where all of
it dies: see `dying_source`.
"""

import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus.pipeline.session import QUICK_START, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_MESSAGES = "150"
BUS = {"connectionStringEnv": "BUS"}
STAGED = ("staging", "staged", "renamed", "committed")
"""Phases that are seen on the disk: files are being written, all are, they are in their place, the batch is committed."""
LOOK_EVERY_S = 0.002


def forward(spark: "SparkSession", source: str, target: str, folder: str) -> int:
    reading = {**BUS, "queue": source, "mode": "consume", "maxMessagesPerTrigger": BATCH_MESSAGES}
    messages = spark.readStream.format("servicebus").options(**reading).load().select("body", "messageId")
    writing = messages.writeStream.format("servicebus").options(**BUS, queue=target)
    query = writing.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return 0


def capture(spark: "SparkSession", source: str, folder: str, mode: str, bus: Mapping[str, str] = BUS) -> int:
    from twinbus.pipeline.capture import Capture, CaptureMode, CaptureSettings, run_captures

    options = {**bus, "maxMessagesPerTrigger": BATCH_MESSAGES, **_dying(spark, folder)}
    one = Capture(spark, source, CaptureSettings(f"{folder}/lake", CaptureMode(mode), options))
    run_captures([one], threading.Event(), lambda: None, at_once=1)
    return 0 if one.tally.state == "done" else 1


def _dying(spark: "SparkSession", folder: str) -> dict[str, str]:
    """The option that makes the source come past the note, and what it cannot see made to do so too."""
    from tests.spark import dying_source
    from twinbus.pipeline import capture as module
    from twinbus.pipeline.lake import write_batch

    note = os.environ.get("DEATH_NOTE")
    if note is None:
        return {}
    place = note

    def write(messages: "DataFrame", *where: Any, **how: Any) -> None:
        dying_source.visit(place, "writing")
        write_batch(messages, *where, **how)
        dying_source.visit(place, "written")

    module.write_batch = write  # type: ignore[attr-defined]
    threading.Thread(target=_watch, args=(Path(folder) / "lake", note), daemon=True).start()
    dying_source.register(spark)
    return {dying_source.NOTE_OPTION: note}


def _watch(lake: Path, note: str) -> None:
    """Says when the number of files in a place has changed."""
    from tests.spark.dying_source import visit

    patterns = {
        "staging": "entity=*/.spark-staging-*/*/*/*/*.parquet",
        "staged": "entity=*/.spark-staging-*/*/*/*/.*.crc",
        "renamed": "entity=*/date=*/hour=*/batch=*",
        "committed": "_checkpoints/*/commits/*",
    }
    seen: dict[str, set[Path]] = {phase: set(lake.glob(pattern)) for phase, pattern in patterns.items()}
    while True:
        for phase, pattern in patterns.items():
            found = set(lake.glob(pattern))
            if found - seen[phase]:
                visit(note, phase)
            seen[phase] |= found
        time.sleep(LOOK_EVERY_S)


def main(job: str, source: str, target: str, folder: str) -> int:
    settings = {**QUICK_START, "spark.log.level": "OFF", "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    spark = spark_session("crash test", master="local[2,4]", settings=settings)
    if job == "forward":
        return forward(spark, source, target, folder)
    return capture(spark, source, folder, "browse" if job == "browse" else "consume")


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    os._exit(code)  # the session dies with the process: nothing is stopped in order
