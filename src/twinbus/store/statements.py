"""SQL by name: a file of statements, each under a line `-- name: x`, in; a mapping out."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

NAME_LINE = "-- name: "


@cache
def load_schema(medium: str) -> str:
    return _text(medium, "schema.sql")


def load_upgrade(medium: str, version: int) -> str:
    """What turns the tables of this version into those of the next."""
    return _text(medium, f"upgrade_{version}.sql")


@cache
def load_statements(medium: str) -> Mapping[str, str]:
    statements: dict[str, str] = {}
    for section in _text(medium, "queries.sql").split(NAME_LINE)[1:]:
        name, _, statement = section.partition("\n")
        assert name not in statements, f"two statements are called {name}"
        statements[name.strip()] = statement.strip()
    return MappingProxyType(statements)


def _text(medium: str, name: str) -> str:
    return files("twinbus.store").joinpath(medium, "sql", name).read_text("utf-8")
