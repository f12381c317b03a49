"""A command that may be interrupted half-way, and says then where that leaves things."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from twinbus.rehearsal.interruption import ending_signals_interrupt


@contextmanager
def interruptible(state: Callable[[], str]) -> Iterator[None]:
    """Every signal that asks a program to end interrupts it, which is said in a line."""
    try:
        with ending_signals_interrupt():
            yield
    except KeyboardInterrupt:
        typer.echo(f"twinbus: interrupted. {state()}", err=True)
        raise
