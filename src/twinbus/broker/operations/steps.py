"""How an operation of several steps is written and run.

An operation is a generator. It decides; when it needs a messaging store it yields a step, which is a value, and is
resumed with the answer and the time at which that came, or has FragmentUnavailable thrown in. What it returns is the
reply, and so is the MessagingError that it raises. `run` carries out the steps of any of them.

    decide --yield a step--> the store --answer--> decide --...--> return the reply

Nothing waits: `run` resumes an operation inside the call that brings the store's answer, before anything else is decided.
So what it decides then is as fresh as that answer, and its next step stands in line where it would if it had called the
store itself. Between two steps everything else continues: locks come and go, messages are settled, a store is lost. So an
operation takes nothing that it looked up before a step for granted after it, and asks the fragment which of the rows
that it was given are still free.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.lane import Lane
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.replies import Reply
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, MessagingError
from twinbus.store.changes import Change
from twinbus.store.reads import Read

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadOne:
    """Answered by the read's answer."""

    fragment: Fragment
    read: Read[Any]


@dataclass(frozen=True, slots=True)
class ReadEach:
    """Reads side by side: answered when the last one is, in the order asked, by an answer or FragmentUnavailable each."""

    reads: Sequence[tuple[Fragment, Read[Any]]]


@dataclass(frozen=True, slots=True)
class PrepareEach:
    """The lists of message sessions of these fragments: answered when each is there or cannot be, by None or FragmentUnavailable."""

    fragments: Sequence[Fragment]


@dataclass(frozen=True, slots=True)
class Commit:
    """Answered by None when the decision is durable."""

    decision: Decision
    withdrawn: Sequence[Lane] = ()  # lanes that rows of the decision were taken out of


@dataclass(frozen=True, slots=True)
class CommitEach:
    """Commits side by side: answered when the last one is, in the order asked, by None or FragmentUnavailable each."""

    commits: Sequence[tuple[MessageBroker, list[Change]]]


Step: TypeAlias = ReadOne | ReadEach | PrepareEach | Commit | CommitEach
Steps: TypeAlias = Generator[Step, Any, T]
"""Of an operation that replies with a `T`."""


# Steps as an operation takes them, with `yield from`: they know the type of the answer


def read_one(fragment: Fragment, read: Read[T]) -> Steps[T]:
    """Raises FragmentUnavailable."""
    answer, _ = yield from read_timed(fragment, read)
    return answer


def read_timed(fragment: Fragment, read: Read[T]) -> Steps[tuple[T, Millis]]:
    """As `read_one`, with the time at which the answer came: that of the command has passed."""
    answered: tuple[T, Millis] = yield ReadOne(fragment, read)
    return answered


def read_each(reads: Sequence[tuple[Fragment, Read[T]]]) -> Steps[list[T | FragmentUnavailable]]:
    answered: tuple[list[T | FragmentUnavailable], Millis] = yield ReadEach(reads)
    return answered[0]


def prepare_each(fragments: Sequence[Fragment]) -> Steps[None]:
    """Whichever of them can be."""
    yield PrepareEach(fragments)


def commit(decision: Decision, withdrawn: Sequence[Lane] = ()) -> Steps[None]:
    """Raises FragmentUnavailable: then it is not known whether the store has it."""
    yield Commit(decision, withdrawn)


def commit_each(commits: Sequence[tuple[MessageBroker, list[Change]]]) -> Steps[Millis]:
    """When all of them are durable. Raises FragmentUnavailable if one of them failed; the others are durable."""
    answered: tuple[list[FragmentUnavailable | None], Millis] = yield CommitEach(commits)
    for error in answered[0]:
        if error is not None:
            raise error
    return answered[1]


# Running


def run(steps: Steps[T], now: Millis, reply: Reply[T]) -> None:
    """Until the reply, which may come at once or with the answer of a store."""
    _Run(steps, reply).start(now)


class _Run(Generic[T]):
    """One operation under way."""

    __slots__ = ("_reply", "_steps")

    def __init__(self, steps: Steps[T], reply: Reply[T]) -> None:
        self._steps = steps
        self._reply = reply

    def start(self, now: Millis) -> None:
        self._go_on(partial(self._steps.send, None), now)

    def resume(self, answer: object, now: Millis) -> None:
        if isinstance(answer, FragmentUnavailable):
            # One error goes to all who waited for a store: what each adds to its traceback would stay.
            self._go_on(partial(self._steps.throw, answer.with_traceback(None)), now)
        else:
            self._go_on(partial(self._steps.send, (answer, now)), now)

    def _go_on(self, resume: Callable[[], Step], now: Millis) -> None:
        result: T | MessagingError
        try:
            step = resume()
        except StopIteration as end:
            result = end.value
        except MessagingError as error:
            # Its traceback leads to all who wait for it: only the collector would free them.
            result = error.with_traceback(None)
        else:
            self._perform(step, now)
            return
        self._reply(result)

    def _perform(self, step: Step, now: Millis) -> None:
        match step:
            case ReadOne(fragment, read):
                fragment.broker.query(read, self.resume)
            case ReadEach(reads):
                gathered = _Gathering(len(reads), self.resume)
                for place, (fragment, read) in enumerate(reads):
                    fragment.broker.query(read, partial(gathered.put, place))
            case PrepareEach(fragments):
                gathered = _Gathering(len(fragments), self.resume)
                for place, fragment in enumerate(fragments):
                    fragment.broker.session_lists.wait_for(fragment.key, partial(gathered.put, place))
            case Commit(decision, withdrawn):
                decision.commit(partial(self.resume, None), self.resume)
                # Behind the commit in the store's line: a scan for more messages, which this may start, then shows the
                # rows as they are after it.
                for lane in withdrawn:
                    decision.fragment.announce(lane, now)
            case CommitEach(commits):
                gathered = _Gathering(len(commits), self.resume)
                for place, (broker, changes) in enumerate(commits):
                    broker.commit(changes, partial(gathered.put, place, None), partial(gathered.put, place))


class _Gathering:
    """Answers that come one by one, in any order."""

    __slots__ = ("_answers", "_done", "_open_count")

    def __init__(self, count: int, done: Callable[[list[object], Millis], None]) -> None:
        assert count > 0, "a step that asks nobody is never answered"
        self._answers: list[object] = [None] * count
        self._open_count = count
        self._done = done

    def put(self, place: int, answer: object, now: Millis) -> None:
        self._answers[place] = answer
        self._open_count -= 1
        if self._open_count == 0:
            self._done(self._answers, now)
