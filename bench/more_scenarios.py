"""Scenarios that the kit of `bench.table` does not have, run with its own parts; one JSON line for each result.

    python bench/more_scenarios.py KIT FOLDER OUT SCENARIO,SCENARIO,... PEER,PEER,... SPEC...

A script and not a module: the kit has a module of the name `bench`, as this package.
"""

import json
import sys
import time
from importlib import import_module
from pathlib import Path

LARGE = 240 * 1024
"""Queues take 256 KB unless they are created for more."""
CONNECTIONS = 1_000


def main() -> None:
    kit, folder, out, chosen, peers, *specs = sys.argv[1:]
    sys.path.insert(0, kit)
    bench = import_module("bench")  # the kit's

    directory = Path(folder)
    amqp, other = bench.build(directory)
    targets = [bench.make_target(name, directory, amqp, other) for name in peers.split(",") if name]
    targets += [bench.parse_ours(spec, amqp) for spec in specs]
    large = {"size": LARGE, "window": 10, "connections": 4, "count": 800, "seconds": 20}
    drain = {"size": LARGE, "receivers": 1, "credit": 50, "count": 800}
    many = {"size": 1024, "window": 1, "connections": CONNECTIONS, "count": 20 * CONNECTIONS, "seconds": 20}
    with Path(out).open("a") as results:
        for scenario in ("drain-240k-r1", f"send-1k-w1-c{CONNECTIONS}"):
            for target in targets if scenario in chosen.split(",") else ():
                bench.freeze_others(target, directory, True)
                time.sleep(0.5)
                if scenario.startswith("drain"):
                    sent = bench.invoke(target, "send", large)
                    drain["count"] = sent.get("acked", 0)
                    found = bench.invoke(target, "receive", drain)
                    found["verified"] = found.get("unique") == sent.get("acked")
                else:
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
