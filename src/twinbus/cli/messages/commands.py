"""`twinbus send | receive | peek`: messages by hand."""

import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.failures import CommandFailed
from twinbus.cli.messages.bulk_messages import (
    SEQUENCE_NUMBER_MAX,
    DeadLetterOption,
    EntityArgument,
    SubscriptionOption,
    give_back,
    path_of,
    peek_merged,
)
from twinbus.cli.messages.message_records import counted, record_of, show, show_taken
from twinbus.cli.property_values import PAIR_METAVAR, TYPE_NAMES, for_official_client, read_pairs
from twinbus.client.stock_errors import text_of_client_error
from twinbus.errors import ArgumentError
from twinbus.model.durations import NEVER_DELTA, parse_duration
from twinbus.model.message_limits import PEEK_COUNT_MAX, TIME_TO_LIVE_MAX

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceiver

BATCH = 100
COUNT_MAX = 1_000_000
RECEIVE_WAIT_S = 5.0
NEXT_SESSION = "next"
NEEDS_SESSION = re.compile("requires (message )?sessions")  # of twinbus, of Azure
NO_FREE_SESSION = "NEXT_AVAILABLE_SESSION"  # in what the official client says after waiting for one
LINE_SUFFIXES = (".jsonl", ".ndjson")

CountOption = Annotated[int, typer.Option("--count", "-c", min=1, max=COUNT_MAX, help="Number of messages.")]
SessionOption = Annotated[
    str | None, typer.Option("--session", help=f"Message session to use; '{NEXT_SESSION}' takes the next free one.")
]


def register(app: typer.Typer) -> None:
    """Add the commands at the top level, where people look for them."""
    command(app, "send")(send)
    command(app, "receive")(receive)
    command(app, "peek")(peek)


def send(
    call: Call,
    entity: EntityArgument,
    body: Annotated[
        str | None, typer.Argument(help="Text of the message; every line of standard input if omitted.")
    ] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Send a file as one message, or a message for each line of a .jsonl or .ndjson file.",
        ),
    ] = None,
    lines: Annotated[
        bool | None,
        typer.Option(
            "--lines/--whole", help="With --file: one message per line, or one in all, whatever the file name."
        ),
    ] = None,
    count: CountOption = 1,
    message_id: Annotated[str | None, typer.Option("--message-id", help="Generated if omitted.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Message session of the message.")] = None,
    partition_key: Annotated[
        str | None, typer.Option("--partition-key", help="Messages with the same key are kept in one fragment.")
    ] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Also known as label.")] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar=PAIR_METAVAR,
            help=f"An application property. JSON numbers, true and false are sent as such and all else as text, unless "
            f"a type is given: {TYPE_NAMES}.",
        ),
    ] = None,
    ttl: Annotated[
        timedelta | None,
        typer.Option("--ttl", parser=parse_duration, metavar="DURATION", help="Time to live of the message."),
    ] = None,
    delay: Annotated[
        timedelta | None,
        typer.Option(
            "--delay", parser=parse_duration, metavar="DURATION", help="Schedule the message for this long from now."
        ),
    ] = None,
) -> None:
    """Send messages to a queue or topic."""
    from azure.servicebus import ServiceBusMessage

    properties = for_official_client(read_pairs(property_, "--property"))
    life, due_at = _time_to_live(ttl), _due_at(delay)
    if None not in (session, partition_key) and session != partition_key:
        raise ArgumentError(
            "The message session is also the partition key. Omit --partition-key, or make both the same."
        )

    def message(content: str | bytes) -> ServiceBusMessage:
        return ServiceBusMessage(
            content,
            message_id=message_id or uuid.uuid4().hex,
            session_id=session,
            partition_key=partition_key,
            subject=subject,
            application_properties=properties,
            time_to_live=life,
            scheduled_enqueue_time_utc=due_at,
        )

    try:
        message("")
    except ValueError as refused:  # an id that is too long, for instance
        raise ArgumentError(str(refused)) from None
    sent = 0
    bodies = _bodies(body, file, lines, count)
    try:
        with (
            _session_advice("Name one with --session."),
            call.client() as client,
            client.get_topic_sender(entity) as sender,
        ):
            for content in bodies:
                sender.send_messages(message(content))
                sent += 1
    except BaseException:
        # After Ctrl-C too: to send the rest, one has to know where it begins.
        if sent:
            _print_sent(call, entity, sent)
        raise
    _print_sent(call, entity, sent)


def receive(
    call: Call,
    entity: EntityArgument,
    *,
    subscription: SubscriptionOption = None,
    dead_letter: DeadLetterOption = False,
    session: SessionOption = None,
    count: CountOption = 1,
    wait: Annotated[
        timedelta | None,
        typer.Option(
            "--wait",
            parser=parse_duration,
            metavar="DURATION",
            help=f"How long to wait for the next message; {RECEIVE_WAIT_S:g}s if omitted.",
        ),
    ] = None,
    leave: Annotated[bool, typer.Option("--leave", help="Abandon the messages instead of completing them.")] = False,
    delay: Annotated[
        timedelta | None,
        typer.Option(
            "--delay", parser=parse_duration, metavar="DURATION", help="With --leave: hide them for this long."
        ),
    ] = None,
) -> None:
    """Receive messages and complete them."""
    if delay is not None and not leave:
        raise ArgumentError("--delay is for messages that are abandoned. Add --leave.")
    wait_s = RECEIVE_WAIT_S if wait is None else wait.total_seconds()
    if not wait_s:
        raise ArgumentError("--wait must be longer than 0. Write it like 200ms or 5s.")
    records: list[dict[str, Any]] = []
    try:
        with (
            _session_advice(),
            call.client() as client,
            _receiver(client, entity, subscription, dead_letter, session, wait_s) as receiver,
        ):
            while len(records) < count:
                batch = receiver.receive_messages(min(BATCH, count - len(records)), max_wait_time=wait_s)
                records += [record_of(each) for each in batch]
                if leave and delay is not None:
                    give_back(call, path_of(entity, subscription, dead_letter), batch, delay)
                    break
                for each in batch:
                    receiver.abandon_message(each) if leave else receiver.complete_message(each)
                if not batch or leave:
                    break
    except BaseException:
        # After Ctrl-C too: messages that were completed are nowhere else any more.
        if records:
            show_taken(call.output, records)
        raise
    show_taken(call.output, records)


