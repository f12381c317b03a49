"""Node and the JavaScript SDK: a test file and a server go in, what its tests said comes out.

The packages are installed once into the build folder, which git ignores; a change of package.json installs them again.
"""

import json
import os
import re
import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

from tests.interop.foreign_suite import SuiteUnavailable, build_folder, start_anew, taking_orders
from tests.interop.results import Feature, Recorder
from tests.interop.running_server import RunningProcesses, RunningServer

SCRIPTS = Path(__file__).parent / "js"
NODE_MAJOR_MIN = 20
INSTALL_TIMEOUT_S = 90.0
RUN_TIMEOUT_S = 60.0


def installed_packages() -> Path:
    """The folder of the installed packages. Raises SuiteUnavailable where node or npm are missing or cannot get them."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise SuiteUnavailable(f"node and npm are not installed; Node {NODE_MAJOR_MIN} or later is needed")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").split(".")[0]) < NODE_MAJOR_MIN:
        raise SuiteUnavailable(f"Node {version.strip()} is too old; {NODE_MAJOR_MIN} or later is needed")
    manifest = SCRIPTS / "package.json"
    folder = build_folder("javascript", [manifest])
    if not (folder / "installed").exists():
        shutil.copy(manifest, start_anew(folder))
        _install(folder)
        (folder / "installed").touch()
    return folder / "node_modules"


def _install(folder: Path) -> None:
    command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise SuiteUnavailable("npm could not get the packages of the JavaScript SDK in time") from None
    if done.returncode != 0:
        raise SuiteUnavailable(f"npm could not install the JavaScript SDK: {done.stderr.strip()[-500:]}")


FEATURES: dict[str, Feature] = {
    "administration.test.js": "administration",
    "amqp.test.js": "send",
    "errors.test.js": "errors",
    "faults.test.js": "reconnect",
    "partitioned.test.js": "partitioned entities",
    "queues.test.js": "settlement",
    "scheduling.test.js": "scheduling",
    "sessions.test.js": "sessions",
    "topics.test.js": "topics and rules",
}
"""What the tests of a file are mostly about."""

TAP_LINE = re.compile(r"^(not )?ok \d+ - (.+)$", re.MULTILINE)


def sdk_version(packages: Path) -> str:
    description = json.loads((packages / "@azure" / "service-bus" / "package.json").read_text(encoding="utf-8"))
    return str(description["version"])


class TestRun:
    """A Node process that runs one file over one transport."""

    __test__ = False  # not a test, though it is called one

    def __init__(
        self,
        script: str,
        transport: str,
        server: RunningServer | RunningProcesses,
        packages: Path,
        results: Path,
        clock_url: str = "",
    ) -> None:
        self._script = script
        self._transport = transport
        self._results = results / f"{script}.{transport}.tap"
        authority = server.server.tls_authority
        assert authority is not None
        environment = {
            **os.environ,
            "NODE_PATH": str(packages),
            "NODE_EXTRA_CA_CERTS": str(authority),
            "TWINBUS_TRANSPORT": transport,
            "TWINBUS_PLAIN": server.connection_string,
            "TWINBUS_TLS": server.server.tls_connection_string or "",
            "TWINBUS_HTTP": f"http://127.0.0.1:{server.server.amqp_port}",
            "TWINBUS_CLOCK": clock_url,
        }
        # The SDK's timers outlive what they wait for: a settlement that a cut connection took along keeps Node for a minute.
        self._process = subprocess.Popen(
            [
                "node",
                "--test-force-exit",
                "--test-reporter=spec",
                "--test-reporter-destination=stdout",
                "--test-reporter=tap",
                f"--test-reporter-destination={self._results}",
                str(SCRIPTS / script),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def failure(self) -> str:
        """What it said if a test failed, else nothing. Waits for the end."""
        try:
            said, _ = self._process.communicate(timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            said, _ = self._process.communicate()
            return f"{self._transport}: not done after {RUN_TIMEOUT_S:.0f} s\n{said}"
        return f"{self._transport}:\n{said}" if self._process.returncode else ""

    def record(self, recorder: Recorder) -> None:
        """What became of every test of the file. After its end."""
        text = self._results.read_text(encoding="utf-8") if self._results.exists() else ""
        for is_failed, name in TAP_LINE.findall(text):
            recorder.record(FEATURES[self._script], f"{name} ({self._transport})", "fail" if is_failed else "pass")


def clock_control(server: RunningServer) -> AbstractContextManager[str]:
    """An address that moves the server's clock: POST /SECONDS answers what the clock shows then."""

    def advance(seconds: str) -> str:
        server.clock.advance(float(seconds))
        return str(server.clock.now())

    return taking_orders(advance)
