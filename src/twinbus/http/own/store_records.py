"""The messaging stores of a namespace as records, whichever process serves them: for `/health`, `/metrics` and `/$stores`."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from twinbus.http.own.other_nodes import OtherNodes

UP, DOWN = "up", "down"
FOREIGN = "foreign"
LOST = "lost"
DAMAGE_SHOWN = 100
STORES = "stores"
"""The question for the stores of a node."""


class StoreState(Protocol):
    """A messaging store as the server keeps it."""

    @property
    def index(self) -> int: ...
    @property
    def reported_condition(self) -> Enum: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def set_aside(self) -> Sequence[str]: ...
    @property
    def kept_in(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def reported_fault(self) -> str: ...
    @property
    def delay_s(self) -> float: ...
    @property
    def acks_to_lose(self) -> int: ...


StoreRecord = dict[str, Any]


def is_full(record: StoreRecord) -> bool:
    """A node of an earlier release does not say."""
    return bool(record.get("is_full"))


def record_of(store: StoreState) -> StoreRecord:
    return {
        "index": store.index,
        "condition": store.reported_condition.value,
        "kept_in": store.kept_in,
        "owner": store.owner,
        "fault": store.reported_fault or None,
        "is_full": store.is_full,
        "set_aside": len(store.set_aside),
        "damage": list(store.set_aside[:DAMAGE_SHOWN]),
        "slow_ms": round(store.delay_s * 1000),
        "acks_to_lose": store.acks_to_lose,
    }


class StoreRecords:
    def __init__(self, stores: Sequence[StoreState], others: OtherNodes) -> None:
        self._stores = stores
        self._others = others

    def own(self) -> list[StoreRecord]:
        """Those of this process, and those that no process has."""
        return [record for record in map(record_of, self._stores) if record["condition"] != FOREIGN]

    async def all(self) -> list[StoreRecord]:
        """In their order. Those of a process that does not answer are lost, whatever it would say."""
        own = self.own()
        if len(own) == len(self._stores):
            return own
        found = {record["index"]: record for record in own}
        for answer in (await self._others.ask_all(STORES, {})).values():
            for record in answer if isinstance(answer, list) else ():
                # Whoever has it knows better than those who only know that it is to be off.
                if record["condition"] != DOWN or record["index"] not in found:
                    found[record["index"]] = record
        return [found.get(store.index) or _unreachable(store) for store in self._stores]


def _unreachable(store: StoreState) -> StoreRecord:
    why = "the process that serves it has ended or does not answer"
    return {**record_of(store), "condition": LOST, "fault": f"messaging store {store.index}: {why}"}
