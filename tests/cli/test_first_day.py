"""What somebody does on the first day, as they do it: paste what `twinbus up` prints, ask for help, send a few messages."""

import io
import json
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.conftest import Commands, serve
from twinbus.cli.app import SECTIONS, app, run
from twinbus.cli.examples import EXAMPLES
from twinbus.cli.help_pages import WIDTH_MAX

HELP_MAX_S = 1.0
"""It takes 0.1 s; the limit leaves room for a machine that is busy."""
ROOT_COMMAND = typer.main.get_command(app)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """What `twinbus up` prints in a folder that is empty, while it runs, and the folder."""
    here = tmp_path_factory.mktemp("fresh")
    command = [sys.executable, "-m", "twinbus", "up", "--amqp-port", "0", "--http-port", "0", "--stores", "2"]
    with subprocess.Popen(
        [*command, "--no-meter", "--portal-port", "0"],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            text = ""
            while "Ctrl-C stops both" not in text:
                line = process.stdout.readline()
                assert line, text
                text += line
            yield text, here
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def test_the_program_that_up_prints_runs_pasted_into_the_prompt(printed: tuple[str, Path]) -> None:
    text, here = printed
    program = text.partition(":\n\nfrom ")[2].partition("Try next")[0]
    done = subprocess.run(
        [sys.executable, "-q", "-i"],
        input=f"from {program}",
        cwd=here,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Error" not in done.stderr, done.stderr
    assert done.stdout.splitlines() == ["hello"]
    as_file = subprocess.run(
        [sys.executable, "-c", f"from {program}"], cwd=here, capture_output=True, text=True, timeout=60, check=False
    )
    assert as_file.stdout == "hello\n", as_file.stderr


def test_the_commands_that_up_suggests_work_one_after_the_other(printed: tuple[str, Path]) -> None:
    text, here = printed
    suggested = re.findall(r"^  (\S.*? -m twinbus .*?)   ", text, re.MULTILINE)
    assert [line.split(" -m twinbus ")[1].split()[0] for line in suggested] == [
        "queue", "send", "receive", "store", "store", "doctor", "rehearse",
    ]  # fmt: skip
    for line in suggested[:5]:
        done = subprocess.run(shlex.split(line), cwd=here, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{line}: {done.stderr}"
    # The rehearsal and the doctor have tests of their own; here it is enough that the lines are right.
    for line in suggested[5:]:
        assert run([*shlex.split(line)[3:], "--help"]) == 0


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from leaves(below, (*path, name))


LEAVES = dict(leaves(ROOT_COMMAND))


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_the_help_of_every_command_has_examples_that_its_parser_takes(path: tuple[str, ...], tmp_path: Path) -> None:
    examples = EXAMPLES.get(" ".join(path), ())
    assert examples, f"no example for 'twinbus {' '.join(path)}'"
    for line in examples:
        words = shlex.split(line.replace("$(twinbus token --format header)", "Authorization: x"), comments=True)
        start = words.index("twinbus")
        if "|" in words[start:]:
            words = words[: words.index("|", start)]
        assert tuple(words[start + 1 : start + 1 + len(path)]) == path, line
        given = [word for word in words[start + 1 + len(path) :] if word not in (">",)]
        missing = {"--file": "messages.jsonl", "--pairs": "pairs.toml"}
        for option, name in missing.items():
            if option in given:
                (tmp_path / name).touch()
                given[given.index(option) + 1] = str(tmp_path / name)
        LEAVES[path].make_context(" ".join(path), given)


def test_examples_are_of_commands_that_exist() -> None:
    assert set(EXAMPLES) <= {" ".join(path) for path in LEAVES}


def test_help_is_asked_for_by_h_too_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["-h"], ["send", "-h"], ["queue", "create", "-h"], ["pipeline", "-h"]):
        assert run(words) == 0
        short = capsys.readouterr().out
        assert run([*words[:-1], "--help"]) == 0
        assert capsys.readouterr().out == short
    assert run(["send", "-h"]) == 0
    shown = capsys.readouterr().out
    assert "Examples:\n  twinbus send orders hello\n" in shown
    assert "Which namespace:" in shown
    assert "<bool>" not in shown


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_breaks_between_words_at_any_width(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = []
    for width in (columns, WIDTH_MAX):
        monkeypatch.setenv("COLUMNS", str(width))
        assert run(["queue", "create", "-h"]) == 0
        pages.append(capsys.readouterr().out)
    narrow, wide = (page.partition("Examples")[0] for page in pages)
    assert narrow.split() == wide.split()
    assert max(map(len, narrow.splitlines())) <= min(columns, WIDTH_MAX)


def test_all_commands_are_in_a_section_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-h"]) == 0
    shown = capsys.readouterr().out
    for heading, lines in SECTIONS.items():
        assert f"\n{heading}:\n" in shown
        assert max(len(name) + len(summary) for name, _, summary in lines) < 80
    assert run([]) == 2
    assert "Usage: twinbus" in capsys.readouterr().err


def test_help_comes_at_once() -> None:
    """In processor time, which a busy machine does not change much."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "twinbus", "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < HELP_MAX_S


def test_what_is_sent_has_the_type_that_it_looks_like(commands: Commands) -> None:
    commands.text("topic", "create", "typed")
    commands.text("subscription", "create", "typed", "over-three")
    commands.text("rule", "create", "typed", "over-three", "big", "--sql", "n > 3")
    commands.text("subscription", "create", "typed", "five")
    commands.text("rule", "create", "typed", "five", "same", "--match", "n=5")
    for name in ("over-three", "five"):
        commands.text("rule", "delete", "typed", name, "$Default", "--yes")
    commands.text("send", "typed", "a", "-p", "n=5")
    commands.text("send", "typed", "b", "-p", "n:string=5")
    given = ("n=7", "big=1099511627776", "l:long=7", "price=1.5", "ok=true", "zip=007", "v=1.2.3", "x:y=z")
    commands.text("send", "typed", "c", *(word for pair in given for word in ("-p", pair)))
    found = commands.json("receive", "typed", "-s", "over-three", "--count", "3", "--wait", "300ms")
    assert [message["body"] for message in found] == ["a", "c"]
    assert found[1]["properties"] == {
        "n": 7, "big": 1099511627776, "l": 7, "price": 1.5, "ok": True, "zip": "007", "v": "1.2.3", "x:y": "z",
    }  # fmt: skip
    found = commands.json("receive", "typed", "-s", "five", "--count", "3", "--wait", "300ms")
    assert [message["body"] for message in found] == ["a"]
    assert "is not of the type int" in commands.text("send", "typed", "x", "-p", "n:int=a", code=2) + commands.errors
    commands.text("topic", "delete", "typed", "--yes")


def test_a_file_of_json_lines_is_a_message_for_each_line(commands: Commands, tmp_path: Path) -> None:
    commands.text("queue", "create", "by-line")
    file = tmp_path / "m.jsonl"
    file.write_bytes(b'{"n": 1}\r\n{"n": 2}\n\n{"n": 3}\n')
    assert commands.json("send", "by-line", "--file", str(file))["sent"] == 3
    assert commands.json("send", "by-line", "--file", str(file), "--whole")["sent"] == 1
    bodies = [message["body"] for message in commands.json("receive", "by-line", "--count", "4")]
    assert [json.loads(body)["n"] for body in bodies[:3]] == [1, 2, 3]
    assert bodies[3].encode() == file.read_bytes()
    commands.text("queue", "delete", "by-line", "--yes")


def test_peek_shows_state_and_reason_and_names_the_option_for_sessions(commands: Commands) -> None:
    commands.text("queue", "create", "short-lived", "--dead-letter-on-expiry")
    commands.text("send", "short-lived", "old", "--ttl", "1ms")
    commands.text("send", "short-lived", "later", "--delay", "1h")
    commands.text("receive", "short-lived", "--wait", "100ms")
    assert "scheduled" in commands.text("peek", "short-lived")
    assert "TTLExpiredException" in commands.text("peek", "short-lived", "--dead-letter")
    commands.text("queue", "delete", "short-lived", "--yes")
    commands.text("queue", "create", "in-sessions", "--sessions")
    for words in (["peek", "in-sessions"], ["receive", "in-sessions"]):
        assert "--session next" in commands.failure(*words)
    commands.text("queue", "delete", "in-sessions", "--yes")


def test_an_update_without_an_option_says_so(commands: Commands) -> None:
    commands.text("queue", "create", "same")
    for words in (["queue", "update", "same"], ["rule", "update", "t", "s", "r"]):
        commands.text(*words, code=2)
        assert "nothing to update" in commands.errors
    commands.text("queue", "delete", "same", "--yes")


def test_what_cannot_be_undone_asks_first(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.text("queue", "create", "kept")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    commands.text("queue", "delete", "kept", code=2)
    assert "--yes" in commands.errors
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    commands.text("queue", "delete", "kept", code=1)
    assert "Nothing was deleted" in commands.errors
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    commands.text("queue", "delete", "kept")
    commands.text("store", "down", code=2)
    assert "--all" in commands.errors


def test_durations_come_out_as_they_go_in(commands: Commands) -> None:
    made = commands.json("queue", "create", "timed", "--lock-duration", "90s", "--ttl", "36h")
    assert (made["lock_duration"], made["time_to_live"], made["auto_delete_on_idle"]) == ("90s", "36h", "never")
    shown = commands.text("queue", "show", "timed")
    assert re.search(r"lock duration +90s", shown)
    commands.text("queue", "update", "timed", "--lock-duration", made["lock_duration"])
    commands.text("queue", "delete", "timed", "--yes")


def test_one_option_names_the_namespace_of_every_command(commands: Commands) -> None:
    """Here or elsewhere: what is not about files takes a connection string."""
    there = ["--connection-string", commands.served.ready["connection_string"]]
    for words in (["store", "list"], ["access", "list"], ["queue", "list"], ["fault", "clear"], ["token"]):
        assert run([*words, *there, "--data", "nowhere"]) == 0, words
    assert run(["store", "accept-loss", "0", *there]) == 2
    assert "--namespace" in commands.capsys.readouterr().err


def test_stores_that_are_all_down_are_no_zero_messages(commands: Commands) -> None:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    commands.text("queue", "create", "Unknown")
    commands.text("store", "down", "--all")
    try:
        listed = {queue["name"]: queue for queue in commands.json("queue", "list")}
        assert listed["Unknown"]["active"] is None
        port = commands.served.ready["http_port"]
        with pytest.raises(HTTPError) as refused:
            urlopen(f"http://127.0.0.1:{port}/health")
        assert refused.value.code == 503
        assert json.load(refused.value)["status"] == "unavailable"
    finally:
        commands.text("store", "up")
    commands.text("queue", "delete", "Unknown", "--yes")


def test_metrics_spell_an_entity_in_one_way(commands: Commands) -> None:
    from urllib.request import urlopen

    commands.text("topic", "create", "Mixed/Case")
    commands.text("subscription", "create", "Mixed/Case", "Sub")
    commands.text("send", "mixed/case", "hello")
    commands.text("receive", "mixed/case", "-s", "sub")
    with urlopen(f"http://127.0.0.1:{commands.served.ready['http_port']}/metrics") as answer:
        text = answer.read().decode()
    names = set(re.findall(r'entity="(mixed/case[^"]*)"', text, re.IGNORECASE))
    assert names == {"Mixed/Case", "Mixed/Case/Subscriptions/Sub"}
    commands.text("topic", "delete", "Mixed/Case", "--yes")


def test_a_plain_rule_is_updated_to_one_with_parameters(commands: Commands, tmp_path: Path) -> None:
    commands.text("topic", "create", "events")
    commands.text("subscription", "create", "events", "audit")
    commands.text("rule", "create", "events", "audit", "red", "--sql", "colour = 'red'")
    page = (Path(__file__).parents[2] / "docs/how-to/administer.md").read_text()
    file = tmp_path / "entities.toml"
    file.write_text(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0])
    assert commands.json("namespace", "import", str(file), "--update")["updated"] >= 1
    assert commands.json("rule", "show", "events", "audit", "red")["filter"] == "colour = @colour"
    assert commands.json("namespace", "import", str(file), "--update")["updated"] == 0
    commands.text("topic", "delete", "events", "--yes")
    commands.text("queue", "delete", "work", "--yes")


def test_an_import_that_fails_half_way_says_how_far_it_came(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "half.toml"
    file.write_text('[[queue]]\nname = "first"\n\n[[queue]]\nname = "second"\nsessions = true\n')
    commands.text("queue", "create", "second")
    said = commands.failure("namespace", "import", str(file), "--update")
    assert "imported in part (1 created; not finished: second). Fix this, then import it again: " in said
    for name in ("first", "second"):
        commands.text("queue", "delete", name, "--yes")


def test_a_key_comes_as_a_connection_string(commands: Commands) -> None:
    commands.text("queue", "create", "keyed")
    made = commands.json("access", "create", "shop", "--right", "send", "--entity", "keyed")
    text = commands.text("access", "show", "shop", "--entity", "keyed")
    assert made["connection_string"] in text
    assert made["connection_string"].endswith("EntityPath=keyed")
    assert run(["send", "keyed", "x", "--connection-string", made["connection_string"]]) == 0
    assert run(["send", "keyed", "x", "--connection-string", made["secondary_connection_string"]]) == 0
    assert run(["receive", "keyed", "--connection-string", made["connection_string"]]) == 1
    commands.capsys.readouterr()
    commands.text("queue", "delete", "keyed", "--yes")


def test_a_token_is_made_for_curl_and_prometheus(commands: Commands) -> None:
    from urllib.request import Request, urlopen

    endpoint = f"http://127.0.0.1:{commands.served.ready['http_port']}"
    signed = commands.text("token", "--ttl", "5m").strip()
    header = commands.text("token", "--format", "header").strip()
    assert header.startswith("Authorization: SharedAccessSignature sr=")
    credentials = commands.text("token", "--format", "credentials").strip()
    for text in (signed, header.partition(": ")[2], f"SharedAccessSignature {credentials}"):
        with urlopen(Request(f"{endpoint}/$stores", headers={"Authorization": text})) as answer:
            assert answer.status == 200
    commands.text("token", "--ttl", "0s", code=2)


def test_the_root_key_is_replaced_while_the_namespace_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = "RootManageSharedAccessKey"
    with serve(tmp_path, "primary") as own:
        commands = Commands(own, capsys)
        commands.text("access", "regenerate", root, "--key", "secondary")
        before = commands.json("access", "show", root)
        after = commands.json("access", "regenerate", root, "--key", "primary")
        assert after["primary_key"] != before["primary_key"]
        assert after["secondary_key"] == before["secondary_key"]
        # Commands on this machine find the new key by themselves, the second key works on, the old one is gone.
        commands.text("queue", "list")
        assert run(["queue", "list", "--connection-string", before["secondary_connection_string"]]) == 0
        assert run(["queue", "list", "--connection-string", before["connection_string"]]) == 1
        own.stop()
    with serve(tmp_path, "primary") as own:
        capsys.readouterr()
        again = Commands(own, capsys).json("access", "show", root)
        assert (again["primary_key"], again["secondary_key"]) == (after["primary_key"], after["secondary_key"])
        own.stop()
