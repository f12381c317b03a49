"""The other processes of a namespace, as pages of ours ask them: a question and its details in, answers by node out."""

from typing import Any, Protocol


class OtherNodes(Protocol):
    async def ask_all(self, what: str, details: dict[str, Any]) -> dict[int, Any]:
        """Of every other node that lives; a MessagingError where one refused. A node that is silent has no answer here."""
        ...

    async def ask_owner(self, store: int, what: str, details: dict[str, Any]) -> Any:
        """Of the node that owns the messaging store. Raises MessagingError."""
        ...


class _NoOthers:
    async def ask_all(self, _: str, __: dict[str, Any], /) -> dict[int, Any]:
        return {}

    async def ask_owner(self, store: int, _: str, __: dict[str, Any], /) -> Any:
        raise AssertionError(f"messaging store {store} is not served by another process")


NO_OTHERS: OtherNodes = _NoOthers()
