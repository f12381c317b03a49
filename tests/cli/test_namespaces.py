"""Whole namespaces as files: written, read back into another namespace, and written again."""

import json
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.cli.conftest import Commands, Served, serve
from twinbus.cli.app import run
from twinbus.client.administration import administration_client
from twinbus.definitions.entity_file import read_entity_file, write_entities
from twinbus.definitions.remote_entities import read_namespace
from twinbus.definitions.remote_import import RemoteImport

DEFINITION = """\
[[queue]]
name = "archive"
forward_dead_letters_to = "work"

[[queue]]
name = "work"
lock_duration = "PT30S"
max_size_mb = 2048
default_time_to_live = "P7D"
dead_letter_on_expiry = true
max_delivery_count = 3
status = "SendDisabled"
enable_partitioning = true
forward_to = "archive"
user_metadata = "a \\"quoted\\" text, ü, C:\\\\path"

[[queue.access_rule]]
name = "sender"
rights = ["Send"]

[[topic]]
name = "a/events"
requires_duplicate_detection = true
support_ordering = false

[[topic.subscription]]
name = "all"
requires_session = true

[[topic.subscription]]
name = "none"
rule = []

[[topic.subscription]]
name = "some"
forward_to = "work"

[[topic.subscription.rule]]
name = "$Default"
filter = "false"

[[topic.subscription.rule]]
name = "hot"
correlation = { label = "hot", properties = { "big size" = 12, weight = 1.5, fresh = true } }

[[topic.subscription.rule]]
name = "red"
sql = "colour = @colour AND age < @age"
parameters = { "@colour" = "red", "@age" = { type = "duration", value = "PT5S" }, "@day" = { type = "dateTime", value = "2026-01-02T03:04:05Z" }, "@far" = 1099511627776 }
action = "SET seen = @by"
action_parameters = { "@by" = 7 }
"""
CONFIG: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {"Name": "orders", "Properties": {"LockDuration": "PT45S", "MaxDeliveryCount": 3, "ForwardTo": ""}}
                ],
                "Topics": [
                    {
                        "Name": "news",
                        "Properties": {"DefaultMessageTimeToLive": "PT1H"},
                        "Subscriptions": [
                            {
                                "Name": "red",
                                "Properties": {"RequiresSession": True, "ForwardDeadLetteredMessagesTo": "orders"},
                                "Rules": [
                                    {
                                        "Name": "colour",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "colour = 'red'"},
                                            "Action": {"SqlExpression": "SET seen = 1"},
                                        },
                                    }
                                ],
                            }
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A namespace that is made at its start from the definition."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "entities.toml").write_text(DEFINITION)
    with serve(folder, "primary", "--entities", str(folder / "entities.toml")) as served:
        yield served
        assert served.stop() == 0


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A namespace that no other file of tests leaves anything in."""
    with serve(tmp_path_factory.mktemp("blank"), "primary") as served:
        yield served
        assert served.stop() == 0


@pytest.fixture
def commands(blank: Served, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(blank, capsys)


@pytest.fixture
def others(other: Served, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(other, capsys)


def exported(commands: Commands, *options: str) -> str:
    return commands.text("namespace", "export", *options)


def test_what_serve_makes_from_a_file_is_exported_as_that_file(others: Commands) -> None:
    assert exported(others) == DEFINITION


def test_export_import_and_export_again_give_the_same_file(
    others: Commands, commands: Commands, tmp_path: Path
) -> None:
    for name in ("whole.toml", "whole.json"):
        file = tmp_path / name
        others.text("namespace", "export", str(file))
        made = commands.json("namespace", "import", str(file))
        assert made["updated"] == made["unchanged"] == 0
        again = tmp_path / f"again-{name}"
        commands.text("namespace", "export", str(again))
        assert again.read_text() == file.read_text()
        untouched = commands.json("namespace", "import", str(file), "--update")
        assert (untouched["created"], untouched["updated"], untouched["deleted"]) == (0, 0, 0)
        empty(commands)


def empty(commands: Commands) -> None:
    for queue in commands.json("queue", "list"):
        commands.text("queue", "delete", queue["name"], "--yes")
    for topic in commands.json("topic", "list"):
        commands.text("topic", "delete", topic["name"], "--yes")


def test_what_exists_is_left_without_update_and_made_the_same_with_it(
    others: Commands, commands: Commands, tmp_path: Path
) -> None:
    file = tmp_path / "whole.toml"
    others.text("namespace", "export", str(file))
    commands.text("queue", "create", "ARCHIVE", "--lock-duration", "10s")
    commands.text("topic", "create", "a/events", "--duplicate-detection")
    commands.text("subscription", "create", "a/events", "some")
    commands.text("rule", "create", "a/events", "some", "extra", "--sql", "1=1")
    commands.text("namespace", "import", str(file))
    assert commands.json("queue", "show", "archive")["lock_duration"] == "10s"
    names = [rule["name"] for rule in commands.json("rule", "list", "a/events", "some")]
    assert sorted(names) == ["$Default", "extra", "hot", "red"]
    changed = commands.json("namespace", "import", str(file), "--update")
    # The queue, the topic, the subscription and its rule $Default; the rule that the file does not know is gone.
    assert (changed["created"], changed["updated"], changed["deleted"]) == (0, 4, 1)
    assert exported(commands).replace("ARCHIVE", "archive") == DEFINITION
    empty(commands)


class Interrupted:
    """An administration client during whose change of that number somebody presses Ctrl-C."""

    def __init__(self, client: ServiceBusAdministrationClient, count: int) -> None:
        self._client = client
        self.left = count

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._client, name)
        if not name.startswith(("create_", "update_", "delete_")):
            return request

        def change(*arguments: Any, **named: Any) -> Any:
            answer = request(*arguments, **named)
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return answer

        return change


def test_an_import_that_was_interrupted_anywhere_is_finished_by_the_next_one(
    commands: Commands, tmp_path: Path
) -> None:
    file = tmp_path / "whole.toml"
    file.write_text(DEFINITION)
    wanted = read_entity_file(file)
    is_interrupted, count = True, 0
    with administration_client(commands.served.ready["connection_string"]) as client:
        while is_interrupted:
            count += 1
            interrupted = Interrupted(client, count)
            with suppress(KeyboardInterrupt):
                RemoteImport(cast("ServiceBusAdministrationClient", interrupted), may_update=False).run(wanted)
            is_interrupted = interrupted.left <= 0
            RemoteImport(client, may_update=False).run(wanted)
            assert write_entities(read_namespace(client), as_json=False, with_keys=False) == DEFINITION
            for queue in client.list_queues():
                client.delete_queue(queue.name)
            for topic in client.list_topics():
                client.delete_topic(topic.name)
    assert count > len(wanted.queues + wanted.topics + wanted.subscriptions)


def test_keys_are_written_on_request_only_and_for_the_owner_alone(others: Commands, tmp_path: Path) -> None:
    assert "_key" not in exported(others)
    file = tmp_path / "keys.toml"
    file.touch(0o644)
    others.text("namespace", "export", str(file), "--with-keys")
    assert file.stat().st_mode & 0o077 == 0
    rule = tomllib.loads(file.read_text())["queue"][1]["access_rule"][0]
    assert len(rule["primary_key"]) > 20
    before = others.json("access", "list", "--entity", "work")[0]["primary_key"]
    assert before == rule["primary_key"]
    file.write_text(file.read_text().replace(rule["primary_key"], "chosen"))
    others.text("namespace", "import", str(file), "--update")
    assert others.json("access", "list", "--entity", "work")[0]["primary_key"] == "chosen"
    (tmp_path / "plain.toml").write_text(DEFINITION)
    assert others.json("namespace", "import", str(tmp_path / "plain.toml"), "--update")["updated"] == 0
    assert others.json("access", "list", "--entity", "work")[0]["primary_key"] == "chosen"


def test_the_emulators_configuration_is_imported(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "Config.json"
    file.write_text(json.dumps(CONFIG))
    commands.text("namespace", "import", str(file))
    assert commands.json("queue", "show", "orders")["lock_duration"] == "45s"
    assert commands.json("subscription", "show", "news", "red")["forward_dead_letters_to"].endswith("/orders")
    rules = commands.json("rule", "list", "news", "red")
    assert [(rule["name"], rule["filter"], rule["action"]) for rule in rules] == [
        ("colour", "colour = 'red'", "SET seen = 1")
    ]
    empty(commands)


def test_a_file_that_makes_no_sense_is_one_line_and_exit_code_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[[queue]]\nname = 'q'\nlock_duration = 'long'\n")
    assert run(["namespace", "import", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(file) in said
    assert "lock_duration" in said


def test_the_shell_completes_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_TWINBUS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "twinbus namespace e")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        run([])
    assert capsys.readouterr().out.split() == ["export"]
