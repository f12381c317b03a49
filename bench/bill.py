"""How long the bill takes: a log of operations is generated, billed, and then twice more with one new hour each.

    python -m bench.bill [--operations 1000000] [--hours 24] [--master local[2]]

The log has the columns, the file sizes and the spread of a busy namespace's: an hour's folder with a file for every five
minutes, ordinary and partitioned entities, exact rows. Times are without the start of Spark, which is shown apart. The last
new hour is billed by a process of its own, as an hourly job would: it has everything to load and to compile first.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.meter.log_format import ALPHABET, CURRENT_VERSION, hour_folder, ulid
from twinbus.meter.log_writer import SCHEMA
from twinbus.meter.operation import UNIT_BYTES, Cause
from twinbus.meter.operation import Path as OperationPath
from twinbus.pipeline.bill.counts import JVM_SETTINGS, SETTINGS
from twinbus.pipeline.bill.job import Ledger, update_ledger
from twinbus.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG, OUT = "operations", "bill"
START = datetime(2026, 11, 1, tzinfo=UTC)
HOURS = 24
MASTER = "local[2]"
FILES_AN_HOUR = 12
ENTITIES = 100
FRAGMENTS = 16
CAUSES = (Cause.SEND, Cause.RECEIVE, Cause.SETTLE, Cause.EMPTY_RECEIVE, Cause.RENEW, Cause.FORWARD)
SHARES = (0.32, 0.32, 0.3, 0.03, 0.02, 0.01)
SIZE_MEAN = 2_000
PLACE_CHARACTERS = 4
"""Of an id: enough for the rows of one file."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--operations", type=int, default=1_000_000)
    arguments.add_argument("--hours", type=int, default=HOURS)
    arguments.add_argument("--master", default=MASTER)
    arguments.add_argument(
        "--only-bill", type=Path, metavar="DIR", help="a folder that this benchmark created: bill what is new in it"
    )
    given = arguments.parse_args()
    if given.only_bill is not None:
        print(bill_alone(given.only_bill, given.master))
    else:
        show(given.operations, given.hours, given.master)


def show(operations: int, hours: int = HOURS, master: str = MASTER) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, figure in measure(Path(folder), operations, hours, master):
            print(f"{figure:8.2f} s  {name}", flush=True)


def measure(folder: Path, operations: int, hours: int, master: str) -> Iterator[tuple[str, float]]:
    log, out = folder / LOG, folder / OUT
    an_hour = operations // hours
    started = time.perf_counter()
    units = sum(write_hour(log, hour, an_hour) for hour in range(hours))
    yield f"making up {an_hour * hours:,} operations of {hours} hours", time.perf_counter() - started
    started = time.perf_counter()
    spark = start_spark(master)
    yield "starting Spark", time.perf_counter() - started
    for name in ("billing all", "billing nothing new", "billing one new hour"):
        if name == "billing one new hour":
            units += write_hour(log, hours, an_hour)
        ledger, took = timed_bill(spark, log, out)
        yield name, took
    assert sum(hour.units for hour in ledger.hours) == units, "the bill is wrong"
    spark.stop()
    units += write_hour(log, hours + 1, an_hour)
    billed, took = json.loads(_in_a_process_of_its_own(folder, master))
    assert billed == units, "the bill is wrong"
    yield "billing one new hour in a process of its own, after Spark has started", took


def bill_alone(folder: Path, master: str) -> str:
    """Units on the bill and seconds that it took, as JSON."""
    spark = start_spark(master)
    ledger, took = timed_bill(spark, folder / LOG, folder / OUT)
    spark.stop()
    return json.dumps([sum(hour.units for hour in ledger.hours), took])


