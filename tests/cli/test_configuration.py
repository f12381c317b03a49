"""Settings from the command line, the environment and a file, in this order."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from twinbus.cli.app import app, run
from twinbus.rehearsal.namespace_process import CONFIGURATION, VARIABLES

ROOT = Path(__file__).parents[2]
COMMANDS: Any = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, tuple[Any, str]]:
    assert run(["config", "show", *words, "--json"]) == 0
    return {row["setting"]: (row["value"], row["from"]) for row in json.loads(capsys.readouterr().out)}


def test_the_environment_is_stronger_than_the_file_and_both_than_defaults(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "twinbus.toml").write_text(
        'stores = 3\namqp-port = 7000\nqueue = ["a", "b:partitioned"]\n[serve]\ntls = true\n'
    )
    monkeypatch.setenv("TWINBUS_AMQP_PORT", "8000")
    monkeypatch.setenv("TWINBUS_KEY", "secret")
    found = shown(capsys)
    assert found["stores"] == (3, "twinbus.toml")
    assert found["amqp_port"] == (8000, "TWINBUS_AMQP_PORT")
    assert found["queue"] == ("a, b:partitioned", "twinbus.toml")
    assert found["tls"] == (True, "twinbus.toml")
    assert found["http_port"] == (5300, "default")
    assert found["key"] == ("(hidden)", "TWINBUS_KEY")
    # The table of one command is not for the other.
    assert shown(capsys, "up")["tls"] == (False, "default")


def test_the_password_of_a_database_is_never_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {
        "postgresql://bus:geheim@pg{0-3}:5433/bus": "postgresql://pg{0-3}:5433/bus",
        "host=pg dbname=bus sslpassword=geheim": "postgresql://pg/bus",
        "postgresql://bus@pg/bus?passfile=/etc/pass": "postgresql://bus@pg/bus?passfile=/etc/pass",
        "postgresql://bus:geheim@[pg/bus": "(hidden)",
    }
    (here / "twinbus.toml").write_text(f"store = {json.dumps(list(given))}\n")
    assert shown(capsys)["store"] == (", ".join(given.values()), "twinbus.toml")


@pytest.mark.parametrize("secret", ["key = 'geheim'", "store = ['postgresql://bus:geheim@pg/bus']"])
def test_a_file_with_a_secret_that_others_can_read_is_pointed_out(
    here: Path, capsys: pytest.CaptureFixture[str], secret: str
) -> None:
    file = here / "twinbus.toml"
    for text, mode, said in ((secret, 0o644, True), (secret, 0o600, False), ("stores = 2", 0o644, False)):
        file.write_text(text)
        file.chmod(mode)
        assert run(["config", "show"]) == 0
        error = capsys.readouterr().err
        assert ("chmod 600 twinbus.toml" in error) is said
        assert "geheim" not in error


def test_every_setting_has_a_variable_and_a_key(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("serve", "up"):
        for option in COMMANDS[name].settings:
            assert option.envvar.startswith("TWINBUS_"), option.name
    # What is started by another command is configured by that command alone.
    variables = {option.envvar for option in COMMANDS["serve"].settings} | {"TWINBUS_NAMESPACE"}
    assert {f"TWINBUS_{name}" for name in VARIABLES} == variables
    assert CONFIGURATION == "TWINBUS_CONFIG"
    page = (ROOT / "docs/reference/cli.md").read_text()
    assert all(variable in page for variable in variables)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("amqp-prt = 1", "no setting 'amqp-prt'. Did you mean 'amqp_port'?"),
        ("stores = '4'", "'stores' must be a whole number"),
        ("[serve]\ntls = 1", "'tls' must be true or false"),
        ("queue = 'a'", "'queue' must be a list"),
        ("serve = 1", "must be tables"),
        ("amqp-port = 1\namqp_port = 2", "'amqp_port' is set twice"),
        (f"x = {'[' * 10_000}", "is not TOML"),
        ("= 1", "is not TOML"),
        ("stores = 1000", "'stores'"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_that_names_it(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (here / "twinbus.toml").write_text(text)
    assert run(["serve", "primary"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_value_out_of_range_is_looked_for_where_it_was_given(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["serve", "primary", "--amqp-port", "65536"]) == 2
    assert capsys.readouterr().err == "twinbus: '--amqp-port' must be at most 65535.\n"
    (here / "twinbus.toml").write_text("amqp_port = 65536\n")
    assert run(["config", "show"]) == 2
    assert capsys.readouterr().err == "twinbus: twinbus.toml: 'amqp_port' must be at most 65535.\n"
    (here / "twinbus.toml").write_text("amqp_port = 65535\n")
    assert shown(capsys)["amqp_port"] == (65535, "twinbus.toml")
    monkeypatch.setenv("TWINBUS_HTTP_PORT", "-1")
    assert run(["config", "show"]) == 2
    assert capsys.readouterr().err == "twinbus: The variable TWINBUS_HTTP_PORT must be at least 0.\n"


def test_a_file_that_is_named_has_to_exist(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "primary", "--config", "gone.toml"]) == 2
    assert "gone.toml cannot be read" in capsys.readouterr().err


def test_the_file_on_the_page_is_right(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/how-to/configure.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0]
    assert tomllib.loads(text)
    (here / "etc").mkdir()
    (here / "etc/twinbus.toml").write_text(text)
    found = shown(capsys, "--config", "etc/twinbus.toml")
    assert found["entities"] == ("etc/entities.toml", "etc/twinbus.toml")
    assert found["log_level"] == ("warning", "etc/twinbus.toml")
    assert shown(capsys, "up", "--config", "etc/twinbus.toml")["portal"] == (False, "etc/twinbus.toml")


@pytest.mark.parametrize("level", ["info", "error"])
def test_a_namespace_is_served_as_configured_and_logs_as_told(here: Path, level: str) -> None:
    (here / "twinbus.toml").write_text('queue = ["configured"]\nlog_format = "json"\n')
    environment = {"TWINBUS_AMQP_PORT": "0", "TWINBUS_HTTP_PORT": "0", "TWINBUS_STORES": "1", "TWINBUS_METER": "false"}
    with subprocess.Popen(
        [sys.executable, "-m", "twinbus", "serve", "primary", "--data", "data", "--json"],
        env={"PATH": "/usr/bin:/bin", "TWINBUS_LOG_LEVEL": level, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert json.loads(process.stdout.readline())["name"] == "primary"
            if level == "info":
                assert run(["queue", "show", "configured", "--data", "data"]) == 0
        finally:
            process.terminate()
        logged = [json.loads(line) for line in process.stderr]
    assert {line["level"] for line in logged} == ({"info"} if level == "info" else set())
