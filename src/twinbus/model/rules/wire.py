"""Rules in requests and responses of `$management`: AMQP maps in, RuleDescription out, and back.

add-rule sends maps with one key for the sort of filter; enumerate-rules answers with described
lists. The descriptors of filters have one zero less than those of rules and actions: that is how
the service numbers them, and the SDKs compare them exactly.

    rule    0x13700000004 [filter, action, name]        sql    0x1370000006 [expression]
    action  0x13700000005 [] none                       true   0x1370000007 []
            0x13700000006 [expression]                  false  0x1370000008 []
                                                        correlation 0x1370000009 [fields..., properties]
"""

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from twinbus.amqp.codec.types import Described, Long, Timestamp, ULong, Value
from twinbus.clock import Millis
from twinbus.errors import ArgumentError
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

RULE = ULong(0x13700000004)
EMPTY_ACTION = ULong(0x13700000005)
SQL_ACTION = ULong(0x13700000006)
SQL_FILTER = ULong(0x1370000006)
TRUE_FILTER = ULong(0x1370000007)
FALSE_FILTER = ULong(0x1370000008)
CORRELATION_FILTER = ULong(0x1370000009)

# In the order of the described list. The map's keys have dashes where these have underscores.
CORRELATION_FIELDS = (
    "correlation_id",
    "message_id",
    "to",
    "reply_to",
    "label",
    "session_id",
    "reply_to_session_id",
    "content_type",
)


def read_rule(name: Value, description: Value, created_at: Millis = 0) -> RuleDescription:
    """`rule-name` and `rule-description` of an add-rule request.

    ArgumentError if the shape is wrong; whether the rule itself is valid is for `compile_rule` to say.
    """
    fields = _map(description, "rule-description")
    return RuleDescription(_text(name, "rule-name"), _read_filter(fields), _read_action(fields), created_at)


def _read_filter(fields: Mapping[Value, Value]) -> FilterDescription:
    if fields.get("sql-filter") is not None:
        expression = _map(fields["sql-filter"], "sql-filter").get("expression")
        return SqlFilter(_text(expression, "expression of the sql-filter"))
    if fields.get("correlation-filter") is not None:
        return _read_correlation(_map(fields["correlation-filter"], "correlation-filter"))
    raise ArgumentError("The rule-description has no filter. Send a sql-filter or a correlation-filter.")


def _read_correlation(fields: Mapping[Value, Value]) -> CorrelationFilter:
    texts = {name: _text_or_none(fields.get(name.replace("_", "-")), name) for name in CORRELATION_FIELDS}
    properties = fields.get("properties")
    named = {} if properties is None else _map(properties, "properties of the correlation-filter")
    pairs = [(_text(key, "name of a property"), value) for key, value in named.items()]
    return CorrelationFilter(**texts, properties=tuple((name, _comparable(name, value)) for name, value in pairs))


def _comparable(name: str, value: Value) -> object:
    """A value to compare with, in the class that descriptions have for it however they arrive: AMQP has more classes."""
    match understood(value):
        case bool() | UUID() | timedelta() as kept:
            return kept
        case Timestamp() as moment:
            try:
                return EPOCH + moment * MILLISECOND
            except OverflowError:
                raise ArgumentError(
                    f"The time of property '{name}' is beyond the calendar. Use one before the year 10000."
                ) from None
        case int() as number if number <= INTEGER_MAX:
            return Long(number) if isinstance(number, Long) else int(number)
        case float() as number:
            return float(number)
        case str() as text:
            return str(text)
    raise ArgumentError(
        f"A correlation filter cannot compare property '{name}' with this {type(value).__name__}. "
        "Use a string, a number of at most 64 bits, a boolean, a GUID, a time or a duration."
    )


def _read_action(fields: Mapping[Value, Value]) -> SqlAction | None:
    if fields.get("sql-rule-action") is None:
        return None
    expression = _map(fields["sql-rule-action"], "sql-rule-action").get("expression")
    # Clients write "no action" as a null or empty expression too.
    if expression is None or expression == "":
        return None
    return SqlAction(_text(expression, "expression of the sql-rule-action"))


def _map(value: Value, what: str) -> Mapping[Value, Value]:
    if not isinstance(value, dict):
        raise ArgumentError(f"The {what} has to be a map, and is a {type(value).__name__}.")
    return value


def _text(value: Value, what: str) -> str:
    if not isinstance(value, str):
        raise ArgumentError(f"The {what} has to be a string, and is a {type(value).__name__}.")
    return str(value)


def _text_or_none(value: Value, what: str) -> str | None:
    return None if value is None else _text(value, what)


def write_rule(rule: RuleDescription) -> Described:
    """The `rule-description` of one entry of an enumerate-rules response."""
    return Described(RULE, [_write_filter(rule.filter), _write_action(rule.action), rule.name])


def _write_filter(described: FilterDescription) -> Described:
    match described:
        case TrueFilter():
            return Described(TRUE_FILTER, [])
        case FalseFilter():
            return Described(FALSE_FILTER, [])
        case SqlFilter(expression):
            return Described(SQL_FILTER, [expression])
        case CorrelationFilter():
            fields: list[Value] = [getattr(described, name) for name in CORRELATION_FIELDS]
            properties = {name: encodable(understood(value)) for name, value in described.properties}
            return Described(CORRELATION_FILTER, [*fields, properties])


def _write_action(action: SqlAction | None) -> Described:
    if action is None:
        return Described(EMPTY_ACTION, [])
    return Described(SQL_ACTION, [action.expression])
