"""One trial of a pair of real namespaces: senders to one entity, an outage, and an auditor of all that was sent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import CLIENT_OPTIONS, NamespaceProcess, until
from twinbus.pairing import (
    Availability,
    EventKind,
    FailureKind,
    PairedNamespaceClient,
    PairedSender,
    PairingEvent,
    SendAvailabilityPairedNamespaceOptions,
    classify,
    pair_namespaces,
)
from twinbus.pairing.backlog.queues import backlog_queue_path, primary_name
from twinbus.testing.auditor import Auditor, Ledger

BACKLOG_QUEUE_COUNT = 2
DRAWS_MAX = 40


def options(**chosen: Any) -> SendAvailabilityPairedNamespaceOptions:
    """As quick as options can be."""
    quick = {
        "backlog_queue_count": BACKLOG_QUEUE_COUNT,
        "failover_interval": timedelta(seconds=0.3),
        "ping_primary_interval": timedelta(seconds=1),
    }
    return SendAvailabilityPairedNamespaceOptions(**{**quick, **chosen})


class Trial:
    """The auditor knows every message by its id, which is its body too. Each trial has a queue of its own."""

    def __init__(
        self, spaces: Spaces, *, secondary: NamespaceProcess | None = None, path: str | None = None, **queue: Any
    ) -> None:
        self.primary, self.secondary = spaces.primary, secondary or spaces.secondary
        self.path = path or self.primary.create_queue(**queue)
        self.primary_name = primary_name(f"127.0.0.1:{self.primary.amqp_port}")
        self.auditor = Auditor(detects_duplicates=queue.get("requires_duplicate_detection", False))
        self.events: list[PairingEvent] = []
        self.last_failure: FailureKind | None = None
        self._numbers = count()

    @contextmanager
    def paired(self, primary: str | None = None, **chosen: Any) -> Iterator[PairedNamespaceClient]:
        """`primary`: another connection string of it, for another way to reach it or another key."""
        with (
            self.secondary.administration() as administration,
            pair_namespaces(
                primary or self.primary.connection_string,
                self.secondary.connection_string,
                options(**{"on_event": self.events.append, "primary_name": self.primary_name, **chosen}),
                secondary_administration=administration,
                **CLIENT_OPTIONS,
            ) as client,
        ):
            yield client

    # Sending

    def sender(self, client: PairedNamespaceClient) -> PairedSender:
        return client.get_queue_sender(self.path)

    def messages(self, size: int, **properties: Any) -> list[ServiceBusMessage]:
        """New ones, of which the auditor knows."""
        ids = [f"m{next(self._numbers)}" for _ in range(size)]
        for each in ids:
            self.auditor.sent(each, None, is_pinned=False)
        return [ServiceBusMessage(each, message_id=each, **properties) for each in ids]

    def concluded(self, messages: list[ServiceBusMessage], error: Exception | None) -> bool:
        self.last_failure = None if error is None else classify(error)
        for message in messages:
            told = self.auditor.accepted if error is None else self.auditor.refused
            told(str(message.message_id))
        return error is None

    def send(self, sender: PairedSender, size: int = 1, *, timeout: float = 10, **properties: Any) -> bool:
        """One message, or a list of them. False if the caller got an error."""
        messages = self.messages(size, **properties)
        try:
            sender.send_messages(messages if size > 1 else messages[0], timeout=timeout)
        except ServiceBusError as error:
            return self.concluded(messages, error)
        return self.concluded(messages, None)

    def fail_over(self, client: PairedNamespaceClient, sender: PairedSender, timeout: float = 0.3) -> None:
        """The primary is away: one send fails, and the rest is a matter of time."""
        assert not self.send(sender, timeout=timeout)
        until(is_in(client, Availability.FAILED_OVER))

    def send_until_taken_out(self, client: PairedNamespaceClient) -> PairingEvent:
        """By new senders, each of which draws its backlog queue, until one has drawn a queue that does not take it."""
        for _ in range(DRAWS_MAX):
            assert self.send(self.sender(client))
            taken_out = [event for event in self.events if event.kind is EventKind.QUEUE_TAKEN_OUT]
            if taken_out:
                return taken_out[0]
        raise AssertionError("no sender draws that queue")

    # What became of it

    def waiting(self) -> list[str]:
        return self._in_backlog("")

    def dead(self) -> list[str]:
        return self._in_backlog("/$DeadLetterQueue")

    def _in_backlog(self, sub_queue: str) -> list[str]:
        queues = [backlog_queue_path(self.primary_name, index) for index in range(BACKLOG_QUEUE_COUNT)]
        return [
            name for queue in queues for name, path in self.secondary.peek(f"{queue}{sub_queue}") if path == self.path
        ]

    def bring_home(self) -> None:
        """Run a syphon until nothing of this trial waits."""
        with self.paired(enable_syphon=True):
            until(lambda: not self.waiting())

    def audit(self, *, is_gone: bool = False, may_repeat: bool = False) -> Ledger:
        """accepted = delivered + waiting + dead-lettered. `is_gone`: the entity was deleted."""
        delivered = [] if is_gone else [name for name, _ in self.primary.peek(self.path)]
        ledger = Ledger(delivered, self.waiting(), self.dead())
        self.auditor.check_ledger(ledger, may_repeat=may_repeat)
        return ledger

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.events]


def is_in(client: PairedNamespaceClient, availability: Availability) -> Callable[[], bool]:
    return lambda: client.state().entities[0].availability is availability
