"""Deliveries whose settlement is awaited, by delivery-id: dispositions' ranges in, deliveries out.

Ids are serial numbers, ranges may be far wider than what is known here, and may wrap.
"""

from typing import Generic, TypeVar

from twinbus.amqp.codec.serial_number import add, distance, span

L = TypeVar("L")


class Unsettled(dict[int, tuple[L, bytes]], Generic[L]):
    """delivery-id to (link, delivery-tag), oldest first."""

    def known(self, first: int, last: int) -> list[int]:
        """The ids of first..last that are here, in order."""
        count = span(first, last)
        if count <= len(self):
            return [number for step in range(count) if (number := add(first, step)) in self]
        return [number for number in self if distance(first, number) >= 0 and distance(number, last) >= 0]

    def forget(self, link: L) -> None:
        for number in [number for number, entry in self.items() if entry[0] is link]:
            del self[number]
