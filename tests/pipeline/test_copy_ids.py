"""Ids of copies whose originals are removed."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from twinbus.amqp.codec.sections import DataBody, MessageProperties, Sections, decode_sections, encode_sections
from twinbus.amqp.codec.types import Long, Symbol, Timestamp, ULong
from twinbus.pipeline.copy_ids import COPY_OF, copy_id
from twinbus.pipeline.replay.copies import copy_of

DEAD = "orders/$DeadLetterQueue"
ID_LENGTH_MAX = 128
IDS = ["m", "", "x" * 128, "🚌" * 64, UUID(int=7), b"\x00\xff", ULong(7), "7", "\x07"]


def received(message_id: Any, number: int = 7, enqueued_at: int = 5, **properties: Any) -> Sections:
    return Sections(
        message_annotations={
            Symbol("x-opt-sequence-number"): Long(number),
            Symbol("x-opt-enqueued-time"): Timestamp(enqueued_at),
        },
        properties=None if message_id is None else MessageProperties(message_id=message_id),
        application_properties=properties or None,
        body=DataBody([b"x"]),
    )


def renamed(sections: Sections, path: str = DEAD) -> Sections:
    return decode_sections(copy_of(encode_sections(sections), 0, path))


def id_of(sections: Sections) -> Any:
    assert sections.properties is not None
    return sections.properties.message_id


@pytest.mark.parametrize("original", IDS, ids=repr)
def test_a_copy_has_a_short_id_of_its_own_and_the_original_one_in_its_type(original: Any) -> None:
    made = renamed(received(original, n=Long(1)))
    assert isinstance(id_of(made), str)
    assert id_of(made) != original
    assert len(id_of(made)) <= ID_LENGTH_MAX
    assert made.application_properties == {COPY_OF: original, "n": 1}
    assert made.application_properties is not None
    assert type(made.application_properties[COPY_OF]) is type(
        decode_sections(encode_sections(Sections(application_properties={"n": original}))).application_properties["n"]  # type: ignore[index]
    )


def test_a_copy_of_a_message_without_an_id_has_one() -> None:
    made = renamed(received(None))
    assert str(id_of(made)).startswith("copy-")
    assert made.application_properties is None


def test_the_same_message_gets_the_same_id_whenever_it_is_copied() -> None:
    assert id_of(renamed(received("m"))) == id_of(renamed(received("m"))) == id_of(renamed(received("m"), DEAD.lower()))


def test_other_messages_get_other_ids() -> None:
    """Also those of an entity that was created again, and gives the same numbers again."""
    facts: list[tuple[str, int, int, Any]] = [(DEAD, 7, 5, each) for each in [*IDS, None]]
    facts += [("returns", 7, 5, "m"), (DEAD, 8, 5, "m"), (DEAD, 7, 6, "m"), (DEAD, 75, 0, "m")]
    assert len({copy_id(*each) for each in facts}) == len(facts)


def test_a_copy_of_a_copy_leads_to_the_first_original_and_has_another_id() -> None:
    first = renamed(received("m"))
    second = renamed(replace(first, message_annotations=received("", number=9).message_annotations))
    assert second.application_properties == {COPY_OF: "m"}
    assert len({"m", id_of(first), id_of(second)}) == 3
