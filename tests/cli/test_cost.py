"""`twinbus cost` on the command line: figures, formulas, and mistakes in one line."""

import json
from pathlib import Path

import pytest

from twinbus.cli.app import run


def test_an_estimate_shows_the_idle_receives_and_the_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "estimate"]) == 0
    printed = capsys.readouterr().out
    assert "10 backlog queues × 1 syphon × 3,600 s / 900 s of poll" in printed
    row = next(line.split() for line in printed.splitlines() if line.startswith("idle receives"))
    assert row[2:5] == ["40", "960", "28,800"]
    assert "an example, not today's prices" in printed


def test_an_estimate_as_json_has_operations_and_money_of_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "estimate", "--rate", "2", "--outage", "11m", "--syphons", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    lines = {line["name"]: line for line in document["lines"]}
    assert lines["idle receives"]["days_30"] == {"operations": 57_600, "bytes": 0, "money": "0.04608"}
    assert lines["sends home"]["in_outage"] == {"operations": 1_200, "bytes": 1_228_800, "money": "0.00096"}
    assert document["failed_over_messages"] == 1_200
    assert len(document["warnings"]) == 1
    assert document["prices"]["is_example"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--poll", "soon"], "--poll: 'soon' is not a duration"),
        (["--outage", "never"], "--outage: 'never' is not a length"),
        (["--rate", "fast"], "--rate: 'fast' is not a number of messages per second"),
        (["--queues", "0"], "A pair needs at least one backlog queue."),
        (["--plan", "gold"], "has no plan 'gold'"),
        (["--prices", "nowhere.toml"], "The price sheet nowhere.toml cannot be read"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cost", "estimate", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_example_sheet_can_be_written_edited_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    assert run(["cost", "prices", "--write", str(file)]) == 0
    file.write_text(file.read_text().replace("per_million = 0.80", "per_million = 8000"))
    capsys.readouterr()
    assert run(["cost", "estimate", "--prices", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lines"][0]["hour"]["money"] == "0.32"
    assert run(["cost", "prices", "--write", str(file)]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_price_sheet_is_shown_with_its_tiers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "prices", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [tier["per_million"] for tier in document["tiers"] if tier["plan"] == "standard"] == [
        "0.00",
        "0.80",
        "0.50",
        "0.20",
    ]
