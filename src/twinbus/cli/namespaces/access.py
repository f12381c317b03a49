"""`twinbus access`: the SAS rules of a namespace and of its entities."""

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from twinbus.cli.command import DATA_DEFAULT, DataOption, JsonOption
from twinbus.cli.namespaces.running import find_running
from twinbus.cli.output import Output
from twinbus.errors import ArgumentError
from twinbus.model.descriptions import Right, WhichKey

app = typer.Typer(no_args_is_help=True, help="Create, show and delete access rules, and generate new keys for them.")

NamespaceArgument = Annotated[str, typer.Argument(help="A namespace that runs on this machine.")]
NameArgument = Annotated[str, typer.Argument(help="Name of the access rule.")]
EntityOption = Annotated[
    str | None, typer.Option("--entity", help="A queue or topic; the namespace itself if omitted.")
]
RightOption = Annotated[
    list[Right], typer.Option("--right", case_sensitive=False, help="What the rule allows; Manage includes the others.")
]


@app.command("list")
def list_rules(
    namespace: NamespaceArgument,
    entity: EntityOption = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show every access rule with its rights and keys."""
    rules = find_running(data, namespace).ask("GET", _place("", entity))
    for rule in rules:
        rule["rights"] = rule["rights"] if as_json else ", ".join(rule["rights"])
    Output(as_json=as_json).table(("name", "rights", "primary_key", "secondary_key", "modified"), rules)


@app.command("create")
def create(
    namespace: NamespaceArgument,
    name: NameArgument,
    right: RightOption,
    entity: EntityOption = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Create an access rule with two new keys."""
    if "/" in name:
        raise ArgumentError(f"'{name}' is not a name for an access rule. Remove the '/'.")
    body = {"rights": [each.value for each in right]}
    _show(data, namespace, entity, ("PUT", f"/{quote(name, safe='')}"), body, as_json=as_json)


@app.command("regenerate")
def regenerate(
    namespace: NamespaceArgument,
    name: NameArgument,
    key: Annotated[WhichKey, typer.Option("--key", help="Which of the two keys to replace.")] = WhichKey.PRIMARY,
    entity: EntityOption = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Generate a new key in place of one of the two; the other one stays valid."""
    place = f"/{quote(name, safe='')}/regenerate?key={key.value}"
    _show(data, namespace, entity, ("POST", place), None, as_json=as_json)


@app.command("delete")
def delete(
    namespace: NamespaceArgument,
    name: NameArgument,
    entity: EntityOption = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Delete an access rule. Tokens signed with its keys are refused from then on."""
    find_running(data, namespace).ask("DELETE", _place(f"/{quote(name, safe='')}", entity))
    Output(as_json=as_json).done(f"Access rule '{name}' is deleted.", name=name, deleted=True)


def _show(
    data: Path, namespace: str, entity: str | None, request: tuple[str, str], body: object, *, as_json: bool
) -> None:
    method, place = request
    rule = find_running(data, namespace).ask(method, _place(place, entity), body)
    rule["rights"] = rule["rights"] if as_json else ", ".join(rule["rights"])
    Output(as_json=as_json).record(rule)


def _place(place: str, entity: str | None) -> str:
    if entity is None:
        return f"/$access{place}"
    return f"/$access{place}{'&' if '?' in place else '?'}entity={quote(entity, safe='')}"
