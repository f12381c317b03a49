"""Locks on messages: leases in memory, never written down (design.md, rule 5).

A token names its fragment in its first byte, so that a settlement finds its way, and is unique by a salt of the
fragment's run and a counter: a token from before a restart matches nothing.

    byte 0  index of the fragment      bytes 1-7  salt      bytes 8-15  counter

Locks end in bursts as they began: one heap entry for all messages handed over together. Entries of locks that were
settled or renewed stay until they are due or until they make up most of the heap.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from random import Random

from twinbus.broker.consumer import TakenMessage
from twinbus.clock import NEVER, Millis
from twinbus.store.changes import StoredMessage

TOKEN_SIZE = 16
SALT_SIZE = 7
STALE_TOKENS_MAX = 4_096

Held = tuple[StoredMessage, Millis]


def fragment_index_of(token: bytes) -> int:
    """-1 for what cannot be a token of ours."""
    return token[0] if len(token) == TOKEN_SIZE else -1


class LockTable:
    def __init__(self, index: int, random: Random) -> None:
        self.held: dict[bytes, Held] = {}
        self.enlisted: set[bytes] = set()
        """Locks that a transaction settles, and so nobody else can; they end and are renewed as all others."""
        self._prefix = bytes([index]) + random.randbytes(SALT_SIZE)
        self._counter = 0
        self._bursts: list[tuple[Millis, int, Sequence[bytes]]] = []
        self._token_count = 0

    def __len__(self) -> int:
        return len(self.held)

    def lock(
        self, messages: Sequence[StoredMessage], until: Millis, shown_until: Millis | None = None
    ) -> list[TakenMessage]:
        """Lock them all until then. `shown_until` is what receivers are told, if that is something else."""
        first = self._counter
        self._counter = last = first + len(messages)
        prefix = self._prefix
        tokens = [prefix + number.to_bytes(8, "big") for number in range(first, last)]
        self.held.update(zip(tokens, zip(messages, repeat(until), strict=False), strict=True))
        if until < NEVER:
            self._watch(until, tokens)
        shown = repeat(until if shown_until is None else shown_until)
        return list(map(TakenMessage._make, zip(messages, tokens, shown, strict=False)))

    def is_live(self, token: bytes, now: Millis) -> bool:
        held = self.held.get(token)
        return held is not None and held[1] > now

    def renew(self, tokens: Sequence[bytes], until: Millis) -> None:
        """All of them have to be live."""
        held = self.held
        for token in tokens:
            held[token] = (held[token][0], until)
        self._watch(until, tokens)

    def next_expiry(self) -> Millis:
        """Never later than the first lock ends; earlier where that one was settled or renewed."""
        return self._bursts[0][0] if self._bursts else NEVER

    def take_expired(self, now: Millis) -> list[StoredMessage]:
        """Drop the locks that ended, and return what they held."""
        expired: list[StoredMessage] = []
        held, bursts = self.held, self._bursts
        while bursts and bursts[0][0] <= now:
            tokens = heappop(bursts)[2]
            self._token_count -= len(tokens)
            for token in tokens:
                lock = held.get(token)
                if lock is not None and lock[1] <= now:
                    del held[token]
                    expired.append(lock[0])
        return expired

    def _watch(self, until: Millis, tokens: Sequence[bytes]) -> None:
        # The counter only keeps the heap from comparing lists of tokens.
        heappush(self._bursts, (until, self._counter, tokens))
        self._token_count += len(tokens)
        if self._token_count > 2 * len(self.held) + STALE_TOKENS_MAX:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Watch every lock once, at the end it has by now: what was settled or renewed has left entries behind."""
        tokens_by_end: dict[Millis, list[bytes]] = {}
        for token, (_, until) in self.held.items():
            if until < NEVER:
                tokens_by_end.setdefault(until, []).append(token)
        self._bursts = [(until, 0, tokens) for until, tokens in tokens_by_end.items()]
        heapify(self._bursts)
        self._token_count = sum(map(len, tokens_by_end.values()))
