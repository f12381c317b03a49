"""`twinbus message`: small repairs by hand, of messages that are named by number or found by a SQL filter.

Messages are shown, moved and removed where they lie (`com.twinbus:repair`), so nobody has to receive them and no delivery count
rises. Only dead-lettering receives: the messages before the wanted ones are held meanwhile, and released afterwards.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.confirmation import YesOption, confirm
from twinbus.cli.failures import CommandFailed
from twinbus.cli.help_pages import Group
from twinbus.cli.interruption import interruptible
from twinbus.cli.messages.bulk_messages import (
    SEQUENCE_NUMBER_MAX,
    DeadLetterOption,
    EntityArgument,
    SubscriptionOption,
    path_of,
)
from twinbus.cli.messages.message_records import counted, record_of_received, show
from twinbus.cli.messages.repair import NO_REPAIR, carry_out
from twinbus.cli.property_values import PAIR_METAVAR, read_pairs
from twinbus.errors import ArgumentError, NotImplementedHere
from twinbus.model import wire_names
from twinbus.model.wire_names import MessageState

if TYPE_CHECKING:
    from twinbus.client.blocking import BlockingNamespace
    from twinbus.client.entity_extras import Repair
    from twinbus.client.received_message import ReceivedMessage

SHOWN_MAX = 1_000
SEARCHED_MAX = 5_000
PAGE = 250
WAIT_S = 2.0
EVERY_STATE = (MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED)

app = Group("Show, resend, edit, move, complete and dead-letter single messages, or all that match a filter.")

NumbersArgument = Annotated[
    list[int] | None,
    typer.Argument(help="Sequence numbers, as peek shows them.", min=1, max=SEQUENCE_NUMBER_MAX),
]
FilterOption = Annotated[
    str | None, typer.Option("--filter", metavar="SQL", help="Instead of numbers: the messages that match.")
]
ActionOption = Annotated[
    str | None, typer.Option("--action", metavar="SQL", help="Change them on the way, as the action of a rule does.")
]


@command(app, "show")
def show_messages(
    call: Call,
    entity: EntityArgument,
    numbers: NumbersArgument = None,
    *,
    filter_: FilterOption = None,
    subscription: SubscriptionOption = None,
    dead_letter: DeadLetterOption = False,
    count: Annotated[
        int, typer.Option("--count", "-c", min=1, max=SHOWN_MAX, help="With --filter: how many at most.")
    ] = 10,
) -> None:
    """Show complete messages: body, properties and state. A single message is shown field by field."""
    path = path_of(entity, subscription, dead_letter)
    with _ours(call) as namespace:
        found = _found(namespace, path, _chosen(numbers, filter_), filter_, count)
    records = [record_of_received(each) for each in found]
    if numbers and len(found) < len(set(numbers)):
        missing = set(numbers) - {each.sequence_number for each in found}
        raise CommandFailed(f"'{path}' has no message {', '.join(map(str, sorted(missing)))}.")
    if len(records) == 1 and not call.output.as_json:
        call.output.record(records[0])
        return
    show(call.output, records)


@command(app, "resend")
def resend(
    call: Call,
    entity: EntityArgument,
    numbers: NumbersArgument = None,
    *,
    filter_: FilterOption = None,
    subscription: SubscriptionOption = None,
    action: ActionOption = None,
    yes: YesOption = False,
) -> None:
    """Move dead letters back to where they came from and reset their delivery count."""
    from twinbus.client.entity_extras import Repair

    path = path_of(entity, subscription, dead_letter=True)
    wanted = Repair(_chosen_filter(numbers, filter_), action, resets_delivery_count=True)
    _repair(call, path, wanted, numbers, ("Resend", "moved"), yes)


@command(app, "move")
def move(
    call: Call,
    entity: EntityArgument,
    numbers: NumbersArgument = None,
    *,
    to: Annotated[str, typer.Option("--to", metavar="PATH", help="Queue or topic to move them to.")],
    filter_: FilterOption = None,
    subscription: SubscriptionOption = None,
    dead_letter: DeadLetterOption = False,
    action: ActionOption = None,
    yes: YesOption = False,
) -> None:
    """Move messages to another queue or topic."""
    from twinbus.client.entity_extras import Repair

    path = path_of(entity, subscription, dead_letter)
    wanted = Repair(_chosen_filter(numbers, filter_), action, to, states=EVERY_STATE)
    _repair(call, path, wanted, numbers, ("Move", "moved"), yes)


@command(app, "complete")
def complete(
    call: Call,
    entity: EntityArgument,
    numbers: NumbersArgument = None,
    *,
    filter_: FilterOption = None,
    subscription: SubscriptionOption = None,
    dead_letter: DeadLetterOption = False,
    yes: YesOption = False,
) -> None:
    """Remove messages, as if they had been received and completed."""
    from twinbus.client.entity_extras import Repair

    path = path_of(entity, subscription, dead_letter)
    wanted = Repair(_chosen_filter(numbers, filter_), removes=True, states=EVERY_STATE)
    _repair(call, path, wanted, numbers, ("Remove", "removed"), yes)


@command(app, "dead-letter")
def dead_letter_messages(
    call: Call,
    entity: EntityArgument,
    numbers: NumbersArgument = None,
    *,
    filter_: FilterOption = None,
    subscription: SubscriptionOption = None,
    reason: Annotated[str, typer.Option("--reason", help="Reason, for those who find the dead letters.")] = "By hand",
    description: Annotated[str | None, typer.Option("--description", help="A longer explanation.")] = None,
    yes: YesOption = False,
) -> None:
    """Move active messages to the dead-letter queue."""
    path = path_of(entity, subscription, dead_letter=False)
    chosen, is_more = _chosen(numbers, filter_), False
    confirm(f"Dead-letter these messages of '{path}'?", yes, "Nothing was changed.")
    with _ours(call) as namespace:
        if filter_ is not None:
            previews = _found(namespace, path, chosen, filter_, SHOWN_MAX + 1, (MessageState.ACTIVE,))
            is_more = len(previews) > SHOWN_MAX
            chosen = {each.sequence_number for each in previews[:SHOWN_MAX] if each.sequence_number is not None}
        done = _dead_letter(namespace, path, chosen, reason, description)
    call.output.done(f"{counted(len(done))} of '{path}' dead-lettered.", entity=path, dead_lettered=len(done))
    if done != chosen:
        left = ", ".join(map(str, sorted(chosen - done)))
        raise CommandFailed(f"Not found among the messages that can be received: {left}.")
    if is_more:
        raise CommandFailed(
            f"More messages match: {SHOWN_MAX:,} are dead-lettered at a time. Do it again for the rest."
        )


@command(app, "edit")
def edit(
    call: Call,
    entity: EntityArgument,
    number: Annotated[int, typer.Argument(help="Sequence number.", min=1, max=SEQUENCE_NUMBER_MAX)],
    *,
    body: Annotated[str | None, typer.Option("--body", help="New body.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", exists=True, dir_okay=False, help="New body, from a file."),
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar=PAIR_METAVAR, help="Set an application property, as in send -p."),
    ] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="New subject.")] = None,
    subscription: SubscriptionOption = None,
    dead_letter: DeadLetterOption = False,
    to: Annotated[
        str | None, typer.Option("--to", metavar="PATH", help="Where to send it; the entity itself if omitted.")
    ] = None,
) -> None:
    """Send a changed copy of a message, with an id of its own, then remove the message. If this is interrupted in between, both
    are there."""
    from twinbus.client.entity_extras import Repair

    if body is not None and file is not None:
        raise ArgumentError("Give --body or --file, not both.")
    if subscription is not None and to is None:
        raise ArgumentError("A topic would copy it to every subscription. Choose where to send it with --to.")
    path = path_of(entity, subscription, dead_letter)
    with _ours(call) as namespace:
        found = _found(namespace, path, {number}, None, 1)
        if not found:
            raise CommandFailed(f"'{path}' has no message {number}.")
        content = file.read_bytes() if file is not None else body
        payload = _edited(found[0], content, read_pairs(property_, "--property"), subject)
        with interruptible(lambda: f"Both message {number} and its changed copy may be there."):
            (error,) = namespace.sender(to or entity).send([payload])
            if error is not None:
                raise error
            wanted = Repair(removes=True, states=EVERY_STATE)
            page = namespace.run(namespace.extras(path).repair_numbers(wanted, [number]))
    if not page.repaired:
        raise CommandFailed(
            f"The changed copy was sent to '{to or entity}', but message {number} is locked by a receiver: remove it later."
        )
    call.output.done(f"Message {number} was changed and sent to '{to or entity}'.", number=number, sent_to=to or entity)


def peek_filtered(call: Call, path: str, filter_: str, count: int) -> None:
    with _ours(call) as namespace:
        found = _found(namespace, path, set(), filter_, min(count, SHOWN_MAX))
    show(call.output, [record_of_received(each) for each in found])


def _edited(
    message: "ReceivedMessage", content: bytes | str | None, properties: dict[str, Any], subject: str | None
) -> bytes:
    """Everything that its sender gave it stays, in the same types, except what is changed. A time to live starts again."""
    from twinbus.amqp.codec.sections import DataBody, MessageProperties, decode_sections, encode_sections
    from twinbus.amqp.codec.types import Symbol
    from twinbus.client.message import property_value
    from twinbus.clock import SystemClock
    from twinbus.pipeline.replay.copies import copy_of

    sections = decode_sections(copy_of(message.payload, SystemClock().now()))
    facts = sections.properties or MessageProperties()
    # An entity that detects duplicates would drop a copy with the id of the message, which is then removed.
    facts.message_id = uuid4().hex
    facts.subject = facts.subject if subject is None else subject
    sections.properties = facts
    changed = {name: property_value(value) for name, value in properties.items()}
    sections.application_properties = {**(sections.application_properties or {}), **changed} or None
    if content is not None:
        sections.body = DataBody([content.encode() if isinstance(content, str) else content])
    if message.state is MessageState.SCHEDULED:
        at = {Symbol(wire_names.SCHEDULED_ENQUEUE_TIME): message.annotations[wire_names.SCHEDULED_ENQUEUE_TIME]}
        sections.message_annotations = {**(sections.message_annotations or {}), **at}
    return encode_sections(sections)


def _chosen(numbers: Sequence[int] | None, filter_: str | None) -> set[int]:
    if bool(numbers) == (filter_ is not None):
        raise ArgumentError("Name messages by their sequence numbers, or find them with --filter.")
    return set(numbers or ())


def _chosen_filter(numbers: Sequence[int] | None, filter_: str | None) -> str | None:
    _chosen(numbers, filter_)
    return filter_


def _found(
    namespace: "BlockingNamespace",
    path: str,
    numbers: set[int],
    filter_: str | None,
    count_max: int,
    states: Sequence[MessageState] = EVERY_STATE,
) -> "list[ReceivedMessage]":
    from twinbus.client.entity_extras import Repair
    from twinbus.client.repair import preview_all

    extras = namespace.extras(path)
    if filter_ is not None:
        wanted = Repair(filter_, removes=True, states=tuple(states))
        return [each.before for each in namespace.run(preview_all(extras, wanted, count_max))]
    pages = [namespace.run(extras.peek_range(number, number)) for number in sorted(numbers)]
    return [message for page in pages for message in page.messages]


def _dead_letter(
    namespace: "BlockingNamespace", path: str, wanted: set[int], reason: str, description: str | None
) -> set[int]:
    # Those that are not wanted are held meanwhile, so the credit is what can be searched.
    receiver = namespace.receiver(path, credit=SEARCHED_MAX)
    others, done = list["ReceivedMessage"](), set[int]()
    try:
        while done != wanted and len(others) < SEARCHED_MAX:
            page = receiver.receive(PAGE, WAIT_S)
            if not page:
                break
            ours = [each for each in page if each.sequence_number in wanted]
            others += [each for each in page if each.sequence_number not in wanted]
            errors = receiver.dead_letter(ours, reason, description)
            done |= {each.sequence_number for each, error in zip(ours, errors, strict=True) if error is None}  # type: ignore[misc]
    finally:
        receiver.release(others)
        receiver.close()
    return done


def _repair(
    call: Call, path: str, wanted: "Repair", numbers: Sequence[int] | None, verbs: tuple[str, str], is_agreed: bool
) -> None:
    from twinbus.client.repair import repair_all, repair_numbered

    confirm(f"{verbs[0]} these messages of '{path}'?", is_agreed, "Nothing was changed.")
    with _ours(call) as namespace:
        extras = namespace.extras(path)
        pages = repair_numbered(extras, wanted, list(numbers)) if numbers else repair_all(extras, wanted)
        standing = carry_out(call, namespace, path, verbs[1], pages)
    # What is held or refused is there, and was reported.
    met = standing.repaired + standing.held + standing.refused
    if numbers and met < len(set(numbers)):
        raise CommandFailed(f"{len(set(numbers)) - met} of these numbers are not in '{path}'.")


@contextmanager
def _ours(call: Call) -> "Iterator[BlockingNamespace]":
    try:
        with call.blocking() as namespace:
            yield namespace
    except NotImplementedHere:
        raise CommandFailed(NO_REPAIR) from None
