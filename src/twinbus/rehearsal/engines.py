"""Which syphon brings the backlog home."""

from twinbus.rehearsal.drain import Drain, ProcessDrain
from twinbus.rehearsal.settings import Engine


def best_engine() -> Engine:
    """Spark where it is installed."""
    from twinbus.rehearsal.spark_drain import spark_is_there

    return Engine.SPARK if spark_is_there() else Engine.PROCESS


def drain_of(engine: Engine) -> Drain:
    if engine is Engine.PROCESS:
        return ProcessDrain()
    from twinbus.rehearsal.spark_drain import SparkDrain

    return SparkDrain()
