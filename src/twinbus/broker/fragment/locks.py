"""Locks on messages: leases in memory, never written to a store. After a restart the messages are delivered again.

A token names its fragment in its first byte, so that a settlement finds its way, and the rest of it is random: whoever has it may
settle the message, so nobody can guess one from others, and a token from before a restart matches nothing.

Locks end in bursts as they began: one heap entry for all messages handed over together. Entries of locks that were
settled or renewed stay until they are due or until they make up most of the heap.

What was locked long ago keeps a row without content (`twinbus.broker.held_contents`).
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from random import Random
from weakref import ref

from twinbus.broker.consumer import TakenMessage
from twinbus.broker.held_contents import ContentHolder, HeldContents, without_content
from twinbus.clock import NEVER, Millis
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage

TOKEN_SIZE = 16
RANDOM_SIZE = TOKEN_SIZE - 1
STALE_TOKENS_MAX = 4_096

Held = tuple[StoredMessage, Millis]


def fragment_index_of(token: bytes) -> int:
    """-1 for what cannot be a token of ours."""
    return token[0] if len(token) == TOKEN_SIZE else -1


class LockTable:
    def __init__(
        self, index: int, random: Random, contents: HeldContents, key_of: Callable[[StoredMessage], str | None]
    ) -> None:
        """`key_of`: the key of a message that a transaction may ask for when its content is in the store alone."""
        self.held: dict[bytes, Held] = {}
        self._contents = contents
        self._key_of = key_of
        self._reference: ref[ContentHolder] = ref(self)
        self._numbers: set[int] | None = None  # of all locked messages, while somebody asks for them
        self.enlisted: set[bytes] = set()
        """Locks that a transaction settles, and so nobody else can; they end and are renewed as all others."""
        self.deferred: set[int] = set()
        """Numbers of the locked messages that are deferred: nobody else can take them by number."""
        self._prefix = bytes([index])
        self._draw = random.randbytes
        self._counter = 0
        self._bursts: list[tuple[Millis, int, Collection[bytes]]] = []
        self._token_count = 0
        self.lost_count = 0
        """Locks that ended because nobody settled or renewed them in time, since the start or since the store came back."""

    def __len__(self) -> int:
        return len(self.held)

    def lock(
        self, messages: Sequence[StoredMessage], until: Millis, shown_until: Millis | None = None
    ) -> list[TakenMessage]:
        """Lock them all until then. `shown_until` is what receivers see, if that is something else."""
        size = RANDOM_SIZE * len(messages)
        prefix, random_bytes = self._prefix, self._draw(size)
        tokens = [prefix + random_bytes[start : start + RANDOM_SIZE] for start in range(0, size, RANDOM_SIZE)]
        self.held.update(zip(tokens, zip(messages, repeat(until), strict=False), strict=True))
        if self._numbers is not None:
            self._numbers.update([message.sequence_number for message in messages])
        self._contents.add(self._reference, tokens, sum([len(message.content) for message in messages]))
        if until < NEVER:
            self._watch(until, tokens)
        shown = repeat(until if shown_until is None else shown_until)
        # As TakenMessage._make does, without a call for each.
        return list(map(tuple.__new__, repeat(TakenMessage), zip(messages, tokens, shown, strict=False)))

    def is_live(self, token: bytes, now: Millis) -> bool:
        held = self.held.get(token)
        return held is not None and held[1] > now

    def settle(
        self, tokens: Sequence[bytes], now: Millis, is_held: Callable[[StoredMessage, Millis], bool] | None
    ) -> tuple[list[StoredMessage], list[int], list[int]]:
        """End the locks that can be settled and return their messages; then the places of the tokens that have no
        live lock, and of those that a transaction settles.

        `is_held`: of a session entity, whether the message session of a locked message is still held.
        """
        held, enlisted = self.held, self.enlisted
        messages: list[StoredMessage] = []
        lost: list[int] = []
        busy: list[int] = []
        for place, token in enumerate(tokens):
            lock = held.get(token)
            if lock is None or lock[1] <= now or (is_held is not None and not is_held(lock[0], now)):
                lost.append(place)
            elif token in enlisted:
                busy.append(place)
            else:
                del held[token]
                messages.append(lock[0])
        self._forget_numbers(messages)
        return messages, lost, busy

    def drop(self, tokens: Iterable[bytes]) -> list[StoredMessage]:
        """End these locks, except those that have ended already, and return their messages."""
        held = self.held
        messages = [held.pop(token)[0] for token in tokens if token in held]
        self._forget_numbers(messages)
        return messages

    def leave_contents(self, tokens: Sequence[bytes]) -> None:
        """Those of them that are still locked keep a row without content."""
        held = self.held
        for token in tokens:
            lock = held.get(token)
            if lock is not None:
                held[token] = (without_content(lock[0], self._key_of(lock[0])), lock[1])

    def locked_among(self, numbers: Iterable[int]) -> set[int]:
        """Those of the rows with these numbers that are locked. A million may be, so they are not gone through for every question."""
        if not self.held:
            return set()
        if self._numbers is None:
            self._numbers = {message.sequence_number for message, _ in self.held.values()}
        return self._numbers.intersection(numbers)

    def _forget_numbers(self, messages: Iterable[StoredMessage]) -> None:
        if self._numbers is not None:
            self._numbers.difference_update([message.sequence_number for message in messages])
            if not self.held:
                self._numbers = None

    def hold_deferred(self, rows: Iterable[StoredMessage]) -> None:
        """Deferred messages have just been locked."""
        self.deferred.update([row.sequence_number for row in rows])

    def forget_deferred(self, numbers: Iterable[int]) -> None:
        """The locks of these have ended; those that are not deferred change nothing."""
        if self.deferred:
            self.deferred.difference_update(numbers)

    def enlist(self, tokens: Sequence[bytes]) -> None:
        """A transaction settles these from now on, until it lets go of them with `dismiss`."""
        self.enlisted.update(tokens)

    def dismiss(self, tokens: Sequence[bytes]) -> None:
        self.enlisted.difference_update(tokens)

    def is_any_enlisted(self, tokens: Sequence[bytes]) -> bool:
        return not self.enlisted.isdisjoint(tokens)

    def renew(self, tokens: Sequence[bytes], until: Millis) -> None:
        """All of them have to be live."""
        held = self.held
        for token in tokens:
            held[token] = (held[token][0], until)
        self._watch(until, tokens)

    def moved(self) -> list[TakenMessage]:
        """All that is locked, with rows without content: for a table at another node."""
        key_of = self._key_of
        return [
            TakenMessage(without_content(row, key_of(row)), token, until) for token, (row, until) in self.held.items()
        ]

    def restore(self, taken: Sequence[TakenMessage]) -> None:
        """Of an empty table: what is locked, from where the store was before."""
        rows = [each.message for each in taken]
        self.held = {token: (row, until) for row, token, until in taken}
        self.hold_deferred([row for row in rows if row.state is MessageState.DEFERRED])
        self._drop_stale()

    def clock_stepped(self, by: Millis) -> None:
        """Every lock lasts as long as it was given for."""
        held = self.held
        self.held = {token: (row, until + by if until < NEVER else NEVER) for token, (row, until) in held.items()}
        self._bursts = [(until + by, counter, tokens) for until, counter, tokens in self._bursts]

    def next_expiry(self) -> Millis:
        """Never later than the first lock ends; earlier where that one was settled or renewed."""
        return self._bursts[0][0] if self._bursts else NEVER

    def take_expired(self, now: Millis, count_max: int, bytes_max: int) -> list[StoredMessage]:
        """Drop the locks that ended, and return what they held: so much at most, and at least one. The rest is still due."""
        expired: list[StoredMessage] = []
        held, bursts = self.held, self._bursts
        size_bytes = 0
        while bursts and bursts[0][0] <= now and len(expired) < count_max and size_bytes < bytes_max:
            until, counter, tokens = heappop(bursts)
            self._token_count -= len(tokens)
            left = tokens if isinstance(tokens, deque) else deque(tokens)
            while left and len(expired) < count_max and size_bytes < bytes_max:
                token = left.popleft()
                lock = held.get(token)
                if lock is not None and lock[1] <= now:
                    del held[token]
                    expired.append(lock[0])
                    size_bytes += len(lock[0].content)
            if left:
                heappush(bursts, (until, counter, left))
                self._token_count += len(left)
        self._forget_numbers(expired)
        self.lost_count += len(expired)
        return expired

    def _watch(self, until: Millis, tokens: Sequence[bytes]) -> None:
        # The counter only keeps the heap from comparing lists of tokens.
        self._counter += 1
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
