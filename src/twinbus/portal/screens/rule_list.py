"""The rules of subscriptions: the administration API in, names and texts out."""

from dataclasses import dataclass
from typing import Any

from twinbus.portal.namespaces.bus import Bus

SYSTEM_FIELDS = {
    "correlation_id": "sys.CorrelationId",
    "message_id": "sys.MessageId",
    "to": "sys.To",
    "reply_to": "sys.ReplyTo",
    "label": "sys.Label",
    "session_id": "sys.SessionId",
    "reply_to_session_id": "sys.ReplyToSessionId",
    "content_type": "sys.ContentType",
}
RULES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class RuleText:
    """`is_sql`: the filter is a text that can be edited as SQL. A correlation filter is shown as the SQL that says the same."""

    name: str
    filter: str
    action: str

    @property
    def text(self) -> str:
        return f"{self.filter}; {self.action}" if self.action else self.filter


async def read_rules(bus: Bus, topic: str, subscription: str) -> list[RuleText]:
    found: list[RuleText] = []
    async with bus.administration() as client:
        async for rule in client.list_rules(topic, subscription):
            action = getattr(rule.action, "sql_expression", None) or ""
            found.append(RuleText(rule.name, filter_text(rule.filter), action))
            if len(found) >= RULES_MAX:
                break
    return found


def filter_text(chosen: Any) -> str:
    """SQL that takes the same messages."""
    if hasattr(chosen, "sql_expression"):
        return str(chosen.sql_expression)
    pairs = [(shown, getattr(chosen, field)) for field, shown in SYSTEM_FIELDS.items() if getattr(chosen, field)]
    pairs += [(_quoted_name(str(name)), value) for name, value in dict(chosen.properties or {}).items()]
    return " AND ".join(f"{name} = {_literal(value)}" for name, value in pairs)


def _quoted_name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else "[" + name.replace("]", "]]") + "]"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"
