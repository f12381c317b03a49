"""When a fragment has to look for scheduled messages that are due and for messages that have expired.

The store finds them; here is only when to ask. One question of a kind is under way at a time, so that no row is found
twice. Asking sets the time to NEVER, and rows that are added meanwhile lower it again: the answer knows the next time
of what lay in the store when the question was asked, and the earlier of the two counts.
"""

from collections.abc import Sequence

from twinbus.clock import NEVER, Millis
from twinbus.store.changes import StoredMessage


class Agenda:
    __slots__ = ("has_expiring", "is_activating", "is_expiring", "next_due", "next_expiry")

    def __init__(self, next_due: Millis = NEVER, next_expiry: Millis = NEVER) -> None:
        self.next_due = next_due
        self.next_expiry = next_expiry
        self.has_expiring = next_expiry < NEVER
        """False: no message here has ever had an end, so hand-over need not look at them."""
        self.is_activating = self.is_expiring = False

    def will_be_due(self, when: Millis) -> None:
        """A scheduled message becomes active then."""
        if when < self.next_due:
            self.next_due = when

    def add_active(self, rows: Sequence[StoredMessage]) -> None:
        next_expiry = self.next_expiry
        for row in rows:
            if row.expires_at < next_expiry:
                next_expiry = row.expires_at
        self.will_expire(next_expiry)

    def add_scheduled(self, rows: Sequence[StoredMessage]) -> None:
        for row in rows:
            self.will_be_due(row.due_at)

    def start_activating(self, now: Millis) -> bool:
        """True if the store has to be asked what is due."""
        if self.is_activating or self.next_due > now:
            return False
        self.is_activating, self.next_due = True, NEVER
        return True

    def stop_activating(self, next_due: Millis) -> None:
        """The store has answered. If it fails instead, a new agenda replaces this one."""
        self.is_activating = False
        self.will_be_due(next_due)

    def will_expire(self, when: Millis) -> None:
        """An active message ends then."""
        if when < self.next_expiry:
            self.next_expiry = when
            self.has_expiring = True

    def start_expiring(self, now: Millis) -> bool:
        """True if the store has to be asked what has expired."""
        if self.is_expiring or self.next_expiry > now:
            return False
        self.is_expiring, self.next_expiry = True, NEVER
        return True

    def stop_expiring(self, next_expiry: Millis) -> None:
        self.is_expiring = False
        self.will_expire(next_expiry)
