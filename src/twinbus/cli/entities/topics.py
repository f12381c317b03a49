"""`twinbus topic`: make, show, change and delete topics."""

from typing import Annotated, Any

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.entities.options import (
    AutoDelete,
    DuplicateDetection,
    DuplicateWindow,
    MaxSize,
    Metadata,
    Partitioned,
    StatusOption,
    TimeToLive,
    properties_of,
)

app = typer.Typer(no_args_is_help=True, help="Make, show, change and delete topics.")

NameArgument = Annotated[str, typer.Argument(help="Path of the topic.")]
COLUMNS = ("name", "status", "availability", "subscriptions", "scheduled", "size_bytes", "partitioned")


@command(app, "create")
def create(
    call: Call,
    name: NameArgument,
    *,
    partitioned: Partitioned = False,
    duplicate_detection: DuplicateDetection = False,
    duplicate_window: DuplicateWindow = None,
    ttl: TimeToLive = None,
    max_size: MaxSize = None,
    auto_delete: AutoDelete = None,
    metadata: Metadata = None,
) -> None:
    """Make a topic."""
    chosen = properties_of(
        partitioned=partitioned,
        duplicate_detection=duplicate_detection,
        duplicate_window=duplicate_window,
        ttl=ttl,
        max_size=max_size,
        auto_delete=auto_delete,
        metadata=metadata,
    )
    with call.administration() as client:
        made = client.create_topic(name, **chosen)
    call.output.done(f"Topic '{name}' is made.", **_record(made))


@command(app, "show")
def show(call: Call, name: NameArgument) -> None:
    """Show a topic's settings and how full it is."""
    with call.administration() as client:
        properties, counts = client.get_topic(name), client.get_topic_runtime_properties(name)
    call.output.record(_record(properties) | _counts(counts))


@command(app, "list")
def list_topics(call: Call) -> None:
    """List all topics with their counts."""
    with call.administration() as client:
        counts = {each.name: _counts(each) for each in client.list_topics_runtime_properties()}
        records = [_record(each) | counts.get(each.name, {}) for each in client.list_topics()]
    call.output.table(COLUMNS, records)


@command(app, "update")
def update(
    call: Call,
    name: NameArgument,
    *,
    duplicate_window: DuplicateWindow = None,
    ttl: TimeToLive = None,
    max_size: MaxSize = None,
    auto_delete: AutoDelete = None,
    status: StatusOption = None,
    metadata: Metadata = None,
) -> None:
    """Change a topic; what is not named stays as it is."""
    chosen = properties_of(
        duplicate_window=duplicate_window,
        ttl=ttl,
        max_size=max_size,
        auto_delete=auto_delete,
        status=status,
        metadata=metadata,
    )
    with call.administration() as client:
        client.update_topic(client.get_topic(name), **chosen)
        changed = client.get_topic(name)
    call.output.done(f"Topic '{name}' is changed.", **_record(changed))


@command(app, "delete")
def delete(call: Call, name: NameArgument) -> None:
    """Delete a topic with its subscriptions and every message in them."""
    with call.administration() as client:
        client.delete_topic(name)
    call.output.done(f"Topic '{name}' is deleted.", name=name)


def _record(topic: Any) -> dict[str, Any]:
    return {
        "name": topic.name,
        "status": topic.status,
        "availability": topic.availability_status,
        "partitioned": topic.enable_partitioning,
        "duplicate_detection": topic.requires_duplicate_detection,
        "duplicate_window": topic.duplicate_detection_history_time_window,
        "max_size_mb": topic.max_size_in_megabytes,
        "time_to_live": topic.default_message_time_to_live,
        "auto_delete_on_idle": topic.auto_delete_on_idle,
        "metadata": topic.user_metadata,
    }


def _counts(topic: Any) -> dict[str, Any]:
    return {
        "subscriptions": topic.subscription_count,
        "scheduled": topic.scheduled_message_count,
        "size_bytes": topic.size_in_bytes,
        "created_at": topic.created_at_utc,
        "updated_at": topic.updated_at_utc,
    }
