from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import NamespaceProcess
from tests.pipeline.syphon.backlog import Backlog
from twinbus.pipeline.syphon.key_folder import KeyFolder


@pytest.fixture(scope="session")
def two_namespaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spaces]:
    folder = tmp_path_factory.mktemp("namespaces")
    with ThreadPoolExecutor(2) as starting:
        primary, secondary = starting.map(lambda name: NamespaceProcess(folder, name), ("primary", "secondary"))
    yield Spaces(primary, secondary)
    primary.kill()
    secondary.kill()


@pytest.fixture
def spaces(two_namespaces: Spaces) -> Iterator[Spaces]:
    """Two running namespaces; whatever a test does to them is mended after it."""
    yield two_namespaces
    two_namespaces.primary.revive()
    two_namespaces.secondary.revive()


@pytest.fixture
def keys() -> Iterator[KeyFolder]:
    with KeyFolder() as folder:
        yield folder


@pytest.fixture
def backlog(spaces: Spaces, keys: KeyFolder) -> Backlog:
    return Backlog(spaces, keys)
