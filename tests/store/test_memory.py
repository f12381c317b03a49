"""A store without a disk: what it says of itself. That it does what the others do, `tests/contract` proves."""

from twinbus.store.damage import CheckedPage
from twinbus.store.memory import MemoryStore


def test_a_memory_store_says_where_it_keeps_things_and_is_never_damaged_behind_or_fenced() -> None:
    store = MemoryStore()
    assert store.kept_in() == "memory"
    assert store.epoch() == 0
    assert store.damage() == []
    assert store.check(0) == CheckedPage(0, None)
    assert store.is_pressed() is False
