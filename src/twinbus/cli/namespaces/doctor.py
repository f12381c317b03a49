"""`twinbus doctor`: whether this machine has what twinbus needs, and the health of the namespaces on it."""

import json
import os
import platform
import shutil
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import typer

from twinbus.cli.command import DATA_DEFAULT, DataOption, JsonOption
from twinbus.cli.namespaces.running import RunningNamespace, all_running, unreadable
from twinbus.cli.namespaces.two_namespaces import SEATS
from twinbus.cli.output import Output
from twinbus.pipeline.java import JavaMissing, choose_java
from twinbus.server.server_settings import LOOPBACK

SYNC_COUNT = 50
SYNC_SLOW_MS = 20.0
FREE_BYTES_MIN = 1024**3
HEALTH_TIMEOUT_S = 5.0
PACKAGES = ("azure-servicebus", "uvloop", "starlette", "uvicorn", "pyarrow")


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    is_good: bool
    found: str
    advice: str = ""


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(data: DataOption = DATA_DEFAULT, as_json: JsonOption = False) -> None:
    """Check this machine and the namespaces that run on it. The exit code is 1 if something is wrong."""
    findings = [*_python(), *_disk(data), *_ports(data), *_namespaces(data), *_pipeline()]
    output = Output(as_json=as_json)
    if as_json:
        output.table((), [asdict(finding) for finding in findings])
    else:
        records = [asdict(finding) | {"": "ok" if finding.is_good else "!!"} for finding in findings]
        output.table(("", "check", "found", "advice"), records)
    if not all(finding.is_good for finding in findings):
        raise typer.Exit(1)


def _python() -> Iterator[Finding]:
    yield Finding("python", sys.version_info >= (3, 11), platform.python_version(), "")
    for package in PACKAGES:
        try:
            yield Finding(package, True, metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Finding(package, False, "missing", f"pip install {package}")


def _disk(data: Path) -> Iterator[Finding]:
    existing = next(path for path in (data.absolute(), *data.absolute().parents) if path.exists())
    if not existing.is_dir():
        yield Finding("data folder", False, f"{existing} is a file", "choose a folder with --data")
        return
    free = shutil.disk_usage(existing).free
    yield Finding(
        "disk space",
        free >= FREE_BYTES_MIN,
        f"{free // 1024**2} MB free",
        "" if free >= FREE_BYTES_MIN else "free some space",
    )
    if not os.access(existing, os.W_OK):
        yield Finding("data folder", False, f"{existing} cannot be written", "choose another one with --data")
        return
    try:
        sync_ms = _sync_ms(existing)
    except OSError as fault:
        yield Finding(
            "write and sync",
            False,
            fault.strerror or str(fault),
            "free some space, or choose another folder with --data",
        )
        return
    advice = "" if sync_ms < SYNC_SLOW_MS else "every acknowledged message waits for this; use a faster disk"
    yield Finding("write and sync", sync_ms < SYNC_SLOW_MS, f"{sync_ms:.2f} ms", advice)


def _sync_ms(folder: Path) -> float:
    with tempfile.TemporaryFile(dir=folder) as file:
        start = time.perf_counter()
        for _ in range(SYNC_COUNT):
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        return (time.perf_counter() - start) * 1000 / SYNC_COUNT


def _ports(data: Path) -> Iterator[Finding]:
    ours = {port for running in all_running(data) for port in (running.amqp_port, running.http_port)}
    for seat in SEATS:
        for port in (seat.amqp_port, seat.http_port):
            if port in ours:
                yield Finding(f"port {port}", True, "used by a twinbus namespace")
            elif _is_free(port):
                yield Finding(f"port {port}", True, "free")
            else:
                yield Finding(
                    f"port {port}", False, "used by another program", f"stop it, or serve '{seat.name}' on another port"
                )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _namespaces(data: Path) -> Iterator[Finding]:
    for file in unreadable(data):
        advice = f"start it again: twinbus serve {file.parent.name}"
        yield Finding(f"namespace {file.parent.name}", False, f"{file} is damaged", advice)
    for running in all_running(data):
        name = f"namespace {running.name}"
        try:
            health = _health(running.endpoint)
        except (OSError, ValueError, HTTPException) as fault:
            yield Finding(name, False, f"does not answer: {fault}", f"check process {running.pid}")
            continue
        is_good = health["status"] == "healthy"
        unhealthy = ", ".join(map(str, health["unhealthy_stores"]))
        advice = ""
        if health["status"] == "damaged":
            advice = f"twinbus store check -n {running.name}"
        elif "silent" in health["unhealthy_stores"].values():
            advice = f"check the database and its synchronous standby (unhealthy: {unhealthy})"
        elif not is_good:
            advice = f"twinbus store up -n {running.name}  (unhealthy: {unhealthy})"
        yield Finding(name, is_good, health["status"], advice)
        owners = ", ".join(health.get("owners", {}))
        for kept_in, count in health.get("kept_in", {}).items():
            is_good = not kept_in.endswith("one server")
            advice = "" if is_good else "set synchronous_standby_names, or a lost server loses messages"
            where = f"{count} in {kept_in}" + (f", owned by {owners}" if owners else "")
            yield Finding(f"stores of {running.name}", is_good, where, advice)
        yield from _certificate(running)


def _health(endpoint: str) -> dict[str, Any]:
    """Raises OSError, ValueError or HTTPException; the port of a namespace that was killed may be another program's by now."""
    try:
        with urlopen(f"{endpoint}/health", timeout=HEALTH_TIMEOUT_S) as answer:
            health = json.load(answer)
    except HTTPError as refused:
        health = json.load(refused)
    if not isinstance(health, dict) or not {"status", "unhealthy_stores"} <= health.keys():
        raise ValueError(f"the server at {endpoint} is not a namespace")
    return health


def _certificate(running: RunningNamespace) -> Iterator[Finding]:
    """What clients see, and refuse when it has expired."""
    if running.tls_port is None:
        return
    from twinbus.server.tls import UNREADABLE, certificate_facts

    check = f"certificate of {running.name}"
    try:
        shown = ssl.get_server_certificate((running.host, running.tls_port), timeout=HEALTH_TIMEOUT_S)
        facts = certificate_facts(shown.encode())
    except (OSError, *UNREADABLE) as fault:
        yield Finding(check, False, f"cannot be read: {fault}", f"check port {running.tls_port}")
        return
    problem = facts.problem_at(datetime.now(UTC))
    if problem is None:
        yield Finding(check, True, f"valid until {facts.valid_until:%Y-%m-%d}")
    elif running.tls_authority is not None:
        yield Finding(check, False, problem, "start the namespace again, which generates a new one")
    else:
        yield Finding(
            check, False, problem, "replace the files of --tls-cert and --tls-key and start the namespace again"
        )


def _pipeline() -> Iterator[Finding]:
    """Only the pipeline needs Spark and Java: it is fine if both are missing, and wrong if they do not fit."""
    try:
        spark, advice = metadata.version("pyspark"), ""
    except metadata.PackageNotFoundError:
        spark, advice = None, "only the pipeline needs it: pip install 'twinbus[spark,jre]'"
    yield Finding("spark", True, spark or "none", advice)
    try:
        java = choose_java(os.environ)
    except JavaMissing as missing:
        yield Finding("java (for Spark)", spark is None, "none", str(missing))
        return
    yield Finding("java (for Spark)", True, f"{java.version} at {java.home}, found by {java.origin}")