def start_spark(master: str) -> "SparkSession":
    spark = spark_session("bench", master=master, settings=SETTINGS | JVM_SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(1).count()
    return spark


def timed_bill(spark: "SparkSession", log: Path, out: Path) -> tuple[Ledger, float]:
    plan = read_price_sheet(None).plan(None)
    started = time.perf_counter()
    ledger = update_ledger(spark, [log], out, plan, lambda _: None)
    return ledger, time.perf_counter() - started


def _in_a_process_of_its_own(folder: Path, master: str) -> str:
    command = [sys.executable, "-m", "bench.bill", "--only-bill", str(folder), "--master", master]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return done.stdout.splitlines()[-1]


def write_hour(log: Path, hour: int, count: int) -> int:
    """Files of one hour; returns the units in them."""
    random = np.random.default_rng(hour)
    start = int(START.timestamp() * 1000) + hour * 3_600_000
    folder = hour_folder(log, start)
    folder.mkdir(parents=True)
    units = 0
    for number in range(FILES_AN_HOUR):
        rows = count // FILES_AN_HOUR + (number < count % FILES_AN_HOUR)
        length = 3_600_000 // FILES_AN_HOUR
        table = _operations(random, start + number * length, length, rows)
        units += int(np.sum(table["units"].to_numpy()))
        pq.write_table(table, folder / f"node-{ulid(start, number)}.parquet", compression="zstd", row_group_size=50_000)
    return units


def _operations(random: np.random.Generator, start: int, length: int, count: int) -> pa.Table:
    at = np.sort(random.integers(start, start + length, count))
    cause = random.choice(len(CAUSES), count, p=SHARES)
    entity = np.minimum(random.exponential(ENTITIES / 5, count).astype(int), ENTITIES - 1)
    # Half of the entities are partitioned; empty receives concern no fragment.
    fragment = np.where(entity % 2 == 0, random.integers(0, FRAGMENTS, count), 0)
    is_empty = cause == CAUSES.index(Cause.EMPTY_RECEIVE)
    fragment = np.where(is_empty, -1, fragment)
    size = np.where(is_empty, 0, random.exponential(SIZE_MEAN, count).astype(np.int64))
    is_free = np.isin(cause, [CAUSES.index(each) for each in CAUSES if not each.is_billed])
    units = np.where(is_free, 0, np.maximum(1, -(-size // UNIT_BYTES)))
    names = pa.array([f"orders/queue-{number:03}" for number in range(ENTITIES)])
    values = {
        "op_id": _ids(random, at),
        "at": pa.array(at * 1000, pa.timestamp("us", "UTC")),
        "namespace": pa.array(["bench"] * count),
        "entity": names.take(pa.array(entity)),
        "entity_type": pa.array(["queue"] * count),
        "fragment": pa.array(fragment, pa.int16()),
        "cause": pa.array([each.value for each in CAUSES]).take(pa.array(cause)),
        "operations": pa.array(np.ones(count, np.int64)),
        "messages": pa.array(np.where(is_empty, 0, 1)),
        "bytes": pa.array(size),
        "units": pa.array(units),
        "path": pa.array([OperationPath.PRIMARY.value] * count),
        "who": pa.array(["azsdk-python-servicebus"] * count),
        "message_id": _message_ids(random, count, is_empty),
        "sequence_number": pa.array(np.arange(count), pa.int64()),
        "schema_version": pa.array(np.full(count, CURRENT_VERSION), pa.int16()),
    }
    return pa.table([values[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)


def _ids(random: np.random.Generator, at: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Array:
    """ULIDs of one run: time, the run, the place in it; made column by column, for a log has millions."""
    alphabet = np.frombuffer(ALPHABET.encode(), np.uint8)
    letters = np.empty((len(at), 26), np.uint8)
    for index in range(10):
        letters[:, index] = alphabet[(at >> (5 * (9 - index))) & 31]
    letters[:, 10:22] = alphabet[random.integers(0, 32, 12)]
    place = np.arange(len(at))
    for index in range(PLACE_CHARACTERS):
        letters[:, 22 + index] = alphabet[(place >> (5 * (PLACE_CHARACTERS - 1 - index))) & 31]
    return pa.array(letters.view("S26").ravel()).cast(pa.string())


def _message_ids(
    random: np.random.Generator, count: int, is_empty: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
) -> pa.Array:
    digits = np.frombuffer(random.bytes(count * 16).hex().encode(), "S32")
    return pa.array(digits.astype("U32"), pa.string(), mask=is_empty)


if __name__ == "__main__":
    main()
