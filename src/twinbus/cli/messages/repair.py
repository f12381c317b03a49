"""`twinbus repair`: dead letters back to where they came from, or any messages to another entity, changed on the way."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.confirmation import YesOption, confirm
from twinbus.cli.failures import CommandFailed
from twinbus.cli.messages.bulk_messages import SEQUENCE_NUMBER_MAX, EntityArgument, SubscriptionOption, path_of
from twinbus.cli.messages.message_records import counted, record_of_received
from twinbus.errors import ArgumentError, MessagingError, NotImplementedHere
from twinbus.model.wire_names import MessageState
from twinbus.rehearsal.interruption import stop_by_signal

if TYPE_CHECKING:
    from twinbus.client.blocking import BlockingNamespace
    from twinbus.client.repair import RepairStanding

PREVIEWS = 10
REASONS_SHOWN = 3
SUFFIXES = {"main": "", "dead-letter": "/$DeadLetterQueue", "transfer-dead-letter": "/$Transfer/$DeadLetterQueue"}


class SubQueueName(StrEnum):
    MAIN = "main"
    DEAD_LETTER = "dead-letter"
    TRANSFER_DEAD_LETTER = "transfer-dead-letter"


class StateName(StrEnum):
    ACTIVE = "active"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"


NO_REPAIR = (
    "This needs a twinbus namespace: others cannot change messages in place. The portal repairs their dead letters by "
    "receiving and sending: twinbus portal --connection-string …"
)


def register(app: typer.Typer) -> None:
    command(app, "repair")(repair)


def repair(
    call: Call,
    entity: EntityArgument,
    *,
    subscription: SubscriptionOption = None,
    sub_queue: Annotated[
        SubQueueName, typer.Option("--sub-queue", help="Where the messages are.")
    ] = SubQueueName.DEAD_LETTER,
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="SQL", help="Repair the messages that match; all if omitted.")
    ] = None,
    number: Annotated[
        list[int] | None,
        typer.Option("--number", min=1, max=SEQUENCE_NUMBER_MAX, help="Repair the message with this sequence number."),
    ] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="SQL", help="Change the messages, as the action of a rule does.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PATH", help="Queue or topic to move them to; where they came from if omitted."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the messages instead of moving them.")] = False,
    reset_delivery_count: Annotated[
        bool, typer.Option("--reset-delivery-count", help="Reset the delivery count of the messages.")
    ] = False,
    state: Annotated[
        list[StateName] | None, typer.Option("--state", help="Repair messages in this state; active if omitted.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help=f"Show the first {PREVIEWS} before and after, and change nothing.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Move dead letters back to where they came from, or messages to another entity.

    Nobody has to receive the messages, so no delivery count rises and their order stays. If it is stopped, it says how many were repaired;
    start it again to continue: those are gone from the sub-queue.
    """
    from twinbus.client.entity_extras import Repair
    from twinbus.client.repair import repair_all, repair_numbered

    path = path_of(entity, subscription, dead_letter=False) + SUFFIXES[sub_queue]
    states = tuple(MessageState[each.name] for each in state or [StateName.ACTIVE])
    wanted = Repair(filter_, action, to, remove, reset_delivery_count, states)
    if dry_run and number:
        raise ArgumentError("--dry-run shows the first messages of the sub-queue. Use --filter instead of --number.")
    which = "these" if filter_ or number else "all"
    confirm(f"{'Remove' if remove else 'Move'} {which} messages of '{path}'?", dry_run or yes, "Nothing was changed.")
    try:
        with call.blocking() as namespace:
            extras = namespace.extras(path)
            if dry_run:
                _show_previews(call, namespace, path, wanted)
                return
            pages = repair_numbered(extras, wanted, number) if number else repair_all(extras, wanted)
            carry_out(call, namespace, path, "removed" if remove else "moved", pages)
    except NotImplementedHere:
        raise CommandFailed(NO_REPAIR) from None


def _show_previews(call: Call, namespace: "BlockingNamespace", path: str, wanted: Any) -> None:
    from twinbus.client.repair import preview_all

    previews = namespace.run(preview_all(namespace.extras(path), wanted, PREVIEWS))
    rows = [
        {
            "sequence_number": preview.before.sequence_number,
            "message_id": preview.before.message_id,
            "before": record_of_received(preview.before)["properties"],
            "after": None if preview.after is None else record_of_received(preview.after)["properties"],
            "refusal": preview.refusal,
        }
        for preview in previews
    ]
    call.output.table(("sequence_number", "message_id", "before", "after", "refusal"), rows)
    if not rows and not call.output.as_json:
        call.output.done(f"No message of '{path}' matches.", entity=path)


def carry_out(
    call: Call, namespace: "BlockingNamespace", path: str, verb: str, pages: AsyncIterator["RepairStanding"]
) -> "RepairStanding":
    """To the end, or until it fails or a signal stops it after the page that is under way. What has been done is printed."""

    async def following() -> "RepairStanding | None":
        return await anext(pages, None)

    last: RepairStanding | None = None
    problems = []
    with _progress() as show, stop_by_signal() as stop:
        try:
            while (standing := namespace.run(following())) is not None:
                last = standing
                show(standing)
                if stop.is_set():
                    problems.append("Stopped. Repair again to continue with the rest.")
                    break
        except MessagingError as fault:
            if last is None or not last.repaired:
                raise
            problems.append(f"{fault} Repair again to continue with the rest.")
    assert last is not None
    _print_outcome(call, path, verb, last, problems)
    return last


def _print_outcome(call: Call, path: str, verb: str, standing: "RepairStanding", problems: list[str]) -> None:
    call.output.done(
        f"{counted(standing.repaired)} of '{path}' {verb}.",
        entity=path,
        repaired=standing.repaired,
        examined=standing.examined,
        held=standing.held,
        refused=standing.refused,
    )
    if standing.held:
        problems.append(f"{counted(standing.held)} locked by receivers: try again when they are settled.")
    if standing.refused:
        reasons = "; ".join(f"{each.sequence_number}: {each.reason}" for each in standing.refusals[:REASONS_SHOWN])
        problems.append(f"{counted(standing.refused)} left unchanged. {reasons}")
    if standing.passed_over:
        fragments = ", ".join(map(str, standing.passed_over))
        problems.append(f"Unavailable and skipped: fragment {fragments}. Repair again when the store is back.")
    if problems:
        raise CommandFailed(" ".join(problems))


@contextmanager
def _progress() -> Iterator[Callable[["RepairStanding"], None]]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = BarColumn(), TextColumn("{task.fields[repaired]} repaired"), TimeRemainingColumn()
    with Progress(*columns, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=None, repaired=0)
        yield lambda standing: progress.update(
            task, total=standing.total, completed=standing.examined, repaired=standing.repaired
        )
