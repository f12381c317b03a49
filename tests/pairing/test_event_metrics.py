import pytest
from prometheus_client import CollectorRegistry

from twinbus.pairing import EventKind, PairingEvent, PairingMetrics


@pytest.mark.rule("B11.1")
def test_messages_are_counted_by_step_path_and_outcome() -> None:
    registry = CollectorRegistry()
    metrics = PairingMetrics(registry)
    metrics.observe(PairingEvent(EventKind.BACKLOG_SEND, 0, "orders", "p/x-servicebus-transfer/0", 5))
    metrics.observe(PairingEvent(EventKind.PING, 0, "orders", error=ConnectionError()))
    labels = {
        "step": "backlog-send",
        "path": "orders",
        "queue": "p/x-servicebus-transfer/0",
        "outcome": "ok",
        "pair": "",
    }
    assert registry.get_sample_value("twinbus_pairing_steps_total", labels) == 5
    labels = {"step": "ping", "path": "orders", "queue": "", "outcome": "failed", "pair": ""}
    assert registry.get_sample_value("twinbus_pairing_steps_total", labels) == 1


@pytest.mark.rule("B11.2")
def test_a_gauge_shows_which_entities_are_failed_over() -> None:
    registry = CollectorRegistry()
    metrics = PairingMetrics(registry)
    metrics.observe(PairingEvent(EventKind.FAILED_OVER, 0, "orders"))
    labels = {"path": "orders", "fragment": "", "pair": ""}
    assert registry.get_sample_value("twinbus_pairing_failed_over", labels) == 1
    metrics.observe(PairingEvent(EventKind.RECOVERED, 0, "orders"))
    assert registry.get_sample_value("twinbus_pairing_failed_over", labels) == 0


@pytest.mark.rule("B11.2")
def test_pairs_of_one_process_are_told_apart() -> None:
    registry = CollectorRegistry()
    north, south = (PairingMetrics(registry, pair=name) for name in ("north", "south"))
    north.observe(PairingEvent(EventKind.FAILED_OVER, 0, "orders"))
    south.observe(PairingEvent(EventKind.FAILED_OVER, 0, "orders"))
    south.observe(PairingEvent(EventKind.RECOVERED, 0, "orders"))
    south.observe(PairingEvent(EventKind.UNPROTECTED, 0))
    failed_over = [
        registry.get_sample_value("twinbus_pairing_failed_over", {"path": "orders", "fragment": "", "pair": name})
        for name in ("north", "south")
    ]
    protected = [registry.get_sample_value("twinbus_pairing_protected", {"pair": name}) for name in ("north", "south")]
    assert (failed_over, protected) == ([1, 0], [1, 0])
