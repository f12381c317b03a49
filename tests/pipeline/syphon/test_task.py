"""One task of the syphon, without Spark around it, between two real namespaces."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import until
from tests.pipeline.syphon.backlog import Backlog, in_order
from twinbus.clock import SteadyClock
from twinbus.pipeline.syphon.key_folder import KeyFolder
from twinbus.pipeline.syphon.reports import LaneReport, LaneStatus
from twinbus.pipeline.syphon.rounds import TaskPlan
from twinbus.pipeline.syphon.task import run_task

COUNT = 1_000


def run(plan: TaskPlan, attempt: int = 0) -> list[LaneReport]:
    return run_task(plan, attempt, SteadyClock())


def statuses(reports: list[LaneReport]) -> set[LaneStatus]:
    return {report.status for report in reports}


@pytest.mark.rule("B8")
def test_a_task_empties_its_queues_and_keeps_the_order_of_each(spaces: Spaces, backlog: Backlog) -> None:
    path = spaces.primary.create_queue()
    bodies = backlog.fill(path, COUNT)
    reports = run(backlog.task())
    assert statuses(reports) == {LaneStatus.EMPTY}
    assert [report.moved for report in reports] == [COUNT // 2, COUNT // 2]
    assert backlog.waiting_count() == 0
    home = spaces.primary.take_all(path)
    assert sorted(home) == sorted(bodies)
    assert all(in_order(home, backlog.share(index, bodies)) for index in range(2))


def test_a_task_ends_with_its_budget_and_the_next_one_goes_on_in_order(spaces: Spaces, backlog: Backlog) -> None:
    path = spaces.primary.create_queue()
    bodies = backlog.fill(path, COUNT)
    reports = run(backlog.task(budget_s=0.5, rate=400, page_max=20))
    assert statuses(reports) == {LaneStatus.BUDGET}
    assert 0 < spaces.primary.count(path) < COUNT
    run(backlog.task(memories={report.queue: report.memory for report in reports}))
    home = spaces.primary.take_all(path)
    assert sorted(home) == sorted(bodies)
    assert all(in_order(home, backlog.share(index, bodies)) for index in range(2))


def test_a_task_that_is_told_to_stop_moves_or_gives_back_what_it_took(
    spaces: Spaces, backlog: Backlog, tmp_path: Path
) -> None:
    path = spaces.primary.create_queue()
    bodies = backlog.fill(path, COUNT)
    stop_file, reports = tmp_path / "stop", []
    plan = backlog.task(budget_s=60, rate=100, page_max=10, stop_file=str(stop_file))
    working = threading.Thread(target=lambda: reports.extend(run(plan)))
    working.start()
    until(lambda: spaces.primary.count(path) > 0)
    stop_file.touch()
    working.join(10)
    assert statuses(reports) == {LaneStatus.STOPPED}
    assert sorted(spaces.primary.take_all(path) + backlog.waiting()) == sorted(bodies)


@pytest.mark.rule("B8")
def test_a_primary_that_is_down_ends_the_task_before_it_has_taken_much(spaces: Spaces, backlog: Backlog) -> None:
    path = spaces.primary.create_queue()
    bodies = backlog.fill(path, COUNT)
    spaces.primary.kill()
    reports = run(backlog.task())
    assert statuses(reports) == {LaneStatus.DESTINATION_DOWN}
    assert reports[0].failed_path == path
    assert sum(report.left for report in reports) <= 400
    spaces.primary.revive()
    backlog.forget_locks()
    run(backlog.task(memories={report.queue: report.memory for report in reports}))
    home = spaces.primary.take_all(path)
    assert sorted(home) == sorted(bodies)
    assert all(in_order(home, backlog.share(index, bodies)) for index in range(2))


def test_one_destination_that_is_disabled_does_not_keep_the_others_from_their_messages(
    spaces: Spaces, backlog: Backlog
) -> None:
    good, closed = spaces.primary.create_queue(), spaces.primary.create_queue(status="SendDisabled")
    backlog.fill(closed, 100, prefix="closed")
    bodies = backlog.fill(good, 100)
    reports = run(backlog.task())
    assert statuses(reports) == {LaneStatus.STUCK}
    assert sorted(spaces.primary.take_all(good)) == sorted(bodies)
    assert sum(report.moved for report in reports) == len(bodies)
    assert sum(report.memory.left_count() for report in reports) == 100
    assert backlog.waiting_count() == 100


@pytest.mark.rule("B8")
def test_what_one_task_left_is_not_overtaken_in_the_next_one(spaces: Spaces, keys: KeyFolder) -> None:
    backlog = Backlog(spaces, keys, queue_count=1, lock=timedelta(minutes=5))
    path = spaces.primary.create_queue(status="SendDisabled")
    first = backlog.fill(path, 50, prefix="first")
    (left,) = run(backlog.task())
    assert left.memory.left_count() == 50
    with spaces.primary.administration() as administration:
        queue = administration.get_queue(path)
        queue.status = "Active"
        administration.update_queue(queue)
    second = backlog.fill(path, 50, prefix="second")
    memory = left.memory
    for destination in memory.destinations.values():
        destination.gave_back(list(destination.left), None)
    (held,) = run(backlog.task(memories={left.queue: memory}))
    assert (held.status, held.moved) == (LaneStatus.STUCK, 0)
    backlog.forget_locks()
    until(lambda: bool(run(backlog.task(memories={held.queue: held.memory})) and not backlog.waiting_count()))
    assert spaces.primary.take_all(path) == first + second


@pytest.mark.rule("B8")
def test_what_one_task_left_is_given_back_by_the_next_one_and_waits_for_no_lock(
    spaces: Spaces, keys: KeyFolder
) -> None:
    backlog = Backlog(spaces, keys, queue_count=1, lock=timedelta(minutes=5))
    path = spaces.primary.create_queue(status="SendDisabled")
    first = backlog.fill(path, 50, prefix="first")
    (report,) = run(backlog.task())
    with spaces.primary.administration() as administration:
        queue = administration.get_queue(path)
        queue.status = "Active"
        administration.update_queue(queue)
    second = backlog.fill(path, 50, prefix="second")
    reports = [report]

    def is_home() -> bool:
        reports[:] = run(backlog.task(memories={report.queue: reports[0].memory}))
        return not backlog.waiting_count()

    until(is_home)
    assert spaces.primary.take_all(path) == first + second


def test_a_secondary_that_is_down_is_a_status_too(spaces: Spaces, backlog: Backlog) -> None:
    spaces.secondary.kill()
    reports = run(backlog.task())
    assert statuses(reports) == {LaneStatus.BACKLOG_DOWN}
    assert reports[0].error is not None


def test_poison_is_dead_lettered_up_to_the_quota_and_the_rest_stays(spaces: Spaces, backlog: Backlog) -> None:
    backlog.fill("no-such-queue", 40)
    backlog.fill(None, 40, prefix="n")
    reports = run(backlog.task(poison_quota=10))
    assert statuses(reports) == {LaneStatus.POISON_QUOTA}
    assert sum(report.dead_lettered for report in reports) == 10
    assert sum(backlog.dead_reasons().values()) == 10
    with spaces.secondary.administration() as administration:
        properties = [administration.get_queue_runtime_properties(queue) for queue in backlog.queues]
    assert sum(each.active_message_count or 0 for each in properties) == 70


def test_a_task_that_is_repeated_lets_the_locks_of_its_first_attempt_end_where_order_is_kept(
    spaces: Spaces, backlog: Backlog
) -> None:
    path = spaces.primary.create_queue()
    backlog.fill(path, 100)
    assert statuses(run(backlog.task(), attempt=1)) == {LaneStatus.LOST}
    assert spaces.primary.count(path) == 0
    assert statuses(run(backlog.task(keeps_order=False), attempt=1)) == {LaneStatus.EMPTY}
    assert spaces.primary.count(path) == 100


def test_a_connection_string_that_is_missing_on_the_executor_is_said_in_one_line(backlog: Backlog) -> None:
    Path(backlog.places.primary.given).unlink()
    reports = run(backlog.task())
    assert statuses(reports) == {LaneStatus.MISCONFIGURED}
    assert "cannot be read here" in (reports[0].error or "")


def test_a_primary_whose_messaging_stores_are_down_is_reported_with_the_destination_that_failed(
    spaces: Spaces, backlog: Backlog
) -> None:
    path = spaces.primary.create_queue()
    backlog.fill(path, 100)
    with spaces.primary.stores_down():
        reports = run(backlog.task())
    assert [report.failed_path for report in reports] == [path, path]
    assert sum(report.moved for report in reports) == 0
