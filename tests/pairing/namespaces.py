"""Real namespaces for tests: a `twinbus serve` process each, which can be killed, hung and started again."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.amqp.codec.sections import DataBody, Sections, decode_sections
from twinbus.amqp.codec.types import Symbol
from twinbus.broker.entity_settings import MEGABYTE
from twinbus.client import namespace_http
from twinbus.client.administration import administration_client
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import MessagingError, QuotaExceeded
from twinbus.model import wire_names
from twinbus.model.message_limits import PEEK_COUNT_MAX
from twinbus.rehearsal.throwaway_stage import free_ports

SERVE = "import sys; from twinbus.cli.app import run; sys.exit(run(sys.argv[1:]))"
PATIENCE_S = 40.0
LOOK_S = 0.02
CLIENT_OPTIONS: dict[str, Any] = {"retry_total": 0}


def until(condition: Callable[[], bool]) -> None:
    """Wait for what other processes and threads bring about."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(LOOK_S)


class NamespaceProcess:
    """Keeps its ports, key and data over restarts. Where megabytes are small, so is the size at which a queue is full."""

    def __init__(self, folder: Path, name: str, *, megabyte: int = MEGABYTE) -> None:
        self.folder = folder
        self._name = name
        self._serve = f"from twinbus.broker import entity_settings; entity_settings.MEGABYTE = {megabyte}; {SERVE}"
        self._process: subprocess.Popen[str] | None = None
        self._counting: ServiceBusAdministrationClient | None = None
        # Not whatever is free: a client that tries the port of a killed one again and again could be given it as its own.
        self.amqp_port, self.http_port = free_ports(2)
        self.connection_string = ""
        self.start()

    def start(self) -> None:
        ports = ["--amqp-port", str(self.amqp_port), "--http-port", str(self.http_port)]
        command = [sys.executable, "-c", self._serve, "serve", self._name, "--data", str(self.folder), "--json"]
        log_file = self.folder / f"{self._name}.log"
        with log_file.open("a") as log:
            self._process = subprocess.Popen(
                [*command, *ports, "--stores", "2"], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        announcement = self._process.stdout.readline()
        assert announcement, f"{self._name} did not start: {log_file.read_text()[-2000:]}"
        running = json.loads(announcement)
        self.amqp_port, self.http_port = running["amqp_port"], running["http_port"]
        self.connection_string = running["connection_string"]

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a machine dies: nothing is flushed, nobody is told."""
        if self._counting is not None:
            self._counting.close()
            self._counting = None
        if self._process is not None:
            self._signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def revive(self) -> None:
        """Running and answering, whatever was done to it."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        else:
            self._signal(signal.SIGCONT)

    def hang(self) -> None:
        """Connections stay and new ones are accepted, but nothing answers."""
        self._signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def stores_down(self, *indexes: int) -> Iterator[None]:
        """The process runs and these of its two messaging stores do not; neither does if none is named."""
        chosen = indexes or (0, 1)
        self._switch_stores(chosen, "down")
        try:
            yield
        finally:
            self._switch_stores(chosen, "up")

    def _switch_stores(self, indexes: Sequence[int], condition: str) -> None:
        for index in indexes:
            self.ask("POST", f"/$stores/{index}/{condition}")
        until(lambda: all(self.ask("GET", "/$stores")[index]["condition"] == condition for index in indexes))

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """What a twinbus namespace answers beside Azure's own API."""
        return namespace_http.ask(self.connection_string, f"http://127.0.0.1:{self.http_port}", method, path, body)

    def make_key(self, name: str) -> str:
        """A connection string with the rights to send and receive, by a rule whose key can be revoked."""
        key = self.ask("PUT", f"/$access/{name}", {"rights": ["Send", "Listen"]})["primary_key"]
        return self.connection_string_with(f"SharedAccessKeyName={name}", f"SharedAccessKey={key}")

    def revoke_key(self, name: str) -> None:
        """Another key takes its place. Whoever is connected has to come back with a token, as once an hour in any case."""
        self.ask("POST", f"/$access/{name}/regenerate?key=primary")
        self.ask("POST", "/$connections/disconnect")

    def connection_string_with(self, *parts: str) -> str:
        """The connection string with other values for some of its parts."""
        names = {part.partition("=")[0] for part in parts}
        kept = [each for each in self.connection_string.strip(";").split(";") if each.partition("=")[0] not in names]
        return ";".join([*kept, *parts]) + ";"

    def administration(self) -> ServiceBusAdministrationClient:
        return self.administration_with(self.connection_string)

    def administration_with(self, connection_string: str) -> ServiceBusAdministrationClient:
        """With the rights of another key, and no retries: tests know when a namespace is down."""
        return administration_client(connection_string, f"http://127.0.0.1:{self.http_port}")

    def create_queue(self, **description: Any) -> str:
        path = f"q-{uuid.uuid4().hex[:8]}"
        with self.administration() as administration:
            administration.create_queue(path, **description)
        return path

    def delete_queues(self) -> None:
        """All of them: a namespace holds 100 that are partitioned, and a test may have more seeds."""
        with self.administration() as administration:
            for queue in list(administration.list_queues()):
                administration.delete_queue(queue.name)

    def client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.connection_string, **CLIENT_OPTIONS)

    def take_all(self, path: str, session_id: str | None = None) -> list[str]:
        """The bodies of all active messages, in order; they are gone afterwards."""
        with self.administration() as administration:
            count = administration.get_queue_runtime_properties(path).active_message_count or 0
        return asyncio.run(self._take(path, count, session_id))

    def take_subscription(self, topic: str, name: str, count: int) -> list[str]:
        return asyncio.run(self._take(f"{topic}/Subscriptions/{name}", count))

    async def _take(self, path: str, count: int, session_id: str | None = None) -> list[str]:
        bodies: list[str] = []
        async with await Namespace.connect(self.connection_string) as namespace:
            if session_id is None:
                receiver = await namespace.receiver(path, deletes=True)
            else:
                receiver = await namespace.session_receiver(path, session_id, deletes=True)
            while len(bodies) < count:
                taken = await receiver.receive(1000, PATIENCE_S)
                assert taken, f"{count} messages are expected, and only {len(bodies)} come"
                bodies += [_body(each.payload) for each in taken]
        return bodies

    def fill(self, path: str) -> None:
        """Until there is no room for even a small message."""
        asyncio.run(self._fill(path))

    async def _fill(self, path: str) -> None:
        async with await Namespace.connect(self.connection_string) as namespace:
            sender = await namespace.sender(path)
            for size in (20_000, 1_000, 1):
                refusal: MessagingError | None = None
                while refusal is None:
                    (refusal,) = await sender.send([encode_message(b"x" * size)])
                assert isinstance(refusal, QuotaExceeded)

    def peek(self, path: str) -> list[tuple[str, str | None]]:
        """Message id and, in a backlog queue, destination of everything in it, in order."""
        return asyncio.run(self._peek(path))

    async def _peek(self, path: str) -> list[tuple[str, str | None]]:
        found: list[tuple[str, str | None]] = []
        async with await Namespace.connect(self.connection_string) as namespace:
            entity, number = namespace.entity(path), 0
            while messages := await entity.peek(PEEK_COUNT_MAX, from_number=number):
                found += [
                    (str(each.message_id), each.application_properties.get(wire_names.TRANSFER_PATH))
                    for each in messages
                ]
                number = (messages[-1].sequence_number or 0) + 1
        return found

    def first_message(self, path: str) -> Sections:
        """All of it but when it came, which is the queue's."""
        (found,) = asyncio.run(self._first(path))
        sections = decode_sections(found.payload)
        assert sections.message_annotations is not None
        for name in ("x-opt-enqueued-time", "x-opt-sequence-number"):
            sections.message_annotations.pop(Symbol(name), None)
        return sections

    async def _first(self, path: str) -> list[ReceivedMessage]:
        async with await Namespace.connect(self.connection_string) as namespace:
            return await namespace.entity(path).peek(1)

    def count(self, path: str) -> int:
        """Asked again and again, so by one client: making one costs more than the request."""
        if self._counting is None:
            self._counting = self.administration()
        return self._counting.get_queue_runtime_properties(path).total_message_count or 0

    def _signal(self, number: int) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)


def _body(payload: bytes) -> str:
    body = decode_sections(payload).body
    assert isinstance(body, DataBody)
    return b"".join(body.parts).decode()
