"""`twinbus syphon` as a process between two real namespaces: killed, doubled and told to stop."""

import asyncio
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import SERVE, until
from twinbus.cli.app import run as run_command
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.clock import SteadyClock
from twinbus.pairing import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.backlog.queues import backlog_queue_path
from twinbus.pairing.syphon.service import PairToDrain, find_backlog, run_syphons
from twinbus.testing.auditor import Auditor, Ledger

COUNT = 2000


class Backlog:
    """A backlog of its own for a test: two queues on the secondary, filled with messages for `path`."""

    def __init__(self, spaces: Spaces) -> None:
        self.spaces = spaces
        self.name = f"p{uuid.uuid4().hex[:8]}"
        self.queues = [backlog_queue_path(self.name, index) for index in range(2)]
        with spaces.secondary.administration() as administration:
            for queue in self.queues:
                administration.create_queue(queue, max_delivery_count=1000)

    def fill(self, path: str | None, count: int = COUNT) -> list[str]:
        """Returns the bodies, in the order in which each queue has them."""
        bodies = [f"m{number}" for number in range(count)]
        asyncio.run(self._fill(path, bodies))
        return bodies

    async def _fill(self, path: str | None, bodies: list[str]) -> None:
        properties = {} if path is None else {"x-ms-path": path}
        async with await Namespace.connect(self.spaces.secondary.connection_string) as namespace:
            for index, queue in enumerate(self.queues):
                payloads = [
                    encode_message(body.encode(), message_id=body, application_properties=properties)
                    for body in bodies[index::2]
                ]
                assert not any(await (await namespace.sender(queue)).send_batches(payloads, keeps_keys_apart=False))

    async def dead_letters(self, index: int) -> list[dict[str, Any]]:
        """The application properties of what was dead-lettered in a queue."""
        async with await Namespace.connect(self.spaces.secondary.connection_string) as namespace:
            found = await namespace.entity(f"{self.queues[index]}/$DeadLetterQueue").peek(10)
        return [each.application_properties for each in found]

    def waiting(self) -> int:
        return sum(self.spaces.secondary.count(queue) for queue in self.queues)

    def arguments(self, command: str, *more: str) -> list[str]:
        return [
            *(command, "--json", "--primary-name", self.name),
            *("--primary", self.spaces.primary.connection_string),
            *("--secondary", self.spaces.secondary.connection_string),
            *("--secondary-endpoint", f"http://127.0.0.1:{self.spaces.secondary.http_port}", *more),
        ]

    def drain(self) -> None:
        """By a syphon in this process, until nothing waits."""
        with self.spaces.secondary.administration() as administration:
            pair = find_backlog(
                self.spaces.primary.connection_string,
                self.spaces.secondary.connection_string,
                administration,
                self.name,
            )
            options = SendAvailabilityPairedNamespaceOptions()
            asyncio.run(run_syphons([pair], options, SteadyClock(), asyncio.Event(), until_empty=True))

    def pair(self, administration: ServiceBusAdministrationClient) -> PairToDrain:
        primary, secondary = self.spaces.primary.connection_string, self.spaces.secondary.connection_string
        return PairToDrain(primary, secondary, administration, tuple(self.queues))

    @contextmanager
    def running(self, *more: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [sys.executable, "-c", SERVE, *self.arguments("syphon", *more)], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.mark.rule("B8.6")
def test_a_syphon_killed_in_the_middle_loses_nothing_and_duplicates_are_detected(spaces: Spaces) -> None:
    path = spaces.primary.create_queue(requires_duplicate_detection=True)
    backlog = Backlog(spaces)
    auditor = Auditor(detects_duplicates=True)
    for body in backlog.fill(path):
        auditor.sent(body, None, is_pinned=False)
        auditor.accepted(body)
    with backlog.running("--rate", "200"):
        until(lambda: spaces.primary.count(path) > 0)
    assert 0 < spaces.primary.count(path) < COUNT
    spaces.secondary.kill()  # so that the locks of the killed syphon are gone at once
    spaces.secondary.revive()
    backlog.drain()
    assert backlog.waiting() == 0
    auditor.check_ledger(Ledger(spaces.primary.take_all(path)))


@pytest.mark.rule("B8.1")
def test_two_syphons_at_once_move_every_message_once(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    backlog = Backlog(spaces)
    bodies = backlog.fill(path)
    with backlog.running("--until-empty") as one, backlog.running("--until-empty") as other:
        assert (one.wait(30), other.wait(30)) == (0, 0)
        assert one.stdout is not None
        assert other.stdout is not None
        moved = [json.loads(process.stdout.read())[0]["moved"] for process in (one, other) if process.stdout]
    assert sum(moved) == COUNT
    assert sorted(spaces.primary.take_all(path)) == sorted(bodies)


@pytest.mark.rule("B8", "B9")
def test_a_syphon_that_is_told_to_stop_gives_back_what_it_has_not_moved(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    backlog = Backlog(spaces)
    bodies = backlog.fill(path)
    with backlog.running("--rate", "500") as process:
        until(lambda: spaces.primary.count(path) > 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    home = spaces.primary.take_all(path)
    still = [body for queue in backlog.queues for body in spaces.secondary.take_all(queue)]
    assert sorted(home + still) == sorted(bodies)


@pytest.mark.rule("B8")
def test_what_can_never_arrive_is_dead_lettered_with_destination_and_reason(spaces: Spaces) -> None:
    backlog = Backlog(spaces)
    backlog.fill("no-such-queue", count=2)
    backlog.fill(None, count=2)
    backlog.drain()
    dead = asyncio.run(backlog.dead_letters(0))
    reasons = {str(each["DeadLetterReason"]): str(each["DeadLetterErrorDescription"]) for each in dead}
    assert set(reasons) == {"TransferDestinationNotFound", "TransferPropertiesInvalid"}
    assert "no-such-queue" in reasons["TransferDestinationNotFound"]
    assert "x-ms-path" in reasons["TransferPropertiesInvalid"]


@pytest.mark.rule("B8")
def test_a_partitioned_destination_that_detects_duplicates_gets_its_messages_one_by_one(spaces: Spaces) -> None:
    """It refuses batches of different keys, and message ids are keys there."""
    path = spaces.primary.create_queue(enable_partitioning=True, requires_duplicate_detection=True)
    backlog = Backlog(spaces)
    bodies = backlog.fill(path, count=60)
    backlog.drain()
    assert sorted(spaces.primary.take_all(path)) == sorted(bodies)


@pytest.mark.rule("B11.3")
def test_the_backlog_is_shown_by_queue_and_destination(spaces: Spaces, capsys: pytest.CaptureFixture[str]) -> None:
    backlog = Backlog(spaces)
    backlog.fill("orders", count=600)
    backlog.fill("bills", count=4)
    backlog.fill(None, count=2)
    assert run_command(backlog.arguments("backlog")) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(row.pop("size_bytes") > 0 for row in rows)
    assert rows == [
        {"queue": queue, "destination": path, "waiting": count, "is_all": True}
        for queue in backlog.queues
        for path, count in (("orders", 300), ("bills", 2), (None, 1))
    ]


@pytest.mark.rule("B8")
async def test_a_secondary_that_cannot_say_how_much_waits_does_not_end_the_drain(spaces: Spaces) -> None:
    """Its management may be away for a moment; only an answer that nothing waits ends it."""
    path = spaces.primary.create_queue()
    backlog = Backlog(spaces)
    await backlog._fill(path, ["m0", "m1"])
    stop = asyncio.Event()
    text = spaces.secondary.connection_string_with("Endpoint=sb://127.0.0.1:1")
    with ServiceBusAdministrationClient.from_connection_string(text, retry_total=0) as nobody:
        pair = backlog.pair(nobody)
        options = SendAvailabilityPairedNamespaceOptions()
        draining = asyncio.create_task(run_syphons([pair], options, SteadyClock(), stop, until_empty=True))
        await asyncio.to_thread(until, lambda: pair.tally.moved == 2)
        assert not draining.done()
        stop.set()
        await draining


async def test_a_secondary_that_refuses_to_say_how_much_waits_is_reported_as_it_is(spaces: Spaces) -> None:
    stranger = spaces.secondary.connection_string_with("SharedAccessKey=d3Jvbmc=")
    with spaces.secondary.administration_with(stranger) as refused:
        pair = Backlog(spaces).pair(refused)
        options = SendAvailabilityPairedNamespaceOptions()
        with pytest.raises(ClientAuthenticationError):
            await run_syphons([pair], options, SteadyClock(), asyncio.Event(), until_empty=True)


def test_the_keys_of_a_pair_are_not_shown(spaces: Spaces) -> None:
    with spaces.secondary.administration() as administration:
        assert "SharedAccessKey" not in repr(Backlog(spaces).pair(administration))


def test_pairs_come_from_a_file(spaces: Spaces, tmp_path: Path) -> None:
    path = spaces.primary.create_queue()
    backlogs = [Backlog(spaces), Backlog(spaces)]
    for backlog in backlogs:
        backlog.fill(path, count=10)
    file = tmp_path / "pairs.toml"
    file.write_text(
        "\n".join(
            f"""[[pair]]
            primary = "{spaces.primary.connection_string}"
            secondary = "{spaces.secondary.connection_string}"
            primary_name = "{backlog.name}"
            secondary_endpoint = "http://127.0.0.1:{spaces.secondary.http_port}"
            """
            for backlog in backlogs
        )
    )
    command = [sys.executable, "-c", SERVE, "syphon", "--json", "--until-empty", "--pairs", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [pair["moved"] for pair in json.loads(done.stdout)] == [10, 10]
    assert spaces.primary.count(path) == 20


@pytest.mark.rule("B11")
def test_the_backlog_is_shown_by_name_while_the_primary_is_down(
    spaces: Spaces, capsys: pytest.CaptureFixture[str]
) -> None:
    backlog = Backlog(spaces)
    backlog.fill("orders", count=4)
    spaces.primary.kill()
    assert run_command(["backlog", "--json", "--data", str(spaces.primary.folder), "--primary-name", backlog.name]) == 0
    assert sum(row["waiting"] for row in json.loads(capsys.readouterr().out)) == 4


@pytest.mark.rule("B8")
def test_a_syphon_started_by_names_waits_for_a_primary_that_is_down(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    backlog = Backlog(spaces)
    bodies = backlog.fill(path, count=4)
    spaces.primary.kill()
    names = ["syphon", "--json", "--until-empty", "--data", str(spaces.primary.folder), "--primary-name", backlog.name]
    with subprocess.Popen([sys.executable, "-c", SERVE, *names], stdout=subprocess.PIPE, text=True) as process:
        spaces.primary.revive()
        assert process.wait(120) == 0
    assert sorted(spaces.primary.take_all(path)) == sorted(bodies)


def test_why_nothing_moves_is_reported_while_the_syphon_waits(spaces: Spaces) -> None:
    backlog = Backlog(spaces)
    backlog.fill(spaces.primary.create_queue(), count=2)
    stranger = spaces.primary.connection_string_with("SharedAccessKey=d3Jvbmc=")
    command = [sys.executable, "-c", SERVE, *backlog.arguments("syphon", "--primary", stranger)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
        finally:
            process.terminate()
    assert line.startswith("twinbus: pair 1: ")
    assert "Check the connection string" in line


@pytest.mark.parametrize(
    "text",
    [
        b"\xff",
        b"pair = 5",
        b"[[pair]]\nprimary = 'primary'",
        b"[[pair]]\nprimary = 5\nsecondary = 'secondary'",
        b"[[pair]]\nprimary = 'primary'\nsecondary = 'secondary'\nsecondary_endpoint = 5301",
        b"[[pair]]\nprimary = 'primary'\nsecondary = 'secondary'\nprimary_name = 7",
        b"[[pair]]\nprimary = 'primary'\nsecondary = 'secondary'\nrate = 7",
    ],
)
def test_a_file_of_pairs_that_makes_no_sense_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes
) -> None:
    file = tmp_path / "pairs.toml"
    file.write_bytes(text)
    assert run_command(["syphon", "--pairs", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


def test_the_help_names_the_table_of_a_pair(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["syphon", "--help"]) == 0
    assert "'pair'" in " ".join(capsys.readouterr().out.split())
