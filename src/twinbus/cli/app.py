"""The `twinbus` command: the table of its commands, and the run of one command line.

The modules of a command are read when it is used, so that help and completion answer at once.
"""

import io
import logging
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from twinbus.cli.help_pages import Group, HelpfulGroup, Loaded, Row

SECTIONS: dict[str, list[tuple[str, str, str]]] = {
    # The name of a command, the module that registers it, and its line in the help.
    "Serve": [
        ("up", "namespaces.serving", "Serve two namespaces, primary and secondary"),
        ("serve", "namespaces.serving", "Serve one namespace"),
        ("portal", "namespaces.portal", "Show and manage namespaces in a browser"),
        ("config", "namespaces.config_commands", "Show the settings of serve and up, and their origin"),
        ("doctor", "namespaces.doctor", "Check this machine and the namespaces on it"),
    ],
    "Entities": [
        ("queue", "entities.commands", "Create, show, update and delete queues"),
        ("topic", "entities.commands", "Create, show, update and delete topics"),
        ("subscription", "entities.commands", "Create, show, update and delete subscriptions"),
        ("rule", "entities.rules", "Create, show, update and delete the rules of subscriptions"),
        ("namespace", "namespaces.definitions", "Export all entities to a file, and import them"),
    ],
    "Messages": [
        ("send", "messages.commands", "Send messages to a queue or topic"),
        ("receive", "messages.commands", "Receive messages and complete them"),
        ("peek", "messages.commands", "Show messages without receiving them"),
        ("message", "messages.one_by_one", "Show, resend, edit, move, complete, dead-letter single messages"),
        ("purge", "messages.bulk_messages", "Remove all messages"),
        ("repair", "messages.repair", "Move dead letters back, or messages elsewhere, and change them"),
        ("undefer", "messages.bulk_messages", "Make deferred messages active again"),
        ("sessions", "messages.bulk_messages", "Show how many messages wait in which session"),
    ],
    "Access": [
        ("access", "namespaces.access", "Create, show and delete access rules and their keys"),
        ("token", "namespaces.tokens", "Print a shared access signature, for curl and Prometheus"),
        ("certificate", "namespaces.certificates", "The authority that TLS clients must trust"),
    ],
    "Pairs": [
        ("rehearse", "pairs.rehearse", "Rehearse an outage and account for every message"),
        ("syphon", "pairs.syphon", "Move messages from the backlog to where they were sent"),
        ("backlog", "pairs.syphon", "Show how many messages wait in the backlog"),
    ],
    "Data and cost": [
        ("pipeline", "pipeline.commands", "Move and count messages in bulk, on Spark"),
        ("cost", "cost.commands", "Estimate what operations will cost, and explain what they have cost"),
    ],
    "Operate": [
        ("store", "namespaces.stores", "Show and check messaging stores, switch them off and on"),
        ("backup", "namespaces.backups", "Copy a running or stopped namespace to a folder"),
        ("restore", "namespaces.backups", "Create the data folder of a namespace from a backup"),
        ("copy", "namespaces.copying", "Move a namespace between a folder and PostgreSQL"),
        ("node", "namespaces.nodes", "Show the machines that serve a namespace, take one out of service"),
        ("fault", "namespaces.faults", "Cause failures on purpose, to test an application"),
    ],
}
HINT = "twinbus COMMAND -h shows the options of a command and examples."


class RootGroup(HelpfulGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = Loaded({name: _maker(name, module) for lines in SECTIONS.values() for name, module, _ in lines})

    def _command_sections(self) -> Iterator[tuple[str, list[Row]]]:
        for heading, lines in SECTIONS.items():
            yield heading, [(name, summary) for name, _, summary in lines]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        from typer._click.shell_completion import CompletionItem

        names = [(name, summary) for lines in SECTIONS.values() for name, _, summary in lines]
        return [CompletionItem(name, help=summary) for name, summary in names if name.startswith(incomplete)]


app = Group(
    f"A message broker that speaks Service Bus, with paired namespaces. {HINT}",
    name="twinbus",
    cls=RootGroup,
    add_completion=True,
)


def _maker(name: str, module: str) -> Callable[[], Any]:
    def make() -> Any:
        group, commands = Group(""), import_module(f"twinbus.cli.{module}")
        if hasattr(commands, "app"):
            group.add_typer(commands.app, name=name)
        else:
            commands.register(group)
        return typer.main.get_group(group).commands[name]

    return make


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib import metadata

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
        # What finds no room is told here, and not by the interpreter at its end. There may be no output at all.
        print(end="", flush=True)
    except (Exception, KeyboardInterrupt) as failure:
        from twinbus.cli.failures import report_failure

        return report_failure(failure)
    return result if isinstance(result, int) else 0
