"""The text of `/metrics`: Prometheus exposition in, figures by name and labels out. Only what twinbus itself writes."""

import re
from collections import defaultdict
from collections.abc import Mapping

SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? ([-+0-9.eE]+)$", re.MULTILINE)
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
ESCAPED = re.compile(r"\\(.)")

Labels = frozenset[tuple[str, str]]


def read_metrics(text: str) -> dict[str, dict[str, float]]:
    """Name, then the value of the label `entity`, or of `store` or `cause`, or of nothing; sub-queues are part of the name.

    twinbus_queue_active of the dead-letter queue of `orders` is found["twinbus_queue_active/dead_letter"]["orders"].
    """
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for name, labels, value in SAMPLE.findall(text):
        named = {key: _plain(label) for key, label in LABEL.findall(labels)}
        sub_queue = named.get("sub_queue")
        key = named.get("entity") or named.get("store") or named.get("cause") or ""
        if "entity" in named and "cause" in named:
            key = named["entity"]
        full = f"{name}/{sub_queue}" if sub_queue else name
        before: Mapping[str, float] = found[full]
        found[full][key] = before.get(key, 0.0) + float(value)
    return dict(found)


def _plain(label: str) -> str:
    return ESCAPED.sub(lambda match: {"n": "\n"}.get(match[1], match[1]), label) if "\\" in label else label
