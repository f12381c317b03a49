"""Options that describe entities, shared by the groups of queues, topics and subscriptions."""

from datetime import timedelta
from typing import Annotated, Any

import typer

from twinbus.cli.durations import parse_duration
from twinbus.model.descriptions import EntityStatus

PARTITIONED_HELP = "Split it over 16 fragments in different messaging stores."


def _duration(help_text: str, name: str) -> Any:
    return typer.Option(name, parser=parse_duration, metavar="DURATION", help=help_text)


Partitioned = Annotated[bool, typer.Option("--partitioned", help=PARTITIONED_HELP)]
Sessions = Annotated[bool, typer.Option("--sessions", help="Every message belongs to a message session.")]
DuplicateDetection = Annotated[bool, typer.Option("--duplicate-detection", help="Drop messages whose id came before.")]
DuplicateWindow = Annotated[
    timedelta | None, _duration("How long ids are remembered: 20s to 7d.", "--duplicate-window")
]
LockDuration = Annotated[
    timedelta | None, _duration("How long a received message is locked: 5s to 5m.", "--lock-duration")
]
TimeToLive = Annotated[timedelta | None, _duration("Longest life of a message.", "--ttl")]
AutoDelete = Annotated[
    timedelta | None, _duration("Delete it after so long without use: 5m or more.", "--auto-delete-on-idle")
]
MaxSize = Annotated[
    int | None, typer.Option("--max-size", metavar="MB", help="1024, 2048, 3072, 4096 or 5120; of each fragment.")
]
MaxDeliveryCount = Annotated[
    int | None, typer.Option("--max-delivery-count", help="Deliveries before a message is dead-lettered.")
]
DeadLetterOnExpiry = Annotated[
    bool | None, typer.Option("--dead-letter-on-expiry/--drop-on-expiry", help="What becomes of expired messages.")
]
ForwardTo = Annotated[
    str | None, typer.Option("--forward-to", metavar="ENTITY", help="Send all messages on; '' ends it.")
]
ForwardDeadLetters = Annotated[
    str | None, typer.Option("--forward-dead-letters-to", metavar="ENTITY", help="Send dead letters on; '' ends it.")
]
StatusOption = Annotated[EntityStatus | None, typer.Option("--status", help="What may be done with it.")]
Metadata = Annotated[str | None, typer.Option("--metadata", help="Text kept with the entity.")]

# Names of our parameters -> names of the administration client.
PROPERTIES = {
    "lock_duration": "lock_duration",
    "ttl": "default_message_time_to_live",
    "auto_delete": "auto_delete_on_idle",
    "max_size": "max_size_in_megabytes",
    "max_delivery_count": "max_delivery_count",
    "dead_letter_on_expiry": "dead_lettering_on_message_expiration",
    "duplicate_window": "duplicate_detection_history_time_window",
    "forward_to": "forward_to",
    "forward_dead_letters_to": "forward_dead_lettered_messages_to",
    "status": "status",
    "metadata": "user_metadata",
    "partitioned": "enable_partitioning",
    "sessions": "requires_session",
    "duplicate_detection": "requires_duplicate_detection",
}


def properties_of(**given: Any) -> dict[str, Any]:
    """What was given, by the names of the administration client. An empty text unsets."""
    chosen = {PROPERTIES[name]: value for name, value in given.items() if value is not None}
    return {name: _value(value) for name, value in chosen.items()}


def _value(value: Any) -> Any:
    if isinstance(value, EntityStatus):
        return value.value
    return None if value == "" else value
