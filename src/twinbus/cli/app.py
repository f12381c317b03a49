"""The `twinbus` command: puts the groups together and turns every failure into one line and an exit code.

0 it worked    1 it did not    2 it was not understood    130 Ctrl-C
"""

import html
import io
import logging
import os
import re
import sys
from importlib import metadata
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from twinbus.cli import rehearse, syphon
from twinbus.cli.cost import commands as cost
from twinbus.cli.entities import queues, rules, subscriptions, topics
from twinbus.cli.messages import bulk_messages
from twinbus.cli.messages import commands as messages
from twinbus.cli.namespaces import access, doctor, faults, serving, stores
from twinbus.cli.namespaces import definitions as namespaces
from twinbus.cli.pipeline import commands as pipeline
from twinbus.errors import ArgumentError, MessagingError

WRONG_USE, FAILED, INTERRUPTED = 2, 1, 130
TRACEBACK_VARIABLE = "TWINBUS_TRACEBACK"
PLAIN_ANSWER = "WRONG_VERSION_NUMBER"  # what OpenSSL makes of it
DETAIL = re.compile(r"(?:.*<Detail>)?(?:SubCode=\d+\. )?(.*?)(?: TrackingId:.*)?", re.DOTALL)

app = typer.Typer(
    name="twinbus",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A message bus that speaks Service Bus: serve namespaces, manage entities, move messages.",
)
serving.register(app)
app.add_typer(namespaces.app, name="namespace")
app.add_typer(stores.app, name="store")
app.add_typer(faults.app, name="fault")
app.add_typer(access.app, name="access")
app.add_typer(queues.app, name="queue")
app.add_typer(topics.app, name="topic")
app.add_typer(subscriptions.app, name="subscription")
app.add_typer(rules.app, name="rule")
app.add_typer(cost.app, name="cost")
app.add_typer(pipeline.app, name="pipeline")
messages.register(app)
bulk_messages.register(app)
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
    """What holds for every command."""


def main() -> NoReturn:
    _prepare_process()
    sys.exit(run(sys.argv[1:]))


def _prepare_process() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Messages hold any text, terminals and files may be of another encoding: what does not fit is spelt out.
        sys.stdout.reconfigure(errors="backslashreplace")
    # The official client logs what it raises as well, with its traceback.
    logging.getLogger("azure").setLevel(logging.CRITICAL + 1)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        result = app(arguments, prog_name="twinbus", standalone_mode=False)
    except TyperException as wrong:
        return _complain(wrong.format_message() or "Nothing to do. Try --help.", wrong.exit_code)
    except ArgumentError as wrong:
        return _complain(str(wrong), WRONG_USE)
    except MessagingError as failure:
        return _complain(str(failure), FAILED)
    except BrokenPipeError:
        # Whoever read our output has gone; nothing more can be said to it, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as failure:
        return _complain(str(failure), FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as broken:
        said = _said_by_client(broken)
        if said is not None:
            return _complain(said, FAILED)
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        return _complain(f"Something broke: {broken!r}. Set {TRACEBACK_VARIABLE}=1 to see where.", FAILED)
    return result if isinstance(result, int) else 0


def _complain(text: str, code: int) -> int:
    print("twinbus: " + " ".join(text.split()), file=sys.stderr)
    return code


def _said_by_client(failure: Exception) -> str | None:
    """What the server said, without the codes that are for programs; None for what is no error of the official client.

    Imported here: the client takes longer to import than most commands take to run, and many do not need it.
    """
    from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError
    from azure.servicebus.exceptions import ServiceBusConnectionError

    if not isinstance(failure, AzureError):
        return None
    text = str(failure)
    if isinstance(failure, HttpResponseError):
        found = DETAIL.fullmatch(text)
        assert found is not None
        return html.unescape(found[1])
    # The SDK's own text leaves out what the server said when it refused a token or a link.
    inner = getattr(failure, "inner_exception", None)
    said = getattr(inner, "status_description", None) or getattr(inner, "description", None)
    told = said.decode(errors="replace") if isinstance(said, bytes) else str(said or text)
    if PLAIN_ANSWER in told:
        return "The namespace answers without TLS there. Add UseDevelopmentEmulator=true to its connection string."
    is_nobody_there = isinstance(failure, ServiceRequestError | ServiceBusConnectionError)
    return f"{told.rstrip('.')}. Is the namespace running?" if is_nobody_there else told
