"""A page as somebody works through it: its blocks in, run one after the other as they are printed.

    ```          a shell block, if its lines are commands: each is run in a scratch folder, and must end with 0
    ```console   commands behind `$ `; what follows one is what it must print
    ```python    one program for the whole page, with the names that the page assumes
    ```toml      a file, if the page is told which; and always something that parses
    four spaces  like a block without a language

Commands that serve are started, waited for and stopped. What cannot be run is left out by name and with a reason, so that a new
block cannot be forgotten.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from twinbus.cli.app import run

ROOT = Path(__file__).parents[2]
RUN_MAX_S = 400.0
STOP_MAX_S = 45.0
COMMAND = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:twinbus|make|pip|curl|sqlite3|export|sudo|cat|keytool|java|podman|systemctl) ?"
)
SERVING = re.compile(r"\btwinbus (?:up|serve|portal)\b")
PLAIN = re.compile(r"twinbus [^|&;<>$`*()\\]*")
READY = re.compile(r"SharedAccessKey=|The portal is at|Ctrl-C stops")
AGREEMENT = "y\n"
"""What somebody at a terminal answers to a command that asks."""
FREE_PORTS = {f"TWINBUS_{name}_PORT": "0" for name in ("AMQP", "HTTP", "PORTAL")}


@dataclass(frozen=True, slots=True)
class Block:
    line: int
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Its command lines, with lines that end in a backslash joined; none if it is not a shell block."""
        if self.language == "console":
            return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]
        joined = self.text.replace("\\\n", " ")
        lines = [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]
        return lines if self.language in ("", "sh") and lines and all(map(COMMAND.match, lines)) else []

    @property
    def printed(self) -> str:
        """What a console block shows between its commands."""
        if self.language != "console":
            return ""
        return "\n".join(line for line in self.text.splitlines() if line and not line.startswith("$ "))


def blocks_of(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    place = 0
    while place < len(lines):
        start, line = place, lines[place]
        place += 1
        if line.startswith("```"):
            while lines[place] != "```":
                place += 1
            yield Block(start + 1, line[3:], "\n".join(lines[start + 1 : place]) + "\n")
            place += 1
        elif line.startswith("    ") and start and not lines[start - 1]:
            while place < len(lines) and (lines[place].startswith("    ") or not lines[place]):
                place += 1
            yield Block(start + 1, "", inspect.cleandoc("\n".join(lines[start:place]).rstrip()) + "\n")


@dataclass
class Walk:
    """`folder` is the scratch folder; `printed` what the page prints and this machine has otherwise, such as ports."""

    folder: Path
    environment: dict[str, str]
    printed: dict[str, str] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def page(
        self,
        name: str,
        *,
        leaving: Mapping[str, str] = {},
        files: Mapping[str, str] = {},
        names: Mapping[str, Any] = {},
        finding: Mapping[str, int] = {},
    ) -> None:
        """Run the blocks of a page.

        `leaving` has the first line of each block, or a single command, that is not run, and why; `files` the first line of
        each block that is a file, by its name; `names` what Python on the page assumes; `finding` the exit codes of commands
        that report something.
        """
        found = list(blocks_of((ROOT / name).read_text()))
        unused = set(leaving)
        programs: list[str] = []
        for wanted, first in files.items():
            (block,) = [each for each in found if each.text.startswith(first)]
            (self.folder / wanted).write_text(self._here(block.text))
        for block in found:
            first = block.text.partition("\n")[0]
            if first in leaving:
                unused.discard(first)
                continue
            if block.language == "python":
                programs.append(block.text)
            elif block.language in ("toml", "json"):
                (tomllib if block.language == "toml" else json).loads(block.text)
            elif block.commands:
                for command in block.commands:
                    if command in leaving:
                        unused.discard(command)
                        continue
                    self.run(command, block.printed, finding.get(command, 0), f"{name}:{block.line}")
            else:
                assert any(block.text.startswith(first) for first in files.values()), f"{name}:{block.line} is not run"
        assert not unused, f"{name} has no {unused}"
        if programs:
            self._python(name, "\n".join(map(self._here, programs)), names)

    def run(self, command: str, printed: str = "", code: int = 0, where: str = "here") -> str:
        line = self._here(command)
        if SERVING.search(line) and " -h" not in line:
            self._serve(line, where)
            return ""
        if PLAIN.fullmatch(line):
            status, said, errors = self._in_this_process(shlex.split(line, comments=True)[1:])
        else:
            status, said, errors = self._in_a_shell(line)
        assert status == code, f"{where}: {command}\n{said}{errors}"
        assert self._here(printed) in said, f"{where}: {command}\n{said}"
        self.done.append(command)
        return said

    def _in_this_process(self, words: Sequence[str]) -> tuple[int, str, str]:
        """What the shell would do, without the half second that starting Python takes for each command."""
        said, errors = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            contextlib.chdir(self.folder),
            mock.patch.object(sys, "stdin", io.StringIO(AGREEMENT)),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(errors),
        ):
            return run(list(words)), said.getvalue(), errors.getvalue()

    def _in_a_shell(self, line: str) -> tuple[int, str, str]:
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            cwd=self.folder,
            env=self.environment,
            input=AGREEMENT,
            capture_output=True,
            text=True,
            timeout=RUN_MAX_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def _here(self, text: str) -> str:
        for before, after in self.printed.items():
            text = text.replace(before, after)
        return text

    def _serve(self, line: str, where: str) -> None:
        """With ports and data of its own, so that it can be started beside what runs already."""
        own = {**FREE_PORTS, "TWINBUS_DATA": str(self.folder / f"served-{len(self.done)}"), "TWINBUS_STORES": "2"}
        own |= {"TWINBUS_TLS_PORT": "0"} if "--tls" in line and "portal" not in line else {}
        command = f"exec {line}" if line.startswith("twinbus") else line.replace("twinbus ", "exec twinbus ", 1)
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**self.environment, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            said = ""
            while not READY.search(said) and (more := process.stdout.readline()):
                said += more
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=STOP_MAX_S)
            assert READY.search(said), f"{where}: {line}\n{said}{rest}{errors}"
            assert process.returncode == 0, f"{where}: {line}\n{errors}"
        self.done.append(line)

    def _python(self, name: str, program: str, names: Mapping[str, Any]) -> None:
        compiled = compile(program, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.chdir(self.folder):
            running = eval(compiled, dict(names))
            if inspect.iscoroutine(running):
                asyncio.run(running)


def environment_of(folder: Path, **more: str) -> dict[str, str]:
    """That of somebody who has installed twinbus: nothing of this project's settings is there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TWINBUS_")}
    programs = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return {**kept, "PATH": programs, "HOME": str(folder), "COLUMNS": "120", "TWINBUS_METER": "false", **more}


def words_of(line: str) -> Sequence[str]:
    """The words of the first `twinbus` command in a line, without what the shell does with its output."""
    words = shlex.split(line.replace("$(twinbus token --format header)", "x"), comments=True)
    start = next((place for place, word in enumerate(words) if word.endswith("twinbus")), len(words))
    chosen = words[start + 1 :]
    for place, word in enumerate(chosen):
        if word in ("|", ">", "&&", "or"):
            return chosen[:place]
    return chosen
