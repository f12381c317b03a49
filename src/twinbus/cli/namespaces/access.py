"""`twinbus access`: the SAS rules of a namespace and of its entities, with connection strings for them."""

from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.confirmation import YesOption, confirm
from twinbus.cli.help_pages import Group
from twinbus.cli.namespaces.running import find_running
from twinbus.client.connecting.connection_string import with_key
from twinbus.errors import ArgumentError, EntityNotFound
from twinbus.model.descriptions import Right, WhichKey

app = Group("Create, show and delete access rules, and generate new keys for them.")

NameArgument = Annotated[str, typer.Argument(help="Name of the access rule.")]
EntityOption = Annotated[
    str | None, typer.Option("--entity", metavar="PATH", help="A queue or topic; the namespace if omitted.")
]
RightOption = Annotated[
    list[Right], typer.Option("--right", case_sensitive=False, help="What the rule allows; Manage includes the others.")
]


@command(app, "list")
def list_rules(call: Call, *, entity: EntityOption = None) -> None:
    """Show every access rule with its rights and keys."""
    columns = ("name", "rights", "primary_key", "secondary_key", "modified")
    call.output.table(columns, [_shown(call, rule) for rule in call.ask("GET", _place("", entity))])


@command(app, "show")
def show(call: Call, name: NameArgument, *, entity: EntityOption = None) -> None:
    """Show an access rule with its keys and connection strings."""
    _print(call, rule_named(call, name, entity), entity)


@command(app, "create")
def create(call: Call, name: NameArgument, *, right: RightOption, entity: EntityOption = None) -> None:
    """Create an access rule with two new keys, and show its connection strings."""
    if "/" in name or not name:
        raise ArgumentError(
            f"'{name}' is not a name for an access rule. Use 1 to 256 printable characters without '/'."
        )
    body = {"rights": [each.value for each in right]}
    _print(call, call.ask("PUT", _place(f"/{quote(name, safe='')}", entity), body), entity)


@command(app, "regenerate")
def regenerate(
    call: Call,
    name: NameArgument,
    *,
    key: Annotated[WhichKey, typer.Option("--key", help="Which of the two keys to replace.")] = WhichKey.PRIMARY,
    entity: EntityOption = None,
) -> None:
    """Replace one of the two keys with a new one; the other stays valid."""
    place = f"/{quote(name, safe='')}/regenerate?key={key.value}"
    _print(call, call.ask("POST", _place(place, entity)), entity)


@command(app, "delete")
def delete(call: Call, name: NameArgument, *, entity: EntityOption = None, yes: YesOption = False) -> None:
    """Delete an access rule. Tokens signed with its keys are refused from then on."""
    confirm(f"Delete access rule '{name}'? Its keys cannot be restored.", yes, "Nothing was deleted.")
    call.ask("DELETE", _place(f"/{quote(name, safe='')}", entity))
    call.output.done(f"Access rule '{name}' is deleted.", name=name, deleted=True)


def rule_named(call: Call, name: str, entity: str | None) -> dict[str, Any]:
    found: dict[str, Any] | None = next(
        (rule for rule in call.ask("GET", _place("", entity)) if rule["name"] == name), None
    )
    if found is None:
        raise EntityNotFound(f"There is no access rule '{name}' here. List the rules to see their names.")
    return found


def _print(call: Call, rule: dict[str, Any], entity: str | None) -> None:
    strings = dict(_connection_strings(call, rule, entity))
    if call.output.as_json:
        call.output.record(rule | strings)
        return
    call.output.record(_shown(call, rule))
    for text in strings.values():
        # In lines of their own: they are copied as they are.
        print(text)


def _connection_strings(call: Call, rule: dict[str, Any], entity: str | None) -> Iterator[tuple[str, str]]:
    """One for each key, and those for TLS of a namespace on this machine that has it."""
    places = {"connection_string": call.given_connection_string}
    if call.given_connection_string is None:
        running = find_running(call.data, call.namespace)
        places = {
            "connection_string": running.connection_string,
            "tls_connection_string": running.tls_connection_string,
        }
    for name, place in places.items():
        for which in ("primary", "secondary"):
            key = rule[f"{which}_key"]
            if place is not None and key:
                prefix = "" if which == "primary" else "secondary_"
                yield prefix + name, with_key(place, rule["name"], key, entity)


def _shown(call: Call, rule: dict[str, Any]) -> dict[str, Any]:
    return rule if call.output.as_json else rule | {"rights": ", ".join(rule["rights"])}


def _place(place: str, entity: str | None) -> str:
    if entity is None:
        return f"/$access{place}"
    return f"/$access{place}{'&' if '?' in place else '?'}entity={quote(entity, safe='')}"
