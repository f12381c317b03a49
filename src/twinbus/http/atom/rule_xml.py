"""Rules of subscriptions as XML, both ways.

The JavaScript SDK looks for an attribute that reads literally `i:type` and cuts five characters off the type of a
value, so its prefix has four.
"""

from twinbus.errors import ArgumentError
from twinbus.http.atom.envelopes import description_node
from twinbus.http.atom.xml_reader import Element
from twinbus.http.atom.xml_writer import attribute, leaf, node
from twinbus.management.typed_values import read_typed, write_typed
from twinbus.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from twinbus.model.iso8601 import write_time

VALUE_PREFIX = "d6p1"
XML_SCHEMA = "http://www.w3.org/2001/XMLSchema"
COMPATIBILITY_LEVEL = 20
CORRELATION_FIELDS = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "label",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}


def write_rule_description(rule: RuleDescription) -> str:
    content = [
        _write_filter(rule.filter),
        _write_action(rule.action),
        leaf("CreatedAt", write_time(rule.created_at)),
        leaf("Name", rule.name),
    ]
    return description_node("RuleDescription", "".join(content))


def read_rule_description(name: str, element: Element) -> RuleDescription:
    """A rule without a filter takes every message."""
    chosen, action = element.child("Filter"), element.child("Action")
    return RuleDescription(
        name=name,
        filter=TrueFilter() if chosen is None else _read_filter(chosen),
        action=None if action is None else _read_action(action),
    )


def _read_filter(element: Element) -> FilterDescription:
    match element.type_name:
        case "TrueFilter" | "":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "SqlFilter":
            return SqlFilter(_expression(element, "filter"), _read_pairs(element.child("Parameters")))
        case "CorrelationFilter":
            fields = {field: element.whole_text_of(name) for name, field in CORRELATION_FIELDS.items()}
            return CorrelationFilter(**fields, properties=_read_pairs(element.child("Properties")))
        case other:
            raise ArgumentError(
                f"'{other[:64]}' is not a type of filter. Use SqlFilter, CorrelationFilter, TrueFilter or FalseFilter."
            )


def _read_action(element: Element) -> SqlAction | None:
    match element.type_name:
        case "EmptyRuleAction" | "":
            return None
        case "SqlRuleAction":
            return SqlAction(_expression(element, "action"), _read_pairs(element.child("Parameters")))
        case other:
            raise ArgumentError(f"'{other[:64]}' is not a type of action. Use SqlRuleAction or EmptyRuleAction.")


def _expression(element: Element, what: str) -> str:
    text = element.whole_text_of("SqlExpression")
    if text is None:
        raise ArgumentError(f"The {what} has no SqlExpression. Write one.")
    return text


def _read_pairs(element: Element | None) -> tuple[tuple[str, object], ...]:
    if element is None:
        return ()
    pairs: dict[str, object] = {}
    for pair in element.children:
        key, value = pair.whole_text_of("Key"), pair.child("Value")
        if key is None or value is None:
            raise ArgumentError("A property or parameter of the rule has no Key or no Value. Send both.")
        pairs[key] = read_typed(value.type_name or "string", value.text)
    return tuple(pairs.items())


def _write_filter(chosen: FilterDescription) -> str:
    match chosen:
        case TrueFilter():
            return _sql_node("Filter", "TrueFilter", "1=1", ())
        case FalseFilter():
            return _sql_node("Filter", "FalseFilter", "1=0", ())
        case SqlFilter():
            return _sql_node("Filter", "SqlFilter", chosen.expression, chosen.parameters)
        case CorrelationFilter():
            fields = [leaf(name, getattr(chosen, field)) for name, field in CORRELATION_FIELDS.items()]
            content = "".join(fields) + _write_pairs("Properties", chosen.properties)
            return node("Filter", content, attribute("i:type", "CorrelationFilter"))


def _write_action(action: SqlAction | None) -> str:
    if action is None:
        return node("Action", "", attribute("i:type", "EmptyRuleAction"))
    return _sql_node("Action", "SqlRuleAction", action.expression, action.parameters)


def _sql_node(name: str, type_name: str, expression: str, parameters: tuple[tuple[str, object], ...]) -> str:
    content = leaf("SqlExpression", expression) + leaf("CompatibilityLevel", COMPATIBILITY_LEVEL)
    return node(name, content + _write_pairs("Parameters", parameters), attribute("i:type", type_name))


def _write_pairs(name: str, pairs: tuple[tuple[str, object], ...]) -> str:
    if not pairs:
        return ""
    content = []
    for key, value in pairs:
        type_name, text = write_typed(value)
        marks = attribute("i:type", f"{VALUE_PREFIX}:{type_name}") + attribute(f"xmlns:{VALUE_PREFIX}", XML_SCHEMA)
        content.append(node("KeyValueOfstringanyType", leaf("Key", key) + leaf("Value", text, marks)))
    return node(name, "".join(content))
