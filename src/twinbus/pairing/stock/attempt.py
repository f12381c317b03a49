"""One call of a stock sender that somebody is to perform, blocking or awaited, and what became of its time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twinbus.clock import Millis

LAG_SHARE_MAX = 0.5
"""Of a timeout. If this process did not run for more of it, the timeout says nothing about the peer."""
LAG_MIN: Millis = 1_000
"""Less is ordinary on a busy machine, however short the timeout."""


@dataclass(slots=True)
class Attempt:
    """Call `operation` with a stock sender and the timeout. Stock senders of both kinds have the same methods.

    `waited` is how long it waited for this process itself, which is not part of its timeout.
    """

    operation: Callable[[Any, float], Any]
    timeout_s: float
    waited: Millis = 0

    @property
    def lag_max(self) -> Millis:
        return max(LAG_MIN, int(self.timeout_s * 1000 * LAG_SHARE_MAX))

    def is_wanted(self) -> bool:
        """Asked once its turn has come: False if it should go elsewhere by now."""
        return True
