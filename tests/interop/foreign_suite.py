"""A suite in another language that runs as one process: the scenarios that its sources name, and the outcome of each.

Sources name scenarios as `scenario("feature", "what the client does", ...)`. The process runs all of them and prints one line of
JSON for each as it ends; pytest shows each as a test. Some scenarios move the clock of their namespace or restart it: those
have a second namespace, and ask for it over HTTP.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from tests.interop.results import Feature, Outcome, Recorder
from tests.interop.running_server import RunningServer

BUILD = Path(__file__).parents[2] / "build"
RUN_TIMEOUT_S = 110.0

_SCENARIO = re.compile(r'\bscenario(?:Alone)?\(\s*"([^"]+)",\s*"([^"]+)"')


class SuiteUnavailable(Exception):
    """This machine cannot run the suite; the text says what is missing."""


def build_folder(name: str, sources: Iterable[Path]) -> Path:
    """Where to keep what is built from these files, in the build folder, which git ignores. Another one when they change."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    return BUILD / f"{name}-{digest.hexdigest()[:12]}"


def start_anew(folder: Path) -> Path:
    """The folder, empty, and none that was built from files as they were before."""
    for older in BUILD.glob(f"{folder.name.rpartition('-')[0]}-*"):
        shutil.rmtree(older)
    folder.mkdir(parents=True)
    return folder


class Scenario(NamedTuple):
    feature: Feature
    name: str


def scenarios_in(sources: Sequence[Path]) -> list[Scenario]:
    """In the order of the sources. Two of one name cannot be told apart and are refused."""
    found = [Scenario(cast(Feature, feature), name) for path in sources for feature, name in _named_in(path)]
    names = [each.name for each in found]
    assert len(set(names)) == len(names), f"two scenarios have one name: {sorted(names)}"
    return found


def name_of(scenario: Scenario) -> str:
    return f"{scenario.feature}: {scenario.name}"


def _named_in(path: Path) -> list[tuple[str, str]]:
    return _SCENARIO.findall(path.read_text(encoding="utf-8"))


class SuiteRun:
    """The process, and what it has said so far."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], recorder: Recorder) -> None:
        self._recorder = recorder
        self._outcomes: dict[str, tuple[Outcome, str]] = {}
        self._other_lines: list[str] = []
        self._news = threading.Condition()
        self._is_over = False
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._limit = threading.Timer(RUN_TIMEOUT_S, self._process.kill)
        self._limit.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._take(line.rstrip())
                self._news.notify_all()
        code = self._process.wait()
        with self._news:
            self._is_over = True
            self._other_lines.append(f"it ended with {code}")
            self._news.notify_all()

    def _take(self, line: str) -> None:
        if not line.startswith('{"feature"'):
            self._other_lines.append(line)
            return
        said = json.loads(line)
        self._outcomes[said["scenario"]] = (said["outcome"], said["reason"])
        self._recorder.record(said["feature"], said["scenario"], said["outcome"], said["reason"])

    def failure(self, scenario: Scenario) -> str:
        """Why the scenario failed; "" if it did not. Waits for it."""
        with self._news:
            self._news.wait_for(lambda: scenario.name in self._outcomes or self._is_over)
            if scenario.name in self._outcomes:
                outcome, reason = self._outcomes[scenario.name]
                return "" if outcome == "pass" else f"{outcome}: {reason}"
            last_words = "\n".join(self._other_lines[-50:])
        reason = f"the process never played it\n{last_words}"
        self._recorder.record(scenario.feature, scenario.name, "fail", reason)
        return reason

    def end(self) -> None:
        self._limit.cancel()
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def playing(
    recorder: Recorder,
    scenarios: Sequence[Scenario],
    command: Callable[[], Sequence[str]],
    variables: Mapping[str, str],
) -> Iterator[SuiteRun]:
    """The process that plays them. Where it cannot be built, its tests are skipped with the reason."""
    try:
        built = command()
    except SuiteUnavailable as missing:
        for scenario in scenarios:
            recorder.record(scenario.feature, scenario.name, "skip", str(missing))
        pytest.skip(f"it cannot be run: {missing}")
    run = SuiteRun(built, variables, recorder)
    try:
        yield run
    finally:
        run.end()


@contextmanager
def stage(folder: Path) -> Iterator[dict[str, str]]:
    """The two namespaces of a suite, as the variables that describe them to its process."""
    with ExitStack() as stack:
        shared = RunningServer(folder / "shared", store_count=4, tls_port=0)
        stack.callback(shared.stop)
        own = _OwnNamespace(folder / "own")
        stack.callback(own.stop)
        control = stack.enter_context(taking_orders(own.obey))
        yield {
            "TWINBUS_PLAIN": shared.connection_string,
            "TWINBUS_TLS": shared.server.tls_connection_string or "",
            "TWINBUS_HTTP": f"http://127.0.0.1:{shared.server.http_port}",
            "TWINBUS_AUTHORITY": str(shared.server.tls_authority),
            "TWINBUS_ALONE_PLAIN": own.server.connection_string,
            "TWINBUS_ALONE_TLS": own.server.server.tls_connection_string or "",
            "TWINBUS_ALONE_HTTP": f"http://127.0.0.1:{own.server.server.http_port}",
            "TWINBUS_ALONE_AUTHORITY": str(own.server.server.tls_authority),
            "TWINBUS_CONTROL": control,
        }


class _OwnNamespace:
    """One that can be restarted on its ports and its data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = RunningServer(folder, store_count=2, tls_port=0)

    def stop(self) -> None:
        self.server.stop()

    def obey(self, order: str) -> None:
        what, _, argument = order.partition("/")
        if what == "clock":
            self.server.clock.advance(float(argument))
        elif what == "restart":
            self._restart()
        else:
            raise ValueError(f"'{order}' is not an order")

    def _restart(self) -> None:
        before = self.server
        amqp_port, http_port, tls_port = before.server.amqp_port, before.server.http_port, before.server.tls_port
        before.stop()
        self.server = RunningServer(self._folder, amqp_port, http_port, 2, tls_port, clock=before.clock)


@contextmanager
def taking_orders(obey: Callable[[str], str | None]) -> Iterator[str]:
    """An address that takes orders: POST /ORDER answers when it is done, with what `obey` returns."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = (obey(self.path[1:]) or "").encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
