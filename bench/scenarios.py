"""What is measured: a name, the load client's mode and its options."""

from typing import NamedTuple

SIZES = {"256": 256, "1k": 1024, "64k": 65536}


class Scenario(NamedTuple):
    name: str
    mode: str
    options: dict[str, float]
    figure: str  # which field of the load client's answer is the result
    is_rate: bool  # more is better; otherwise less is


def scenarios(seconds: float) -> list[Scenario]:
    found = [
        Scenario(
            f"send-1k-w{window}-c{connections}",
            "send",
            {"size": 1024, "window": window, "connections": connections, "seconds": seconds},
            "rate",
            True,
        )
        for connections in (1, 8)
        for window in (1, 100, 1000)
    ]
    for name, size in SIZES.items():
        if name != "1k":
            options = {"size": size, "window": 100, "connections": 1, "seconds": seconds}
            found.append(Scenario(f"send-{name}-w100-c1", "send", options, "rate", True))
        found.append(Scenario(f"drain-{name}", "drain", {"size": size, "credit": 1000}, "rate", True))
        options = {"size": size, "window": 100, "credit": 100, "connections": 1, "seconds": seconds}
        found.append(Scenario(f"both-{name}", "both", options, "rate", True))
        options = {"size": size, "credit": 100, "rate": 500, "seconds": seconds}
        found.append(Scenario(f"latency-{name}", "latency", options, "p99_ms", False))
    return found
