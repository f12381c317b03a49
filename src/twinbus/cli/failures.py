"""What went wrong, as one line for the person at the keyboard and an exit code.

0 it worked    1 it failed    2 the command line was wrong    130 Ctrl-C
"""

import os
import sys

import typer
from typer.exceptions import TyperException

from twinbus.__main__ import INTERRUPTED
from twinbus.client.stock_errors import text_of_client_error
from twinbus.errors import ArgumentError, MessagingError

FAILED, WRONG_USE = 1, 2
PYDANTIC_PREFIX = "Value error, "
PYDANTIC_BOUND = "Input should be "
PYDANTIC_WORDS = {
    "less than or equal to": "at most",
    "greater than or equal to": "at least",
    "a valid integer, unable to parse string as an integer": "a whole number",
    "a valid number, unable to parse string as a number": "a number",
    "a valid boolean, unable to interpret input": "true or false",
}
WRONG_OPTION = "Invalid value for "
TRACEBACK_VARIABLE = "TWINBUS_TRACEBACK"


class CommandFailed(MessagingError):
    """The command line was right and the command did not work."""


def report_failure(failure: BaseException) -> int:
    """Print the line and return the exit code. Raises again what is a bug, if the environment asks for its traceback."""
    match failure:
        case typer.BadParameter() if failure.param is not None and failure.message:
            return _complain(_wrong_value(failure), failure.exit_code)
        case TyperException():
            return _complain(failure.format_message() or "Nothing to do. Try --help.", failure.exit_code)
        case ArgumentError():
            return _complain(str(failure), WRONG_USE)
        case UnicodeEncodeError():
            # The command line and the names of files are bytes, which are text in most cases.
            return _complain(f"{failure.object!r} is not text in UTF-8.", WRONG_USE)
        case BrokenPipeError():
            _give_up_output()  # whoever read it has gone
            return FAILED
        case MessagingError():
            return _complain(str(failure), FAILED)
        case OSError():
            return _complain(_refusal(failure), FAILED)
        case KeyboardInterrupt() | typer.Abort():
            return INTERRUPTED
        case Exception():
            return _report_other(failure)
    raise failure


def _refusal(failure: OSError) -> str:
    """Of the system, which numbers its errors for programs."""
    try:
        print(end="", flush=True)
    except OSError as refused:
        _give_up_output()
        return f"The output cannot be written: {refused.strerror}. What the command changed stays changed."
    if failure.strerror is None:
        return str(failure)
    place = "" if failure.filename is None else f"{failure.filename}: "
    advice = " Run the command as a user who may, such as the owner." if isinstance(failure, PermissionError) else ""
    return f"{place}{failure.strerror}.{advice}"


def _give_up_output() -> None:
    """Nothing more can be written to it, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wrong_value(wrong: typer.BadParameter) -> str:
    origin, text = _origin(wrong), wrong.message.removeprefix(PYDANTIC_PREFIX)
    if not text.startswith(PYDANTIC_BOUND):
        return f"{origin}: {text}"
    wanted = text.removeprefix(PYDANTIC_BOUND)
    for theirs, ours in PYDANTIC_WORDS.items():
        wanted = wanted.replace(theirs, ours)
    return f"{origin.removeprefix(WRONG_OPTION)} must be {wanted}."


def _origin(wrong: typer.BadParameter) -> str:
    """Where the value was given, so that it is looked for there: on the command line, in the environment or in a file."""
    context, given = wrong.ctx, wrong.param
    assert given is not None
    source = None if context is None or given.name is None else context.get_parameter_source(given.name)
    match source.name if source is not None else "":
        case "ENVIRONMENT":
            return f"The variable {given.envvar}"
        case "DEFAULT_MAP" if context is not None:
            return f"{context.params.get('config')}: '{given.name}'"
        case _:
            return f"{WRONG_OPTION}'{given.opts[0] if given.param_type_name == 'option' else given.name}'"


def _report_other(failure: Exception) -> int:
    text = text_of_client_error(failure)
    if text is not None:
        return _complain(text, FAILED)
    if os.environ.get(TRACEBACK_VARIABLE):
        raise failure
    return _complain(f"Unexpected error: {failure!r}. Set {TRACEBACK_VARIABLE}=1 to see the traceback.", FAILED)


def _complain(text: str, code: int) -> int:
    print("twinbus: " + " ".join(text.split()), file=sys.stderr)
    return code
