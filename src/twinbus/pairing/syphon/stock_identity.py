"""What the connection of a stock sender or receiver calls itself, told before it is opened."""

from typing import TypeVar

from twinbus.meter.operation import SYPHON_PRODUCT

USER_AGENT = "user-agent"

T = TypeVar("T")


def as_syphon(stock: T) -> T:
    """Put the syphon's name before the user agent, so that a namespace that counts operations knows whose they are.

    The client is the application's, so its own user agent stays, and the SDK takes no other for a single link. Where
    it keeps its properties elsewhere, the operations are counted as the application's.
    """
    properties = getattr(stock, "_properties", None)
    if isinstance(properties, dict) and isinstance(agent := properties.get(USER_AGENT), str):
        properties[USER_AGENT] = f"{SYPHON_PRODUCT} {agent}"
    return stock
