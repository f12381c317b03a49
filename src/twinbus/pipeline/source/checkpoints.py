"""Checkpoints of Spark: the folder of a query in, what it claimed of an entity out.

<checkpoint>/offsets/<number of the batch>   a line with the version, a line of metadata, then a line for each source
<checkpoint>/commits/<number of the batch>   is there once the batch is done
"""

import json
from pathlib import Path
from typing import NamedTuple

from twinbus.clock import Millis
from twinbus.model.paths import path_key
from twinbus.pipeline.source.offsets import ConsumeOffset, JsonOffset, OffsetError
from twinbus.pipeline.source.ranges import Range


class CheckpointClaims(NamedTuple):
    owner: str
    committed: tuple[Range, ...]
    """What the last batch that is done had: it is in the sink, and is deleted when the query plans its next batch."""
    created_at: Millis | None
    """The entity that it had it of."""


def checkpoint_claims(checkpoint: Path, entity: str) -> CheckpointClaims:
    """Raises OffsetError where there are none."""
    planned = _numbers(checkpoint / "offsets")
    if not planned:
        raise OffsetError(f"'{checkpoint}' is not the checkpoint of a streaming query that has run.")
    newest = _offset_of(checkpoint, max(planned), entity)
    done = _numbers(checkpoint / "commits") & planned
    committed = _offset_of(checkpoint, max(done), entity) if done else ConsumeOffset(entity, newest.owner)
    return CheckpointClaims(newest.owner, committed.claim, committed.created_at)


def _numbers(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.glob("*") if file.name.isdecimal()}


def _offset_of(checkpoint: Path, batch: int, entity: str) -> ConsumeOffset:
    log = (checkpoint / "offsets" / str(batch)).read_text(errors="replace")
    found = [offset for offset in logged_offsets(log) if {"mode", "owner"} <= offset.keys()]
    if not found:
        raise OffsetError(f"'{checkpoint}' does not belong to a query with mode=consume: it has no claims.")
    for offset in found:
        of = str(offset.get("entity"))
        if path_key(of) == path_key(entity):
            claimed = ConsumeOffset.from_json(offset, of)
            assert claimed is not None
            return claimed
    named = ", ".join(f"'{offset.get('entity')}'" for offset in found)
    raise OffsetError(f"'{checkpoint}' belongs to a query that claims messages of {named}, not of '{entity}'.")


def logged_offsets(log: str) -> list[JsonOffset]:
    """Of the sources of a batch, from the text of its file; those of other kinds of sources may be no JSON at all."""
    found = []
    for line in log.splitlines()[2:]:
        try:
            offset = json.loads(line)
        except ValueError:
            continue
        if isinstance(offset, dict):
            found.append(offset)
    return found
