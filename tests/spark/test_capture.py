"""`twinbus pipeline capture` against a namespace, in the session of all tests."""

import json
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pairing.namespaces import NamespaceProcess
from tests.spark.entities import Entities
from twinbus.cli.app import run
from twinbus.client.blocking import BlockingNamespace
from twinbus.pipeline import capture as capture_module
from twinbus.pipeline import newcomers
from twinbus.pipeline.capture import Capture, CaptureMode, CaptureSettings, CaptureState, run_captures
from twinbus.pipeline.lake import read_lake, write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Captures:
    """Runs the command and reads the lake."""

    def __init__(
        self, spark: "SparkSession", entities: Entities, lake: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._spark, self._entities, self._lake, self._capsys = spark, entities, lake, capsys
        self.report = lake.parent / "report.html"

    def run(self, *words: str, code: int = 0) -> dict[str, dict[str, Any]]:
        broker = self._entities.broker
        place = ["--connection-string", broker.connection_string, "--endpoint", f"http://127.0.0.1:{broker.http_port}"]
        command = ["pipeline", "capture", *words, "--lake", str(self._lake), "--available-now", *place, "--json"]
        assert run(command) == code
        return {record["entity"]: record for record in json.loads(self._capsys.readouterr().out)}

    def in_lake(self, entity: str) -> Counter[str]:
        rows = read_lake(self._spark, str(self._lake)).where(f"entity = '{entity}'").select("messageId").collect()
        return Counter(row.messageId for row in rows)


@pytest.fixture
def captures(spark: "SparkSession", entities: Entities, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Captures:
    return Captures(spark, entities, tmp_path / "lake", capsys)


def bodies(first: int, end: int) -> list[str]:
    return [f"m{number}" for number in range(first, end)]


@pytest.mark.rule("C1.2")
def test_each_message_is_captured_once_and_left_where_it_is(captures: Captures, entities: Entities) -> None:
    queue, other = entities.queue(enable_partitioning=True), entities.queue()
    entities.send(queue, bodies(0, 700))
    entities.send(other, bodies(0, 5))
    first = captures.run(queue, other, "--batch-messages", "400", "--report", str(captures.report))
    assert "<b>705</b><span>messages</span>" in captures.report.read_text()
    assert (first[queue]["state"], first[queue]["messages"], first[queue]["batches"]) == ("done", 700, 2)
    assert first[other]["messages"] == 5
    assert first[other]["complete"] == [{"fragment": 0, "up_to": 5, "last": 5}]
    entities.send(queue, bodies(700, 750))
    assert captures.run(queue.upper())[queue]["messages"] == 50  # names have no case
    assert captures.in_lake(queue) == Counter(bodies(0, 750))
    assert captures.in_lake(other) == Counter(bodies(0, 5))
    assert entities.broker.count(queue) == 750


@pytest.mark.rule("C1.2")
def test_what_is_consumed_is_in_the_lake_and_nowhere_else(captures: Captures, entities: Entities) -> None:
    topic = entities.topic("audit")
    path = f"{topic}/Subscriptions/audit"
    entities.send(topic, bodies(0, 30))
    captured = captures.run(f"{topic}*", "--consume")[path]
    assert (captured["messages"], captured["behind"]) == (30, 0)
    assert captures.in_lake(path) == Counter(bodies(0, 30))
    with entities.broker.administration() as administration:
        assert administration.get_subscription_runtime_properties(topic, "audit").total_message_count == 0


@pytest.mark.rule("C1.2")
def test_what_was_captured_stays_in_the_lake_although_its_batch_is_repeated_and_others_have_taken_it(
    captures: Captures, entities: Entities, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = entities.queue()
    entities.send(queue, bodies(0, 10))

    def write(messages: "DataFrame", *where: Any, **how: Any) -> None:
        write_batch(messages, *where, **how)
        raise RuntimeError("before Spark knows that the batch is done")

    monkeypatch.setattr(capture_module, "write_batch", write)
    captures.run(queue, code=1)
    monkeypatch.undo()
    with BlockingNamespace.connect(entities.broker.connection_string) as namespace:
        receiver = namespace.receiver(queue)
        assert not any(receiver.complete(receiver.collect(4, 10)))
        receiver.close()
    entities.send(queue, bodies(10, 13))
    assert captures.run(queue)[queue]["state"] == "done"
    assert captures.in_lake(queue) == Counter(bodies(0, 13))


def test_an_entity_that_was_made_again_between_two_runs_is_captured_from_its_first_message(
    captures: Captures, entities: Entities
) -> None:
    """By then it has more messages than were captured before."""
    queue = entities.queue()
    entities.send(queue, bodies(0, 5))
    captures.run(queue)
    with entities.broker.administration() as administration:
        administration.delete_queue(queue)
        administration.create_queue(queue)
    entities.send(queue, bodies(5, 13))
    again = captures.run(queue)[queue]
    assert (again["messages"], again["complete"]) == (8, [{"fragment": 0, "up_to": 8, "last": 8}])
    assert captures.run(queue)[queue]["messages"] == 0
    assert captures.in_lake(queue) == Counter(bodies(0, 13))


def test_an_entity_that_is_not_there_fails_alone_and_in_one_line(
    captures: Captures, entities: Entities, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = entities.queue()
    entities.send(queue, bodies(0, 3))
    found = captures.run(queue, "nowhere", code=1)
    assert found[queue]["messages"] == 3
    assert found["nowhere"]["state"] == "failed"
    assert found["nowhere"]["last_error"].startswith("The messaging entity 'nowhere' could not be found.")


def test_a_checkpoint_that_is_damaged_fails_its_entity_alone(
    captures: Captures, entities: Entities, tmp_path: Path
) -> None:
    """As a disk leaves it that has lost a block."""
    queue, other = entities.queue(), entities.queue()
    entities.send(queue, bodies(0, 3))
    captures.run(queue)
    offset = tmp_path / "lake" / "_checkpoints" / queue / "offsets" / "0"
    offset.write_bytes(bytes(len(offset.read_bytes())))
    entities.send(other, bodies(0, 3))
    found = captures.run(queue, other, code=1)
    assert (found[other]["state"], found[other]["messages"]) == ("done", 3)
    assert found[queue]["state"] == "failed"
    assert "offsets/0" in found[queue]["last_error"]


def test_a_lake_that_cannot_be_is_reported_in_one_line(spark: "SparkSession", entities: Entities) -> None:
    settings = CaptureSettings("s4://lake", CaptureMode.BROWSE, entities.options)
    capture = Capture(spark, entities.queue(), settings)
    run_captures([capture], threading.Event(), lambda: None)
    assert capture.tally.state is CaptureState.FAILED
    assert capture.tally.last_error == 'No FileSystem for scheme "s4"'


def test_a_capture_without_end_takes_in_what_is_new_and_finishes_its_batch_when_it_is_told_to_stop(
    spark: "SparkSession", entities: Entities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one queue some messages are deferred already; the other one appears while the first is captured."""
    monkeypatch.setattr(newcomers, "LIST_EVERY_S", 0.0)
    queue, later = entities.queue(), entities.queue()
    entities.send(queue, bodies(0, 10))
    entities.send(later, bodies(0, 3))
    with BlockingNamespace.connect(entities.broker.connection_string) as namespace:
        receiver = namespace.receiver(queue)
        assert not any(receiver.defer(receiver.collect(2, 10)))
        receiver.close()
    settings = CaptureSettings(str(tmp_path), CaptureMode.BROWSE, entities.options, interval_s=0.5)
    captures, stop = [Capture(spark, queue, settings)], threading.Event()
    find = newcomers.Newcomers(captures, lambda: [queue, later], lambda path: Capture(spark, path, settings))

    def stop_when_captured() -> None:
        if sum(capture.tally.messages for capture in captures) == 13:
            stop.set()

    run_captures(captures, stop, stop_when_captured, newcomers=find)
    assert [capture.tally.state for capture in captures] == [CaptureState.STOPPED] * 2
    found = Counter((row.entity, row.messageId) for row in read_lake(spark, str(tmp_path)).collect())
    assert found == Counter([*((queue, body) for body in bodies(0, 10)), *((later, body) for body in bodies(0, 3))])


def test_a_second_capture_of_an_entity_into_the_same_lake_is_refused_while_the_first_runs(
    spark: "SparkSession", entities: Entities, tmp_path: Path
) -> None:
    """Cron starts one every few minutes, however long the one before takes."""
    queue = entities.queue()
    entities.send(queue, bodies(0, 10))
    endless = CaptureSettings(str(tmp_path), CaptureMode.CONSUME, entities.options, interval_s=0.5)
    first, stop = Capture(spark, queue, endless), threading.Event()
    others: list[Capture] = []

    def start_another() -> None:
        if first.tally.messages and not others:
            other = Capture(spark, queue.upper(), replace(endless, interval_s=None))
            others.append(other)
            run_captures([other], threading.Event(), lambda: None)
            entities.send(queue, bodies(10, 15))
        elif first.tally.messages == 15:
            stop.set()

    run_captures([first], stop, start_another)
    (other,) = others
    assert other.tally.state is CaptureState.FAILED
    assert (other.tally.last_error or "").startswith("Another capture writes to the same lake.")
    assert Counter(row.messageId for row in read_lake(spark, str(tmp_path)).collect()) == Counter(bodies(0, 15))
    last = Capture(spark, queue, replace(endless, interval_s=None))
    run_captures([last], threading.Event(), lambda: None)
    assert last.tally.state is CaptureState.DONE


@pytest.mark.nightly
def test_a_capture_without_end_goes_on_when_its_namespace_is_back(spark: "SparkSession", tmp_path: Path) -> None:
    namespace = NamespaceProcess(tmp_path, "bus")
    entities = Entities(namespace)
    queue = entities.queue()
    settings = CaptureSettings(f"{tmp_path}/lake", CaptureMode.CONSUME, entities.options, interval_s=0.5)
    capture, stop = Capture(spark, queue, settings), threading.Event()
    entities.send(queue, bodies(0, 10))
    seen: list[CaptureState] = []

    def interfere() -> None:
        if capture.tally.messages == 10 and not seen:
            namespace.kill()
            seen.append(capture.tally.state)
        elif seen == [CaptureState.RUNNING] and capture.tally.state is CaptureState.RETRYING:
            namespace.start()
            entities.send(queue, bodies(10, 15))
            seen.append(capture.tally.state)
        elif capture.tally.messages == 15:
            stop.set()

    try:
        run_captures([capture], stop, interfere, at_once=1)
    finally:
        namespace.kill()
    assert Counter(row.messageId for row in read_lake(spark, settings.lake).collect()) == Counter(bodies(0, 15))
