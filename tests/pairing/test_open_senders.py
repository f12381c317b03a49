import sys
import threading
from collections.abc import Iterator

import pytest

from twinbus.pairing.pair_life import OpenSenders


class Sender:
    """Anything that somebody holds."""


@pytest.fixture
def _hasty_threads() -> Iterator[None]:
    """Threads that take turns after every few steps: what can come between two of them does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_hasty_threads")
def test_senders_are_made_while_another_thread_looks_at_all_of_them() -> None:
    senders: OpenSenders[Sender] = OpenSenders()
    held: list[Sender] = []

    def make() -> None:
        for _ in range(20_000):
            held.append(Sender())
            senders.add(held[-1])

    making = threading.Thread(target=make)
    making.start()
    while making.is_alive():
        senders.all()
    making.join()
    assert len(senders.all()) == 20_000


def test_a_sender_that_nobody_holds_any_more_is_forgotten() -> None:
    senders: OpenSenders[Sender] = OpenSenders()
    held = Sender()
    senders.add(held)
    assert senders.all() == [held]
    del held
    assert senders.all() == []
