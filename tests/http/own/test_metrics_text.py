"""The metrics of several processes as those of one namespace."""

import pytest

from twinbus.http.own import metrics_text
from twinbus.http.own.metrics_text import Tally

ONE = b"""# HELP twinbus_connections Open AMQP connections
# TYPE twinbus_connections gauge
twinbus_connections{namespace="n"} 2.0
# HELP twinbus_queue_limited Whether a fragment is unavailable
# TYPE twinbus_queue_limited gauge
twinbus_queue_limited{entity="a b"} 1.0
"""
TWO = b"""# HELP twinbus_connections Open AMQP connections
# TYPE twinbus_connections gauge
twinbus_connections{namespace="n"} 3.0
# HELP twinbus_queue_limited Whether a fragment is unavailable
# TYPE twinbus_queue_limited gauge
twinbus_queue_limited{entity="a b"} 1.0
twinbus_queue_limited{entity="c"} 0.0
"""


def counted(**values: float) -> bytes:
    """A counter by entity."""
    head = "# HELP messages_total Messages\n# TYPE messages_total counter\n"
    return (head + "".join(f'messages_total{{entity="{name}"}} {value}\n' for name, value in values.items())).encode()


def timed(count: float) -> bytes:
    head = "# HELP seconds Seconds\n# TYPE seconds histogram\n"
    return f'{head}seconds_bucket{{le="+Inf"}} {count}\nseconds_count {count}\nseconds_sum 0.5\n'.encode()


def test_what_is_counted_is_summed_and_what_is_claimed_is_true_once() -> None:
    assert Tally().merged({1: ONE, 2: TWO}).decode() == (
        ONE.decode().replace("2.0", "5.0") + 'twinbus_queue_limited{entity="c"} 0.0\n'
    )


def test_one_text_stays_what_it_is() -> None:
    for text in (TWO, counted(a=1.0, b=0.0), timed(3.0)):
        assert Tally().merged({1: text}) == text
    assert Tally().merged({}) == Tally().merged({1: b""}) == b""


def test_counters_keep_what_a_process_had_counted_that_does_not_answer_and_gauges_do_not() -> None:
    tally = Tally()
    tally.merged({1: ONE + counted(a=5.0), 2: ONE + counted(a=7.0, b=1.0)})
    assert tally.merged({1: ONE + counted(a=6.0)}) == ONE + counted(a=13.0, b=1.0)
    assert tally.merged({1: ONE + counted(a=6.0), 2: TWO + counted(a=9.0, b=1.0)}).endswith(counted(a=15.0, b=1.0))


def test_counters_go_on_when_a_process_is_replaced_by_one_that_counts_from_nothing() -> None:
    tally = Tally()
    tally.merged({1: counted(a=5.0) + timed(2.0), 2: counted(a=7.0) + timed(3.0)})
    tally.ended(2)
    assert tally.merged({1: counted(a=5.0) + timed(2.0)}) == counted(a=12.0) + timed(5.0).replace(b"0.5", b"1.0")
    assert tally.merged({1: counted(a=5.0), 3: counted()}) == counted(a=12.0)
    tally.merged({3: counted(a=2.0, b=1.0)})
    tally.ended(3)
    tally.ended(4)  # never heard of
    assert tally.merged({1: counted(a=5.0)}) == counted(a=14.0, b=1.0)


def test_counters_go_on_when_a_process_counts_one_of_them_from_nothing_again() -> None:
    """As those of an entity that is deleted and created again."""
    tally = Tally()
    assert tally.merged({1: counted(a=5.0, b=1.0)}) == counted(a=5.0, b=1.0)
    assert tally.merged({1: counted(b=1.0)}) == counted(b=1.0, a=5.0)
    assert tally.merged({1: counted(a=2.0, b=1.0)}) == counted(a=7.0, b=1.0)
    assert tally.merged({1: counted(a=1.0, b=3.0)}) == counted(a=8.0, b=3.0)


def test_only_what_is_asked_for_is_shown_and_the_rest_is_remembered() -> None:
    tally = Tally()
    tally.merged({1: counted(a=5.0) + timed(2.0)})
    assert tally.merged({1: timed(3.0)}) == timed(3.0)
    assert tally.merged({1: ONE}) == ONE
    tally.ended(1)
    assert tally.merged({2: counted(a=1.0)}) == counted(a=6.0)


def test_what_ended_processes_counted_of_entities_that_nobody_has_is_forgotten_when_it_is_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_text, "CARRIED_MAX", 2)
    tally = Tally()
    tally.merged({1: counted(a=1.0, b=1.0), 2: counted(a=1.0)})
    tally.ended(1)
    assert tally.merged({2: counted(a=1.0)}) == counted(a=2.0, b=1.0)
    tally.merged({3: counted(c=1.0)})
    tally.ended(3)
    assert tally.merged({2: counted(a=1.0)}) == counted(a=2.0)
