"""The reference page of the command line, generated from its help: nothing in, Markdown out."""

import sys
from collections.abc import Iterator
from typing import Any

import typer

from twinbus.cli.app import app

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
    usage = " ".join([path, *(_argument(each) for each in arguments), "[OPTIONS]"])
    lines = [f"\n## {path}\n", f"{command.help.strip()}\n", f"```\n{usage}\n```\n"]
    rows = [(f"`{each.name.upper()}`", each.help or "") for each in arguments]
    rows += [(f"`{_option(each)}`", _option_help(each)) for each in options]
    lines.append("| | |\n|---|---|")
    lines += [f"| {left} | {right} |" for left, right in rows]
    return "\n".join(lines) + "\n"


def _argument(argument: Any) -> str:
    name = argument.name.upper()
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join(option.opts)
    if option.secondary_opts:
        names += " / " + ", ".join(option.secondary_opts)
    if option.is_flag:
        return names
    return f"{names} {option.metavar or option.bare_type().upper()}"


def _option_help(option: Any) -> str:
    text = (option.help or "").rstrip(".")
    default = option.default
    if default is not None and not isinstance(default, bool) and not callable(default):
        text += f" (default {default})" if text else f"default {default}"
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
