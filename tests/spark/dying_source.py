"""The `servicebus` source as it is, in which processes die where a note says so.

    note file   {"phase": "claimed", "visits": 2, "takes_all": true}

The process that comes to that phase for that time, in whichever process of Spark it is, takes the note away and kills itself,
or with `takes_all` every process of its session: the driver, the JVM and all workers, as when a machine loses its power.
The path of the note is in the option `death.note`; names with a dot are no business of the source.
"""

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from twinbus.client.namespace import Namespace
from twinbus.pipeline.source.access.entity_access import Claim, EntityAccess
from twinbus.pipeline.source.data_source import ServiceBusDataSource, _names
from twinbus.pipeline.source.live_entity import detected
from twinbus.pipeline.source.offsets import JsonOffset
from twinbus.pipeline.source.option_table import STREAM
from twinbus.pipeline.source.options import SourceOptions
from twinbus.pipeline.source.planning import MessageSlices
from twinbus.pipeline.source.ranges import Range
from twinbus.pipeline.source.stream_reader import ServiceBusStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NOTE_OPTION = "death.note"
SESSION_FIELD = 3  # of /proc/PID/stat, behind the name


class Died(Exception):
    """The driver of all tests cannot be killed: it stops where it would have died."""


def write_note(note: Path, phase: str, visits: int, *, takes_all: bool) -> None:
    note.write_text(json.dumps({"phase": phase, "visits": visits, "takes_all": takes_all}))


def visit(note: str, phase: str, *, may_kill: bool = True) -> None:
    try:
        written = json.loads(Path(note).read_text())
    except FileNotFoundError:
        return
    if written["phase"] != phase:
        return
    written["visits"] -= 1
    if written["visits"] > 0:
        Path(note).write_text(json.dumps(written))
        return
    Path(note).unlink()
    if written["takes_all"]:
        for pid in session_members(os.getsid(0)):
            if pid != os.getpid():
                kill(pid)
    elif not may_kill:
        raise Died(phase)
    kill(os.getpid())


def session_members(session: int) -> list[int]:
    """All processes of the session, also those of which the parent has died."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _session_of(pid) == session]


def _session_of(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] == "Z" else int(fields[SESSION_FIELD])


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class DyingAccess:
    """Of an entity; says when claims are made and deleted."""

    def __init__(self, access: EntityAccess, note: str) -> None:
        self._access = access
        self._note = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._access, name)

    async def claim(self, shares: Mapping[int, int], ends: Mapping[int, int] | None, owner: str) -> Claim:
        found = await self._access.claim(shares, ends, owner)
        visit(self._note, "claimed")
        return found

    async def delete(self, ranges: Sequence[Range]) -> None:
        visit(self._note, "deleting")
        await self._access.delete(ranges)
        visit(self._note, "deleted")


class DyingReader(ServiceBusStreamReader):
    def __init__(self, options: SourceOptions, names: Sequence[str], note: str) -> None:
        async def detect(namespace: Namespace, path: str) -> EntityAccess:
            found: Any = DyingAccess(await detected(namespace, path), note)
            access: EntityAccess = found
            return access

        super().__init__(options, names, detect)
        self._note = note

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_note": self._note}

    def latestOffset(self, start: JsonOffset | None = None, limit: Any = None) -> JsonOffset:  # noqa: N802
        visit(self._note, "planning")
        found = super().latestOffset(start, limit)
        if found != start:
            visit(self._note, "planned")
        return found

    def partitions(self, start: JsonOffset, end: JsonOffset) -> list[MessageSlices]:
        visit(self._note, "logged")
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            yield batch
            visit(self._note, "reading")


class DyingSource(ServiceBusDataSource):
    def streamReader(self, schema: "StructType") -> Any:  # noqa: N802
        note = self.options.get(NOTE_OPTION)
        if note is None:
            return super().streamReader(schema)
        return DyingReader(SourceOptions.from_options(self.options, STREAM), _names(schema), note)


def register(spark: "SparkSession") -> None:
    """In place of the source itself. By value: workers have no tests on their path."""
    import sys

    from pyspark import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        spark.dataSource.register(DyingSource)
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
