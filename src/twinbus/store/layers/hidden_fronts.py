"""Up to which time all rows of the tables are hidden: by fragment, and by what the time means.

Rows whose time has come are removed or activated in layers, while the tables have them until the next checkpoint. Without this, every
look for more would pass over all that are already gone. Hidden rows stay hidden until the layer that hides them is in the tables, and
then they are gone there too. What a checkpoint adds may lie before the front, which goes back to it then.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from twinbus.clock import Millis
from twinbus.store.changes import FragmentKey
from twinbus.store.layers.overlay import FragmentOverlay, Layer

TimesOf: TypeAlias = Callable[[FragmentOverlay, Callable[[int], bool]], Iterator[tuple[Millis, int]]]
"""`FragmentOverlay.due` or `FragmentOverlay.mortal`."""


@dataclass(slots=True)
class HiddenFront:
    position: int  # of the tables: the newest segment that it takes into account
    at: Millis = -1
    number: int = 0


class HiddenFronts:
    """Of one store."""

    def __init__(self) -> None:
        self._fronts: dict[FragmentKey, dict[TimesOf, HiddenFront]] = {}

    def __len__(self) -> int:
        return len(self._fronts)

    def get(self, times_of: TimesOf, fragment: FragmentKey, position: int, layers: Sequence[Layer]) -> HiddenFront:
        """For tables at this position. `layers`: those of the store, bottom first, whether they are in the tables yet or not."""
        fronts = self._fronts.setdefault(fragment, {})
        front = fronts.get(times_of)
        if front is None:
            front = fronts[times_of] = HiddenFront(position)
        elif front.position < position:
            _go_back(front, times_of, fragment, position, layers)
        return front

    def written(self, position: int, layers: Sequence[Layer]) -> None:
        """Layers up to this position are in the tables, and will be dropped."""
        for fragment, fronts in self._fronts.items():
            for times_of, front in fronts.items():
                if front.position < position:
                    _go_back(front, times_of, fragment, position, layers)

    def forget(self, fragment: FragmentKey) -> None:
        self._fronts.pop(fragment, None)


def _go_back(
    front: HiddenFront, times_of: TimesOf, fragment: FragmentKey, position: int, layers: Sequence[Layer]
) -> None:
    """To the first row that the layers between the front's position and this one have added."""
    overlays = [(layer.segment.number, layer.fragments[fragment]) for layer in layers if fragment in layer.fragments]
    for level, (number, overlay) in enumerate(overlays):
        if front.position < number <= position:
            hidden = partial(_is_in_any, [each.removed for _, each in overlays[level + 1 :]])
            first = next(times_of(overlay, hidden), None)
            if first is not None and first <= (front.at, front.number):
                front.at, front.number = first[0], 0
    front.position = position


def _is_in_any(removed: Sequence[set[int]], number: int) -> bool:
    return any(number in each for each in removed)
