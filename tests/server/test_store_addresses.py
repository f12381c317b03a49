"""What `--store` may name."""

import pytest

from twinbus.cli.namespaces.store_option import read_dsns
from twinbus.errors import ArgumentError
from twinbus.server.data.store_addresses import expand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://pg/bus", ["postgresql://pg/bus"]),
        ("postgresql://pg{0-3}/bus", [f"postgresql://pg{number}/bus" for number in range(4)]),
        ("postgresql://pg{08-11}/bus", [f"postgresql://pg{number}/bus" for number in ("08", "09", "10", "11")]),
        (
            "postgresql://{a,b}/x{0-1}",
            ["postgresql://a/x0", "postgresql://a/x1", "postgresql://b/x0", "postgresql://b/x1"],
        ),
    ],
)
def test_a_range_names_several_servers(text: str, expected: list[str]) -> None:
    assert list(expand((text,))) == expected


@pytest.mark.parametrize(
    ("texts", "advice"),
    [
        (("postgresql://pg{3-1}/bus",), "is not a range"),
        (("postgresql://pg{0-99}/bus",), "is not a range"),
        (("postgresql://pg{0-9}/bus{0-9}",), "Name fewer"),
        (("postgresql://pg/bus", "postgresql://pg/bus"), "named twice"),
    ],
)
def test_what_names_no_servers_is_refused(texts: tuple[str, ...], advice: str) -> None:
    with pytest.raises(ArgumentError, match=advice):
        expand(texts)


def test_what_is_not_a_connection_string_is_refused_without_showing_it() -> None:
    with pytest.raises(ArgumentError, match="Write postgresql://") as refused:
        read_dsns(["postgresql://user:hunter2@["])
    assert "hunter2" not in str(refused.value)


def test_a_password_among_the_arguments_is_refused_and_one_from_the_environment_is_not() -> None:
    store = "postgresql://user:hunter2@pg/bus"
    with pytest.raises(ArgumentError, match="TWINBUS_STORE"):
        read_dsns([store], ["twinbus", "serve", "--store", store])
    assert read_dsns([store], ["twinbus", "serve"]) == (store,)
