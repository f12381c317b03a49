"""Scenarios that the kit of `bench.table` does not have, run with its own parts; one JSON line for each result.

    python bench/more_scenarios.py KIT FOLDER OUT SCENARIO,SCENARIO,... PEER,PEER,... SPEC...

A script and not a module: the kit has a module of the name `bench`, as this package.
"""

import json
import sys
import time
from importlib import import_module
from pathlib import Path

LARGE = {"drain-240k-r1": 240 * 1024, "drain-1m-r1": 1024 * 1024}
LARGE_BYTES = 192 << 20
CONNECTIONS = {"send-1k-w1-c1000": 1_000, "send-1k-w1-c5000": 5_000}


def main() -> None:
    kit, folder, out, chosen, peers, *specs = sys.argv[1:]
    sys.path.insert(0, kit)
    bench = import_module("bench")  # the kit's

    directory = Path(folder)
    amqp, other = bench.build(directory)
    targets = [bench.make_target(name, directory, amqp, other) for name in peers.split(",") if name]
    targets += [bench.parse_ours(spec, amqp) for spec in specs]
    with Path(out).open("a") as results:
        for scenario in (*LARGE, *CONNECTIONS):
            for target in targets if scenario in chosen.split(",") else ():
                bench.freeze_others(target, directory, True)
                time.sleep(0.5)
                if scenario in LARGE:
                    size = LARGE[scenario]
                    large = {"size": size, "window": 10, "connections": 4, "count": LARGE_BYTES // size, "seconds": 20}
                    sent = bench.invoke(target, "send", large)
                    drain = {"size": size, "receivers": 1, "credit": 50, "count": sent.get("acked", 0)}
                    found = bench.invoke(target, "receive", drain)
                    found["verified"] = found.get("unique") == sent.get("acked")
                else:
                    count = CONNECTIONS[scenario]
                    many = {"size": 1024, "window": 1, "connections": count, "count": 20_000, "seconds": 20}
                    found = bench.invoke(target, "send", many)
                    emptied = bench.empty(target, found.get("acked", 0), many["size"])
                    found["verified"] = emptied.get("unique") == found.get("acked")
                results.write(json.dumps({"scenario": scenario, "peer": target.name, **found}) + "\n")
                results.flush()
                print(
                    scenario, target.name, found.get("send_rate"), found.get("recv_rate"), found["verified"], flush=True
                )
    bench.thaw_all(directory)


if __name__ == "__main__":
    main()
