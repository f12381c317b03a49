"""The metrics of several processes as those of one namespace."""

from twinbus.http.own.metrics_text import merged

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


def test_what_is_counted_is_summed_and_what_is_claimed_is_true_once() -> None:
    assert merged([ONE, TWO]).decode() == (
        ONE.decode().replace("2.0", "5.0") + 'twinbus_queue_limited{entity="c"} 0.0\n'
    )


def test_one_text_stays_what_it_is() -> None:
    assert merged([TWO]) == TWO
