"""A program that sends tasks to workers and waits for results."""

import os
import time
from datetime import UTC, datetime, timedelta

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient
from celery import chain, group
from celery_app import NAME, add, app, failing, late, moment, report, stubborn
from scenarios import play_all, raised, scenario

WAIT = 30
KEYS = f"SharedAccessKeyName={os.environ['TWINBUS_KEY_NAME']};SharedAccessKey={os.environ['TWINBUS_KEY']}"

administration = ServiceBusAdministrationClient.from_connection_string(f"Endpoint=sb://{NAME}/;{KEYS}")


def waiting(queue: str) -> int:
    return administration.get_queue_runtime_properties(queue).active_message_count or 0


@scenario("processor", "a worker runs a task and its result comes back")
def result() -> None:
    assert add.delay(2, 3).get(WAIT) == 5


@scenario("processor", "tasks that waited for a worker are done in the end, each once")
def many() -> None:
    results = [add.delay(number, 1) for number in range(8)]
    assert [each.get(WAIT) for each in results] == list(range(1, 9))


@scenario("processor", "a task goes to the queue that it is routed to")
def routed() -> None:
    assert report.delay().get(WAIT) == "reports"
    assert add.apply_async((1, 1), queue="reports").get(WAIT) == 2


@scenario("processor", "a task that retries is sent again until it succeeds")
def retried() -> None:
    assert stubborn.delay().get(WAIT) == 2


@scenario("errors", "a task that fails raises its error for the caller")
def failed() -> None:
    assert str(raised(ValueError, lambda: failing.delay().get(WAIT))) == "no stock"


@scenario("scheduling", "a task with a countdown or an ETA is not run earlier")
def later() -> None:
    due = datetime.now(UTC) + timedelta(seconds=1)
    by_eta, by_countdown = moment.apply_async(eta=due), moment.apply_async(countdown=1)
    assert by_eta.get(WAIT) >= due.timestamp()
    assert by_countdown.get(WAIT) >= due.timestamp()


@scenario("settlement", "a task that is acknowledged late is acknowledged")
def acknowledged() -> None:
    assert late.delay("done").get(WAIT) == "DONE"
    deadline = time.monotonic() + WAIT
    while waiting("shop-orders"):
        assert time.monotonic() < deadline, "the message is still there"
        time.sleep(0.05)


@scenario("processor", "chains and groups of tasks pass their results on")
def composed() -> None:
    assert chain(add.s(1, 2), add.s(10))().get(WAIT) == 13
    assert sorted(group(add.s(number, number) for number in range(3))().get(WAIT)) == [0, 2, 4]


@scenario("administration", "queues are created with the transport's options, measured, purged and deleted")
def administered() -> None:
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        queue = connection.SimpleQueue("spare")
        queue.put({"n": 1})
        queue.put({"n": 2})
        assert administration.get_queue("shop-spare").lock_duration == timedelta(seconds=30)
        assert queue.qsize() == 2
        message = queue.get(timeout=5)
        assert message.payload == {"n": 1}
        message.ack()
        assert channel.queue_purge("spare") == 1
        assert queue.qsize() == 0
        queue.close()
        channel.queue_delete("spare")
    raised(ResourceNotFoundError, lambda: administration.get_queue("shop-spare"))


if __name__ == "__main__":
    play_all()
