"""What `twinbus up` prints for newcomers: Python that works as it stands, and commands to try."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from twinbus.cli.command import DATA_DEFAULT
from twinbus.cli.namespaces.running import RunningNamespace
from twinbus.client.namespace_http import NamespaceRefused, read_description

QUEUE = "orders"
TRIED_QUEUE = "jobs"
"""Another one, so that the commands work after the program and before it."""
SNIPPET = """\
from contextlib import suppress
from azure.core.exceptions import ResourceExistsError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from twinbus.client.administration import administration_client

primary = "{connection_string}"
with suppress(ResourceExistsError):
    queue = administration_client(primary, "{endpoint}").create_queue("{queue}", enable_partitioning=True)

with ServiceBusClient.from_connection_string(primary) as client:
    with client.get_queue_sender("{queue}") as sender:
        sender.send_messages(ServiceBusMessage("hello"))
    with client.get_queue_receiver("{queue}", max_wait_time=5) as receiver:
        for message in receiver.receive_messages():
            print(message)
            receiver.complete_message(message)

"""
"""Works pasted into the prompt too, which ends a block at an empty line and nowhere else."""

OTHER_PORTS = (
    "A connection string serves AMQP, WebSockets and administration. A client that wants port 80 or 443 (.NET before 7.20,"
    " Java administration): {command} up --also-listen 80,443"
)

CREATE_TRY = (f"queue create {TRIED_QUEUE} --partitioned", "create a queue in 16 fragments")
TRIES = (
    (f"send {TRIED_QUEUE} hello", "send a message"),
    (f"receive {TRIED_QUEUE}", "receive and complete it"),
    ("store down 0", "switch off a messaging store: a partitioned queue keeps working"),
    ("store up", "switch it on again"),
    ("doctor", "check this machine and the namespaces"),
    ("rehearse", "rehearse an outage on a temporary pair: every message accounted for"),
)
NO_FOLDER = ("rehearse",)


def next_steps(namespaces: Sequence[RunningNamespace], data: Path) -> str:
    """`data` is the folder of both; commands name it unless it is the default."""
    primary = namespaces[0]
    snippet = SNIPPET.format(connection_string=primary.connection_string, endpoint=primary.endpoint, queue=QUEUE)
    command = shown_command(Path(sys.argv[0]), shutil.which("twinbus"), Path.cwd())
    folder = "" if data == DATA_DEFAULT else f" --data {shlex.quote(str(data))}"
    tries = TRIES if _has_queue(primary) else (CREATE_TRY, *TRIES)
    lines = [(f"{command} {words}{'' if words in NO_FOLDER else folder}", text) for words, text in tries]
    width = max(len(line) for line, _ in lines)
    listed = "\n".join(f"  {line:<{width}}   {text}" for line, text in lines)
    ports = OTHER_PORTS.format(command=command)
    return f"\n{ports}\n\nA first message, for {_shown(Path(sys.executable), Path.cwd())}:\n\n{snippet}Try next, in another terminal:\n\n{listed}\n"


def _has_queue(primary: RunningNamespace) -> bool:
    """Whether the queue of the examples was created before."""
    try:
        described = read_description(primary.connection_string, primary.endpoint, TRIED_QUEUE)
    except NamespaceRefused:
        return False
    return "<QueueDescription" in described


def shown_command(started: Path, on_path: str | None, here: Path) -> str:
    """How to call the program: by its bare name if the shell finds the same one."""
    if started.name != "twinbus":
        return f"{_shown(Path(sys.executable), here)} -m twinbus"
    if on_path is not None and Path(on_path).absolute() == started.absolute():
        return "twinbus"
    return _shown(started, here)


def _shown(file: Path, here: Path) -> str:
    """Relative if it is below the current folder, otherwise absolute."""
    # Not resolved: the Python of a virtual environment is a link to one without the packages.
    absolute = Path(os.path.normpath(file if file.is_absolute() else here / file))
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)
