import pytest

from twinbus.model.session_key import is_same_session, session_key


@pytest.mark.rule("A9")
@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("order-7", "order-7", True),
        ("order-7", "Order-7", True),
        ("order-7", "order-8", False),
        ("", "", True),
        ("", None, False),
        (None, "order-7", False),
        (None, None, True),
    ],
)
def test_ids_that_differ_only_in_case_are_one_session_and_no_id_is_no_session(
    one: str | None, other: str | None, is_same: bool
) -> None:
    assert is_same_session(one, other) is is_same
    assert is_same_session(other, one) is is_same


def test_the_kelvin_sign_is_not_a_letter_k() -> None:
    assert session_key("\N{KELVIN SIGN}") != session_key("k") == session_key("K")
