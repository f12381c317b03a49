"""The metrics of several processes as those of one namespace: texts in Prometheus format in, one text out.

Each process counts what it does and what lies in its own stores, so a series of the namespace is the sum over them. What says
whether something is the case is true if one of them says so.
"""

from collections.abc import Sequence

CLAIMS = (b"twinbus_queue_limited",)


def merged(texts: Sequence[bytes]) -> bytes:
    """Families and series are in the order of the first text that has them."""
    heads: dict[bytes, list[bytes]] = {}
    families: dict[bytes, dict[bytes, float]] = {}
    for text in texts:
        family = b""
        for line in text.splitlines():
            if line.startswith(b"# "):
                _, kind, family, _ = line.split(b" ", 3)
                head, _ = heads.setdefault(family, []), families.setdefault(family, {})
                if len(head) < 2 and (kind == b"HELP") == (not head):
                    head.append(line)
            elif line:
                series, _, value = line.rpartition(b" ")
                known = families[family]
                if series not in known:
                    known[series] = float(value)
                elif family in CLAIMS:
                    known[series] = max(known[series], float(value))
                else:
                    known[series] += float(value)
    lines = list[bytes]()
    for family, series_of in families.items():
        lines += heads[family]
        lines += [series + b" " + repr(value).encode() for series, value in series_of.items()]
    return b"\n".join([*lines, b""])
