"""A message broker: a set of fragments and the one messaging store that remembers them."""

from random import Random

from twinbus.broker.store_port import StorePort
from twinbus.clock import Clock, Millis
from twinbus.errors import StoreUnavailable


class MessageBroker:
    """Decides at once, on the loop thread; what it decided takes effect when the store has it.

    `clock` is read when the store answers, for there the caller's time has passed; `random` salts lock tokens.
    """

    index: int
    is_available: bool

    def __init__(self, index: int, port: StorePort, clock: Clock, random: Random) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Load what the store remembers; available when that is here. Entities are to be restored before."""
        raise NotImplementedError

    def tick(self, now: Millis) -> Millis:
        """Do what has become due; returns when to call again."""
        raise NotImplementedError

    def store_lost(self, error: StoreUnavailable) -> None:
        raise NotImplementedError

    def store_returned(self) -> None:
        raise NotImplementedError
