"""`twinbus subscription`: make, show, change and delete the subscriptions of topics."""

from typing import Annotated, Any

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.entities.options import (
    AutoDelete,
    DeadLetterOnExpiry,
    ForwardDeadLetters,
    ForwardTo,
    LockDuration,
    MaxDeliveryCount,
    Metadata,
    Sessions,
    StatusOption,
    TimeToLive,
    properties_of,
)

app = typer.Typer(no_args_is_help=True, help="Make, show, change and delete the subscriptions of topics.")

TopicArgument = Annotated[str, typer.Argument(help="Path of the topic.")]
NameArgument = Annotated[str, typer.Argument(help="Name of the subscription.")]
COLUMNS = ("name", "status", "availability", "active", "dead_letter", "messages", "sessions", "forward_to")


@command(app, "create")
def create(
    call: Call,
    topic: TopicArgument,
    name: NameArgument,
    *,
    sessions: Sessions = False,
    lock_duration: LockDuration = None,
    ttl: TimeToLive = None,
    max_delivery_count: MaxDeliveryCount = None,
    dead_letter_on_expiry: DeadLetterOnExpiry = None,
    forward_to: ForwardTo = None,
    forward_dead_letters_to: ForwardDeadLetters = None,
    auto_delete: AutoDelete = None,
    metadata: Metadata = None,
) -> None:
    """Make a subscription; it takes every message until its rule $Default is deleted."""
    chosen = properties_of(
        sessions=sessions,
        lock_duration=lock_duration,
        ttl=ttl,
        max_delivery_count=max_delivery_count,
        dead_letter_on_expiry=dead_letter_on_expiry,
        forward_to=forward_to,
        forward_dead_letters_to=forward_dead_letters_to,
        auto_delete=auto_delete,
        metadata=metadata,
    )
    with call.administration() as client:
        made = client.create_subscription(topic, name, **chosen)
    call.output.done(f"Subscription '{name}' of topic '{topic}' is made.", **_record(topic, made))


@command(app, "show")
def show(call: Call, topic: TopicArgument, name: NameArgument) -> None:
    """Show a subscription's settings and how full it is."""
    with call.administration() as client:
        properties = client.get_subscription(topic, name)
        counts = client.get_subscription_runtime_properties(topic, name)
    call.output.record(_record(topic, properties) | _counts(counts))


@command(app, "list")
def list_subscriptions(call: Call, topic: TopicArgument) -> None:
    """List the subscriptions of a topic with their counts."""
    with call.administration() as client:
        counts = {each.name: _counts(each) for each in client.list_subscriptions_runtime_properties(topic)}
        records = [_record(topic, each) | counts.get(each.name, {}) for each in client.list_subscriptions(topic)]
    call.output.table(COLUMNS, records)


@command(app, "update")
def update(
    call: Call,
    topic: TopicArgument,
    name: NameArgument,
    *,
    lock_duration: LockDuration = None,
    ttl: TimeToLive = None,
    max_delivery_count: MaxDeliveryCount = None,
    dead_letter_on_expiry: DeadLetterOnExpiry = None,
    forward_to: ForwardTo = None,
    forward_dead_letters_to: ForwardDeadLetters = None,
    auto_delete: AutoDelete = None,
    status: StatusOption = None,
    metadata: Metadata = None,
) -> None:
    """Change a subscription; what is not named stays as it is."""
    chosen = properties_of(
        lock_duration=lock_duration,
        ttl=ttl,
        max_delivery_count=max_delivery_count,
        dead_letter_on_expiry=dead_letter_on_expiry,
        forward_to=forward_to,
        forward_dead_letters_to=forward_dead_letters_to,
        auto_delete=auto_delete,
        status=status,
        metadata=metadata,
    )
    with call.administration() as client:
        client.update_subscription(topic, client.get_subscription(topic, name), **chosen)
        changed = client.get_subscription(topic, name)
    call.output.done(f"Subscription '{name}' of topic '{topic}' is changed.", **_record(topic, changed))


@command(app, "delete")
def delete(call: Call, topic: TopicArgument, name: NameArgument) -> None:
    """Delete a subscription and every message in it."""
    with call.administration() as client:
        client.delete_subscription(topic, name)
    call.output.done(f"Subscription '{name}' of topic '{topic}' is deleted.", topic=topic, name=name)


def _record(topic: str, subscription: Any) -> dict[str, Any]:
    return {
        "topic": topic,
        "name": subscription.name,
        "status": subscription.status,
        "availability": subscription.availability_status,
        "sessions": subscription.requires_session,
        "lock_duration": subscription.lock_duration,
        "time_to_live": subscription.default_message_time_to_live,
        "dead_letter_on_expiry": subscription.dead_lettering_on_message_expiration,
        "dead_letter_on_filter_error": subscription.dead_lettering_on_filter_evaluation_exceptions,
        "max_delivery_count": subscription.max_delivery_count,
        "forward_to": subscription.forward_to,
        "forward_dead_letters_to": subscription.forward_dead_lettered_messages_to,
        "auto_delete_on_idle": subscription.auto_delete_on_idle,
        "metadata": subscription.user_metadata,
    }


def _counts(subscription: Any) -> dict[str, Any]:
    return {
        "messages": subscription.total_message_count,
        "active": subscription.active_message_count,
        "dead_letter": subscription.dead_letter_message_count,
        "transfer_dead_letter": subscription.transfer_dead_letter_message_count,
        "created_at": subscription.created_at_utc,
        "updated_at": subscription.updated_at_utc,
    }
