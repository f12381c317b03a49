"""Tasks that are killed over any frame, again and again: nothing is lost, and where the destination detects duplicates
each message is there once.

A namespace forgets locks when it is started anew, so it dies with the task: nobody waits for locks to end.
"""

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import SERVE, NamespaceProcess
from tests.pipeline.kills.doomed_program import DoomedProgram
from tests.pipeline.kills.tripwire import Tripwire
from tests.pipeline.syphon.backlog import Backlog
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.pipeline.source.offsets import ConsumeOffset
from twinbus.pipeline.source.ranges import half_open
from twinbus.pipeline.syphon.key_folder import KeyFolder

SEEDS = int(os.environ.get("TWINBUS_KILL_SEEDS", "200"))
QUICK_SEEDS = 2
EVERY_SEED = [
    pytest.param(seed, marks=[] if seed < QUICK_SEEDS else pytest.mark.nightly)
    for seed in range(max(SEEDS, QUICK_SEEDS))
]
COUNT = 240
WRITTEN_COUNT = 1_500
DEATHS = 2
RUN_S_MAX = 60.0
TASK = ("-m", "tests.pipeline.kills.task_program")
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceProcess]:
    process = NamespaceProcess(tmp_path_factory.mktemp("bus"), "bus")
    yield process
    process.kill()


@pytest.fixture(autouse=True)
def room_for_queues(bus: NamespaceProcess) -> Iterator[None]:
    yield
    bus.delete_queues()


@pytest.fixture
def wire() -> Iterator[Tripwire]:
    made = Tripwire()
    yield made
    made.close()


def program(wire: Tripwire, bus: NamespaceProcess, folder: Path, *command: str) -> DoomedProgram:
    environment = {"BUS": wire.guard(bus.connection_string)}
    return DoomedProgram(wire, command, folder / "program.log", environment, RUN_S_MAX)


def die_and_forget_locks(doomed: DoomedProgram, dice: Random, frames: int, bus: NamespaceProcess) -> None:
    for _ in range(DEATHS):
        doomed.run_and_die(dice, frames, 1)
        bus.kill()
        bus.revive()


def send(bus: NamespaceProcess, path: str, bodies: list[str]) -> None:
    payloads = [encode_message(body, message_id=body, partition_key=body) for body in bodies]
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        assert not any(namespace.sender(path).send_batches(payloads))


def check_arrived(arrived: list[str], bodies: list[str], *, once: bool) -> None:
    assert sorted(arrived if once else set(arrived)) == sorted(bodies)


@pytest.mark.rule("C1.3")
@pytest.mark.parametrize("seed", EVERY_SEED)
def test_dead_letters_come_home_however_often_the_task_that_moves_them_is_killed(
    seed: int, bus: NamespaceProcess, wire: Tripwire, tmp_path: Path
) -> None:
    dice, detects = Random(seed), seed % 2 == 0
    source, home = (
        bus.create_queue(enable_partitioning=True),
        bus.create_queue(requires_duplicate_detection=detects),
    )
    bodies = [str(number) for number in range(COUNT)]
    send(bus, source, bodies)
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        receiver = namespace.receiver(source, credit=COUNT)
        assert not any(receiver.dead_letter(receiver.collect(COUNT, 10), "Tired"))
    doomed = program(wire, bus, tmp_path, *TASK, "move", source, home)
    die_and_forget_locks(doomed, dice, 500, bus)
    doomed.run_to_the_end()
    check_arrived(bus.take_all(home), bodies, once=detects)
    assert bus.count(source) == 0


@pytest.mark.rule("C1.2")
@pytest.mark.parametrize("seed", EVERY_SEED)
def test_a_sink_has_sent_everything_however_often_its_task_is_killed(
    seed: int, bus: NamespaceProcess, wire: Tripwire, tmp_path: Path
) -> None:
    dice, detects = Random(seed), seed % 2 == 0
    target = bus.create_queue(requires_duplicate_detection=detects, enable_partitioning=seed % 4 == 1)
    doomed = program(wire, bus, tmp_path, *TASK, "write", target, str(WRITTEN_COUNT))
    doomed.run_and_die(dice, 24, DEATHS)
    doomed.run_to_the_end()
    check_arrived(bus.take_all(target), [str(number) for number in range(WRITTEN_COUNT)], once=detects)


@pytest.fixture(scope="module")
def spaces(bus: NamespaceProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spaces]:
    spare = NamespaceProcess(tmp_path_factory.mktemp("spare"), "spare")
    yield Spaces(bus, spare)
    spare.kill()


@pytest.mark.rule("C1.1")
@pytest.mark.parametrize("seed", EVERY_SEED)
def test_a_backlog_comes_home_however_often_the_task_of_the_syphon_is_killed(
    seed: int, spaces: Spaces, wire: Tripwire, tmp_path: Path
) -> None:
    dice, detects = Random(seed), seed % 2 == 0
    home = spaces.primary.create_queue(requires_duplicate_detection=detects)
    with KeyFolder() as keys:
        backlog = Backlog(spaces, keys)
        bodies = backlog.fill(home, COUNT)
        for place, namespace in (
            (backlog.places.primary, spaces.primary),
            (backlog.places.secondary, spaces.secondary),
        ):
            Path(place.given).write_text(wire.guard(namespace.connection_string))
        plan = tmp_path / "plan"
        plan.write_bytes(pickle.dumps(backlog.task(page_max=40)))
        doomed = program(wire, spaces.primary, tmp_path, *TASK, "syphon", str(plan))
        die_and_forget_locks(doomed, dice, 260, spaces.secondary)
        doomed.run_to_the_end()
        assert backlog.waiting_count() == 0
    check_arrived(spaces.primary.take_all(home), bodies, once=detects)


@pytest.mark.rule("C1.2")
@pytest.mark.parametrize("seed", EVERY_SEED)
def test_released_claims_are_active_once_and_finished_ones_gone_however_often_the_command_is_killed(
    seed: int, bus: NamespaceProcess, wire: Tripwire, tmp_path: Path
) -> None:
    """Half of them are in a batch that is done; its checkpoint is as Spark writes it."""
    dice, queue = Random(seed), bus.create_queue(enable_partitioning=True)
    bodies = [str(number) for number in range(COUNT)]
    send(bus, queue, bodies)
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        extras = namespace.extras(queue)
        done = half_open(namespace.run(extras.claim(COUNT // 2, owner="query")))
        open_ = half_open(namespace.run(extras.claim(COUNT, owner="query")))
        for batch, claim in enumerate((done, open_)):
            text = json.dumps(ConsumeOffset(queue, "query", tuple(claim)).to_json())
            (tmp_path / "offsets").mkdir(exist_ok=True)
            (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{text}\n")
        (tmp_path / "commits").mkdir()
        (tmp_path / "commits" / "0").write_text("v1\n{}")
        finished = set()
        for first, end in done:
            page = namespace.run(extras.peek_range(first, end - 1))
            finished |= {message.body.decode() for message in page.messages}
    guarded = wire.guard(bus.connection_string)
    command = ("-c", SERVE, "pipeline", "release-claims", queue, "--checkpoint", str(tmp_path))
    doomed = program(wire, bus, tmp_path, *command, "--connection-string", guarded)
    doomed.run_and_die(dice, 96, DEATHS)
    doomed.run_to_the_end()
    assert len(finished) == COUNT // 2
    assert sorted(bus.take_all(queue)) == sorted(set(bodies) - finished)
    assert bus.count(queue) == 0
