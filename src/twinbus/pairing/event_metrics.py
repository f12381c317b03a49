"""A pair's events as Prometheus metrics: give `PairingMetrics().observe` as the option `on_event`."""

import threading
import weakref
from typing import NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from twinbus.pairing.events import EventKind, PairingEvent


class PairingMetrics:
    """Of one pair. A process with several has one for each, with a name that becomes the label `pair`."""

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, pair: str = "") -> None:
        self._pair = pair
        self._steps, self._failed_over, self._protected = _collectors_of(registry)
        self._protected.labels(pair).set(1)

    def observe(self, event: PairingEvent) -> None:
        outcome = "ok" if event.error is None else "failed"
        path, queue = event.path or "", event.queue or ""
        self._steps.labels(event.kind.value, path, queue, outcome, self._pair).inc(event.count)
        if event.path is not None and event.kind in (EventKind.FAILED_OVER, EventKind.RECOVERED):
            fragment = "" if event.fragment is None else str(event.fragment)
            self._failed_over.labels(path, fragment, self._pair).set(event.kind is EventKind.FAILED_OVER)
        if event.kind in (EventKind.UNPROTECTED, EventKind.PROTECTED):
            self._protected.labels(self._pair).set(event.kind is EventKind.PROTECTED)


class _Collectors(NamedTuple):
    steps: Counter
    failed_over: Gauge
    protected: Gauge


_known: "weakref.WeakKeyDictionary[CollectorRegistry, _Collectors]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _collectors_of(registry: CollectorRegistry) -> _Collectors:
    """A registry takes a metric of one name once, so all pairs share them."""
    with _lock:
        found = _known.get(registry)
        if found is None:
            found = _known[registry] = _Collectors(
                Counter(
                    "twinbus_pairing_steps_total",
                    "Steps of paired namespaces: messages for sends and syphon steps, occurrences for the others.",
                    ["step", "path", "queue", "outcome", "pair"],
                    registry=registry,
                ),
                Gauge(
                    "twinbus_pairing_failed_over",
                    "1 while the entity, or one fragment of it, is failed over.",
                    ["path", "fragment", "pair"],
                    registry=registry,
                ),
                Gauge(
                    "twinbus_pairing_protected",
                    "0 while a pair has no backlog yet and could not fail over.",
                    ["pair"],
                    registry=registry,
                ),
            )
        return found
