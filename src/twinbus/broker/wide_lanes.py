"""The lanes of one namespace that may keep more in memory than others (`twinbus.broker.fragment.lane`): a few at a time."""

from weakref import WeakSet

WIDE_LANES_MAX = 4


class WideLanes:
    """One that is dropped makes room for another."""

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes: WeakSet[object] = WeakSet()

    def __len__(self) -> int:
        return len(self._lanes)

    def admit(self, lane: object) -> bool:
        if len(self._lanes) >= WIDE_LANES_MAX:
            return False
        self._lanes.add(lane)
        return True

    def dismiss(self, lane: object) -> None:
        self._lanes.discard(lane)
