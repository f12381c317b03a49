"""A namespace that somebody lent to a rehearsal gets rid of it, or its owner learns of what is left."""

import pytest
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError, ServiceRequestError

from twinbus.rehearsal.entities import LeftBehind, remove_all


class Deletions:
    """Writes down what is deleted, and fails as it is told."""

    def __init__(self, **faults: AzureError | None) -> None:
        self.faults = faults
        self.tried: list[str] = []

    def remove(self) -> None:
        remove_all("primary", {path: lambda path=path: self._delete(path) for path in self.faults})  # type: ignore[misc]

    def _delete(self, path: str) -> None:
        self.tried.append(path)
        fault = self.faults[path]
        if fault is not None:
            raise fault


def test_what_is_gone_already_is_no_fault() -> None:
    deletions = Deletions(a=ResourceNotFoundError("no a"), b=None)
    deletions.remove()
    assert deletions.tried == ["a", "b"]


def test_one_that_is_refused_keeps_no_other_and_is_reported() -> None:
    deletions = Deletions(a=None, b=HttpResponseError("locked"), c=None)
    with pytest.raises(LeftBehind, match=r"The primary still has b\. .*locked"):
        deletions.remove()
    assert deletions.tried == ["a", "b", "c"]


def test_where_nobody_answers_one_is_waited_for_and_all_are_reported() -> None:
    deletions = Deletions(a=ServiceRequestError("refused"), b=None)
    with pytest.raises(LeftBehind, match=r"The primary still has a, b\. "):
        deletions.remove()
    assert deletions.tried == ["a"]
