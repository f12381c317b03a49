"""`twinbus rule`: create, show, update and delete the rules of subscriptions."""

from typing import Annotated, Any

import typer

from twinbus.cli.command import Call, command
from twinbus.cli.confirmation import YesOption, confirm
from twinbus.cli.entities.property_options import NOTHING_TO_UPDATE
from twinbus.cli.help_pages import Group
from twinbus.cli.property_values import PAIR_METAVAR, read_pairs
from twinbus.errors import ArgumentError

app = Group("Create, show, update and delete the rules of subscriptions.")

TopicArgument = Annotated[str, typer.Argument(help="Path of the topic.")]
SubscriptionArgument = Annotated[str, typer.Argument(help="Name of the subscription.")]
NameArgument = Annotated[str, typer.Argument(help="Name of the rule.")]
SqlOption = Annotated[str | None, typer.Option("--sql", metavar="FILTER", help="SQL filter, as in \"colour = 'red'\".")]
CorrelationOption = Annotated[
    list[str] | None,
    typer.Option(
        "--match",
        metavar=PAIR_METAVAR,
        help="A property that must be equal, including its type, as in send -p; for system fields sys.Label and so on.",
    ),
]
ActionOption = Annotated[
    str | None,
    typer.Option("--action", metavar="SQL", help='What to do with a matching message, as in "SET seen = TRUE".'),
]
SYSTEM_FIELDS = {
    "sys.correlationid": "correlation_id",
    "sys.messageid": "message_id",
    "sys.to": "to",
    "sys.replyto": "reply_to",
    "sys.label": "label",
    "sys.sessionid": "session_id",
    "sys.replytosessionid": "reply_to_session_id",
    "sys.contenttype": "content_type",
}
COLUMNS = ("name", "filter", "action", "parameters", "created_at")


@command(app, "create")
def create(
    call: Call,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    name: NameArgument,
    *,
    sql: SqlOption = None,
    match: CorrelationOption = None,
    action: ActionOption = None,
) -> None:
    """Create a rule. Without --sql and --match it matches every message."""
    with call.administration() as client:
        created = client.create_rule(topic, subscription, name, filter=_filter(sql, match), action=_action(action))
    call.output.done(f"Rule '{name}' of '{topic}/{subscription}' is created.", **_record(created))


@command(app, "show")
def show(call: Call, topic: TopicArgument, subscription: SubscriptionArgument, name: NameArgument) -> None:
    """Show a rule."""
    with call.administration() as client:
        call.output.record(_record(client.get_rule(topic, subscription, name)))


@command(app, "list")
def list_rules(call: Call, topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """List the rules of a subscription by name."""
    with call.administration() as client:
        call.output.table(COLUMNS, [_record(rule) for rule in client.list_rules(topic, subscription)])


@command(app, "update")
def update(
    call: Call,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    name: NameArgument,
    *,
    sql: SqlOption = None,
    match: CorrelationOption = None,
    action: ActionOption = None,
) -> None:
    """Update the filter or the action of a rule; omitted parts stay unchanged. --action '' removes the action."""
    if sql is None and not match and action is None:
        raise ArgumentError(NOTHING_TO_UPDATE)
    with call.administration() as client:
        rule = client.get_rule(topic, subscription, name)
        if sql is not None or match:
            rule.filter = _filter(sql, match)
        if action is not None:
            rule.action = _action(action)
        client.update_rule(topic, subscription, rule)
        updated = client.get_rule(topic, subscription, name)
    call.output.done(f"Rule '{name}' of '{topic}/{subscription}' is updated.", **_record(updated))


@command(app, "delete")
def delete(
    call: Call,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    name: NameArgument,
    *,
    yes: YesOption = False,
) -> None:
    """Delete a rule."""
    confirm(f"Delete rule '{name}' of '{topic}/{subscription}'?", yes, "Nothing was deleted.")
    with call.administration() as client:
        client.delete_rule(topic, subscription, name)
    call.output.done(f"Rule '{name}' of '{topic}/{subscription}' is deleted.", name=name)


def _filter(sql: str | None, match: list[str] | None) -> Any:
    from azure.servicebus.management import CorrelationRuleFilter, SqlRuleFilter, TrueRuleFilter

    if sql is not None and match:
        raise ArgumentError("Give --sql or --match, not both.")
    if sql is not None:
        return SqlRuleFilter(sql)
    if not match:
        return TrueRuleFilter()
    fields: dict[str, str] = {}
    properties: dict[str, Any] = {}
    for pair in match:
        name, _, value = pair.partition("=")
        if name.lower() in SYSTEM_FIELDS:
            fields[SYSTEM_FIELDS[name.lower()]] = value
        else:
            properties |= read_pairs([pair], "--match")
    return CorrelationRuleFilter(properties=properties, **fields)


def _action(text: str | None) -> Any:
    from azure.servicebus.management import SqlRuleAction

    return SqlRuleAction(text) if text else None


def _record(rule: Any) -> dict[str, Any]:
    return {
        "name": rule.name,
        "filter": _shown_filter(rule.filter),
        "action": rule.action.sql_expression if rule.action else None,
        "parameters": _shown_parameters(rule.filter, rule.action),
        "created_at": rule.created_at_utc,
    }


def _shown_filter(chosen: Any) -> str:
    if hasattr(chosen, "sql_expression"):
        return str(chosen.sql_expression)
    names = {field: shown for shown, field in SYSTEM_FIELDS.items()}
    pairs = {names[field]: getattr(chosen, field) for field in names if getattr(chosen, field)}
    return ", ".join(f"{name}={value}" for name, value in (pairs | dict(chosen.properties or {})).items())


def _shown_parameters(*parts: Any) -> str | None:
    """An expression with parameters alone does not say what it compares with."""
    values = {name: value for part in parts for name, value in (getattr(part, "parameters", None) or {}).items()}
    return ", ".join(f"{name} = {value!r}" for name, value in values.items()) or None
