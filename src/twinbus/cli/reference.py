"""The reference page of the command line, generated from its help: nothing in, Markdown out."""

import sys
from collections.abc import Iterator
from typing import Any

import typer

from twinbus.cli.app import app
from twinbus.cli.help_pages import examples_of, help_of, names_of, usage_of

HEAD = """# The command line

Generated from `--help` by `make docs`: change the help texts, not this page. Every command that prints tables prints JSON
with `--json`. Exit codes: 0 it worked, 1 it failed, 2 the command line was wrong, 130 Ctrl-C.
"""


def reference() -> str:
    return HEAD + "".join(_sections("twinbus", typer.main.get_command(app)))


def _sections(path: str, command: Any) -> Iterator[str]:
    """One section for each command, in the order of the help."""
    if not hasattr(command, "commands"):
        yield _section(path, command)
        return
    for name, below in command.commands.items():
        yield from _sections(f"{path} {name}", below)


def _section(path: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = " ".join([path, *map(usage_of, arguments), "[OPTIONS]"])
    lines = [f"\n## {path}\n", f"{command.help.strip()}\n", f"```\n{usage}\n```\n"]
    rows = [(f"`{each.name.upper()}`", help_of(each)) for each in arguments]
    rows += [(f"`{names_of(each)}`", help_of(each)) for each in options]
    lines.append("| | |\n|---|---|")
    lines += [f"| {left.replace('|', chr(92) + '|')} | {right.replace('|', chr(92) + '|')} |" for left, right in rows]
    examples = examples_of(path)
    if examples:
        lines.append("\n```\n" + "\n".join(examples) + "\n```")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
