"""`$management` of a subscription: add, remove and list rules."""

from datetime import timedelta
from uuid import UUID

from twinbus.amqp.codec.types import Described, Timestamp, ULong, Value
from twinbus.errors import ArgumentError, EntityNotFound, NotAllowed
from twinbus.gateway.nodes.request_message import Arguments, Response
from twinbus.gateway.requests.call import Call, done
from twinbus.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from twinbus.model.rules.arithmetic import INTEGER_MAX
from twinbus.model.rules.values import EPOCH, MILLISECOND, encodable, understood

LIST_COUNT_MAX = 100
NO_RULES = Response(204, "No rules", None, EntityNotFound.condition)

# Filter codes have one zero less than those of rules and actions: that is how the service has them.
_RULE = ULong(0x13700000004)
_EMPTY_ACTION = ULong(0x13700000005)
_SQL_ACTION = ULong(0x13700000006)
_SQL_FILTER = ULong(0x1370000006)
_TRUE_FILTER = ULong(0x1370000007)
_FALSE_FILTER = ULong(0x1370000008)
_CORRELATION_FILTER = ULong(0x1370000009)

_CORRELATION_FIELDS = (
    "correlation-id",
    "message-id",
    "to",
    "reply-to",
    "label",
    "session-id",
    "reply-to-session-id",
    "content-type",
)


def add_rule(call: Call) -> None:
    rule = read_rule(call.arguments)
    topic, subscription = _subscription_of(call)
    call.control.submit(call.control.create_rule(topic, subscription, rule), call.answer(done))


def remove_rule(call: Call) -> None:
    name = call.arguments.text("rule-name")
    topic, subscription = _subscription_of(call)
    call.control.submit(call.control.delete_rule(topic, subscription, name), call.answer(done))


def enumerate_rules(call: Call) -> None:
    skip = max(call.arguments.number("skip", 0), 0)
    top = min(max(call.arguments.number("top", LIST_COUNT_MAX), 1), LIST_COUNT_MAX)
    rules = call.control.subscription(*_subscription_of(call)).rules[skip : skip + top]
    call.billed_as(call, rules)
    if not rules:
        call.respond(NO_RULES)
    else:
        call.respond(Response.ok({"rules": [{"rule-description": describe_rule(rule)} for rule in rules]}))


def _subscription_of(call: Call) -> tuple[str, str]:
    address = call.node.address
    if address.subscription is None:
        raise NotAllowed(f"'{call.node.path}' has no rules: ask one of the topic's subscriptions.")
    return address.path, address.subscription


def read_rule(arguments: Arguments) -> RuleDescription:
    description = Arguments(arguments.mapping("rule-description"))
    action = description.mapping("sql-rule-action")
    expression = Arguments(action).optional_text("expression")
    return RuleDescription(
        name=arguments.text("rule-name"),
        filter=_read_filter(description),
        action=None if expression is None else SqlAction(expression),
    )


def _read_filter(description: Arguments) -> FilterDescription:
    if description.fields.get("sql-filter") is not None:
        return SqlFilter(Arguments(description.mapping("sql-filter")).text("expression"))
    if description.fields.get("correlation-filter") is not None:
        fields = Arguments(description.mapping("correlation-filter"))
        texts = {name.replace("-", "_"): fields.optional_text(name) for name in _CORRELATION_FIELDS}
        properties = tuple((name, _kept(name, value)) for name, value in fields.mapping("properties").items())
        return CorrelationFilter(**texts, properties=properties)
    raise ArgumentError("A rule needs 'sql-filter' or 'correlation-filter'.")


def _kept(name: str, value: Value) -> object:
    """A value to compare with, in the class that descriptions have for it whichever way they come: AMQP has more."""
    match understood(value):
        case bool() | UUID() | timedelta() as kept:
            return kept
        case Timestamp() as moment:
            try:
                return EPOCH + moment * MILLISECOND
            except OverflowError:
                raise ArgumentError(f"The time of property '{name}' is beyond the calendar.") from None
        case int() as number if number <= INTEGER_MAX:
            return int(number)
        case float() as number:
            return float(number)
        case str() as text:
            return str(text)
    raise ArgumentError(
        f"The correlation filter cannot compare property '{name}' with a {type(value).__name__} such as this; "
        "give it a text, number of 64 bits, boolean or time."
    )


def describe_rule(rule: RuleDescription) -> Described:
    action = Described(_EMPTY_ACTION, []) if rule.action is None else Described(_SQL_ACTION, [rule.action.expression])
    return Described(_RULE, [_describe_filter(rule.filter), action, rule.name])


def _describe_filter(chosen: FilterDescription) -> Described:
    if isinstance(chosen, SqlFilter):
        return Described(_SQL_FILTER, [chosen.expression])
    if isinstance(chosen, TrueFilter):
        return Described(_TRUE_FILTER, [])
    if isinstance(chosen, FalseFilter):
        return Described(_FALSE_FILTER, [])
    fields: list[Value] = [getattr(chosen, name.replace("-", "_")) for name in _CORRELATION_FIELDS]
    properties = {name: encodable(understood(value)) for name, value in chosen.properties}
    return Described(_CORRELATION_FILTER, [*fields, properties])
