"""What an operations log looks like: folders, file names, columns and the ids of operations. Nothing here needs pyarrow.

<operations>/date=YYYY-MM-DD/hour=HH/<node>-<ulid>.parquet     by the time of the operations, in UTC; zstd
<operations>/date=YYYY-MM-DD/hour=HH/_tmp-…                    being written: readers skip names that begin with _
<operations>/_spool/<node>-<ulid>.spool                        not in Parquet yet (spool.py)

The id of an operation is a ULID, 26 characters that sort by time: 48 bits of time, 48 bits of a seed that all operations of
one spool share, and 32 bits for the place in it.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from twinbus.clock import Millis

HOUR: Millis = 3_600_000
HOUR_FOLDER = re.compile(r"date=(\d{4}-\d\d-\d\d)/hour=(\d\d)")
CURRENT_VERSION = 1

OP_ID = "op_id"
AT = "at"
NAMESPACE = "namespace"
ENTITY = "entity"
ENTITY_TYPE = "entity_type"
FRAGMENT = "fragment"
CAUSE = "cause"
OPERATIONS = "operations"
MESSAGES = "messages"
BYTES = "bytes"
UNITS = "units"
PATH = "path"
WHO = "who"
MESSAGE_ID = "message_id"
SEQUENCE_NUMBER = "sequence_number"
SCHEMA_VERSION = "schema_version"

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ID_LENGTH = 26
TAIL_BITS = 80
PLACE_BITS = 32
SEED_BITS = TAIL_BITS - PLACE_BITS

_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]


def ulid(at: Millis, seed: int, place: int = 0) -> str:
    """`seed` and `place` distinguish the ids of one millisecond."""
    value = at << TAIL_BITS | seed << PLACE_BITS | place
    # Two characters at a time: a log has millions of these.
    return "".join([_PAIRS[value >> shift & 0x3FF] for shift in range(120, -1, -10)])


def hour_folder(folder: Path, at: Millis) -> Path:
    when = datetime.fromtimestamp(at / 1000, UTC)
    return folder / f"date={when:%Y-%m-%d}" / f"hour={when:%H}"


def hour_of(name: str) -> datetime:
    """The hour that the folder of a file stands for. Raises ValueError where it is not an hour of any day."""
    found = HOUR_FOLDER.match(name)
    assert found is not None
    return datetime.fromisoformat(f"{found[1]}T{found[2]}:00:00+00:00")


def log_files(folder: Path) -> Iterator[Path]:
    """The complete Parquet files, oldest hour first."""
    for path in sorted(folder.glob("date=*/hour=*/*.parquet")):
        hour = path.parent.relative_to(folder).as_posix()
        if not path.name.startswith(("_", ".")) and HOUR_FOLDER.fullmatch(hour):
            yield path
