"""Fixtures for tests of applications, there wherever twinbus is installed.

twinbus_namespace    a fresh namespace for one test
twinbus_pair         two of them, `primary` and `secondary`, for paired namespaces
namespace_fixture    creates your own fixture: another scope, predefined entities

Nothing is imported before a test asks for a fixture: pytest loads this module in every project of the environment.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

if TYPE_CHECKING:
    from twinbus.testing.local_namespace import LocalNamespace


class Pair(NamedTuple):
    primary: "LocalNamespace"
    secondary: "LocalNamespace"


def namespace_fixture(
    *,
    scope: Literal["session", "package", "module", "class", "function"] = "function",
    queues: Sequence[str] = (),
    topics: Sequence[str] = (),
    **settings: Any,
) -> Callable[..., Any]:
    """A fixture whose value is a `LocalNamespace`. `settings` are what that class takes.

    The topic `news/all` is created as `news` with the subscription `all`.
    """

    @pytest.fixture(scope=scope)
    def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator["LocalNamespace"]:
        from twinbus.testing.local_namespace import LocalNamespace

        with LocalNamespace(tmp_path_factory.mktemp("twinbus"), **settings) as running:
            for queue in queues:
                running.create_queue(queue)
            for topic in topics:
                name, _, subscription = topic.rpartition("/")
                running.create_topic(*(name, subscription) if name else (subscription,))
            yield running

    return namespace


@pytest.fixture
def twinbus_namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator["LocalNamespace"]:
    """A running namespace without any entities, gone after the test."""
    from twinbus.testing.local_namespace import LocalNamespace

    with LocalNamespace(tmp_path_factory.mktemp("twinbus")) as running:
        yield running


@pytest.fixture
def twinbus_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two running namespaces: what a paired application uses, and its spare."""
    from twinbus.testing.local_namespace import LocalNamespace

    folder = tmp_path_factory.mktemp("twinbus")
    with (
        LocalNamespace(folder / "primary", "primary") as primary,
        LocalNamespace(folder / "secondary", "secondary") as secondary,
    ):
        yield Pair(primary, secondary)
