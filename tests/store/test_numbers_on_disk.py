"""Numbers that folders of other versions hold: a store that reads what it wrote itself does not notice if one changes."""

from twinbus.model import content, hops, wire_names
from twinbus.model.paths import SubQueue
from twinbus.model.wire_names import MessageState
from twinbus.store import change_rules, changes, checksums, journal_record, row_ids
from twinbus.store.changes import FRAGMENT_INDEX_MAX, fragment_key, fragment_parts
from twinbus.store.folder import flipped_bit, identity, tables
from twinbus.store.journal_record import Kind
from twinbus.store.layers import recovery
from twinbus.store.postgres import medium as postgres_medium
from twinbus.store.postgres import statements
from twinbus.store.postgres import tables as postgres_tables


def test_states_and_sub_queues_have_their_numbers() -> None:
    assert {state.name: int(state) for state in MessageState} == {"ACTIVE": 0, "DEFERRED": 1, "SCHEDULED": 2}
    expected = {"MAIN": 0, "DEAD_LETTER": 1, "TRANSFER_DEAD_LETTER": 2, "TRANSFER": 3}
    assert {each.name: int(each) for each in SubQueue} == expected


def test_a_fragment_key_has_its_parts_in_their_bits() -> None:
    key = fragment_key(5, FRAGMENT_INDEX_MAX, SubQueue.TRANSFER)
    assert (key, FRAGMENT_INDEX_MAX) == (5 << 8 | 63 << 2 | 3, 63)
    assert fragment_parts(key) == changes.FragmentParts(5, 63, SubQueue.TRANSFER)


def test_numbers_of_messages_have_their_bits() -> None:
    assert (wire_names.SEQUENCE_BITS, change_rules.COUNTER_BITS, row_ids.COUNTER_MASK) == (48, 44, (1 << 44) - 1)
    assert (hops.HOPS_MAX, hops._SHIFT, hops._NUMBER) == (4, 56, (1 << 56) - 1)


def test_records_of_a_journal_have_their_numbers() -> None:
    names = "FRAGMENT_CREATED FRAGMENT_DELETED ENQUEUED REMOVED ALTERED ACTIVATED SESSION_STATE_SET DUPLICATES_SEEN"
    names += " DUPLICATES_FORGOTTEN ACTIVATED_TOGETHER"
    assert [int(Kind[name]) for name in names.split()] == list(range(1, 11))
    assert (journal_record.VERSION, journal_record.ENQUEUED_COLUMNS) == (1, 8)
    assert (journal_record.NO_FRAGMENT, journal_record.STATE_FORGOTTEN) == (0, -1)
    assert (recovery.FIRST_SEGMENT, recovery.FIRST_SEQUENCE) == (1, 1)


def test_tables_and_contents_have_their_versions() -> None:
    assert (tables.SCHEMA_VERSION, postgres_medium.SCHEMA_VERSION, content.LAYOUT) == (3, 1, 1)
    assert (tables.SQLITE_VERSION_MIN, tables.NO_STATE, tables.INCREMENTAL) == ((3, 38), -1, 2)
    assert (statements.JOURNAL_COUNT, postgres_tables.NO_PLACE) == (3, 0)
    assert (checksums.NO_SUM, identity.IDENTITY_BYTES) == (-1, 16)
    assert (flipped_bit.POLYNOMIAL, flipped_bit.STRIDE) == (0xEDB88320, 4_096)
