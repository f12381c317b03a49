"""What is printed reaches every terminal and file, whatever encoding it has."""

import contextlib
import io
import json

import pytest
from rich.console import Console

from twinbus.__main__ import main
from twinbus.cli.output import Output, json_text, rich_table

TEXT = "grüße ☃"


def output_of(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)


def printed(output: io.TextIOWrapper) -> bytes:
    output.seek(0)
    return bytes(output.buffer.read())


def test_characters_that_the_terminal_does_not_have_are_spelt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["twinbus", "cost", "estimate"])
    with contextlib.redirect_stdout(output_of("ascii")) as output, pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert b"10 backlog queues \\xd7 1 syphon" in printed(output)


def test_json_has_every_character_in_any_encoding() -> None:
    with contextlib.redirect_stdout(output_of("ascii")) as output:
        Output(as_json=True).record({"body": TEXT})
    assert json.loads(printed(output)) == {"body": TEXT}


def test_json_is_as_readable_as_the_encoding_allows() -> None:
    with contextlib.redirect_stdout(output_of("utf8")):
        assert json_text([TEXT]) == f'["{TEXT}"]'


def test_a_table_that_is_too_wide_is_folded_and_nothing_of_it_cut_off() -> None:
    key = "0123456789" * 5
    console = Console(width=30, file=io.StringIO())
    with console.capture() as captured:
        console.print(rich_table(("name", "primary_key"), [{"name": "sender", "primary_key": key}]))
    lines = captured.get().splitlines()[1:]
    assert "".join(line.removeprefix("sender").strip() for line in lines) == key


@pytest.mark.parametrize("body", ["a\\[/b]", "\\[red]a", "[/]", ":bomb:", "a\\", "a\nb"])
def test_a_body_is_printed_as_it_is_whatever_stands_in_it(body: str) -> None:
    with contextlib.redirect_stdout(output_of("utf8")) as stdout:
        output = Output(as_json=False)
        output.table(("body",), [{"body": body}])
        output.record({"body": body})
        output.done(body)
    parts = printed(stdout).decode().split()
    assert "".join(parts) == ("body" + "".join(body.split())) * 2 + "".join(body.split())


def test_no_body_controls_the_terminal() -> None:
    with contextlib.redirect_stdout(output_of("utf8")) as stdout:
        Output(as_json=False).table(("body",), [{"body": "a\x1b[2Jb\rc\x9bd\x00"}])
    assert printed(stdout).decode().split() == ["body", "a\\x1b[2Jb\\x0dc\\x9bd\\x00"]
