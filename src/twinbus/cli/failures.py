"""What went wrong, as one line for the person at the keyboard and an exit code.

0 it worked    1 it failed    2 the command line was wrong    130 Ctrl-C
"""

import html
import os
import re
import sys

import typer
from typer.exceptions import TyperException

from twinbus.__main__ import INTERRUPTED
from twinbus.client.trust import CA_FILE_VARIABLE
from twinbus.errors import ArgumentError, MessagingError

FAILED, WRONG_USE = 1, 2
TRACEBACK_VARIABLE = "TWINBUS_TRACEBACK"
PLAIN_ANSWER = "WRONG_VERSION_NUMBER"  # OpenSSL's word for an answer without TLS
NOT_TRUSTED = "CERTIFICATE_VERIFY_FAILED"
DETAIL = re.compile(r"(?:.*<Detail>)?(?:SubCode=\d+\. )?(.*?)(?: TrackingId:.*)?", re.DOTALL)


class CommandFailed(MessagingError):
    """The command line was right and the command did not work."""


def report_failure(failure: BaseException) -> int:
    """Print the line and return the exit code. Raises again what is a bug, if the environment asks for its traceback."""
    match failure:
        case TyperException():
            return _complain(failure.format_message() or "Nothing to do. Try --help.", failure.exit_code)
        case ArgumentError():
            return _complain(str(failure), WRONG_USE)
        case BrokenPipeError():
            # The reader of our output has gone; nothing more can be written to it, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        case MessagingError() | OSError():
            return _complain(str(failure), FAILED)
        case KeyboardInterrupt() | typer.Abort():
            return INTERRUPTED
        case Exception():
            return _report_other(failure)
    raise failure


def _report_other(failure: Exception) -> int:
    text = _text_of_client_error(failure)
    if text is not None:
        return _complain(text, FAILED)
    if os.environ.get(TRACEBACK_VARIABLE):
        raise failure
    return _complain(f"Unexpected error: {failure!r}. Set {TRACEBACK_VARIABLE}=1 to see the traceback.", FAILED)


def _complain(text: str, code: int) -> int:
    print("twinbus: " + " ".join(text.split()), file=sys.stderr)
    return code


def _text_of_client_error(failure: Exception) -> str | None:
    """The server's text, without the codes for programs; None if it is not an error of the official client.

    Imported here: importing the client takes longer than most commands take to run, and many do not need it.
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
    # The SDK's own text omits what the server said when it refused a token or a link.
    inner = getattr(failure, "inner_exception", None)
    said = getattr(inner, "status_description", None) or getattr(inner, "description", None)
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said or text)
    if PLAIN_ANSWER in text:
        return "The namespace answers without TLS there. Add UseDevelopmentEmulator=true to its connection string."
    if NOT_TRUSTED in text:
        return f"{text.rstrip('.')}. Name the PEM file to trust with --ca-file or {CA_FILE_VARIABLE}."
    is_unreachable = isinstance(failure, ServiceRequestError | ServiceBusConnectionError)
    return f"{text.rstrip('.')}. Is the namespace running?" if is_unreachable else text
