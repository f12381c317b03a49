"""A Celery application as its documentation has it: two queues, tasks with results, retries and late acknowledgement."""

import os
import time

from celery import Celery
from kombu import Queue

NAME = os.environ["TWINBUS_NAME"]
FOLDER = os.environ["TWINBUS_RESULTS"]

app = Celery(
    "shop",
    broker=f"azureservicebus://{os.environ['TWINBUS_KEY_NAME']}:{os.environ['TWINBUS_KEY']}@{NAME}",
    backend=f"file://{FOLDER}",
)
# The transport asks one queue after the other, and waits at each empty one.
app.conf.update(
    broker_transport_options={"queue_name_prefix": "shop-", "wait_time_seconds": 0.5, "peek_lock_seconds": 30},
    task_default_queue="orders",
    task_queues=[Queue("orders"), Queue("reports")],
    task_routes={"celery_app.report": {"queue": "reports"}},
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    result_expires=3600,
)


@app.task
def add(left: int, right: int) -> int:
    return left + right


@app.task(bind=True)
def report(self) -> str:  # type: ignore[no-untyped-def]
    return str(self.request.delivery_info["routing_key"])


@app.task(bind=True, max_retries=3)
def stubborn(self) -> int:  # type: ignore[no-untyped-def]
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return int(self.request.retries)


@app.task
def failing() -> None:
    raise ValueError("no stock")


@app.task
def moment() -> float:
    return time.time()


@app.task(acks_late=True)
def late(text: str) -> str:
    return text.upper()
