"""A namespace, a portal that knows it, and a client of the portal; for each file."""

from collections.abc import Iterator

import httpx
import pytest

from tests.portal.running_portal import RunningPortal, known
from twinbus.portal.work import moving, repairing
from twinbus.testing.local_namespace import LocalNamespace


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNamespace]:
    with LocalNamespace(tmp_path_factory.mktemp("data"), "contoso", store_count=2) as running:
        yield running


@pytest.fixture(scope="module")
def portal(namespace: LocalNamespace) -> Iterator[RunningPortal]:
    with RunningPortal([known(namespace)]) as running:
        yield running


@pytest.fixture(autouse=True)
def _quick_repairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repairs begin at once, except where the time before them is what is tested, and do not wait long for more to receive."""
    monkeypatch.setattr(repairing, "GRACE_S", 0.0)
    monkeypatch.setattr(moving, "WAIT_S", 1.0)


@pytest.fixture
def pages(portal: RunningPortal) -> Iterator[httpx.Client]:
    with portal.client() as client:
        yield client
