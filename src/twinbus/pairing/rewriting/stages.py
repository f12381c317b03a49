"""Order over several backlog queues: a session whose queue fails goes on in another, and what is there follows what is here.

A session stays with its backlog queue. If that one fails for longer than a send may wait, the session moves: its next messages are
a new *stage*, and each of them says its number and in which queues earlier stages lie.

    queue 0:  s1 s2 s3                  fails           comes back: s1 s2 s3 go home
    queue 4:                  s4 (stage 1, follows 0)   s4 waits until no message of s with a lower stage is in queue 0

A syphon looks into those queues before it sends such a message. It waits for lower stages that were there before it, and for
nothing that came later: so no two wait for each other, however many senders a session has.
A queue that cannot be looked into keeps what follows it waiting, and nothing else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from azure.servicebus.amqp import AmqpAnnotatedMessage

from twinbus.model import wire_names
from twinbus.model.session_key import session_key
from twinbus.pairing.rewriting.transfer import clone

QUEUES_MAX = 100
"""Backlog queues that a message can follow."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Of one message. `follows` has the indexes of the backlog queues with earlier stages."""

    number: int
    follows: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.number}:{','.join(map(str, self.follows))}"


def parse_stage(text: str) -> Stage:
    """Raises ValueError."""
    number, _, follows = text.partition(":")
    stage = Stage(int(number), tuple(map(int, follows.split(","))))
    if stage.number < 1 or min(stage.follows) < 0 or len(stage.follows) > QUEUES_MAX:
        raise ValueError(f"'{text}' is not a stage")
    return stage


def staged(messages: Iterable[AmqpAnnotatedMessage], stages: Mapping[str, Stage]) -> list[AmqpAnnotatedMessage]:
    """Copies of messages that are set aside, each with the stage of its session; `stages` is by session key."""
    made: list[AmqpAnnotatedMessage] = []
    for message in messages:
        aside = message.application_properties or {}
        session = aside.get(wire_names.TRANSFER_SESSION_ID)
        stage = stages.get(session_key(session)) if isinstance(session, str) else None
        if stage is None:
            made.append(message)
            continue
        copy = clone(message)
        copy.application_properties = {**aside, wire_names.TRANSFER_FOLLOWS: str(stage)}
        made.append(copy)
    return made
