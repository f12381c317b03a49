"""The bill on Spark: sums equal an independent count, and nothing that happens to files changes that."""

import csv
import json
import shutil
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusMessage

from tests.cost.made_logs import (
    PRIMARY,
    SECONDARY,
    busy_hours,
    counted,
    idle_polls,
    millis,
    operation,
    outage,
    write_log,
)
from tests.spark.entities import Entities
from twinbus.cli.app import run
from twinbus.cost.explain import explain
from twinbus.cost.price_sheet_file import example_text, parse_price_sheet
from twinbus.meter.log_reader import open_logs
from twinbus.meter.log_writer import SCHEMA
from twinbus.meter.operation import Cause, Operation
from twinbus.pipeline.bill.job import BillInUse, Ledger, update_ledger
from twinbus.pipeline.bill.part_files import BillDamaged, read_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = millis("2026-11-15 06:00")
SHEET = parse_price_sheet(
    example_text().replace("included_operations = 13_000_000", "included_operations = 100"), "tests.toml"
)
PLAN = SHEET.plan("standard")


class Bench:
    """A log, the folder of its bill, and runs of the job."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self.spark = spark
        self.log, self.out = folder / "operations", folder / "bill"
        self.log.mkdir()

    def run(self, *more: Path, plan: str = "standard") -> Ledger:
        return update_ledger(self.spark, [self.log, *more], self.out, SHEET.plan(plan), lambda _: None)

    def totals(self, period: str = "hourly") -> Counter[str]:
        pattern = "month=*" if period == "monthly" else "date=*"
        lines = read_parts(self.out / period, pattern)
        return Counter({name: sum(lines[name].to_pylist()) for name in ("operations", "messages", "bytes", "units")})


@pytest.fixture
def bench(spark: "SparkSession", tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path)


@pytest.mark.rule("C1.4", "D5")
def test_lines_of_every_period_equal_an_independent_count(bench: Bench) -> None:
    """Two namespaces, an outage, and a month's end in between; money goes through the tiers."""
    late = busy_hours(millis("2026-11-30 23:00"), 2, seed=3)
    to_primary, to_secondary = outage(START, messages=50)
    own = [*busy_hours(START, 3, seed=1), *to_primary, *late]
    spare = [*idle_polls(START, 3), *to_secondary]
    write_log(bench.log, own)
    write_log(bench.log.parent / "spare", spare, namespace=SECONDARY)
    ledger = bench.run(bench.log.parent / "spare")
    for period in ("hourly", "daily", "monthly"):
        assert bench.totals(period) == counted([*own, *spare])
    keyed: Counter[tuple[Any, ...]] = Counter()
    for namespace, operations in ((PRIMARY, own), (SECONDARY, spare)):
        for each in operations:
            keyed[namespace, each.entity, each.fragment, each.cause.value, each.path.value] += each.units
    lines = read_parts(bench.out / "monthly", "month=*").to_pylist()
    found: Counter[tuple[Any, ...]] = Counter()
    for line in lines:
        found[line["namespace"], line["entity"], line["fragment"], line["cause"], line["path"]] += line["units"]
    assert found == keyed
    assert {hour.month for hour in ledger.hours} == {"2026-11", "2026-12"}
    assert money(bench, PRIMARY, "2026-12") == tiered(each for each in late if each.at >= millis("2026-12-01 00:00"))
    assert money(bench, PRIMARY, "2026-11") == tiered(each for each in own if each.at < millis("2026-12-01 00:00"))
    assert money(bench, SECONDARY, "2026-11") == tiered(spare)


def tiered(operations: Iterable[Operation]) -> Decimal:
    units = sum(each.units for each in operations)
    assert units > 100
    return (units - 100) * Decimal("0.0000008")


def money(bench: Bench, namespace: str, month: str) -> Decimal:
    lines = read_parts(bench.out / "monthly", f"month={month}").to_pylist()
    # Operations of the hour that crosses the edge pay its mean price, which has more digits than a line.
    return round(sum((line["operations_money"] for line in lines if line["namespace"] == namespace), Decimal(0)), 7)


