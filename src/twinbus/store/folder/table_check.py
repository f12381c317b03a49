"""Whether the tables are what checkpoints wrote: a connection in; damage found, and rows set aside, out.

When a store opens, SQLite checks the structure of every table but the contents, and their indexes; then the counts and sums
of each fragment are compared with its rows. So a row that is missing, or hidden by a value that changed, is noticed before
anything is served. If something differs, every row is checked by itself. Contents are checked when they are read, and all of
them by `check_rows`, a page at a time.

A damaged row is moved to the table `damaged`, with everything that is left of it, and the store serves without it. Damage
that is not in single rows is refused: there the folder has to be restored, or what is lost accepted.
"""

import json
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twinbus.errors import StoreDamaged
from twinbus.model.session_key import session_key
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.change_rules import COUNTER_BITS
from twinbus.store.changes import FRAGMENT_INDEX_MAX, fragment_parts
from twinbus.store.checksums import content_sum, values_sum
from twinbus.store.damage import CheckedPage, Damage, Where
from twinbus.store.folder.tables import (
    FILE_NAME,
    SQL,
    duplicate_is_whole,
    is_whole,
    schema_sum,
    state_is_whole,
    stored_text,
    write_journal_row,
)
from twinbus.store.row_ids import COUNTER_MASK

CHECKED_TABLES = ("journal", "fragments", "messages", "session_states", "duplicates", "damaged")
ROWS_PER_PAGE = 1_000
BYTES_PER_PAGE = 8 << 20
COUNTS = slice(3, 10)  # of a row of `fragments`: what its rows add up to

log = logging.getLogger(__name__)


def check_tables(connection: sqlite3.Connection, folder: Path) -> None:
    """Afterwards everything but contents is known to be as it was written, without rows that were set aside.

    Raises StoreDamaged, with nothing changed, if the damage is not in single rows.
    """
    file = folder / FILE_NAME
    _check_journal_row(connection, file)
    findings = list(_structure(connection))
    _check_fragments(connection, file)
    if not findings and not _wrong_slots(connection):
        return
    with _changing(connection):
        damaged = _damaged_rows(connection)
        for where in damaged:
            _move_aside(connection, where, "the facts are not what was written")
        for slot in _wrong_slots(connection):
            _note_missing(connection, slot, [table for table, key in damaged if _slot_of((table, key)) == slot])
            _count_again(connection, slot)
        if findings:
            connection.execute("REINDEX")
            left = list(_structure(connection))
            if left:
                raise StoreDamaged(
                    f"{file} is damaged: {left[0]}. Nothing was changed; restore the folder from a copy."
                )
            _note(connection, "an index", f"it differed from its table ({findings[0]}) and was built again", {}, None)


def set_aside(connection: sqlite3.Connection, rows: Sequence[Where]) -> list[Damage]:
    """Move rows that were found damaged while they were read, and count the rest again. One transaction."""
    with _changing(connection):
        slots: set[int] = set()
        places = []
        for where in rows:
            what = "what was read is not what was written"
            places.append(Damage(FILE_NAME, _move_aside(connection, where, what), what))
            slots.add(_slot_of(where))
        for slot in slots:
            _count_again(connection, slot)
    return places


