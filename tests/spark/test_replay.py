"""`twinbus pipeline replay` on Spark, from dead-letter queues and from a lake."""

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from bench.processor_time import children_of
from tests.spark.entities import Entities
from twinbus.cli.app import run
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.client.received_message import ReceivedMessage
from twinbus.pipeline.lake import write_batch
from twinbus.pipeline.replay.choice import captured
from twinbus.pipeline.replay.lake_job import LakeReplay, hours_of, prepared
from twinbus.pipeline.source.rows.columns import ddl
from twinbus.pipeline.stop_request import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay(capsys: pytest.CaptureFixture[str], entities: Entities, *words: str) -> tuple[int, Any]:
    """The exit code, and what was said: JSON on success, else the one line."""
    capsys.readouterr()
    where = [
        "--connection-string",
        entities.broker.connection_string,
        "--endpoint",
        f"http://127.0.0.1:{entities.broker.http_port}",
    ]
    code = run(["pipeline", "replay", *words, *where, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else said.err


def dead_letters(entities: Entities, path: str, count: int, reason: str) -> None:
    payloads = [
        encode_message(str(n), message_id=f"{reason}{n}", application_properties={"n": n}) for n in range(count)
    ]
    entities.send_encoded(path, payloads)
    entities.dead_letter(path, count, reason)


def peek(entities: Entities, path: str) -> list[ReceivedMessage]:
    with BlockingNamespace.connect(entities.broker.connection_string) as namespace:
        return namespace.run(namespace.extras(path).peek_merged(1_000))


def minute(number: int) -> str:
    return f"2026-11-15T10:{number:02}:00+00:00"


@pytest.mark.rule("C1.3")
def test_chosen_dead_letters_go_home_and_the_others_stay(
    spark: "SparkSession", entities: Entities, capsys: pytest.CaptureFixture[str]
) -> None:
    queue, topic = entities.queue(), entities.topic("s")
    dead_letters(entities, queue, 5, "Tired")
    dead_letters(entities, queue, 3, "Old")
    where = ("--where", "deadLetterReason = 'Tired' and string(body) <> '0'")

    code, plan = replay(capsys, entities, queue, "--dead-letters", *where, "--dry-run", "--sample", "2")
    assert code == 0
    assert plan["messages"] == 4
    assert plan["entities"][0]["destination"] == queue
    assert [each["body"] for each in plan["sample"]] == ["1", "2"]
    assert peek(entities, queue) == []

    code, done = replay(capsys, entities, queue, "--dead-letters", *where)
    assert code == 0
    assert [(each["replayed"], each["left"]) for each in done] == [(4, 0)]
    home = peek(entities, queue)
    assert [message.message_id for message in home] == ["Tired1", "Tired2", "Tired3", "Tired4"]
    assert [message.application_properties for message in home] == [{"n": n} for n in range(1, 5)]
    assert len(peek(entities, f"{queue}/$DeadLetterQueue")) == 4

    code, said = replay(capsys, entities, f"{topic}/Subscriptions/s", "--dead-letters")
    assert code == 2
    assert "--to" in said


@pytest.mark.rule("C1.3")
def test_dead_letters_come_home_to_a_queue_that_has_had_their_ids(
    spark: "SparkSession", entities: Entities, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = entities.queue(requires_duplicate_detection=True)
    dead_letters(entities, queue, 5, "Tired")
    code, said = replay(capsys, entities, queue, "--dead-letters", "--message-ids", "keep")
    assert (code, "--message-ids new" in said) == (2, True), said
    code, done = replay(capsys, entities, queue, "--dead-letters")
    assert code == 0
    assert [(each["replayed"], each["left"]) for each in done] == [(5, 0)]
    home = [message.application_properties or {} for message in peek(entities, queue)]
    assert sorted(each["CopyOfMessageId"] for each in home) == [f"Tired{n}" for n in range(5)]
    assert peek(entities, f"{queue}/$DeadLetterQueue") == []


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of this process, which is the driver's; the session has its own."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.rule("C1.3")
@pytest.mark.usefixtures("tokyo")
def test_a_lake_is_replayed_in_order_and_again_without_a_second_copy(
    spark: "SparkSession", entities: Entities, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One message has no id. Times are shown so that they mean the same in a filter, wherever that is."""
    queue = entities.queue(requires_session=True, requires_duplicate_detection=True)
    lake = str(tmp_path / "lake")
    # Numbers rise with time; Parquet keeps them in no order.
    rows = [
        {
            "body": str(number).encode(),
            "messageId": f"m{number}" if number != 7 else "",
            "sequenceNumber": number,
            "sessionId": f"s{number % 2}",
            "enqueuedTime": datetime(2026, 11, 15, 10, number, tzinfo=UTC),
            "timeToLive": 60_000,
            "properties": {"n": '{"long": 5}', "DeadLetterReason": '"Tired"'},
        }
        for number in reversed(range(40))
    ]
    frame = spark.createDataFrame(rows, ddl())
    write_batch(frame, lake, queue, "capture-0")

    code, plan = replay(capsys, entities, queue, "--lake", lake, "--dry-run", "--sample", "1")
    assert (plan["entities"][0]["first"], plan["entities"][0]["last"]) == (minute(0), minute(39))
    assert plan["sample"][0]["enqueuedTime"] == minute(0)
    code, plan = replay(capsys, entities, "--lake", lake, "--dry-run", "--where", f"enqueuedTime >= '{minute(4)}'")
    assert (code, plan["messages"]) == (0, 36)
    assert replay(capsys, entities, queue.upper(), "--lake", lake, "--where", "false") == (0, [])
    code, said = replay(capsys, entities, queue, "ordres*", "--lake", lake)
    assert (code, said.endswith("has no messages of 'ordres*'. Check the spelling.\n")) == (1, True), said

    for _ in range(2):
        code, done = replay(capsys, entities, queue, "--lake", lake, "--where", "sequenceNumber >= 4")
        assert code == 0
        assert [(each["chosen"], each["replayed"]) for each in done] == [(36, 36)]
    found = peek(entities, queue)
    assert len(found) == 36
    for session in ("s0", "s1"):
        numbers = [int(message.body) for message in found if message.session_id == session]
        assert numbers == sorted(numbers)
    assert found[0].application_properties == {"n": 5}
    assert found[0].header.ttl == 60_000

    for _ in range(2):
        code, done = replay(capsys, entities, queue, "--lake", lake, "--message-ids", "new")
        assert code == 0
    copies = peek(entities, queue)[36:]
    assert len({message.message_id for message in copies}) == len(copies) == 40
    assert {(message.application_properties or {}).get("CopyOfMessageId") for message in copies} == {
        *(f"m{number}" for number in range(40) if number != 7),
        None,
    }


def test_messages_without_ids_get_ids_of_their_own_although_an_entity_that_was_created_again_repeats_its_numbers(
    spark: "SparkSession",
) -> None:
    times = [datetime(2026, 11, 15, 10, minute, tzinfo=UTC) for minute in (5, 5, 55)]
    rows = [
        {"entity": "orders", "messageId": name, "sequenceNumber": 1, "enqueuedTime": time}
        for name, time in zip((None, "", None), times, strict=True)
    ]
    first, same, other = (
        row.messageId for row in prepared(spark.createDataFrame(rows, ddl()), {"orders": "o"}).collect()
    )
    assert first == same != other


def test_a_replay_that_is_stopped_goes_no_further(spark: "SparkSession", entities: Entities, tmp_path: Path) -> None:
    """Of two slices of an hour, the second is not sent: the job is asked to stop when the first one is."""
    queue = entities.queue()
    times = [datetime(2026, 11, 15, 10, minute, tzinfo=UTC) for minute in (5, 55)]
    rows = [{"body": b"x", "sequenceNumber": n, "enqueuedTime": time} for n, time in enumerate(times)]
    write_batch(spark.createDataFrame(rows, ddl()), str(tmp_path), queue, "capture-0")
    chosen = captured(spark, str(tmp_path), [], None)
    job = LakeReplay(spark, entities.options, StopRequest(), rate=0.09)
    job.show = job.stop.ask
    job.run(chosen, hours_of(chosen), {queue: queue})
    (tally,) = job.tallies
    assert (tally.chosen, tally.replayed, tally.left) == (2, 1, 1)
    assert tally.go_on_from == datetime(2026, 11, 15, 10, 30, tzinfo=UTC)
    assert [message.message_id is not None for message in peek(entities, queue)] == [True]

    rest = captured(spark, str(tmp_path), [], f"enqueuedTime >= '{tally.go_on_from.isoformat()}'")
    job = LakeReplay(spark, entities.options, StopRequest())
    job.run(rest, hours_of(rest), {queue: queue})
    assert [(each.replayed, each.go_on_from) for each in job.tallies] == [(1, None)]


def kill_workers_once(entities: Entities, path: str, count: int, spark: "SparkSession") -> Thread:
    """As when an executor is lost, as soon as so many messages can be received from the queue."""

    def kill() -> None:
        with entities.broker.administration() as administration:
            while (administration.get_queue_runtime_properties(path).active_message_count or 0) < count:
                time.sleep(0.02)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        for daemon in children_of(gateway.proc.pid):
            for worker in children_of(daemon):
                os.kill(worker, signal.SIGKILL)

    killer = Thread(target=kill, daemon=True)
    killer.start()
    return killer


@pytest.mark.rule("C1.3")
def test_messages_that_a_killed_task_had_moved_are_not_counted_as_missing(
    spark: "SparkSession", entities: Entities, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = entities.queue(lock_duration=timedelta(seconds=5))
    dead_letters(entities, queue, 60, "Tired")
    killer = kill_workers_once(entities, queue, 5, spark)
    code, said = replay(capsys, entities, queue, "--dead-letters", "--rate", "20")
    killer.join()
    (done,) = said
    assert (code, done["missing"], done["left"]) == (0, 0, 0)
    assert done["unconfirmed"] >= 5
    assert done["replayed"] + done["unconfirmed"] == 60
    assert len({message.message_id for message in peek(entities, queue)}) == 60
    assert entities.broker.count(queue) == 60


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "--lake FOLDER, or --dead-letters"),
        (("--dead-letters",), 2, "name the queues"),
        (("{queue}", "--dead-letters", "--where", "no sense at all"), 2, "--where: "),
        (("{queue}", "--dead-letters", "--where", "colour = 1"), 2, "--where: "),
        (("nowhere", "--dead-letters"), 1, "could not be found"),
        (("{queue}", "--dead-letters", "--to", "nowhere"), 1, "'nowhere' cannot be written to"),
        (("--lake", "/no/such/folder"), 1, "/no/such/folder"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    spark: "SparkSession",
    entities: Entities,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    queue = entities.queue()
    if "--to" in words:
        dead_letters(entities, queue, 1, "Tired")
    found, text = replay(capsys, entities, *(word.format(queue=queue) for word in words))
    assert found == code, text
    assert said in text
    assert len(text.splitlines()) == 1
