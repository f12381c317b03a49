"""Which syphon brings the backlog home."""

from twinbus.pipeline.java import JavaMissing
from twinbus.pipeline.session import SparkMissing
from twinbus.rehearsal.drain import Drain, ProcessDrain
from twinbus.rehearsal.settings import Engine
from twinbus.rehearsal.spark_drain import SparkDrain


def choose_engine(wanted: Engine | None) -> tuple[Engine, Drain]:
    """Spark for None, or the process where Spark cannot run. What is wanted by name and cannot run is an error."""
    if wanted is Engine.PROCESS:
        return Engine.PROCESS, ProcessDrain()
    try:
        return Engine.SPARK, SparkDrain()
    except (SparkMissing, JavaMissing):
        if wanted is not None:
            raise
    return Engine.PROCESS, ProcessDrain()
