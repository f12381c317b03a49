"""A capture into tables of Delta or Iceberg, as a program. Arguments: the format, the packages, the queue, a folder.

The connection string is in BUS. With DIES set, it ends by os._exit when a batch is in the table and not yet committed by Spark.
It prints how many rows the table has, and how many numbers.
"""

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from twinbus.pipeline.session import QUICK_START, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIED = 9


def main(format_name: str, packages: str, queue: str, folder: str) -> int:
    from twinbus.pipeline import capture as module
    from twinbus.pipeline.capture import Capture, CaptureMode, CaptureSettings, run_captures
    from twinbus.pipeline.lake import table_place, write_batch
    from twinbus.pipeline.table_formats import TableFormat, session_settings

    table_format, lake = TableFormat(format_name), f"{folder}/lake"
    settings = {
        **QUICK_START,
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.jars.packages": packages,
        **session_settings(table_format, lake),
    }
    spark = spark_session("lakehouse test", master="local[2]", settings=settings)

    def write(messages: "DataFrame", *where: Any, **how: Any) -> None:
        write_batch(messages, *where, **how)
        os._exit(DIED)

    if "DIES" in os.environ:
        module.write_batch = write  # type: ignore[attr-defined]
    options = {"connectionStringEnv": "BUS", "maxMessagesPerTrigger": "150"}
    one = Capture(spark, queue, CaptureSettings(lake, CaptureMode.BROWSE, options, table_format=table_format))
    run_captures([one], threading.Event(), lambda: None, at_once=1)
    place = table_place(lake, queue, table_format)
    table = spark.table(place) if table_format is TableFormat.ICEBERG else spark.read.format("delta").load(place)
    rows, numbers = table.count(), table.select("sequenceNumber").distinct().count()
    print(json.dumps({"state": one.tally.state, "rows": rows, "numbers": numbers, "error": one.tally.last_error}))
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
