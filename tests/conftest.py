"""Nightly tests run when they are asked for by name, whatever else is chosen; Ctrl-C reaches what a test starts; who breaks
when he is told something breaks his test.
"""

import signal
from collections.abc import Iterator

import pytest


def pytest_configure() -> None:
    # Ignored in what a shell starts in the background, and then in every process that a test starts as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "nightly" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("nightly")]


@pytest.fixture(autouse=True)
def nobody_breaks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """`twinbus.broker.telling` stops what is raised, assertions of a test too. Who wants that clears the log."""
    yield
    assert not [record for record in caplog.get_records("call") if record.msg == "call_broken"]