def test_late_replayed_and_new_files_are_counted_once(bench: Bench) -> None:
    """At a price without tiers: lines change because counts do, and not because prices did."""
    first, late, new = (busy_hours(START, 1, seed=seed) for seed in (1, 2, 3))
    (original,) = write_log(bench.log, first, seed=1)
    bench.run(plan="basic")
    write_log(bench.log, late, seed=2)
    shutil.copy(original, original.with_name("copied-by-hand.parquet"))
    assert [bench.run(plan="basic").intake.hours for _ in range(2)] == [1, 0]
    assert bench.totals() == counted([*first, *late])
    write_log(bench.log, [each._replace(at=each.at + 3_600_000) for each in new], seed=3)
    intake = bench.run(plan="basic").intake
    assert (intake.hours, intake.files) == (1, 1)
    for period in ("hourly", "daily", "monthly"):
        assert bench.totals(period) == counted([*first, *late, *new])


def test_a_run_that_died_before_it_noted_what_it_billed_can_be_repeated(bench: Bench) -> None:
    operations = busy_hours(START, 2, seed=1)
    write_log(bench.log, operations)
    bench.run()
    shutil.rmtree(bench.out / "state")
    assert bench.run().intake.hours == 2
    assert bench.totals() == counted(operations)


def test_sick_files_are_named_and_skipped_and_a_later_run_heals(bench: Bench) -> None:
    """One file is half written, one is damaged inside where its index does not show it."""
    good, half, damaged = (busy_hours(START + hour * 3_600_000, 1, seed=hour) for hour in range(3))
    write_log(bench.log, good, seed=1)
    (half_file,) = write_log(bench.log, half, seed=2)
    (damaged_file,) = write_log(bench.log, damaged, seed=3)
    contents = {file: file.read_bytes() for file in (half_file, damaged_file)}
    half_file.write_bytes(contents[half_file][:-100])
    page = pq.read_metadata(damaged_file).row_group(0).column(SCHEMA.names.index("units")).data_page_offset
    damaged_file.write_bytes(contents[damaged_file][:page] + b"\xff" * 40 + contents[damaged_file][page + 40 :])
    ledger = bench.run()
    assert set(ledger.intake.unusable) == {str(half_file), str(damaged_file)}
    assert bench.totals() == counted(good)
    assert set(bench.run().intake.unusable) == {str(half_file), str(damaged_file)}
    for file, content in contents.items():
        file.write_bytes(content)
    healed = bench.run()
    assert (healed.intake.unusable, healed.intake.hours) == ({}, 2)
    assert bench.totals("daily") == counted([*good, *half, *damaged])


def test_a_bill_that_was_damaged_is_reported_in_one_line(bench: Bench) -> None:
    write_log(bench.log, [operation(START, Cause.SEND)])
    bench.run()
    (counts,) = (bench.out / "counts").rglob("*.parquet")
    counts.write_bytes(counts.read_bytes()[:-20])
    with pytest.raises(
        BillDamaged, match=r"^Files of the bill in .*date=2026-11-15 cannot be read: .*bill the logs again"
    ):
        bench.run()


def test_other_prices_change_the_money_of_what_is_counted_already(bench: Bench) -> None:
    write_log(bench.log, [operation(START, Cause.SEND, count=1_000)])
    bench.run()
    assert money(bench, PRIMARY, "2026-11") == Decimal("0.00072")
    assert bench.run(plan="basic").intake.hours == 0
    assert money(bench, PRIMARY, "2026-11") == Decimal("0.00005")


def test_two_runs_do_not_work_on_one_folder(bench: Bench) -> None:
    def again(_: str) -> None:
        with pytest.raises(BillInUse, match="Another run is writing to"):
            update_ledger(bench.spark, [bench.log], bench.out, PLAN, lambda _: None)

    update_ledger(bench.spark, [bench.log], bench.out, PLAN, again)


