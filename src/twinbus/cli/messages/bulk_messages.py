"""`twinbus purge | undefer | sessions`, and other work on many messages at once by operations that only twinbus has.

Purging works on any namespace: one without the operation is emptied by receiving.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.confirmation import YesOption, confirm
from twinbus.cli.interruption import interruptible
from twinbus.cli.messages.message_records import counted, record_of_received
from twinbus.clock import SystemClock
from twinbus.errors import ArgumentError, NotImplementedHere
from twinbus.model.message_limits import PEEK_COUNT_MAX

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage


CALL_COUNT_MAX = 1_000
"""Messages in one request: few enough to show progress."""
RECEIVE_WAIT_S = 2.0
NUMBERS_MAX = 1_000
SESSIONS_MAX = 1_000
SEQUENCE_NUMBER_MAX = 2**63 - 1

EntityArgument = Annotated[str, typer.Argument(help="Path of the queue or topic.")]
SubscriptionOption = Annotated[str | None, typer.Option("--subscription", "-s", help="Subscription of the topic.")]
DeadLetterOption = Annotated[bool, typer.Option("--dead-letter", help="Use the dead-letter queue.")]


def register(app: typer.Typer) -> None:
    command(app, "purge")(purge)
    command(app, "undefer")(undefer)
    command(app, "sessions")(sessions)


def path_of(entity: str, subscription: str | None, dead_letter: bool) -> str:
    path = entity if subscription is None else f"{entity}/Subscriptions/{subscription}"
    return f"{path}/$DeadLetterQueue" if dead_letter else path


def purge(
    call: Call,
    entity: EntityArgument,
    *,
    subscription: SubscriptionOption = None,
    dead_letter: DeadLetterOption = False,
    yes: YesOption = False,
) -> None:
    """Remove all messages that are not locked, including deferred and scheduled ones."""
    path = path_of(entity, subscription, dead_letter)
    confirm(f"Remove all messages from '{path}'?", yes, "Nothing was removed.")
    removed = 0
    with interruptible(lambda: done_so_far(removed)), _progress() as show_progress:
        for count in _purged(call, path):
            removed += count
            show_progress(removed)
    call.output.done(f"{counted(removed)} removed from '{path}'.", entity=path, removed=removed)


def done_so_far(count: int) -> str:
    return f"{counted(count)} {'is' if count == 1 else 'are'} done so far; run it again for the rest."


def undefer(
    call: Call,
    entity: EntityArgument,
    numbers: Annotated[
        list[int] | None,
        typer.Argument(help="Sequence numbers; all deferred messages if omitted.", min=1, max=SEQUENCE_NUMBER_MAX),
    ] = None,
    *,
    subscription: SubscriptionOption = None,
    dead_letter: DeadLetterOption = False,
) -> None:
    """Make deferred messages active again."""
    path = path_of(entity, subscription, dead_letter)
    if len(numbers or ()) > NUMBERS_MAX:
        raise ArgumentError(f"Name at most {NUMBERS_MAX} sequence numbers at a time.")
    active = 0
    with interruptible(lambda: done_so_far(active)), call.blocking() as namespace:
        extras = namespace.extras(path)
        if numbers:
            active = namespace.run(extras.undefer([(number, number) for number in numbers]))
        else:
            for count in _until_none(lambda: namespace.run(extras.undefer_all(CALL_COUNT_MAX))):
                active += count
    call.output.done(f"{counted(active)} of '{path}' made active again.", entity=path, active=active)


def sessions(
    call: Call,
    entity: EntityArgument,
    *,
    subscription: SubscriptionOption = None,
    count: Annotated[
        int, typer.Option("--count", "-c", min=1, max=SESSIONS_MAX, help="Maximum number of sessions to show.")
    ] = 20,
) -> None:
    """Show how many messages wait in each message session, the fullest first."""
    path = path_of(entity, subscription, dead_letter=False)
    with call.blocking() as namespace:
        found = namespace.run(namespace.extras(path).count_sessions(top=count))
    rows = [{"session": each.session_id, "messages": each.active, "is_held": each.is_held} for each in found.page]
    if call.output.as_json:
        sums = {"sessions": found.sessions, "held": found.held, "active_messages": found.active, "is_all": found.is_all}
        call.output.record({**sums, "busiest": rows})
        return
    call.output.table(("session", "messages", "is_held"), rows)
    names = "session" if found.sessions == 1 else "sessions"
    partial = "" if found.is_all else " A messaging store is down: its messages are not counted."
    call.output.done(f"{counted(found.active)} in {found.sessions} {names}, of which {found.held} held.{partial}")


def peek_merged(call: Call, path: str, count_max: int) -> list[dict[str, Any]]:
    """Records of the oldest messages of all fragments."""
    from twinbus.client.entity_extras import next_positions

    records: list[dict[str, Any]] = []
    positions: dict[int, int] = {}
    with call.blocking() as namespace:
        extras = namespace.extras(path)
        while len(records) < count_max:
            page = namespace.run(extras.peek_merged(min(PEEK_COUNT_MAX, count_max - len(records)), positions))
            if not page:
                break
            positions = next_positions(page, positions)
            records += [record_of_received(message) for message in page]
    return records


def give_back(call: Call, path: str, messages: Sequence["ServiceBusReceivedMessage"], delay: timedelta) -> None:
    """Abandon messages that were received; nobody can receive them before the delay is over."""
    with call.blocking() as namespace:
        extras = namespace.extras(path)
        for message in messages:
            # One by one: one request cannot settle messages of several fragments.
            namespace.run(extras.abandon_for([UUID(str(message.lock_token))], delay))


def _purged(call: Call, path: str) -> Iterator[int]:
    """Counts of messages as they are removed. Messages that arrive in the meantime stay."""
    try:
        with call.blocking() as namespace:
            extras, before = namespace.extras(path), SystemClock().now()
            yield from _until_none(lambda: namespace.run(extras.purge(CALL_COUNT_MAX, before)))
    except NotImplementedHere:
        yield from _received(call, path)


def _received(call: Call, path: str) -> Iterator[int]:
    with call.blocking() as namespace:
        receiver = namespace.receiver(path, deletes=True)
        yield from _until_none(lambda: len(receiver.receive(CALL_COUNT_MAX, RECEIVE_WAIT_S)))


def _until_none(count: Callable[[], int]) -> Iterator[int]:
    while found := count():
        yield found


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = SpinnerColumn(), TextColumn("{task.completed} removed")
    with Progress(*columns, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=None)
        yield lambda removed: progress.update(task, completed=removed)
