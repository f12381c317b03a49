"""Dead letters by what they have in common: messages in, groups out; and the SQL that selects a group."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from twinbus.amqp.errors import DecodeError
from twinbus.client.received_message import ReceivedMessage
from twinbus.model import wire_names
from twinbus.portal.messages.bodies import first_words
from twinbus.portal.messages.filters import quoted

WORDS = 3
DIGITS = re.compile(r"\d+")
"""Numbers differ from message to message of one kind."""
NUMBERS_KEPT = 50_000
"""Of one group: beyond that it is selected by its filter alone."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    reason: str | None
    description: str | None
    words: str

    @property
    def sql(self) -> str:
        """Selects what has this reason and description, whatever the body begins with: filters do not see bodies."""
        pairs = ((wire_names.DEAD_LETTER_REASON, self.reason), (wire_names.DEAD_LETTER_DESCRIPTION, self.description))
        return " AND ".join(
            f"{name} IS NULL" if value is None else f"{name} = {quoted(value)}" for name, value in pairs
        )


@dataclass(slots=True)
class Group:
    key: GroupKey
    count: int = 0
    size_bytes: int = 0
    numbers: list[int] = field(default_factory=list)
    oldest: ReceivedMessage | None = None


@dataclass(slots=True)
class Groups:
    found: dict[GroupKey, Group] = field(default_factory=dict)
    count: int = 0

    def add(self, messages: Iterable[ReceivedMessage]) -> None:
        for message in messages:
            key = key_of(message)
            group = self.found.get(key)
            if group is None:
                group = self.found[key] = Group(key, oldest=message)
            self.count += 1
            group.count += 1
            group.size_bytes += len(message.payload)
            if len(group.numbers) < NUMBERS_KEPT and message.sequence_number is not None:
                group.numbers.append(message.sequence_number)

    def largest(self, count_max: int) -> list[Group]:
        return sorted(self.found.values(), key=lambda group: -group.count)[:count_max]


def key_of(message: ReceivedMessage) -> GroupKey:
    try:
        named = message.application_properties
        reason, description = named.get(wire_names.DEAD_LETTER_REASON), named.get(wire_names.DEAD_LETTER_DESCRIPTION)
        words = DIGITS.sub("#", " ".join(first_words(message.body).split()[:WORDS]))
    except DecodeError:
        return GroupKey(None, None, "")
    return GroupKey(None if reason is None else str(reason), None if description is None else str(description), words)
