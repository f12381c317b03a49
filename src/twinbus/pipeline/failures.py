"""What went wrong in a Spark job, for people: an exception of Spark in, one line out.

Spark wraps what our code raised in a worker into a Python traceback, that into a Java exception with a stack of its
own, and that into a Python exception again. The line that was written for the reader is the last one of the innermost
Python traceback.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from twinbus.errors import MessagingError

# The last line of a traceback: the class with its modules, and the text.
_RAISED = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*: (?P<text>.+)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
# [ERROR_CLASS] text SQLSTATE: 12345
_SPARK_TEXT = re.compile(r"^(?:\[[A-Z_.]+\] )?(?P<text>.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)


class JobFailed(MessagingError):
    """A Spark job ended with an error; the text is the reason that lies deepest."""


def reason_of(failure: BaseException) -> str:
    text = str(failure)
    _, traceback, behind = text.rpartition(_TRACEBACK)
    if traceback:
        raised = _RAISED.search(behind)
        if raised is not None:
            return raised["text"].strip()
    found = _SPARK_TEXT.search(text)
    return found["text"].strip() if found is not None else type(failure).__name__


@contextmanager
def one_line_failures() -> Iterator[None]:
    """Whatever Spark raises in the block becomes JobFailed. Needs pyspark."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as failure:
        raise JobFailed(reason_of(failure)) from failure
