"""A control plane over a real catalog in a temporary folder."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.management.memory_runtime import MemoryRuntime
from twinbus.clock import Millis
from twinbus.errors import Unauthorized
from twinbus.http.administration import AdministrationApi, RestSettings
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import Right

NOON: Millis = 1_700_000_000_000


class SteppingClock:
    """Every reading is a second later than the one before."""

    def __init__(self) -> None:
        self._readings = itertools.count(NOON, 1_000)

    def now(self) -> Millis:
        return next(self._readings)


def authorize_by_word(token: str, path: str, right: Right) -> None:
    """Tokens are words here: `manage` opens everything, `manage:PATH` one entity; signatures have their own tests."""
    word, _, scope = token.partition(":")
    if word != "manage" and not token.startswith("SharedAccessSignature "):
        raise Unauthorized("The token is wrong.")
    if scope and word == "manage" and scope != path:
        raise Unauthorized("The token is for another entity.")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog(tmp_path / "catalog.sqlite", "contoso", NOON)
    yield catalog
    catalog.close()


@pytest.fixture
def runtime() -> MemoryRuntime:
    return MemoryRuntime()


@pytest.fixture
def control(catalog: Catalog, runtime: MemoryRuntime) -> ControlPlane:
    return ControlPlane(catalog, runtime, SteppingClock())


@pytest.fixture
def api(control: ControlPlane) -> AdministrationApi:
    numbers = itertools.count(1)
    settings = RestSettings(
        amqp_authority="localhost:5672",
        message_size_kb=256,
        new_id=lambda: f"tracking-{next(numbers)}",
        new_key=lambda: f"drawn-key-{next(numbers)}",
    )
    return AdministrationApi(control, authorize_by_word, settings)
