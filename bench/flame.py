"""Flame graphs of both processes of a namespace while eight connections send with a thousand messages in flight each.

    python -m bench.flame [--seconds 10] [--folder docs]

Writes flame-loop.svg and flame-stores.svg. Needs py-spy (`pip install py-spy`), and the right to look into other processes.
Only threads that hold the interpreter lock count: what waits for disk, socket or another thread is left out. The graphs are
pictures with a tooltip for each frame; the script that py-spy adds for zooming and searching is taken out.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from bench.targets import LOAD, own_targets

RATE = 400
CONNECTIONS = 8
WINDOW = 1_000
TITLES = {
    "flame-loop.svg": "The event loop: 8 connections send, 1,000 messages in flight each",
    "flame-stores.svg": "The stores meanwhile",
}


def record(pid: int, seconds: int, out: Path) -> "subprocess.Popen[bytes]":
    tool = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if tool is None:
        raise SystemExit("py-spy is missing: pip install py-spy")
    command = [tool, "record", "--gil", "--rate", str(RATE), "--duration", str(seconds), "--nonblocking"]
    return subprocess.Popen([*command, "--output", str(out), "--pid", str(pid)], stdout=subprocess.DEVNULL)


def as_picture(graph: str) -> str:
    without_script = re.sub(r"<script.*?</script>", "", graph, flags=re.DOTALL).replace(' onload="init(evt)"', "")
    without_notes = re.sub(r"<!--.*?-->", "", without_script, flags=re.DOTALL)
    return re.sub(r'<text id="(?:details|unzoom|search|matched)".*?</text>', "", without_notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    options = parser.parse_args()
    with own_targets("--no-meter") as targets:
        target = targets[0]
        assert target.pid is not None
        (stores,) = Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split()
        load = [sys.executable, str(LOAD), "send", target.url, "--window", str(WINDOW)]
        load += ["--connections", str(CONNECTIONS), "--seconds", str(options.seconds + 2)]
        client = subprocess.Popen(load, stdout=subprocess.DEVNULL)
        recorders = [
            record(pid, options.seconds, options.folder / name)
            for pid, name in zip((target.pid, int(stores)), TITLES, strict=True)
        ]
        for process in (*recorders, client):
            process.wait(timeout=options.seconds + 120)
    for name, title in TITLES.items():
        graph = options.folder / name
        graph.write_text(re.sub(r'(<text id="title"[^>]*>)[^<]*', rf"\g<1>{title}", as_picture(graph.read_text())))


if __name__ == "__main__":
    main()
