"""`twinbus config`: the settings that `serve` and `up` would have, and where each comes from."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.cli.command import JsonOption
from twinbus.cli.help_pages import Group
from twinbus.cli.namespaces.configuration import (
    CONFIG_VARIABLE,
    FILE_DEFAULT,
    HIDDEN,
    KEY_VARIABLE,
    STORE_VARIABLE,
    without_secret,
)
from twinbus.cli.output import Output

app = Group("Show the settings of serve and up, and their origin.")


class Served(Enum):
    SERVE = "serve"
    UP = "up"


@app.command("show")
def show(
    command: Annotated[Served, typer.Argument(help="serve or up.")] = Served.SERVE,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            envvar=CONFIG_VARIABLE,
            help=f"TOML file of settings; {FILE_DEFAULT} in the working directory, if there is one.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show every setting with its value and its origin: environment, file or default."""
    from twinbus.cli.app import app as everything

    chosen = typer.main.get_command(everything).commands[command.value]  # type: ignore[attr-defined]
    given = [] if config is None else ["--config", str(config)]
    name = ["primary"] if command is Served.SERVE else []
    with chosen.make_context(command.value, [*given, *name]) as context:
        rows = [_row(each, context) for each in chosen.settings]
    Output(as_json=as_json).table(("setting", "value", "from", "variable"), rows)


def _row(option: Any, context: Any) -> dict[str, Any]:
    value = context.params[option.name]
    source = context.get_parameter_source(option.name)
    origins = {"ENVIRONMENT": option.envvar, "DEFAULT_MAP": str(context.params["config"])}
    if option.envvar == KEY_VARIABLE and value is not None:
        value = HIDDEN
    elif option.envvar == STORE_VARIABLE:
        value = [without_secret(each) for each in value or ()]
    return {
        "setting": option.name,
        "value": _plain(value),
        "from": origins.get(source.name if source is not None else "", "default"),
        "variable": option.envvar,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or None
    return value if isinstance(value, bool | int | None) else str(getattr(value, "value", value)) or None
