"""Older versions of the Python SDK: a version and a server go in, what the scenarios printed comes out.

Each version is installed once, with the dependencies of its time, into an environment in the build folder, which git ignores.
"""

import os
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tests.interop.foreign_suite import BUILD
from tests.interop.results import Feature, Recorder
from tests.interop.running_server import RunningServer

SCENARIOS = Path(__file__).parent / "python" / "scenarios.py"
INSTALL_TIMEOUT_S = 90.0
RUN_TIMEOUT_S = 60.0

_PINS = (
    "azure-core==1.41.0",
    "certifi==2026.10.18",
    "charset-normalizer==3.5.2",
    "idna==3.20",
    "isodate==0.7.2",
    "requests==2.34.2",
    "typing-extensions==4.16.0",
    "urllib3==2.8.0",
)
_UAMQP_PINS = (
    "azure-common==1.1.28",
    "msrest==0.7.1",
    "oauthlib==4.0.1",
    "requests-oauthlib==2.0.0",
    "six==1.17.0",
    "uamqp==1.6.11",
)


class SdkVersion(NamedTuple):
    number: str
    transport: str
    """`tcp` where the SDK knows connection strings for emulators; before that `tls`, or `wss` where TLS is at port 5671
    only, or `uamqp`, which is TLS by another library."""
    pins: tuple[str, ...] = _PINS


INSTALLED = SdkVersion(version("azure-servicebus"), "tcp")
"""The one that our own environment has."""

OLDER = (
    SdkVersion("7.14.3", "tcp"),
    SdkVersion("7.13.0", "wss", (*_PINS, "websocket-client==1.9.2")),
    SdkVersion("7.12.3", "tls"),
    SdkVersion("7.11.4", "wss", (*_PINS, "websocket-client==1.9.2")),
    SdkVersion("7.6.0", "uamqp", _PINS + _UAMQP_PINS),
)


class Environments:
    """Installs what is missing, all versions at once."""

    def __init__(self) -> None:
        self._installs = {version: _start_install(version) for version in OLDER if not _mark(version).exists()}
        self._problems: dict[SdkVersion, str] = {}

    def python(self, version: SdkVersion) -> Path:
        return Path(sys.executable) if version is INSTALLED else _folder(version) / "bin" / "python"

    def problem(self, version: SdkVersion) -> str:
        """Why the version could not be installed; "" if it was. Waits for the end of the installation."""
        install = self._installs.pop(version, None)
        if install is not None:
            self._problems[version] = _end_of(install)
            if not self._problems[version]:
                _mark(version).touch()
        return self._problems.get(version, "")

    def close(self) -> None:
        for install in self._installs.values():
            install.kill()
            install.communicate()


def _folder(version: SdkVersion) -> Path:
    return BUILD / f"python-sdk-{version.number}"


def _mark(version: SdkVersion) -> Path:
    return _folder(version) / "installed"


def _start_install(version: SdkVersion) -> subprocess.Popen[str]:
    folder = _folder(version)
    venv.create(folder, clear=True, symlinks=True)
    # No pip of its own, which would take longer than all the rest. Nothing is built: uamqp is a large library in C.
    command = [sys.executable, "-m", "pip", f"--python={folder / 'bin' / 'python'}", "install", "--quiet"]
    command += ["--disable-pip-version-check", "--retries=1", "--only-binary=:all:"]
    command += [f"azure-servicebus=={version.number}", *version.pins]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _end_of(install: subprocess.Popen[str]) -> str:
    try:
        said, _ = install.communicate(timeout=INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        install.kill()
        install.communicate()
        return "pip could not get the packages in time"
    return f"pip could not install it: {said.strip()[-500:]}" if install.returncode else ""


FEATURES: dict[str, Feature] = {
    "send_and_receive": "send",
    "large_message": "send",
    "abandon_and_dead_letter": "dead-letter",
    "defer": "deferral",
    "peek_and_renew_lock": "lock renewal",
    "sessions": "sessions",
    "schedule_and_cancel": "scheduling",
    "topic_with_rules": "topics and rules",
    "refusals": "errors",
}
"""What each of the scenarios is about."""


class ScenarioRun:
    """A process that plays all scenarios with one version."""

    def __init__(self, python: Path, version: SdkVersion, server: RunningServer) -> None:
        self._said = ""
        namespace = server.server
        assert namespace.tls_authority is not None
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "REQUESTS_CA_BUNDLE": str(namespace.tls_authority),
            "TWINBUS_AUTHORITY": str(namespace.tls_authority),
            "TWINBUS_PLAIN": server.connection_string,
            "TWINBUS_PREFIX": f"sdk-{version.number}",
            "TWINBUS_TLS": namespace.tls_connection_string or "",
            "TWINBUS_TLS_HOST": namespace.settings.host,
            "TWINBUS_TLS_PORT": str(namespace.tls_port),
            "TWINBUS_TRANSPORT": version.transport,
        }
        self._process = subprocess.Popen(
            [str(python), str(SCENARIOS)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def failure(self) -> str:
        """What it printed if a scenario failed, else nothing. Waits for the end."""
        try:
            said, _ = self._process.communicate(timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            said, _ = self._process.communicate()
            return f"not done after {RUN_TIMEOUT_S:.0f} s\n{said}"
        self._said = said
        return said if self._process.returncode else ""

    def record(self, recorder: Recorder) -> None:
        """What became of every scenario. After the end."""
        for name, feature in FEATURES.items():
            is_passed = f"{name} passed\n" in self._said
            recorder.record(feature, name.replace("_", " "), "pass" if is_passed else "fail")
