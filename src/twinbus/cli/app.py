"""The `twinbus` command: its groups put together, and the run of one command line."""

import io
import logging
import sys
from importlib import metadata
from typing import Annotated, NoReturn

import typer

from twinbus.cli.cost import commands as cost
from twinbus.cli.entities import commands as entities
from twinbus.cli.entities import rules
from twinbus.cli.failures import report_failure
from twinbus.cli.messages import bulk_messages, repair
from twinbus.cli.messages import commands as messages
from twinbus.cli.namespaces import access, certificates, doctor, faults, portal, serving, stores
from twinbus.cli.namespaces import definitions as namespaces
from twinbus.cli.pairs import rehearse, syphon
from twinbus.cli.pipeline import commands as pipeline

app = typer.Typer(
    name="twinbus",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A message bus that speaks Service Bus: serve namespaces, manage entities, move messages.",
)
serving.register(app)
portal.register(app)
app.add_typer(namespaces.app, name="namespace")
app.add_typer(stores.app, name="store")
app.add_typer(faults.app, name="fault")
app.add_typer(access.app, name="access")
app.add_typer(certificates.app, name="certificate")
entities.register(app)
app.add_typer(rules.app, name="rule")
app.add_typer(cost.app, name="cost")
app.add_typer(pipeline.app, name="pipeline")
messages.register(app)
bulk_messages.register(app)
repair.register(app)
syphon.register(app)
rehearse.register(app)
doctor.register(app)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print(metadata.version("twinbus"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options of the program itself."""


def main() -> NoReturn:
    _prepare_process()
    sys.exit(run(sys.argv[1:]))


def _prepare_process() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Messages hold any text, and a terminal or file may have another encoding: what does not fit is escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    # The official client also logs what it raises, with a traceback.
    logging.getLogger("azure").setLevel(logging.CRITICAL + 1)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        result = app(arguments, prog_name="twinbus", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as failure:
        return report_failure(failure)
    return result if isinstance(result, int) else 0
