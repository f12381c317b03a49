"""Runs chosen tests in a chosen order, a plugin for pytest: `-p tests.mutants.chosen`, with a file of their ids, one a line."""

import os
from pathlib import Path

import pytest

CHOSEN = "TWINBUS_CHOSEN_TESTS"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    by_id = {item.nodeid: item for item in items}
    items[:] = [by_id[test] for test in Path(os.environ[CHOSEN]).read_text().splitlines() if test in by_id]
