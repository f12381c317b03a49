"""A control plane over a real catalog in a temporary folder."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.management.memory_runtime import MemoryRuntime
from twinbus.clock import Millis
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane

NOON: Millis = 1_700_000_000_000


class SteppingClock:
    """Every reading is a second later than the one before."""

    def __init__(self) -> None:
        self._readings = itertools.count(NOON, 1_000)

    def now(self) -> Millis:
        return next(self._readings)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog.in_file(tmp_path / "catalog.sqlite", "contoso", NOON)
    yield catalog
    catalog.close()


@pytest.fixture
def runtime() -> MemoryRuntime:
    return MemoryRuntime()


@pytest.fixture
def control(catalog: Catalog, runtime: MemoryRuntime) -> ControlPlane:
    return ControlPlane(catalog, runtime, SteppingClock())
