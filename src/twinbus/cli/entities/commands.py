"""`twinbus queue | topic | subscription`: create, show, list, update and delete entities."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.confirmation import YesOption, confirm
from twinbus.cli.entities.property_options import (
    NOTHING_TO_UPDATE,
    client_values,
    create_options,
    shown_values,
    update_options,
)
from twinbus.cli.help_pages import Group
from twinbus.errors import ArgumentError
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.entity_properties import EntityKind

YES = inspect.Parameter("yes", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=YesOption)
TIMES = {"created_at": "created_at_utc", "updated_at": "updated_at_utc"}
MESSAGE_COUNTS = {
    "messages": "total_message_count",
    "active": "active_message_count",
    "dead_letter": "dead_letter_message_count",
}
TRANSFER_COUNTS = {"transfer_dead_letter": "transfer_dead_letter_message_count"}
STORED_COUNTS = {"scheduled": "scheduled_message_count", "size_bytes": "size_in_bytes"}


@dataclass(frozen=True, slots=True)
class EntityGroup:
    """One kind of entity and its group of commands.

    `word` is the group's name, and the word in the method names of the administration client. `arguments` are the names
    that lead to an entity, with their help. `counts` are the attributes of the client's runtime properties by the name
    they are shown under.
    """

    word: str
    kind: EntityKind
    arguments: Mapping[str, str]
    counts: Mapping[str, str]
    columns: Sequence[str]
    plural: str
    after_creation: str = ""
    deleted: str = "and every message in it"

    def caption(self, names: Sequence[str], word: str = "") -> str:
        *above, name = names
        return f"{word or self.word.capitalize()} '{name}'" + "".join(f" of topic '{topic}'" for topic in above)

    def call(self, client: Any, pattern: str, *args: Any, **kwargs: Any) -> Any:
        """The method of the client for this kind of entity, such as create_{} or list_{}s."""
        return getattr(client, pattern.format(self.word))(*args, **kwargs)

    def record(self, names: Sequence[str], entity: Any) -> dict[str, Any]:
        *above, _ = names
        identity = dict(zip(self.arguments, (*above, entity.name), strict=True))
        state = {"status": entity.status, "availability": entity.availability_status}
        return identity | state | shown_values(self.kind, entity)

    def count_record(self, entity: Any) -> dict[str, Any]:
        return {shown: getattr(entity, name) for shown, name in self.counts.items()}


GROUPS = (
    EntityGroup(
        "queue",
        QueueDescription,
        {"name": "Path of the queue."},
        MESSAGE_COUNTS | STORED_COUNTS | TRANSFER_COUNTS | TIMES,
        ("name", "status", "availability", "active", "dead_letter", "scheduled", "size_bytes", "partitioned"),
        "queues",
    ),
    EntityGroup(
        "topic",
        TopicDescription,
        {"name": "Path of the topic."},
        {"subscriptions": "subscription_count"} | STORED_COUNTS | TIMES,
        ("name", "status", "availability", "subscriptions", "scheduled", "size_bytes", "partitioned"),
        "topics",
        deleted="with its subscriptions and every message in them",
    ),
    EntityGroup(
        "subscription",
        SubscriptionDescription,
        {"topic": "Path of the topic.", "name": "Name of the subscription."},
        MESSAGE_COUNTS | TRANSFER_COUNTS | TIMES,
        ("name", "status", "availability", "active", "dead_letter", "messages", "sessions", "forward_to"),
        "subscriptions of a topic",
        after_creation=" It receives every message until its rule $Default is deleted.",
    ),
)


def register(app: typer.Typer) -> None:
    for group in GROUPS:
        app.add_typer(_commands(group), name=group.word)


def _commands(group: EntityGroup) -> typer.Typer:
    app = Group(f"Create, show, update and delete {group.plural}.")
    entity = [_argument(name, text) for name, text in group.arguments.items()]

    def add(name: str, function: Callable[..., None], help_text: str, parameters: Sequence[inspect.Parameter]) -> None:
        def run(call: Call, **given: Any) -> None:
            names = [given.pop(each) for each in group.arguments if each in given]
            function(group, call, names, **given)

        command(app, name, parameters, help_text)(run)

    word, kind = group.word, group.kind
    add("create", _create, f"Create a {word}.{group.after_creation}", [*entity, *create_options(kind)])
    add("show", _show, f"Show a {word}'s settings and how full it is.", entity)
    add("list", _list, f"List the {group.plural} with their counts.", entity[:-1])
    add(
        "update",
        _update,
        f"Update a {word}; omitted properties stay unchanged.",
        [*entity, *update_options(kind)],
    )
    add("delete", _delete, f"Delete a {word} {group.deleted}.", [*entity, YES])
    return app


def _argument(name: str, help_text: str) -> inspect.Parameter:
    annotation = Annotated[str, typer.Argument(help=help_text)]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)


def _create(group: EntityGroup, call: Call, names: list[str], **given: Any) -> None:
    with call.administration() as client:
        created = group.call(client, "create_{}", *names, **client_values(group.kind, given))
    call.output.done(f"{group.caption(names)} is created.", **group.record(names, created))


def _show(group: EntityGroup, call: Call, names: list[str]) -> None:
    with call.administration() as client:
        found = group.call(client, "get_{}", *names)
        counts = group.call(client, "get_{}_runtime_properties", *names)
    call.output.record(group.record(names, found) | group.count_record(counts))


def _list(group: EntityGroup, call: Call, above: list[str]) -> None:
    with call.administration() as client:
        runtime = group.call(client, "list_{}s_runtime_properties", *above)
        counts = {each.name: group.count_record(each) for each in runtime}
        found = group.call(client, "list_{}s", *above)
        records = [group.record([*above, each.name], each) | counts.get(each.name, {}) for each in found]
    call.output.table(group.columns, records)


def _update(group: EntityGroup, call: Call, names: list[str], **given: Any) -> None:
    *above, _ = names
    if all(value is None for value in given.values()):
        raise ArgumentError(NOTHING_TO_UPDATE)
    with call.administration() as client:
        before = group.call(client, "get_{}", *names)
        group.call(client, "update_{}", *above, before, **client_values(group.kind, given))
        updated = group.call(client, "get_{}", *names)
    call.output.done(f"{group.caption(names)} is updated.", **group.record(names, updated))


def _delete(group: EntityGroup, call: Call, names: list[str], *, yes: bool) -> None:
    confirm(f"Delete {group.caption(names, group.word)} {group.deleted}?", yes, "Nothing was deleted.")
    with call.administration() as client:
        group.call(client, "delete_{}", *names)
    call.output.done(f"{group.caption(names)} is deleted.", **dict(zip(group.arguments, names, strict=True)))
