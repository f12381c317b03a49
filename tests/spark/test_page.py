"""The examples of the page on Spark are one program, and it runs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.entities import Entities
from twinbus.client.message import encode_message
from twinbus.pipeline.lake import write_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark.md"
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COUNTRIES = ("de", "at", "xx")


def prepare(entities: Entities, secret: Path) -> None:
    """The entities of the page: six orders, two of which are dead."""
    secret.write_text(entities.broker.connection_string)
    with entities.broker.administration() as administration:
        administration.create_queue("orders")
        administration.create_queue("invoices", requires_duplicate_detection=True)
    orders = [
        encode_message(
            f'{{"article": "a{number}", "price": {number}.5}}',
            message_id=str(number),
            subject="new",
            application_properties={"country": COUNTRIES[number % 3]},
        )
        for number in range(6)
    ]
    entities.send_encoded("orders", orders)
    entities.dead_letter("orders", 2, "BadPrice")


def test_the_examples_of_the_page_run(
    spark: "SparkSession",
    entities: Entities,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / "bus"
    prepare(entities, secret)
    program = "\n".join(PROGRAM.findall(PAGE.read_text())).replace("/run/secrets/bus", str(secret))
    for name in ("lake/orders", "lake/orders-checkpoint", "lake/invoices-checkpoint"):
        program = program.replace(
            f'"{name}"', repr(str(tmp_path / name))
        )  # Spark's folder is where its JVM was started
    lake = str(tmp_path / "captured")
    invoice = spark.range(1).selectExpr("'1' AS messageId", "timestamp'2026-05-01 12:00:00' AS enqueuedTime")
    write_batch(invoice, lake, "invoices", "c-1")
    names: dict[str, Any] = {}
    exec(compile(program.replace('"captured"', repr(lake)), str(PAGE), "exec"), names)
    spark.streams.removeListener(names["listener"])
    assert set(names["prices"].values()) < {0.5, 1.5, 2.5, 3.5, 4.5, 5.5}
    assert len(names["prices"]) == names["new_ones"] == 4
    assert "|BadPrice" in capsys.readouterr().out
    assert len(entities.broker.take_all("invoices")) == 4
    assert entities.broker.count("orders") == 4  # two that are dead, and two that were mended
