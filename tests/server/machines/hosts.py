"""Hosts made of network namespaces: three machines and a switch, on this one. Links between them can be cut, one way or both.

Needs root and the right to make network namespaces; `why_not` says what is missing.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tests.left_over import hold
from tests.server.machines.databases import ReplicatedDatabase
from tests.server.machines.machines import READY_MAX_S, STORES
from tests.server.served_on_postgres import Served

NETWORK = "10.78.{}.{}"
NETWORKS = range(250)
"""Their numbers. That of its network is in the names of hosts and switch."""
SWITCH_HOST = 250
NODES_PORT = 5680
"""Of the proxy before each node."""
NODES_OWN_PORT = 5681
DATABASE_HOSTS = ((251, 252), (253, 254))
"""Of primaries and standbys: addresses of the switch."""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


@cache
def why_not() -> str:
    """Empty if hosts can be made here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no program 'ip'"
    name = f"twp{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("link", "add", f"{name}x", "type", "bridge")
        _ip("link", "del", f"{name}x")
        _ip("netns", "del", name)
    except subprocess.CalledProcessError as refused:
        return f"network namespaces cannot be made here: {refused.stderr.strip()}"
    return ""


def _maker(network: int) -> Path:
    """A file that the process which made this network holds. Beside the names of network namespaces: who sees those sees these."""
    return Path(f"/run/bus{network}.maker")


@cache
def remove_left_overs() -> None:
    """Hosts of runs that were killed, with what runs at them."""
    there = _said("netns", "list") + _said("-o", "link", "show")
    for network in {int(number) for number in re.findall(r"\bbus(\d+)[hb]", there)}:
        held = hold(_maker(network))
        if held is not None:
            _remove_left_over(network)
            held.close()


def _remove_left_over(network: int) -> None:
    for name in re.findall(rf"^(bus{network}h\d+)\b", _said("netns", "list"), re.MULTILINE):
        for pid in map(int, _said("netns", "pids", name).split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _said("netns", "del", name)
    _said("link", "del", f"bus{network}b")


def _free_network() -> tuple[int, BinaryIO]:
    """Its number, and what holds it."""
    for network in NETWORKS:
        held = hold(_maker(network))
        if held is not None:
            _remove_left_over(network)
            return network, held
    raise RuntimeError("all networks for tests are in use")


def _said(*words: str) -> str:
    return subprocess.run(["ip", *words], check=False, capture_output=True, text=True, timeout=30).stdout


class Hosts:
    """`count` hosts, by number from 1 on. The tests, their clients and PostgreSQL are at the switch."""

    def __init__(self, count: int) -> None:
        self._network, self._held = _free_network()
        self._bridge = f"bus{self._network}b"
        self.numbers = range(1, count + 1)

    def address(self, number: int) -> str:
        return NETWORK.format(self._network, number)

    def _name(self, number: int) -> str:
        return f"bus{self._network}h{number}"

    def create(self) -> None:
        remove_left_overs()
        _ip("link", "add", self._bridge, "type", "bridge")
        for number in (SWITCH_HOST, *(number for pair in DATABASE_HOSTS for number in pair)):
            _ip("addr", "add", f"{self.address(number)}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number in self.numbers:
            name = self._name(number)
            _ip("netns", "add", name)
            _ip("link", "add", f"{name}o", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", f"{name}o", "master", self._bridge, "up")
            _ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for number in self.numbers:
            subprocess.run(["ip", "netns", "del", self._name(number)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)
        self._held.close()

    def within(self, number: int) -> list[str]:
        """What to put before a command to run it at that host."""
        return ["ip", "netns", "exec", self._name(number)]

    def unplug(self, number: int) -> None:
        """From everybody."""
        _ip("link", "set", f"{self._name(number)}o", "down")

    def plug_in(self, number: int) -> None:
        _ip("link", "set", f"{self._name(number)}o", "up")

    def cut(self, sender: int, to: int) -> None:
        """What the first one sends to the second one is lost; the other way is open."""
        subprocess.run(self.cut_command(sender, to).split(), check=True, timeout=30)

    def heal(self, sender: int, to: int) -> None:
        subprocess.run(self.heal_command(sender, to).split(), check=True, timeout=30)

    def cut_command(self, sender: int, to: int) -> str:
        return f"ip -n {self._name(sender)} route add blackhole {self.address(to)}/32"

    def heal_command(self, sender: int, to: int) -> str:
        return f"ip -n {self._name(sender)} route del blackhole {self.address(to)}/32"


class Said(NamedTuple):
    """By a node when it was ready."""

    connection_string: str
    amqp_port: int
    http_port: int
    pid: int


class Cluster:
    """Three nodes at three hosts, each with a proxy before it, and two PostgreSQL servers with a synchronous standby each."""

    def __init__(self, folder: Path) -> None:
        self.hosts = Hosts(3)
        self._folder = folder
        self.nodes: dict[int, Served] = {}
        self._former_logs: dict[int, str] = {}
        self._proxies: dict[int, subprocess.Popen[str]] = {}
        self.databases: list[ReplicatedDatabase] = []
        self.said: dict[int, Said] = {}
        self.invoked: set[str] = set()
        """All that anybody has ever sent here."""

    def start(self) -> None:
        self.hosts.create()
        network = f"{self.hosts.address(0)}/24"
        with ThreadPoolExecutor() as pool:
            pairs = [[self.hosts.address(number) for number in pair] for pair in DATABASE_HOSTS]
            self.databases = list(pool.map(lambda pair: ReplicatedDatabase(pair, network), pairs))
        for number in self.hosts.numbers:
            self._begin_proxy(number)
            self.begin(number)
        for number in self.hosts.numbers:
            self.await_node(number)

    def _begin_proxy(self, number: int) -> None:
        ports = str(NODES_PORT), str(NODES_OWN_PORT)
        command = [sys.executable, "-m", "tests.server.machines.delaying_proxy", self.hosts.address(number), *ports]
        self._proxies[number] = subprocess.Popen(
            [*self.hosts.within(number), *command], stdin=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )

    def delay(self, number: int, ms: float) -> None:
        """What others and this node say to each other on the lines that they have opened to it, each way."""
        there = self._proxies[number].stdin
        assert there is not None
        there.write(f"{ms}\n")
        there.flush()

    def log(self, number: int) -> str:
        """Of all processes that this node has been."""
        return self._former_logs.get(number, "") + self.nodes[number].log

    def begin(self, number: int) -> None:
        if number in self.nodes:
            self._former_logs[number] = self.log(number)
        host = self.hosts.address(number)
        first, second = (database.dsn for database in self.databases)
        options = ["--node", f"n{number}", "--host", host, "--allow-plain", "--store", first]
        options += ["--listen-nodes", f"0.0.0.0:{NODES_OWN_PORT}", "--advertise-nodes", f"{host}:{NODES_PORT}"]
        self.nodes[number] = Served(
            self._folder / f"n{number}",
            second,
            "shop",
            *options,
            stores=STORES,
            prefix=self.hosts.within(number),
            ready_max_s=READY_MAX_S,
        )

    def await_node(self, number: int) -> None:
        ready = self.nodes[number].wait_ready()
        string = ready["connection_string"]
        port = re.search(r":(\d+)/?(;|$)", string)
        assert port is not None
        self.said[number] = Said(string, int(port.group(1)), ready["http_port"], ready["pid"])

    def stop(self) -> None:
        for node in self.nodes.values():
            node.kill()
        for proxy in self._proxies.values():
            proxy.kill()
            proxy.wait()
        for database in self.databases:
            database.remove()
        self.hosts.remove()
