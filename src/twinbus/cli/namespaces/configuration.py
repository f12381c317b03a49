"""Settings of `twinbus serve` and `twinbus up` from a file and from the environment.

command line > environment > file > default

Every option has a variable, TWINBUS_ and its name, and a key in the file. The file is TOML: keys at the top are for both
commands, those of the tables `serve` and `up` for one of them. Paths in it are relative to its folder.
"""

import difflib
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.cli.help_pages import HelpfulCommand
from twinbus.errors import ArgumentError

PREFIX = "TWINBUS_"
CONFIG_VARIABLE = "TWINBUS_CONFIG"
KEY_VARIABLE = "TWINBUS_KEY"
STORE_VARIABLE = "TWINBUS_STORE"
FILE_DEFAULT = Path("twinbus.toml")
TABLES = ("serve", "up")
HIDDEN = "(hidden)"
OTHERS_READ = 0o044
NOT_SETTINGS = ("config", "as_json", "help")


class ConfiguredCommand(HelpfulCommand):
    """Gives every option its variable."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for each in self.settings:
            if each.envvar is None:
                each.envvar = PREFIX + each.name.upper()

    @property
    def settings(self) -> list[Any]:
        return [each for each in self.params if each.param_type_name == "option" and each.name not in NOT_SETTINGS]


def _use_file(ctx: typer.Context, given: Path | None) -> Path | None:
    """Called before the other options are read: what the file says becomes their defaults."""
    if ctx.resilient_parsing:
        return given
    file = given if given is not None else FILE_DEFAULT if FILE_DEFAULT.is_file() else None
    if file is not None:
        assert isinstance(ctx.command, ConfiguredCommand)
        ctx.default_map = read_configuration(file, ctx.command)
    return file


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar=CONFIG_VARIABLE,
        is_eager=True,
        callback=_use_file,
        help=f"TOML file of settings; {FILE_DEFAULT} in the working directory, if there is one.",
    ),
]


def read_configuration(file: Path, command: ConfiguredCommand) -> dict[str, Any]:
    """The settings in the file for this command, by the name of the option. Raises ArgumentError, naming file and key."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as fault:
        raise ArgumentError(f"The configuration {file} cannot be read: {fault.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise ArgumentError(f"{file} is not TOML: {wrong}.") from None
    tables = {name: document.pop(name, {}) for name in TABLES}
    if not all(isinstance(table, dict) for table in tables.values()):
        raise ArgumentError(f"{file}: 'serve' and 'up' must be tables.")
    known = {each.name: each for each in command.settings}
    other = _names_of_both() - set(known)
    chosen: dict[str, Any] = {}
    for table, is_shared in ((document, True), (tables[str(command.name)], False)):
        names: set[str] = set()
        for key, value in table.items():
            name = key.replace("-", "_")
            if name in names:
                raise ArgumentError(f"{file}: '{key}' is set twice, once with '_' and once with '-'. Keep one of them.")
            names.add(name)
            if name not in known and not (is_shared and name in other):
                raise ArgumentError(f"{file}: there is no setting '{key}'.{_similar(name, known)}")
            if name in known:
                chosen[name] = _value(file, key, value, known[name])
    _warn_of_readers(file, chosen)
    return chosen


def _warn_of_readers(file: Path, chosen: dict[str, Any]) -> None:
    has_secret = "key" in chosen or any(without_secret(each) != each for each in chosen.get("store", ()))
    if has_secret and file.stat().st_mode & OTHERS_READ:
        print(
            f"twinbus: {file} contains a secret, and other users of this machine can read it. Run: chmod 600 {file}",
            file=sys.stderr,
        )


def without_secret(store: str) -> str:
    """A connection string as it was given if it holds no secret, else its server and database."""
    try:
        from twinbus.store.postgres.place import has_secret, server_of

        return server_of(store) if has_secret(store) else store
    except (ImportError, ArgumentError):
        # Nobody here can say what is in it.
        return HIDDEN


def _names_of_both() -> set[str]:
    """Settings of either command: one that the other lacks may be at the top of the file."""
    from twinbus.cli.app import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {each.name for table in TABLES for each in commands[table].settings}


def _similar(name: str, known: dict[str, Any]) -> str:
    found = difflib.get_close_matches(name, known, 1)
    return f" Did you mean '{found[0]}'?" if found else ""


def _value(file: Path, key: str, value: Any, option: Any) -> Any:
    described = option.type_descriptor
    if option.is_flag:
        _expect(isinstance(value, bool), file, key, "true or false")
    elif option.multiple:
        is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
        _expect(is_list, file, key, "a list of texts")
    elif described.is_path:
        _expect(isinstance(value, str), file, key, "a text")
        return str(file.parent / value)
    elif described.annotation is int or described.is_ranged:
        _expect(isinstance(value, int) and not isinstance(value, bool), file, key, "a whole number")
    else:
        _expect(isinstance(value, str), file, key, "a text")
    return value


def _expect(is_right: bool, file: Path, key: str, what: str) -> None:
    if not is_right:
        raise ArgumentError(f"{file}: '{key}' must be {what}.")
