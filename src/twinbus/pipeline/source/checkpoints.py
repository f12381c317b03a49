"""Checkpoints of Spark: the folder of a query in, the owner of its claims out.

<checkpoint>/offsets/<number of the batch>: a line with the version, a line of metadata, then a line for each source.
"""

import json
from pathlib import Path

from twinbus.pipeline.source.offsets import OffsetError


def claim_owner(checkpoint: Path) -> str:
    """Raises OffsetError where there is none."""
    logged = [file for file in (checkpoint / "offsets").glob("*") if file.name.isdecimal()]
    if not logged:
        raise OffsetError(f"'{checkpoint}' is no checkpoint of a streaming query, or of one that never ran.")
    newest = max(logged, key=lambda file: int(file.name))
    for line in newest.read_text().splitlines()[2:]:
        owner = _owner(line)
        if owner is not None:
            return owner
    raise OffsetError(f"'{checkpoint}' is not of a query with mode=consume: it has no claims.")


def _owner(line: str) -> str | None:
    try:
        offset = json.loads(line)
    except ValueError:
        return None
    owner = offset.get("owner") if isinstance(offset, dict) else None
    return owner if isinstance(owner, str) else None
