"""Which syphon brings the backlog home."""

import contextlib
from collections.abc import Iterator

from twinbus.rehearsal.drain import Drain, drain_by_process
from twinbus.rehearsal.settings import Engine


def best_engine() -> Engine:
    return Engine.PROCESS


@contextlib.contextmanager
def engine_of(engine: Engine) -> Iterator[Drain]:
    yield drain_by_process
