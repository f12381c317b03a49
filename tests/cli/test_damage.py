"""A namespace with damaged and missing stores, and the commands of the person who has to deal with it."""

import io
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.cli.conftest import Commands, Served, serve
from twinbus.cli.namespaces import stores
from twinbus.client import namespace_http
from twinbus.store.folder.tables import FILE_NAME


def damage_a_message(store: Path) -> None:
    tables = sqlite3.connect(store / FILE_NAME, isolation_level=None)
    for identity, content in tables.execute("SELECT id, content FROM contents").fetchall():
        changed = content.replace(b"second", b"sEcond")
        if changed != content:
            tables.execute("UPDATE contents SET content = ? WHERE id = ?", (changed, identity))
    tables.close()


def found_by_check(commands: Commands, namespace: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(commands.text("store", "check", "-n", namespace, "--json", code=1))
    return found


def health_of(served: Served) -> dict[str, object]:
    with urlopen(f"http://127.0.0.1:{served.ready['http_port']}/health", timeout=10) as answer:
        health: dict[str, object] = json.load(answer)
    return health


def test_a_damaged_message_is_found_set_aside_and_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(tmp_path, "damaged", "--stores", "1") as served:
        commands = Commands(served, capsys)
        commands.text("queue", "create", "q", "--namespace", "damaged")
        for body in ("first", "second", "third"):
            commands.text("send", "q", body, "--namespace", "damaged")
        assert "No damage" in commands.text("store", "check", "-n", "damaged")
        assert served.stop() == 0
        assert "No damage" in commands.text("store", "check", "-n", "damaged")
        damage_a_message(tmp_path / "damaged" / "stores" / "00")
        (found,) = found_by_check(commands, "damaged")
        assert found["place"].startswith("message 2 ")
        assert found["file"].endswith(FILE_NAME)
    with serve(tmp_path, "damaged", "--stores", "1") as served:
        commands = Commands(served, capsys)
        assert "message 2 " in found_by_check(commands, "damaged")[0]["what"]
        assert commands.json("store", "list", "-n", "damaged")[0]["set_aside"] == 1
        assert (
            health_of(served).items()
            >= {
                "namespace": "damaged",
                "status": "damaged",
                "unhealthy_stores": {},
                "set_aside": {"0": 1},
            }.items()
        )
        assert [
            message["body"] for message in commands.json("receive", "q", "--count", "2", "--namespace", "damaged")
        ] == ["first", "third"]
        commands.text("store", "accept-loss", "-n", "damaged", "0", "--yes")
        assert health_of(served)["status"] == "healthy"
        assert "No damage" in commands.text("store", "check", "-n", "damaged")
        assert served.stop() == 0


def test_a_store_whose_folder_is_gone_is_lost_until_the_loss_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(tmp_path, "gone") as served:
        assert served.stop() == 0
    shutil.move(tmp_path / "gone" / "stores" / "01", tmp_path / "elsewhere")
    with serve(tmp_path, "gone") as served:
        commands = Commands(served, capsys)
        lost = commands.json("store", "list", "-n", "gone")[1]
        assert lost["condition"] == "lost"
        assert "missing or empty" in lost["fault"]
        assert health_of(served)["unhealthy_stores"] == {"1": "lost"}
        assert "accept-loss" in found_by_check(commands, "gone")[0]["what"]
        commands.text("store", "accept-loss", "-n", "gone", "7", code=2)
        assert "no messaging store 7" in commands.errors
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        commands.text("store", "accept-loss", "-n", "gone", "1", code=1)
        assert "Nothing was given up" in commands.errors
        assert health_of(served)["unhealthy_stores"] == {"1": "lost"}
        assert "opens now" in commands.text("store", "accept-loss", "-n", "gone", "1", "--yes")
        assert health_of(served)["status"] == "healthy"
        assert served.stop() == 0


def test_a_store_that_does_not_open_after_its_loss_was_accepted_is_not_called_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(tmp_path, "gone") as served:
        assert served.stop() == 0
    shutil.rmtree(tmp_path / "gone" / "stores" / "01")
    (tmp_path / "gone" / "stores" / "01").touch()  # such as a link to a volume that is broken
    with serve(tmp_path, "gone") as served:
        commands = Commands(served, capsys)
        assert commands.text("store", "accept-loss", "-n", "gone", "1", "--yes", code=1) == ""
        assert "The loss is accepted, but messaging store 1 of 'gone' is not up yet, but lost: " in commands.errors
        commands.text("store", "up", "-n", "gone", "1", code=1)
        assert "Messaging store 1 of 'gone' is not up yet, but lost: " in commands.errors
        assert served.stop() == 0


def test_a_store_that_cannot_be_checked_to_the_end_is_not_called_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PAUSE_S", 0.0)
    monkeypatch.setattr(stores, "TRIES_MAX", 1)
    ask = namespace_http.ask

    def ask_a_busy_store(connection_string: str, endpoint: str, method: str, path: str, *details: Any) -> Any:
        if path.startswith("/$stores/1/check"):
            return {"checked": 0, "next": -1, "failed": "too many requests wait for it"}
        return ask(connection_string, endpoint, method, path, *details)

    monkeypatch.setattr(namespace_http, "ask", ask_a_busy_store)
    with serve(tmp_path, "few", "--stores", "2") as served:
        (found,) = found_by_check(Commands(served, capsys), "few")
        assert str(found["index"]) == "1"
        assert "too many requests wait for it" in found["what"]
        assert "No damage" in Commands(served, capsys).text("store", "check", "-n", "few", "0")
        assert served.stop() == 0


def test_a_store_that_does_not_exist_is_not_called_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(tmp_path, "few") as served:
        commands = Commands(served, capsys)
        assert commands.text("store", "check", "-n", "few", "77", code=2) == ""
        assert "no messaging store 77" in commands.errors
        assert served.stop() == 0
    assert commands.text("store", "check", "-n", "few", "77", code=2) == ""
    assert "no messaging store 77" in commands.errors


def test_a_namespace_that_never_was_has_nothing_to_check(tmp_path: Path, commands: Commands) -> None:
    assert "No namespace 'nothing'" in commands.failure("store", "check", "-n", "nothing")