def peek(
    call: Call,
    entity: EntityArgument,
    *,
    subscription: SubscriptionOption = None,
    dead_letter: DeadLetterOption = False,
    session: SessionOption = None,
    count: CountOption = 10,
    start: Annotated[
        int, typer.Option("--from", min=0, max=SEQUENCE_NUMBER_MAX, help="Start at this sequence number.")
    ] = 0,
    merged: Annotated[bool, typer.Option("--merged", help="Merge all fragments, oldest messages first.")] = False,
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="SQL", help="Only messages that match; needs twinbus.")
    ] = None,
) -> None:
    """Show messages without receiving them, including locked, deferred and scheduled ones."""
    if filter_ is not None:
        if merged or start or session is not None:
            raise ArgumentError("--filter searches all messages. Omit --merged, --from and --session.")
        from twinbus.cli.messages.one_by_one import peek_filtered

        peek_filtered(call, path_of(entity, subscription, dead_letter), filter_, count)
        return
    if merged:
        if session is not None or start:
            raise ArgumentError("--merged shows all fragments from their beginning. Omit --session and --from.")
        show(call.output, peek_merged(call, path_of(entity, subscription, dead_letter), count))
        return
    records: list[dict[str, Any]] = []
    with (
        _session_advice(),
        call.client() as client,
        _receiver(client, entity, subscription, dead_letter, session) as receiver,
    ):
        position = start
        while len(records) < count:
            batch = receiver.peek_messages(min(PEEK_COUNT_MAX, count - len(records)), sequence_number=position)
            if not batch:
                break
            records += [record_of(each) for each in batch]
            position = (batch[-1].sequence_number or 0) + 1
    show(call.output, records)


@contextmanager
def _session_advice(
    advice: str = f"Name one with --session, or take the next free one with --session {NEXT_SESSION}.",
) -> Iterator[None]:
    """Name the option where the namespace says that a session is needed."""
    from azure.servicebus.exceptions import ServiceBusError

    try:
        yield
    except ServiceBusError as failure:
        text = text_of_client_error(failure) or ""
        if NEEDS_SESSION.search(text):
            raise CommandFailed(f"The entity requires message sessions. {advice}") from None
        if NO_FREE_SESSION in text:
            raise CommandFailed("No message session is free. Each one is empty, or another receiver has it.") from None
        raise


def _receiver(
    client: Any,
    entity: str,
    subscription: str | None,
    dead_letter: bool,
    session: str | None,
    wait_s: float = RECEIVE_WAIT_S,
) -> "ServiceBusReceiver":
    """`wait_s` is for a message session to become free, too."""
    from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusSubQueue

    options: dict[str, Any] = {"max_wait_time": wait_s}
    if session is not None:
        options["session_id"] = NEXT_AVAILABLE_SESSION if session == NEXT_SESSION else session
    if dead_letter:
        options["sub_queue"] = ServiceBusSubQueue.DEAD_LETTER
    if subscription is None:
        return client.get_queue_receiver(entity, **options)  # type: ignore[no-any-return]
    return client.get_subscription_receiver(entity, subscription, **options)  # type: ignore[no-any-return]


def _print_sent(call: Call, entity: str, sent: int) -> None:
    call.output.done(f"{counted(sent)} sent to '{entity}'.", entity=entity, sent=sent)


def _bodies(body: str | None, file: Path | None, by_line: bool | None, count: int) -> Iterator[str | bytes]:
    if body is not None and file is not None:
        raise ArgumentError("Give a text or --file, not both.")
    if by_line is not None and file is None:
        raise ArgumentError("--lines and --whole need --file. Standard input is read line by line.")
    if body is not None:
        return repeat(body, count)
    if file is None:
        if sys.stdin is None:
            raise ArgumentError("There is no standard input. Give a text or --file.")
        return _lines(sys.stdin.buffer)
    is_by_line = file.suffix.lower() in LINE_SUFFIXES if by_line is None else by_line
    return chain.from_iterable(_content(file, is_by_line) for _ in range(count))


def _content(file: Path, is_by_line: bool) -> Iterator[bytes]:
    if not is_by_line:
        yield file.read_bytes()
        return
    with file.open("rb") as stream:
        # An empty line is no JSON, and many files end with one.
        yield from (line for line in _lines(stream) if line)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """As bytes: their encoding is up to the sender and the receiver."""
    return (line.removesuffix(b"\n").removesuffix(b"\r") for line in stream)


def _time_to_live(given: timedelta | None) -> timedelta | None:
    if given is None or given >= NEVER_DELTA:
        return None
    if not timedelta(0) < given <= timedelta(milliseconds=TIME_TO_LIVE_MAX):
        raise ArgumentError("--ttl must be 1ms to 49d. Omit it for the entity's time to live.")
    return given


def _due_at(delay: timedelta | None) -> datetime | None:
    try:
        return None if delay is None else datetime.now(UTC) + delay
    except OverflowError:
        raise ArgumentError("--delay: the date is too far in the future.") from None
