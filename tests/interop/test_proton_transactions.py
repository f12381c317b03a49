"""Transactions with the Qpid Proton client, which knows nothing of us; where it is installed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.connecting.connection_string import parse_connection_string

proton = pytest.importorskip("proton")
handlers = pytest.importorskip("proton.handlers")
reactor = pytest.importorskip("proton.reactor")

WAIT_S = 10


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path, store_count=1)
    yield running
    running.stop()


class Exchange(handlers.MessagingHandler, handlers.TransactionHandler):  # type: ignore[name-defined,misc]
    """Takes one message from a queue and sends `texts` to it, in one transaction that is committed or aborted."""

    def __init__(self, server: RunningServer, queue: str, texts: list[str], *, commits: bool) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._target = parse_connection_string(server.connection_string)
        self._queue = queue
        self._texts = texts
        self._commits = commits
        self.log: list[str] = []

    def on_start(self, event: Any) -> None:
        self._container = event.container
        self._connection = event.container.connect(
            f"amqp://{self._target.host}:{self._target.port}",
            user=self._target.key_name,
            password=self._target.key,
            allowed_mechs="PLAIN",
            reconnect=False,
        )
        self._sender = event.container.create_sender(self._connection, self._queue)
        self._receiver = event.container.create_receiver(self._connection, self._queue)
        event.container.declare_transaction(self._connection, handler=self)
        self._timer = event.container.schedule(WAIT_S, self)

    def on_transaction_declared(self, event: Any) -> None:
        self.log.append("declared")
        self._transaction = event.transaction
        self._receiver.flow(1)

    def on_message(self, event: Any) -> None:
        self.log.append("received")
        self._transaction.accept(event.delivery)
        for text in self._texts:
            self._transaction.send(self._sender, proton.Message(body=text.encode()))
        self._transaction.commit() if self._commits else self._transaction.abort()

    def on_transaction_committed(self, event: Any) -> None:
        self._end("committed")

    def on_transaction_aborted(self, event: Any) -> None:
        self._end("aborted")

    def on_transaction_commit_failed(self, event: Any) -> None:
        self._end("failed")

    def on_timer_task(self, event: Any) -> None:
        self._end("timed out")

    def _end(self, word: str) -> None:
        self.log.append(word)
        self._timer.cancel()
        self._connection.close()


def exchange(server: RunningServer, *, commits: bool) -> tuple[list[str], int]:
    """What happened, and how many messages the queue has then."""
    server.put(server.create_queue("orders"), "old")
    client = Exchange(server, "orders", ["new", "newer"], commits=commits)
    reactor.Container(client).run()
    return client.log, server.server.entities.queue("orders").main.counts().active


def test_proton_commits_what_it_accepted_and_sent(server: RunningServer) -> None:
    assert exchange(server, commits=True) == (["declared", "received", "committed"], 2)


def test_proton_rolls_back_what_it_accepted_and_sent(server: RunningServer) -> None:
    assert exchange(server, commits=False) == (["declared", "received", "aborted"], 1)
    # It released what it had accepted, so that nobody holds it any more.
    (fragment,) = server.server.entities.queue("orders").main.fragments
    assert (len(fragment.locks), len(fragment.lane.ready)) == (0, 1)
