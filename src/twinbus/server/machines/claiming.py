"""What a node claims to serve, told to the others, and who serves what as all of them say: own stores and news on lines in, owners out.

Told on every line as a whole, whenever it changes and when the line opens (`OWNED`).
"""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Final

from twinbus.clock import Clock, Millis
from twinbus.cluster.fronts.fronts import Fronts
from twinbus.cluster.lines.line import Line, Topics
from twinbus.cluster.ownership import Owners
from twinbus.server.machines.claims import NOBODY, Claims

OWNED: Final = 65
"""Topic of a line, beside those of `twinbus.cluster.lines.talk`: all stores that a node serves, with their epochs."""


class Claiming:
    """Of one node. `own`: the stores that it serves at this moment, with their epochs; `lines`: those that are open.

    To be made before its fronts: when a line opens, they have to find who is at its other end in doubt.
    """

    def __init__(
        self,
        number: int,
        store_count: int,
        topics: Topics,
        own: Callable[[], Mapping[int, int]],
        lines: Callable[[], Collection[Line]],
        clock: Clock,
    ) -> None:
        self._number = number
        self._claims = Claims(store_count)
        self.owners = Owners([NOBODY] * store_count)
        self._own = own
        self._lines = lines
        self._clock = clock
        self._fronts: Fronts | None = None
        topics.tells[OWNED] = self._told_owned
        topics.when_opened.append(self._line_opened)

    def follow(self, fronts: Fronts) -> None:
        """They are made of `owners`, and have to know of every change."""
        self._fronts = fronts
        fronts.mover.epoch_of = self._claims.epoch_of

    @property
    def own_epochs(self) -> dict[int, int]:
        """As the others were told."""
        return self._claims.of(self._number)

    def claimant_of(self, store: int) -> int:
        """Unlike its owner it is not known any more as soon as the store is about to move."""
        return self._claims.owners()[store]

    def tick(self, now: Millis) -> None:
        self._tell(now)
        self._end_moves(now)

    def serves_more(self) -> None:
        """Others have to know before they are handed anything of it: they would take that for late messages of its former owner."""
        self._tell(self._clock.now())

    def _tell(self, now: Millis) -> None:
        own, before = dict(self._own()), self.own_epochs
        if not self._claims.tell(self._number, own):
            return
        if self._fronts is not None:
            for store in [store for store, epoch in own.items() if before.get(store) != epoch]:
                self._fronts.mover.announce(store, now)
        payload = _written(own)
        for line in self._lines():
            line.tell(OWNED, payload)
        self._changed(now)

    def _line_opened(self, line: Line, now: Millis) -> None:
        assert line.peer is not None
        line.tell(OWNED, _written(self.own_epochs))
        if self._claims.doubt(line.peer.node):
            self._changed(now)

    def _told_owned(self, line: Line, payload: bytes, now: Millis) -> None:
        assert line.peer is not None
        if self._claims.tell(line.peer.node, {int(store): epoch for store, epoch in json.loads(payload).items()}):
            self._changed(now)

    def _changed(self, now: Millis) -> None:
        # A store that moves keeps its former owner until there is another one.
        moving, found = self.owners.moves.stores, self._claims.owners()
        kept = [
            self.owners.of[store] if owner == NOBODY and store in moving else owner for store, owner in enumerate(found)
        ]
        if self.owners.change(kept) and self._fronts is not None:
            self._fronts.owners_changed(now)
        self._end_moves(now)

    def _end_moves(self, now: Millis) -> None:
        if self._fronts is not None and self._fronts.end_moves(self._claims.epoch_of, now):
            self._changed(now)


def _written(epochs: Mapping[int, int]) -> bytes:
    return json.dumps(dict(epochs)).encode()
