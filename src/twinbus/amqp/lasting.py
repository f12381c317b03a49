"""What stays in memory of a peer's frames for as long as its connection, session or link: open, begin and attach.

There may be ten thousand of them, and a frame of 64 KB with lists of lists takes four megabytes once it is read. So they have a size,
and so many elements in all of their lists and maps; a stranger has little for all of its own together.

The deliveries that a peer left unsettled on a link that it lost, and names when it attaches it again, do not stay: no link here has
state to resume, and our attach says so by naming none (section 2.6.13). They may be as many as a frame holds.
"""

from dataclasses import fields, replace

from twinbus.amqp.codec.composites import Composite, encode_composite
from twinbus.amqp.codec.performatives import Attach, Begin, Open, Performative
from twinbus.amqp.codec.types import Array, Described
from twinbus.amqp.errors import RESOURCE_LIMIT_EXCEEDED, ConnectionFault

SIZE_MAX = 16 * 1_024
ELEMENTS_MAX = 128
STRANGER_SIZE_MAX = 16 * 1_024


class Lasting:
    """Of one connection."""

    __slots__ = ("_stranger_size", "is_stranger")

    def __init__(self) -> None:
        self.is_stranger = False
        self._stranger_size = 0

    def kept(self, performative: Performative, size: int) -> Performative:
        """What stays of one that has so many bytes. Raises ConnectionFault if there is no room for it."""
        if not isinstance(performative, Open | Begin | Attach):
            return performative
        kept, kept_size = performative, size
        if isinstance(performative, Attach) and performative.unsettled:
            kept = replace(performative, unsettled=None)
            kept_size = len(encode_composite(kept))
        if kept_size > SIZE_MAX:
            raise _too_much(f"{kept.NAME} has {kept_size} bytes; the limit is {SIZE_MAX}.")
        if (count := _elements(kept)) > ELEMENTS_MAX:
            raise _too_much(f"{kept.NAME} has {count} elements in lists and maps; the limit is {ELEMENTS_MAX}.")
        if self.is_stranger:
            self._stranger_size += size
            if self._stranger_size > STRANGER_SIZE_MAX:
                raise _too_much(
                    f"Without a valid token, open, begin and attach have at most {STRANGER_SIZE_MAX} bytes together. "
                    "Put one on $cbs after connecting."
                )
        return kept


def _too_much(text: str) -> ConnectionFault:
    return ConnectionFault(text, RESOURCE_LIMIT_EXCEEDED)


def _elements(value: object) -> int:
    """In all lists and maps of the value, however they are nested."""
    if isinstance(value, dict):
        return len(value) + sum([_elements(each) for entry in value.items() for each in entry])
    if isinstance(value, list | tuple):
        return len(value) + sum([_elements(each) for each in value])
    if isinstance(value, Array):
        return _elements(value.values)
    if isinstance(value, Described):
        return _elements(value.descriptor) + _elements(value.value)
    if isinstance(value, Composite):
        return sum([_elements(getattr(value, field.name)) for field in fields(value)])
    return 0
