"""What went wrong in a Spark job, for people: an exception of Spark in, one line out.

Spark wraps what our code raised in a worker into a Python traceback, that into a Java exception with a stack of its
own, and that into a Python exception again. The line that was written for the reader is the last one of the innermost
Python traceback.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import NamedTuple

from twinbus.errors import MessagingError

# The last line of a traceback: the class with its modules, and the text.
_RAISED = re.compile(r"^(?:(?P<module>[\w.]+)\.)?(?P<name>[A-Z]\w*): (?P<text>.+)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
# What py4j makes of a Java exception: a line on its own call, then the class and the text. In a traceback it is one of Python too.
_JAVA_TEXT = re.compile(
    r"^(?:py4j\.[\w.]+: )?An error occurred while calling \S+\n: (?:[\w.$]+: )?(?P<text>.+)$", re.MULTILINE
)
# The last one lies deepest; those of suppressed exceptions are indented.
_JAVA_CAUSE = re.compile(r"^Caused by: [\w.$]+: (?P<text>.+)$", re.MULTILINE)
# [ERROR_CLASS] text SQLSTATE: 12345
_SPARK_TEXT = re.compile(r"^(?:\[[A-Z_.]+\] )?(?P<text>.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)

# All that Spark says when the process that it keeps for the source of a stream is gone.
_SOURCE_GONE = re.compile(
    r"\A\[STREAM_FAILED\] .* terminated with exception: +SQLSTATE: \w+ \(no cause message\)$", re.MULTILINE
)
_SOURCE_GONE_TEXT = (
    "The Python process of the stream's source ended unexpectedly: it was killed, or had no memory left."
)


# Of the process that Spark starts for the source of a stream, and of others.
_WORKER_LATE = re.compile("Python worker (?:failed )?to connect back")
_WORKER_LATE_TEXT = (
    "A Python process that Spark started was not ready in time: the machine is overloaded, or its Python lacks a package "
    "(see the log of Spark)."
)


class JobFailed(MessagingError):
    """A Spark job ended with an error; the text is the reason that lies deepest."""


class Reason(NamedTuple):
    """`is_transient` as the class says that was raised. What is not ours is not; but a Python process may die, or start slowly."""

    text: str
    is_transient: bool


def reason_of(failure: BaseException) -> Reason:
    reason = _reason_of(failure)
    return Reason(_WORKER_LATE_TEXT, True) if _WORKER_LATE.search(reason.text) else reason


def _reason_of(failure: BaseException) -> Reason:
    text = str(failure)
    _, traceback, behind = text.rpartition(_TRACEBACK)
    java = _JAVA_TEXT.search(behind)
    if java is not None:
        return Reason(_java_reason(java["text"], behind), False)
    raised = _RAISED.search(behind) if traceback else None
    if raised is not None:
        return Reason(_without_codes(raised["text"]), _is_transient(raised["module"] or "", raised["name"]))
    if _SOURCE_GONE.search(text):
        return Reason(_SOURCE_GONE_TEXT, True)
    return Reason(_without_codes(text) or type(failure).__name__, False)


def _java_reason(said: str, stack: str) -> str:
    causes = [_without_codes(cause["text"]) for cause in _JAVA_CAUSE.finditer(stack)]
    text = _without_codes(said)
    return f"{text.rstrip('.')}: {causes[-1]}" if causes and causes[-1] not in text else text


def _without_codes(text: str) -> str:
    found = _SPARK_TEXT.search(text)
    return "" if found is None else found["text"].strip()


def _is_transient(module: str, name: str) -> bool:
    if not module.startswith("twinbus."):
        return False
    try:
        kind = getattr(import_module(module), name, None)
    except ImportError:
        return False
    return isinstance(kind, type) and issubclass(kind, MessagingError) and kind.is_transient


@contextmanager
def one_line_failures() -> Iterator[None]:
    """Whatever Spark raises in the block becomes JobFailed. Needs pyspark."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as failure:
        raise JobFailed(reason_of(failure).text) from failure
