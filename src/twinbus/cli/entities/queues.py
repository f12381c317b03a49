"""`twinbus queue`: make, show, change and delete queues."""

from typing import Annotated, Any

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.entities.options import (
    AutoDelete,
    DeadLetterOnExpiry,
    DuplicateDetection,
    DuplicateWindow,
    ForwardDeadLetters,
    ForwardTo,
    LockDuration,
    MaxDeliveryCount,
    MaxSize,
    Metadata,
    Partitioned,
    Sessions,
    StatusOption,
    TimeToLive,
    properties_of,
)

app = typer.Typer(no_args_is_help=True, help="Make, show, change and delete queues.")

NameArgument = Annotated[str, typer.Argument(help="Path of the queue.")]
COLUMNS = ("name", "status", "availability", "active", "dead_letter", "scheduled", "size_bytes", "partitioned")


@command(app, "create")
def create(
    call: Call,
    name: NameArgument,
    *,
    partitioned: Partitioned = False,
    sessions: Sessions = False,
    duplicate_detection: DuplicateDetection = False,
    duplicate_window: DuplicateWindow = None,
    lock_duration: LockDuration = None,
    ttl: TimeToLive = None,
    max_size: MaxSize = None,
    max_delivery_count: MaxDeliveryCount = None,
    dead_letter_on_expiry: DeadLetterOnExpiry = None,
    forward_to: ForwardTo = None,
    forward_dead_letters_to: ForwardDeadLetters = None,
    auto_delete: AutoDelete = None,
    metadata: Metadata = None,
) -> None:
    """Make a queue."""
    chosen = properties_of(
        partitioned=partitioned,
        sessions=sessions,
        duplicate_detection=duplicate_detection,
        duplicate_window=duplicate_window,
        lock_duration=lock_duration,
        ttl=ttl,
        max_size=max_size,
        max_delivery_count=max_delivery_count,
        dead_letter_on_expiry=dead_letter_on_expiry,
        forward_to=forward_to,
        forward_dead_letters_to=forward_dead_letters_to,
        auto_delete=auto_delete,
        metadata=metadata,
    )
    with call.administration() as client:
        made = client.create_queue(name, **chosen)
    call.output.done(f"Queue '{name}' is made.", **_record(made))


@command(app, "show")
def show(call: Call, name: NameArgument) -> None:
    """Show a queue's settings and how full it is."""
    with call.administration() as client:
        properties, counts = client.get_queue(name), client.get_queue_runtime_properties(name)
    call.output.record(_record(properties) | _counts(counts))


@command(app, "list")
def list_queues(call: Call) -> None:
    """List all queues with their counts."""
    with call.administration() as client:
        counts = {each.name: _counts(each) for each in client.list_queues_runtime_properties()}
        records = [_record(each) | counts.get(each.name, {}) for each in client.list_queues()]
    call.output.table(COLUMNS, records)


@command(app, "update")
def update(
    call: Call,
    name: NameArgument,
    *,
    duplicate_window: DuplicateWindow = None,
    lock_duration: LockDuration = None,
    ttl: TimeToLive = None,
    max_size: MaxSize = None,
    max_delivery_count: MaxDeliveryCount = None,
    dead_letter_on_expiry: DeadLetterOnExpiry = None,
    forward_to: ForwardTo = None,
    forward_dead_letters_to: ForwardDeadLetters = None,
    auto_delete: AutoDelete = None,
    status: StatusOption = None,
    metadata: Metadata = None,
) -> None:
    """Change a queue; what is not named stays as it is."""
    chosen = properties_of(
        duplicate_window=duplicate_window,
        lock_duration=lock_duration,
        ttl=ttl,
        max_size=max_size,
        max_delivery_count=max_delivery_count,
        dead_letter_on_expiry=dead_letter_on_expiry,
        forward_to=forward_to,
        forward_dead_letters_to=forward_dead_letters_to,
        auto_delete=auto_delete,
        status=status,
        metadata=metadata,
    )
    with call.administration() as client:
        client.update_queue(client.get_queue(name), **chosen)
        changed = client.get_queue(name)
    call.output.done(f"Queue '{name}' is changed.", **_record(changed))


@command(app, "delete")
def delete(call: Call, name: NameArgument) -> None:
    """Delete a queue and every message in it."""
    with call.administration() as client:
        client.delete_queue(name)
    call.output.done(f"Queue '{name}' is deleted.", name=name)


def _record(queue: Any) -> dict[str, Any]:
    return {
        "name": queue.name,
        "status": queue.status,
        "availability": queue.availability_status,
        "partitioned": queue.enable_partitioning,
        "sessions": queue.requires_session,
        "duplicate_detection": queue.requires_duplicate_detection,
        "duplicate_window": queue.duplicate_detection_history_time_window,
        "max_size_mb": queue.max_size_in_megabytes,
        "lock_duration": queue.lock_duration,
        "time_to_live": queue.default_message_time_to_live,
        "dead_letter_on_expiry": queue.dead_lettering_on_message_expiration,
        "max_delivery_count": queue.max_delivery_count,
        "forward_to": queue.forward_to,
        "forward_dead_letters_to": queue.forward_dead_lettered_messages_to,
        "auto_delete_on_idle": queue.auto_delete_on_idle,
        "metadata": queue.user_metadata,
    }


def _counts(queue: Any) -> dict[str, Any]:
    return {
        "messages": queue.total_message_count,
        "active": queue.active_message_count,
        "dead_letter": queue.dead_letter_message_count,
        "scheduled": queue.scheduled_message_count,
        "transfer_dead_letter": queue.transfer_dead_letter_message_count,
        "size_bytes": queue.size_in_bytes,
        "created_at": queue.created_at_utc,
        "updated_at": queue.updated_at_utc,
    }
