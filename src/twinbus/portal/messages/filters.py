"""SQL filters and actions on messages at hand: texts and messages in, which match and what they become out.

The same parser and compiler that a namespace uses, so what is shown is what would happen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from twinbus.amqp.codec.sections import encode_sections
from twinbus.amqp.errors import DecodeError
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import ArgumentError, FilterError, MessagingError
from twinbus.model import wire_names
from twinbus.model.content import application_properties, properties
from twinbus.model.message import read_message
from twinbus.model.received_payload import BROKER_ANNOTATIONS, BROKER_DELIVERY_ANNOTATIONS, read_front, without
from twinbus.model.rules.actions import RULE_NAME_PROPERTY, CompiledAction, compile_action
from twinbus.model.rules.compiler import Compiler
from twinbus.model.rules.parser import parse_action, parse_filter
from twinbus.model.rules.view import FilterView

LEFT_BEHIND = BROKER_ANNOTATIONS | {wire_names.CLAIMED_BY, wire_names.SCHEDULED_ENQUEUE_TIME}
SYSTEM_FIELDS = (
    "message_id",
    "correlation_id",
    "to",
    "reply_to",
    "subject",
    "group_id",
    "reply_to_group_id",
    "content_type",
)
DEATH = (wire_names.DEAD_LETTER_REASON, wire_names.DEAD_LETTER_DESCRIPTION)

Matches = Callable[[ReceivedMessage], bool]
"""Raises FilterError if the filter cannot be evaluated on the message."""


def compiled_filter(text: str) -> Matches:
    """Every message if the text is empty. Raises ArgumentError that says where the text is wrong."""
    if not text.strip():
        return lambda _: True
    test = Compiler(text, {}, uuid4).predicate(parse_filter(text))
    return lambda message: bool(test(view_of(message)))


def compiled_action(text: str, rule_name: str = "") -> CompiledAction | None:
    """None if the text is empty. Raises ArgumentError that says where the text is wrong."""
    if not text.strip():
        return None
    return compile_action(rule_name, parse_action(text), Compiler(text, {}, uuid4))


def view_of(message: ReceivedMessage) -> FilterView:
    try:
        content = read_message(message.payload, lambda: uuid4().hex).content
    except (DecodeError, MessagingError) as error:
        raise FilterError(f"The message cannot be read: {error}.") from None
    return FilterView(content, message.sequence_number or 0, _millis(message.enqueued_at))


def _millis(at: datetime | None) -> int:
    return 0 if at is None else round(at.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Change:
    """One field of a message, before and after; None if it is not there."""

    name: str
    before: Any
    after: Any


def changes_by(action: CompiledAction | None, message: ReceivedMessage, *, names_rule: bool) -> list[Change]:
    """What an action would change. Raises FilterError if it cannot be carried out on this message."""
    if action is None:
        return []
    content = action.apply(view_of(message))
    before, after = dict(message.application_properties), dict(application_properties(content))
    if not names_rule:
        before.pop(RULE_NAME_PROPERTY, None)
        after.pop(RULE_NAME_PROPERTY, None)
    changes = [
        Change(name, before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if repr(before.get(name)) != repr(after.get(name))
    ]
    was, becomes = message.properties, properties(content)
    changes += [
        Change(f"sys.{field}", getattr(was, field), getattr(becomes, field))
        for field in SYSTEM_FIELDS
        if getattr(was, field) != getattr(becomes, field)
    ]
    return changes


def payload_to_send(message: ReceivedMessage, action: CompiledAction | None = None) -> bytes:
    """The message as a sender sends it: without what brokers added, with what the action changes."""
    front, rest = read_front(message.payload)
    if front.header is not None:
        front.header.delivery_count = None
        front.header.first_acquirer = None
    front.delivery_annotations = without(front.delivery_annotations, BROKER_DELIVERY_ANNOTATIONS) or None
    front.message_annotations = without(front.message_annotations, LEFT_BEHIND) or None
    named = front.application_properties or {}
    if action is not None:
        content = action.apply(view_of(message))
        front.properties, was = properties(content), named
        named = dict(application_properties(content))
        # An action says which rule it belongs to; this one belongs to none.
        named.pop(RULE_NAME_PROPERTY, None)
        if RULE_NAME_PROPERTY in was:
            named[RULE_NAME_PROPERTY] = was[RULE_NAME_PROPERTY]
    front.application_properties = {name: value for name, value in named.items() if name not in DEATH} or None
    return encode_sections(front) + rest


def quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def check(filter_text: str, action_text: str) -> str | None:
    """What is wrong with them; None if nothing is."""
    try:
        compiled_filter(filter_text)
        compiled_action(action_text)
    except ArgumentError as wrong:
        return str(wrong)
    return None
