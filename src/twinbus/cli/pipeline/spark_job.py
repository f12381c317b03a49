"""Commands that run a Spark job: the options all of them have, the session they run in, and how a signal stops them.

    signal   before the work begins, and in jobs that have no rounds   KeyboardInterrupt, exit code 130
             while it runs                                             the round is finished, then the command ends
             a second one                                              KeyboardInterrupt, exit code 130

Nothing of Spark is imported before a job starts: the other commands need neither it nor Java.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.command import Call
from twinbus.cli.interruption import interruptible
from twinbus.errors import ArgumentError
from twinbus.pipeline.failures import one_line_failures
from twinbus.pipeline.session import LOG_LEVEL_VARIABLE, MASTER_VARIABLE, require_spark, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master", envvar=MASTER_VARIABLE, help="Spark master; local[*] if omitted, sc://… for Spark Connect."
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting, such as spark.driver.memory=4g."),
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write a page with plots of the run to one HTML file.")
]

INTERRUPTED_TEXT = "Completed work is kept."


@contextmanager
def spark_job(name: str, master: str | None, settings: Sequence[str] | None) -> "Iterator[SparkSession]":
    """A session for one command. A session that already runs in this process is used and left running.

    Errors of Spark become one line. Signals that end a program interrupt it in order: the session is stopped.
    """
    with interruptible(lambda: INTERRUPTED_TEXT), _session(name, master, settings) as session:
        yield session


@contextmanager
def _session(name: str, master: str | None, settings: Sequence[str] | None) -> "Iterator[SparkSession]":
    # The command reports errors in one line; Spark would print them as well.
    os.environ.setdefault(LOG_LEVEL_VARIABLE, "off")
    is_ours = not _is_running()
    chosen = _settings(settings or ())
    require_spark()
    _quieten()
    with one_line_failures():
        session = spark_session(f"twinbus {name}", master=master, settings=chosen)
    try:
        with one_line_failures():
            yield session
    finally:
        if is_ours:
            session.stop()


def require_namespace(call: Call) -> None:
    """Before there is a session: Java and Spark take longer to start than it takes to notice that nobody answers.

    Raises ConnectionLost, OperationTimeout or PeerNotTrusted.
    """
    with call.blocking():
        pass


def check_report(file: Path | None) -> None:
    """Before hours of work whose page would have no place. Raises ArgumentError."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise ArgumentError(f"--report {file}: must be a file in an existing folder.")


def check_lake(folder: str) -> None:
    """Raises ArgumentError for an empty name, as of a variable that is not set: below the root of the file system nobody wants a lake."""
    if not folder.strip("/ "):
        raise ArgumentError(f"--lake '{folder}': name a folder.")


def _quieten() -> None:
    """Besides raising errors, PySpark logs a line of JSON for every query it refuses, and py4j a traceback when Ctrl-C
    interrupts it."""
    from pyspark.logger import PySparkLogger

    # py4j uses the root logger as well.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _is_running() -> bool:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False
    return SparkSession.getActiveSession() is not None


def _settings(given: Sequence[str]) -> dict[str, str]:
    settings = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name.startswith("spark."):
            raise ArgumentError(f"--conf {text}: write it like spark.NAME=VALUE.")
        settings[name] = value
    return settings
