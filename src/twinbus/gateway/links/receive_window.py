"""Which receives of a link ended without a message: credit, deliveries and settlements in, empty receives out.

    closed --credit--> open, nothing yet --delivery--> open, served --credit--> open, nothing yet
                          |  ^-- new credit: the last receive was empty, and this is the next
                          '-- drain, or the end of the link: it was empty

Credit that only replaces what deliveries used up is not a new receive. It is recognized by being no more than what was settled
since the last credit or, in receive-and-delete, where nothing is settled, than what was delivered and not replaced.
"""


class ReceiveWindow:
    __slots__ = ("_credit", "_dealt_with", "_deletes", "_is_open", "_is_served")

    def __init__(self, *, deletes: bool) -> None:
        self._deletes = deletes
        self._is_open = False
        self._is_served = False
        self._credit = 0  # what is left, as of the last credit and delivery; below 0 means nothing
        self._dealt_with = 0  # messages whose credit may be replaced

    def told(self, credit: int, *, drain: bool) -> bool:
        """The client said how much credit the link has from now on. True: the previous receive was empty.

        `drain`: what is there is delivered at once, and `ended` follows.
        """
        if drain:
            self._is_open = self._is_open or credit > 0
            return False
        raised = credit - max(0, self._credit)
        is_top_up = 0 < raised <= self._dealt_with
        was_empty = self._is_open and not self._is_served and not is_top_up
        self._credit = credit
        self._dealt_with = self._dealt_with - raised if self._deletes and is_top_up else 0
        self._is_open = credit > 0
        self._is_served = False
        return was_empty

    def delivered(self, count: int) -> None:
        self._is_served = True
        self._credit -= count
        if self._deletes:
            self._dealt_with += count

    def settled(self, count: int) -> None:
        self._dealt_with += count

    def ended(self) -> bool:
        """The client took the credit back, or the link is gone. True: the last receive was empty."""
        was_empty = self._is_open and not self._is_served
        self._is_open = self._is_served = False
        self._credit = self._dealt_with = 0
        return was_empty
