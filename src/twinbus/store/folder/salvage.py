"""Tables that SQLite cannot use in, tables with every row of them that can still be read out.

The structure of a file that is damaged is a tree with broken leaves: what is on other pages can be found by its id. So rows are
read in the order of their ids until SQLite fails, then the next id is looked for behind which it does not, in steps that double.
Which rows are whole, and which are missing, is for `check_tables` to say, once they are opened: every row has a checksum, and
every fragment a sum of them. Without the facts of the fragments and the position of the journal nothing can be trusted, and nothing is salvaged.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from twinbus.errors import StoreDamaged
from twinbus.store.change_rules import COUNTER_BITS
from twinbus.store.folder.table_check import check_facts_of_all
from twinbus.store.folder.tables import FILE_NAME, SCHEMA_VERSION, SQL, bring_home, connect, prepare
from twinbus.store.row_ids import COUNTER_MASK

CACHE_BYTES = 4 << 20
PLACES_MAX = 10_000
"""Of damage in one fragment, after which the rest of it counts as lost: the file is not worth hours."""
FOUND_MAX = 1 << 40
"""No number of a row that was set aside is larger."""
DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)

Values: TypeAlias = tuple[Any, ...]


def salvage(damaged: Path, fresh: Path) -> None:
    """From the tables in one folder to new ones in another. Raises StoreDamaged if there is nothing to start from."""
    try:
        source = connect(damaged, CACHE_BYTES)
    except sqlite3.DatabaseError as error:
        raise StoreDamaged(f"{damaged / FILE_NAME} cannot be read at all: {error}") from error
    target = connect(fresh, CACHE_BYTES)
    try:
        prepare(target, fresh)
        _copy(source, target, damaged)
        bring_home(target, fresh)
    except sqlite3.DatabaseError as error:
        raise StoreDamaged(f"{damaged / FILE_NAME} has nothing that can be started from: {error}") from error
    finally:
        source.close()
        target.close()


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, folder: Path) -> None:
    (version,) = source.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise StoreDamaged(f"{folder / FILE_NAME} is of another version, and cannot be salvaged.")
    check_facts_of_all(source, folder)
    target.execute("BEGIN IMMEDIATE")
    target.execute(SQL["put_journal_row"], source.execute(SQL["journal_row"]).fetchone())
    fragments = source.execute(SQL["all_fragments"]).fetchall()
    target.executemany(SQL["put_fragment"], fragments)
    for slot, _, last_number, *_ in fragments:
        low, high = slot << COUNTER_BITS, slot << COUNTER_BITS | last_number & COUNTER_MASK
        for table in ("messages", "contents"):
            _put(target, table, _by_id(source, table, low, high))
        for table in ("session_states", "duplicates"):
            _put(target, table, _from_both_ends(source, table, slot))
    _put(target, "damaged", _by_id(source, "damaged", 1, FOUND_MAX))
    target.execute("COMMIT")


def _put(target: sqlite3.Connection, table: str, rows: Iterator[Values]) -> None:
    for row in rows:
        places = ", ".join("?" * len(row))
        with suppress(sqlite3.IntegrityError, UnicodeEncodeError):  # not what was written, by its type alone
            target.execute(f"INSERT OR IGNORE INTO {table} VALUES ({places})", row)


def _by_id(source: sqlite3.Connection, table: str, low: int, high: int) -> Iterator[Values]:
    """Rows with ids from low to high, as far as they can be read."""
    key = "found" if table == "damaged" else "id"
    every = f"SELECT * FROM {table} NOT INDEXED WHERE {key} BETWEEN ? AND ? ORDER BY {key}"

    def is_readable(first: int) -> bool:
        try:
            source.execute(f"{every} LIMIT 1", (first, high)).fetchall()
        except DAMAGE:
            return False
        return True

    for _ in range(PLACES_MAX):
        try:
            for row in _up_to_damage(source, every, (low, high)):
                yield row
                low = row[0] + 1
            return
        except DAMAGE:
            low = first_readable(is_readable, low, high)
            if low > high:
                return


def first_readable(is_readable: Callable[[int], bool], low: int, high: int) -> int:
    """The lowest number above low behind which there is no damage at once; above high if there is none."""
    step = 1
    while low + step <= high and not is_readable(low + step):
        step *= 2
    bad, good = low + step // 2, low + step
    if good > high:
        if not is_readable(high):
            return high + 1
        good = high
    while good - bad > 1:
        middle = (bad + good) // 2
        if is_readable(middle):
            good = middle
        else:
            bad = middle
    return good


def _from_both_ends(source: sqlite3.Connection, table: str, slot: int) -> Iterator[Values]:
    """Rows of a table that has no ids: up to the first damage, and from the last on down to it."""
    key = "session_key" if table == "session_states" else "key"
    for order in ("ASC", "DESC"):
        with suppress(*DAMAGE):
            yield from _up_to_damage(source, f"SELECT * FROM {table} WHERE slot = ? ORDER BY {key} {order}", (slot,))
            return


def _up_to_damage(source: sqlite3.Connection, statement: str, parameters: tuple[int, ...]) -> Iterator[Values]:
    """The rows of a statement, then what SQLite says of the damage behind them, if there is any.

    The library looks for the next row before it gives one out, so the last one is lost with what is behind it, and asked for alone.
    """
    count = 0
    try:
        for row in source.execute(statement, parameters):
            yield row
            count += 1
    except DAMAGE:
        yield from source.execute(f"{statement} LIMIT 1 OFFSET {count}", parameters)
        raise
