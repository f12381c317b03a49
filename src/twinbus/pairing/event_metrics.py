"""A pair's events as Prometheus metrics: give `PairingMetrics().observe` as the option `on_event`."""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from twinbus.pairing.events import EventKind, PairingEvent


class PairingMetrics:
    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._steps = Counter(
            "twinbus_pairing_steps_total",
            "Steps of paired namespaces: messages for sends and syphon steps, occurrences for the others.",
            ["step", "path", "queue", "outcome"],
            registry=registry,
        )
        self._failed_over = Gauge(
            "twinbus_pairing_failed_over",
            "1 while the entity, or one fragment of it, is failed over.",
            ["path", "fragment"],
            registry=registry,
        )

        self._protected = Gauge(
            "twinbus_pairing_protected", "0 while a pair has no backlog yet and could not fail over.", registry=registry
        )
        self._protected.set(1)

    def observe(self, event: PairingEvent) -> None:
        outcome = "ok" if event.error is None else "failed"
        self._steps.labels(event.kind.value, event.path or "", event.queue or "", outcome).inc(event.count)
        if event.path is not None and event.kind in (EventKind.FAILED_OVER, EventKind.RECOVERED):
            fragment = "" if event.fragment is None else str(event.fragment)
            self._failed_over.labels(event.path, fragment).set(event.kind is EventKind.FAILED_OVER)
        if event.kind in (EventKind.UNPROTECTED, EventKind.PROTECTED):
            self._protected.set(event.kind is EventKind.PROTECTED)
