"""The properties of entities on the command line: options generated from the table, and what commands show.

`twinbus.model.entity_properties` is the table.
"""

import inspect
from datetime import timedelta
from typing import Annotated, Any

import typer

from twinbus.model.descriptions import EntityStatus
from twinbus.model.durations import parse_duration, short_duration
from twinbus.model.entity_properties import EntityKind, Kind, Property, Use, properties_of

NOTHING_TO_UPDATE = "There is nothing to update. Give at least one option; --help lists them."
TYPES: dict[Kind, Any] = {
    Kind.FLAG: bool,
    Kind.NUMBER: int,
    Kind.DURATION: timedelta,
    Kind.TEXT: str,
    Kind.STATUS: EntityStatus,
    Kind.TARGET: str,
}


def create_options(kind: EntityKind) -> list[inspect.Parameter]:
    """All but the status: an entity is created active."""
    return [_option(each) for each in properties_of(kind) if each.option and each.kind is not Kind.STATUS]


def update_options(kind: EntityKind) -> list[inspect.Parameter]:
    return [_option(each) for each in properties_of(kind) if each.option and each.use is not Use.AT_CREATION]


def client_values(kind: EntityKind, given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as keywords of the administration client. An empty text unsets a property."""
    return {
        each.client_name: _client_value(given[each.field])
        for each in properties_of(kind)
        if given.get(each.field) is not None
    }


def shown_values(kind: EntityKind, entity: Any) -> dict[str, Any]:
    """What commands show of an entity of the administration client: every property it knows that has an effect."""
    return {
        each.shown_name: getattr(entity, each.client_name)
        for each in properties_of(kind)
        if each.use is not Use.KEPT and each.is_in_client
    }


def _option(of: Property) -> inspect.Parameter:
    limits = of.limits(short_duration)
    is_duration = of.kind is Kind.DURATION
    option = typer.Option(
        of.option or "",
        parser=parse_duration if is_duration else None,
        metavar="DURATION" if is_duration else of.metavar,
        help=f"{of.help}: {limits}." if limits else f"{of.help}.",
    )
    return inspect.Parameter(
        of.field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[TYPES[of.kind] | None, option]
    )


def _client_value(value: Any) -> Any:
    if isinstance(value, EntityStatus):
        return value.value
    return None if value == "" else value