def test_an_hour_is_one_of_utc_wherever_the_bill_is_made_and_stays_when_its_log_is_cleared_away(bench: Bench) -> None:
    (file,) = write_log(bench.log, [operation(millis("2026-11-30 23:59"), Cause.SEND)])
    bench.spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        (hour,) = bench.run().hours
    finally:
        bench.spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert (hour.date, hour.hour) == ("2026-11-30", 23)
    file.unlink()
    assert bench.run().hours == [hour]


def test_the_command_prints_writes_and_returns_the_same_figures(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operations: list[Operation] = busy_hours(START, 2, seed=1)
    words = ["pipeline", "bill", str(bench.log), "--out", str(bench.out)]
    assert run(words) == 0
    assert "No operations are logged" in capsys.readouterr().out
    (file,) = write_log(bench.log, operations[:200])
    write_log(bench.log, operations[200:], seed=2)
    file.with_name("half.parquet").write_bytes(b"PAR1")
    assert run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["total"]["units"] == counted(operations)["units"]
    assert list(document["left_out"]) == [str(file.with_name("half.parquet"))]
    written = json.loads((bench.out / "report-2026-11.json").read_text())
    assert {name: document[name] for name in written} == written
    assert f"{document['total']['bytes']:,}" in (bench.out / "report-2026-11.html").read_text()
    with (bench.out / "csv" / "daily-2026-11.csv").open() as stream:
        assert sum(int(row["units"]) for row in csv.DictReader(stream)) == document["total"]["units"]
    assert run([*words, "--month", "2025-01"]) == 2
    assert "The log has nothing for 2025-01" in capsys.readouterr().err
    assert run(["pipeline", "bill", str(tmp_path / "nowhere"), "--out", str(bench.out)]) == 2
    assert pq.read_metadata(next((bench.out / "hourly").rglob("*.parquet"))).num_rows > 0


def trade(entities: Entities, queue: str) -> None:
    """Of 23 messages, one by one and as a batch, all are received and completed."""
    with entities.broker.client() as client:
        with client.get_queue_sender(queue) as sender:
            for size in (100, 200, 150_000):
                sender.send_messages(ServiceBusMessage(b"x" * size, message_id=f"{queue}-{size}"))
            sender.send_messages([ServiceBusMessage(b"y") for _ in range(20)])
        with client.get_queue_receiver(queue) as receiver:
            received = 0
            while received < 23:
                for message in receiver.receive_messages(max_message_count=23 - received, max_wait_time=10):
                    receiver.complete_message(message)
                    received += 1


@pytest.mark.rule("D1", "D5")
def test_traffic_of_the_official_sdk_is_billed_as_it_was_counted_on_the_clients_side(
    bench: Bench, entities: Entities
) -> None:
    """Single messages, a batch, one of three units, and receives that bring nothing."""
    plain, partitioned = entities.queue(), entities.queue(enable_partitioning=True)
    with ThreadPoolExecutor() as threads:  # a link of the SDK takes most of a second to open
        list(threads.map(lambda queue: trade(entities, queue), (plain, partitioned)))
    with entities.broker.client() as client, client.get_queue_receiver(plain) as receiver:
        assert receiver.receive_messages(max_wait_time=1) == []
    log = Path(entities.broker.ask("POST", "/$meter/flush")["operations"])
    bench.run(log)
    lines = read_parts(bench.out / "monthly", "month=*").to_pylist()
    own: Counter[tuple[str, str]] = Counter()
    for line in lines:
        if line["entity"] in (plain, partitioned):
            own[line["entity"], line["cause"]] += line["units"]
    for queue in (plain, partitioned):
        assert own[queue, "send"] == own[queue, "receive"] == 20 + 1 + 1 + 3
        assert own[queue, "settle"] == 0
    # The receive that waited for nothing, and at most one more where a link was left.
    assert 1 <= own[plain, "empty_receive"] <= 2
    settled = sum(line["operations"] for line in lines if (line["entity"], line["cause"]) == (plain, "settle"))
    assert settled == 23
    explained = explain(open_logs([log]), f"{plain}-150000", PLAN)
    assert [(step.meaning, step.units) for step in explained.steps] == [("sent", 3), ("received", 3)]
