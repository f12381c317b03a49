"""A job that is going to be killed, as a program. Arguments: the job, the source, the target, a folder.

`forward`  consume the queue by a stream and send to the other one
`capture`  consume the queue into a lake in the folder
`browse`   the same, and leave the messages

It ends when all that was there is done. The connection string is in BUS.
"""

import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from twinbus.pipeline.session import QUICK_START, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_MESSAGES = "150"
BUS = {"connectionStringEnv": "BUS"}


def forward(spark: "SparkSession", source: str, target: str, folder: str) -> int:
    reading = {**BUS, "queue": source, "mode": "consume", "maxMessagesPerTrigger": BATCH_MESSAGES}
    messages = spark.readStream.format("servicebus").options(**reading).load().select("body", "messageId")
    writing = messages.writeStream.format("servicebus").options(**BUS, queue=target)
    query = writing.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return 0


def capture(spark: "SparkSession", source: str, folder: str, mode: str, bus: Mapping[str, str] = BUS) -> int:
    from twinbus.pipeline.capture import Capture, CaptureMode, CaptureSettings, run_captures

    options = {**bus, "maxMessagesPerTrigger": BATCH_MESSAGES}
    one = Capture(spark, source, CaptureSettings(f"{folder}/lake", CaptureMode(mode), options))
    run_captures([one], threading.Event(), lambda: None, at_once=1)
    return 0 if one.tally.state == "done" else 1


def main(job: str, source: str, target: str, folder: str) -> int:
    settings = {**QUICK_START, "spark.log.level": "OFF", "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    spark = spark_session("crash test", master="local[2,4]", settings=settings)
    if job == "forward":
        return forward(spark, source, target, folder)
    return capture(spark, source, folder, "browse" if job == "browse" else "consume")


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    os._exit(code)  # the session dies with the process: nothing is stopped in order
