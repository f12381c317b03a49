"""The key that pins a message, and the fragment it is pinned to (contract A2 and A3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.errors import NotAllowed
from twinbus.model.partition_key import candidates, hashlittle2, pinning_key


@pytest.mark.rule("A3.2")
def test_the_hash_is_lookup3() -> None:
    assert hashlittle2(b"") == (0xDEADBEEF, 0xDEADBEEF)
    assert hashlittle2(b"Four score and seven years ago") == (0x17770551, 0xCE7226E6)


@pytest.mark.rule("A3.1")
@pytest.mark.parametrize(
    ("key", "fragment"),
    [
        ("myPartitionKey", 11),
        ("mySession", 6),
        ("order-1", 13),
        ("order-2", 11),
        ("contoso", 8),
        ("0", 1),
        ("1", 6),
        ("2", 10),
        ("3", 15),
        ("a", 13),
        ("A", 13),
    ],
)
def test_a_key_has_its_fragment_for_ever(key: str, fragment: int) -> None:
    assert candidates(key, 16, turn=5) == [fragment]


@pytest.mark.rule("A3.3")
def test_a_key_pins_without_regard_to_case() -> None:
    assert candidates("MyPartitionKey", 16, 0) == candidates("mypartitionkey", 16, 0)


def test_a_message_without_a_key_may_go_to_every_fragment_its_turn_first() -> None:
    assert candidates(None, 4, turn=6) == [2, 3, 0, 1]


@given(st.text(max_size=130), st.integers(1, 64), st.integers(0, 1000))
def test_any_key_has_one_fragment_whatever_the_turn(key: str, fragment_count: int, turn: int) -> None:
    assert candidates(key, fragment_count, turn) == candidates(key, fragment_count, 0)
    assert 0 <= candidates(key, fragment_count, turn)[0] < fragment_count


def test_an_empty_value_is_no_key_but_where_there_are_message_sessions() -> None:
    assert pinning_key("", "", "id", detects_duplicates=False) is None
    assert pinning_key("", "p", "id", detects_duplicates=False) == "p"
    assert pinning_key("s", "", "id", detects_duplicates=False) == "s"
    assert pinning_key("", "", "id", detects_duplicates=True) == "id"
    assert pinning_key("", "", "id", detects_duplicates=False, has_sessions=True) == ""


@pytest.mark.rule("A2.1")
@pytest.mark.parametrize(
    ("session_id", "partition_key", "detects_duplicates", "key"),
    [
        ("s", None, True, "s"),
        ("s", "s", False, "s"),
        (None, "p", True, "p"),
        (None, None, True, "id"),
        (None, None, False, None),
    ],
)
def test_session_id_pins_before_partition_key_before_message_id(
    session_id: str | None, partition_key: str | None, detects_duplicates: bool, key: str | None
) -> None:
    assert pinning_key(session_id, partition_key, "id", detects_duplicates) == key


@pytest.mark.rule("A2.3")
def test_a_partition_key_that_differs_from_the_session_id_is_refused() -> None:
    with pytest.raises(NotAllowed, match=r"'p'.*'s'"):
        pinning_key("s", "p", "id", detects_duplicates=False)