@contextmanager
def _changing(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        write_journal_row(connection, _position(connection))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def damage_in(connection: sqlite3.Connection) -> list[Damage]:
    """What was set aside and not accepted yet, oldest first."""
    return [Damage(FILE_NAME, place, what) for place, what in connection.execute(SQL["damage"])]


def check_rows(connection: sqlite3.Connection, after: int) -> CheckedPage:
    """Check some messages with their contents, from an id on; states of sessions and duplicate keys with the first ones."""
    rows = connection.execute(SQL["all_messages"], (after, ROWS_PER_PAGE)).fetchall()
    damaged: list[Where] = []
    checked = size = 0
    for values in rows:
        if size > BYTES_PER_PAGE:
            break
        checked += 1
        found = connection.execute(SQL["raw_content"], (values[0],)).fetchone()
        content = found[0] if found else None
        if not _message_is_whole(values) or not isinstance(content, bytes) or content_sum(content) != values[9]:
            damaged.append(("messages", (values[0],)))
        size += len(content) if isinstance(content, bytes) else 0
    is_end = checked == len(rows) < ROWS_PER_PAGE
    next_id = None if is_end else rows[checked - 1][0]
    if after < 0:
        for where, is_good in _small_rows(connection):
            checked += 1
            if not is_good:
                damaged.append(where)
    return CheckedPage(checked, next_id, damaged)


def check_facts(connection: sqlite3.Connection, folder: Path) -> Iterator[str]:
    """What `check_tables` would refuse or count again, one sentence each."""
    for check in (_check_journal_row, _check_fragments):
        try:
            check(connection, folder / FILE_NAME)
        except StoreDamaged as damage:
            yield str(damage)
    for slot in _wrong_slots(connection):
        yield f"the rows in slot {slot} do not add up to what their fragment says"


def check_facts_of_all(connection: sqlite3.Connection, folder: Path) -> None:
    """The position of the journal and the facts of the fragments. Raises StoreDamaged if they are not what was written."""
    _check_journal_row(connection, folder / FILE_NAME)
    _check_fragments(connection, folder / FILE_NAME)


def check_whole_file(connection: sqlite3.Connection) -> list[str]:
    """Also the contents and the list of free pages: reads everything."""
    return [text for (text,) in connection.execute(SQL["check_everything"]) if text != "ok"]


def _slot_of(where: Where) -> int:
    table, key = where
    slot: int = key[0] >> COUNTER_BITS if table == "messages" else key[0]
    return slot


def place_of(connection: sqlite3.Connection, where: Where) -> str:
    table, key = where
    slot = _slot_of(where)
    fragment = next((row[1] for row in connection.execute(SQL["all_fragments"]) if row[0] == slot), None)
    home = f"slot {slot}"
    number = key[0] & COUNTER_MASK if table == "messages" else 0
    if isinstance(fragment, int):
        parts = fragment_parts(fragment)
        home = f"entity {parts.entity_id}, fragment {parts.index}, {parts.sub_queue.name.lower()}"
        number += (fragment >> 2 & FRAGMENT_INDEX_MAX) << SEQUENCE_BITS
    if table == "messages":
        return f"message {number} ({home})"
    kind = "state of session" if table == "session_states" else "duplicate key"
    return f"{kind} {key[1]} ({home})"


def _check_journal_row(connection: sqlite3.Connection, file: Path) -> None:
    rows = connection.execute(SQL["journal_row"]).fetchall()
    if len(rows) != 1 or values_sum(*rows[0][:-1]) != rows[0][-1]:
        raise StoreDamaged(
            f"{file} is damaged: the position of the journal is not what was written. Restore the folder from a copy."
        )
    if rows[0][1] != schema_sum(connection):
        raise StoreDamaged(f"{file} is damaged: its schema is not what was written. Restore the folder from a copy.")


def _check_fragments(connection: sqlite3.Connection, file: Path) -> None:
    """Numbers given out and where rows are: without them nothing else can be trusted."""
    rows = connection.execute(SQL["all_fragments"]).fetchall()
    for row in rows:
        if values_sum(*row[:-1]) != row[-1]:
            raise StoreDamaged(
                f"{file} is damaged: the facts of fragment {row[1]} are not what was written. "
                f"Restore the folder from a copy."
            )
    written = connection.execute(SQL["journal_row"]).fetchone()  # that it is there is checked apart
    if written is not None and sum(row[-1] for row in rows) != written[2]:
        raise StoreDamaged(f"{file} is damaged: fragments are missing. Restore the folder from a copy.")


def _structure(connection: sqlite3.Connection) -> Iterator[str]:
    for table in CHECKED_TABLES:
        for (text,) in connection.execute(SQL["check_structure"], (table,)):
            if text != "ok":
                yield f"{table}: {text}"


def _wrong_slots(connection: sqlite3.Connection) -> list[int]:
    """Slots whose rows do not add up to what their fragment says."""
    nothing = (0,) * 7
    expected = {row[0]: tuple(row[COUNTS]) for row in connection.execute(SQL["all_fragments"])}
    found = _counted(connection)
    slots = expected.keys() | found.keys()
    return sorted(slot for slot in slots if expected.get(slot, nothing) != found.get(slot, nothing))


def _counted(connection: sqlite3.Connection) -> dict[int, tuple[int, ...]]:
    messages = {slot: tuple(counts) for slot, *counts in connection.execute(SQL["counted_messages"])}
    states = dict(connection.execute(SQL["counted_states"]).fetchall())
    duplicates = dict(connection.execute(SQL["counted_duplicates"]).fetchall())
    slots = messages.keys() | states.keys() | duplicates.keys()
    return {slot: (*messages.get(slot, (0,) * 5), states.get(slot, 0), duplicates.get(slot, 0)) for slot in slots}


def _message_is_whole(values: tuple[Any, ...]) -> bool:
    """Also the columns that follow from others."""
    *facts, slot, key = values
    if not is_whole(tuple(facts)) or slot != facts[0] >> COUNTER_BITS:
        return False
    session_id = facts[8]
    return bool(key == (None if session_id is None else stored_text(session_key(json.loads(session_id)))))


def _small_rows(connection: sqlite3.Connection) -> Iterator[tuple[Where, bool]]:
    for slot, *facts, state in connection.execute(SQL["all_states"]).fetchall():
        is_good = state_is_whole(slot, tuple(facts)) and isinstance(state, bytes) and content_sum(state) == facts[3]
        yield ("session_states", (slot, facts[0])), is_good
    for slot, key, until, checksum in connection.execute(SQL["all_duplicates"]).fetchall():
        yield ("duplicates", (slot, key)), duplicate_is_whole(slot, key, until, checksum)


def _damaged_rows(connection: sqlite3.Connection) -> list[Where]:
    """Every row whose facts are not what was written; contents are left out."""
    damaged: list[Where] = []
    after = -1 << 63
    while rows := connection.execute(SQL["all_messages"], (after, ROWS_PER_PAGE)).fetchall():
        damaged += [("messages", (values[0],)) for values in rows if not _message_is_whole(values)]
        after = rows[-1][0]
    return damaged + [where for where, is_good in _small_rows(connection) if not is_good]


def _move_aside(connection: sqlite3.Connection, where: Where, what: str) -> str:
    """Returns the place."""
    table, key = where
    place = place_of(connection, where)
    content: object = None
    if table == "messages":
        facts = connection.execute(SQL["raw_message"], key).fetchone()
        found = connection.execute(SQL["raw_content"], key).fetchone()
        content = found[0] if found else None
        connection.execute(SQL["delete_messages"], (json.dumps(key),)).fetchall()
        connection.execute(SQL["delete_contents"], (json.dumps(key),))
    elif table == "session_states":
        facts = connection.execute(SQL["raw_session_state"], key).fetchone()
        content = facts[3] if facts else None
        connection.execute(SQL["delete_session_state"], key).fetchall()
    else:
        facts = connection.execute(SQL["raw_duplicate"], key).fetchone()
        connection.execute(SQL["delete_duplicates"], (key[0], json.dumps([key[1]]))).fetchall()
    _note(connection, place, what, facts, content)
    return place


def _note(connection: sqlite3.Connection, place: str, what: str, facts: object, content: object) -> None:
    connection.execute(SQL["note_damage"], (place, what, json.dumps(facts, default=repr), content))
    log.error("damage_set_aside", extra={"fields": {"place": place, "what": what}})


def _note_missing(connection: sqlite3.Connection, slot: int, set_aside: Sequence[str]) -> None:
    """`set_aside`: the tables of the rows that were moved aside since the fragment was counted. Those of before were counted off."""
    row = next((row for row in connection.execute(SQL["all_fragments"]) if row[0] == slot), None)
    if row is None:
        return
    expected, found = tuple(row[COUNTS]), _counted(connection).get(slot, (0,) * 7)
    missing = sum(expected[:3]) - sum(found[:3]) - set_aside.count("messages")
    parts = fragment_parts(row[1])
    place = f"entity {parts.entity_id}, fragment {parts.index}, {parts.sub_queue.name.lower()}"
    if missing > 0:
        _note(connection, place, f"{missing} messages are missing", {}, None)
    elif not set_aside:
        _note(connection, place, "rows are missing, or their counts are not what was written", {}, None)


def _count_again(connection: sqlite3.Connection, slot: int) -> None:
    row = next((row for row in connection.execute(SQL["all_fragments"]) if row[0] == slot), None)
    if row is not None:
        facts = (*row[:3], *_counted(connection).get(slot, (0,) * 7))
        connection.execute(SQL["put_fragment"], (*facts, values_sum(*facts)))


def _position(connection: sqlite3.Connection) -> int:
    position: int = connection.execute(SQL["journal_row"]).fetchone()[0]
    return position
