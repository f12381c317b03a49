"""One entity of the primary as the pair watches it: the whole of it, and those of its fragments that are in trouble.

A failure belongs to one fragment if the primary answered it for a message that only that fragment takes, or if the primary went on
answering others while this one waited in vain. Any other failure belongs to the whole entity: nobody knows better. A send goes to the
primary if the whole and its own fragment, where it has one, both let it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from twinbus.clock import Millis
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.pairing.deciding.catching_up import CatchingUp
from twinbus.pairing.deciding.failover import FailoverDetector
from twinbus.pairing.deciding.partitioning import Partitioning
from twinbus.pairing.events import EntityState, FragmentState
from twinbus.pairing.rewriting.transfer import AnyMessage

ASK_AGAIN: Millis = 30_000
"""After the primary did not say how an entity is partitioned."""


@dataclass(frozen=True, slots=True)
class Ping:
    """Due now. The session id belongs to the fragment that is asked about, if it is one."""

    path: str
    fragment: int | None
    session_id: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Of one send: whether the primary itself reported it, and from when on its success with others would say that it was
    there all the while. Only a send that timed out can be told by that: a connection breaks in a moment."""

    is_answered: bool
    half_time: Millis


@dataclass(slots=True)
class EntityWatch:
    """`path` is as the first sender wrote it. `fragments` has those in trouble. `answered_at` is kept once it is known
    that there are several. `is_straight` is what senders read before each message: it goes to the primary, and that is all."""

    path: str
    new_detector: Callable[[], FailoverDetector]
    partitioning: Partitioning | None = None
    whole: FailoverDetector = field(init=False)
    fragments: dict[int, FailoverDetector] = field(default_factory=dict)
    catching_up: CatchingUp = field(default_factory=CatchingUp)
    answered_at: Millis = 0
    is_straight: bool = False
    _is_asking: bool = False
    _ask_again_at: Millis = 0

    def __post_init__(self) -> None:
        self.whole = self.new_detector()

    @property
    def is_untroubled(self) -> bool:
        """Nothing to decide: every send goes to the primary."""
        return not self.fragments and self.whole.is_untroubled

    @property
    def has_nothing_to_decide(self) -> bool:
        """Nor to remember: of fragments it is, when one of them last answered."""
        return self.partitioning is None and self.is_untroubled

    @property
    def has_fragments(self) -> bool:
        return self.partitioning is not None and self.partitioning.fragment_count > 1

    def fragment_of(self, messages: Sequence[AnyMessage]) -> int | None:
        """The one that all of them need, where that is known."""
        return None if self.partitioning is None else self.partitioning.fragment_of(messages)

    def fragment_of_numbers(self, sequence_numbers: Sequence[int]) -> int | None:
        found = {number >> SEQUENCE_BITS for number in sequence_numbers}
        return found.pop() if self.has_fragments and len(found) == 1 else None

    def detectors(self) -> Iterator[tuple[int | None, FailoverDetector]]:
        yield None, self.whole
        yield from list(self.fragments.items())

    def at(self, fragment: int | None) -> FailoverDetector | None:
        return self.whole if fragment is None else self.fragments.get(fragment)

    def to_blame(self, fragment: int | None, failure: Failure) -> int | None:
        """The fragment to which a failure belongs; None for the whole."""
        return fragment if failure.is_answered or self.answered_at > failure.half_time else None

    def in_trouble(self, fragment: int | None) -> FailoverDetector:
        """The detector that is told of a failure."""
        if fragment is None:
            return self.whole
        if fragment not in self.fragments:
            self.fragments[fragment] = self.new_detector()
        return self.fragments[fragment]

    def concerned(self, fragment: int | None) -> list[FailoverDetector]:
        """Those that have a say in a send that needs this fragment."""
        own = None if fragment is None else self.fragments.get(fragment)
        return [self.whole] if own is None else [self.whole, own]

    def is_failed_over(self, fragment: int | None) -> bool:
        return any(each.failed_over_at is not None for each in self.concerned(fragment))

    def is_failed_over_anywhere(self) -> bool:
        return any(each.failed_over_at is not None for _, each in self.detectors())

    def fails_over_by(self, at: Millis, fragment: int | None) -> bool:
        return any(each.fails_over_by(at) for each in self.concerned(fragment))

    def is_failing(self) -> bool:
        return any(each.failing_since is not None for _, each in self.detectors())

    def ping(self, fragment: int | None) -> Ping:
        partitioning = self.partitioning or Partitioning(1)
        return Ping(self.path, fragment, partitioning.key_in(fragment))

    def concerns(self, fragment: int | None) -> Callable[[str], bool] | None:
        """Which sessions this fragment takes; None for all."""
        partitioning = self.partitioning
        if fragment is None or partitioning is None:
            return None
        return lambda session: partitioning.fragment_of_key(session) == fragment

    def forget_healthy(self) -> None:
        """Fragments that nothing is to be decided about."""
        for fragment in [fragment for fragment, each in self.fragments.items() if each.is_untroubled]:
            del self.fragments[fragment]

    def begin_asking(self, now: Millis) -> bool:
        """True if the caller is to ask how the entity is partitioned; it then calls `asked`."""
        if self.partitioning is not None or self._is_asking or now < self._ask_again_at:
            return False
        self._is_asking = True
        return True

    @property
    def is_asking(self) -> bool:
        return self._is_asking

    def asked(self, answer: Partitioning | None, now: Millis) -> None:
        self._is_asking, self._ask_again_at = False, now + ASK_AGAIN
        self.partitioning = answer

    def state(self) -> EntityState:
        whole = self.whole
        fragments = tuple(
            FragmentState(number, each.availability(), each.failing_since, each.failed_over_at, each.last_error)
            for number, each in sorted(self.fragments.items())
            if not each.is_untroubled
        )
        return EntityState(
            self.path,
            whole.availability(),
            whole.failing_since,
            whole.failed_over_at,
            whole.shown_ping_at,
            whole.last_error,
            fragments,
        )
