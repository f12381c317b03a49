"""Which fragment takes a message, and where it goes when that one cannot take it (contract A2, A3, A4, A8).

Messages without a key go round the fragments in turns. Those that arrive while the fragment whose turn it is has not
yet written the ones before join its turn, up to a limit: what waits for one store is written at once, so bigger is
cheaper, and messages sent one after the other still go round one by one.

What goes to one fragment together is a run (`runs`), which goes on to the next fragment where that is right. Where duplicates are
detected every message is pinned, and none goes elsewhere.

Who shares the stores with other nodes chooses the fragment of the second try, and gives the messages names that it remembers
(`broker.fragment.names`): so that fragment can be asked again, as often as it takes to learn whether it has them.
"""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import ClassVar, TypeAlias

from twinbus.broker.entity.fan_out import ReadyCopies
from twinbus.broker.entity.runs import Detour, Run
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.names import SecondTry
from twinbus.broker.replies import Reply, SendReply
from twinbus.broker.wakeups import WaitingSteps
from twinbus.clock import Millis
from twinbus.errors import (
    FragmentUnavailable,
    MessageTooLarge,
    MessagingError,
    NotAllowed,
    OutcomeUnknown,
    QuotaExceeded,
)
from twinbus.model.message import Message
from twinbus.model.partition_key import candidates, folded, pinning_key

TURN_MAX = 256
"""Messages without a key that one fragment takes before it is the next one's turn."""

Stage = Callable[[Decision, Sequence[Message], Millis, Sequence[int] | None], list[int]]
"""Adds messages to a decision about a fragment and returns their sequence numbers, or raises and adds nothing."""
Work: TypeAlias = Callable[[Millis], WaitingSteps]
"""Begins at the time it is called with."""
CheckRoom = Callable[[Fragment, Sequence[Message]], None]


class Placement:
    """The way into a queue or topic. `stage` says what taking messages means there.

    What is public here is for transactions, which choose the fragment by rules of their own.
    """

    def __init__(
        self, settings: EntitySettings, fragments: Sequence[Fragment], stage: Stage, check_room: CheckRoom
    ) -> None:
        self.settings = settings
        self.fragments = fragments
        self.stage = stage
        self.detours: Counter[Detour] = Counter()  # messages
        self._check = check_room
        self._turn = -1
        self._turn_left = 0
        self._turn_under_way = 0  # messages of this turn that are not answered yet

    def check_open(self) -> None:
        """Raises the reason if nothing can be sent here now. For callers that stage messages, and do not send."""
        self.settings.check_can_send()

    def prepare(self, messages: Sequence[Message]) -> Sequence[Message]:
        """As they are to be stored here. For callers that stage them, and do not send."""
        return messages

    def check_room(self, fragment: Fragment, messages: Sequence[Message]) -> None:
        """Raises if `stage` would. For callers that stage them, and do not send: so they have the same key."""
        try:
            self._check_room(fragment, messages)
        except QuotaExceeded as error:
            raise self._worded(error, messages) from None

    def _check_room(self, fragment: Fragment, messages: Sequence[Message]) -> None:
        self._check(fragment, messages)

    # What is taken in steps: see `topic_placement`. A queue takes all of it at once.

    takes_steps: ClassVar[bool] = False
    """Whether any of this may be asked, but for `is_busy`, which transactions ask of queues too."""

    def is_busy(self, index: int) -> bool:
        """Whether what is staged in this fragment has to wait, or it would overtake something: then use `wait`."""
        return False

    def wait(self, index: int, work: Work) -> None:
        """Begin this work when it is its turn."""
        raise NotImplementedError

    def cut(self, indexes: list[int]) -> Sequence[list[int]]:
        """Independent messages for one fragment, in parts each of which can be taken at once."""
        raise NotImplementedError

    def is_long(self, count: int) -> bool:
        """Whether this many messages cannot be taken at once."""
        raise NotImplementedError

    def stage_in_steps(
        self, decision: Decision, messages: Sequence[Message], now: Millis, origins: Sequence[int] | None
    ) -> Generator[None, Millis, list[int]]:
        """As `stage`. Nothing is decided before its last step."""
        raise NotImplementedError

    def copy_in_steps(
        self, decision: Decision, messages: Sequence[Message], now: Millis
    ) -> Generator[None, Millis, ReadyCopies]:
        """As `stage`, up to the decision. For callers that decide about something else in the same commit."""
        raise NotImplementedError

    def send_each(
        self,
        messages: Sequence[Message],
        now: Millis,
        reply: SendReply,
        origins: Sequence[int] | None = None,
        *,
        is_one_try: bool = False,
        failed: int | None = None,
    ) -> None:
        """`is_one_try`: if a store may have them, no other fragment is tried: whoever asks tries another node; `failed`: the database of
        a store that may have them already, so those without a key go to none of its stores."""
        self.settings.last_used_at = now
        places = self.places(messages, now, reply)
        for fragment_index, indexes in places.items():
            if fragment_index is not None:
                self._send_some(messages, indexes, [fragment_index], now, reply, origins, is_one_try=is_one_try)
                continue
            start = 0
            while start < len(indexes):
                if not self._turn_left or not self._turn_under_way:
                    self._next_turn()
                run = indexes[start : start + self._turn_left]
                start += len(run)
                self._turn_left -= len(run)
                self._turn_under_way += len(run)
                order = self._in_turns(failed)
                self._send_some(messages, run, order, now, reply, origins, self._turn, is_one_try=is_one_try)

    def send_each_again(
        self,
        messages: Sequence[Message],
        second: SecondTry,
        now: Millis,
        reply: SendReply,
        origins: Sequence[int] | None = None,
    ) -> None:
        """Messages that another fragment may have, and this one too: each is answered as if it had come for the first time."""
        self.settings.last_used_at = now
        try:
            self.settings.check_can_send()
        except MessagingError as error:
            for index in range(len(messages)):
                reply.refused(index, error, now)
            return
        prepared, indexes = self.prepare(messages), list(range(len(messages)))

        def send(now: Millis) -> None:
            self._send_some(
                prepared, indexes, [second.fragment], now, reply, origins, names=second.names, is_one_try=True
            )

        self._when_names_are_read(second.fragment, now, send)

    def send_together_again(
        self, messages: Sequence[Message], second: SecondTry, now: Millis, reply: Reply[list[int]]
    ) -> None:
        """As `send_each_again`; all or none."""
        self.settings.last_used_at = now
        try:
            self.settings.check_can_send()
        except MessagingError as error:
            reply(error)
            return
        prepared = self.prepare(messages)

        def send(now: Millis) -> None:
            self._send_all(prepared, [second.fragment], now, reply, True, second.names)

        self._when_names_are_read(second.fragment, now, send)

    def _when_names_are_read(self, index: int, now: Millis, call: Callable[[Millis], None]) -> None:
        fragment = self.fragments[index]

        def read(now: Millis) -> None:
            fragment.wake()  # some may have ended
            call(now)

        if fragment.refusal is None:
            fragment.names.when_read(now, read)
        else:
            call(now)

    def send_together(
        self,
        messages: Sequence[Message],
        now: Millis,
        reply: Reply[list[int]],
        *,
        is_one_try: bool = False,
        failed: int | None = None,
    ) -> None:
        """All or none, in one fragment; replies their numbers."""
        self.settings.last_used_at = now
        try:
            place = self.place_of_batch(messages)
        except MessagingError as error:
            reply(error)
            return
        if not messages:
            reply([])
            return
        if place is None:
            self._next_turn()
        self._send_all(messages, self._in_turns(failed) if place is None else [place], now, reply, is_one_try)

    def place_of_batch(self, messages: Sequence[Message]) -> int | None:
        """The fragment that takes messages which are sent together; None: any. Raises what is wrong with them."""
        self.settings.check_can_send()
        keys = {None if (key := self.key_of(message)) is None else folded(key) for message in messages}
        if len(self.fragments) == 1 or not keys:
            return 0
        if len(keys) > 1:
            raise NotAllowed(
                "The messages of a batch for a partitioned entity must all have the same session id or partition "
                "key, or none of them any. Send one batch for each key."
            )
        (key,) = keys
        return None if key is None else candidates(key, len(self.fragments), 0)[0]

    def _send_all(
        self,
        messages: Sequence[Message],
        places: list[int],
        now: Millis,
        reply: Reply[list[int]],
        is_one_try: bool,
        names: Sequence[str] | None = None,
    ) -> None:
        def refused(error: MessagingError, _: Millis) -> None:
            reply(self._worded(error, messages))

        accepted = partial(_reply_numbers, reply)
        Run(self, messages, places, accepted, refused, None, names, is_one_try=is_one_try).attempt(now)

    def places(self, messages: Sequence[Message], now: Millis, reply: SendReply) -> dict[int | None, list[int]]:
        """Indexes of the messages by the fragment they are pinned to; those that cannot be taken are refused."""
        places: dict[int | None, list[int]] = {}
        fragment_count = len(self.fragments)
        refusal: MessagingError | None = None
        try:
            self.settings.check_can_send()
        except MessagingError as error:
            refusal = error
        if refusal is None and not self.settings.requires_session and not self.settings.duplicate_window:
            keyed = [one for one in messages if one.partition_key is not None or one.session_id is not None]
            if messages and not keyed:
                return {0 if fragment_count == 1 else None: list(range(len(messages)))}
        for index, message in enumerate(messages):
            try:
                if refusal is not None:
                    raise refusal
                key = self.key_of(message)
            except MessagingError as error:
                reply.refused(index, error, now)
                continue
            place = 0 if fragment_count == 1 else None if key is None else candidates(key, fragment_count, 0)[0]
            places.setdefault(place, []).append(index)
        return places

    def key_of(self, message: Message) -> str | None:
        """The key that pins it to a fragment. NotAllowed where the message does not fit the entity."""
        settings = self.settings
        if message.session_id is None and settings.requires_session:
            raise NotAllowed(f"'{settings.path}' requires message sessions. Set a session id on every message.")
        return pinning_key(
            message.session_id,
            message.partition_key,
            message.message_id,
            settings.duplicate_window > 0,
            settings.has_sessions,
        )

    def _in_turns(self, failed: int | None = None) -> list[int]:
        """The fragments at this node, the one whose turn it is first; none of a database that failed. A turn may take long, and stores
        come and go meanwhile."""
        own = [fragment.index for fragment in self.fragments if not fragment.broker.is_foreign] or [0]
        start = self._turn % len(own)
        order = own[start:] + own[:start]
        return order if failed is None else [index for index in order if self.database_of(index) != failed]

    def database_of(self, index: int) -> int | None:
        return self.fragments[index].broker.database

    def _next_turn(self) -> None:
        self._turn += 1
        self._turn_left = TURN_MAX
        self._turn_under_way = 0

    def _send_some(
        self,
        messages: Sequence[Message],
        indexes: list[int],
        places: list[int],
        now: Millis,
        reply: SendReply,
        origins: Sequence[int] | None,
        turn: int | None = None,
        names: Sequence[str] | None = None,
        *,
        is_alone: bool = True,
        is_one_try: bool,
    ) -> None:
        """`is_alone`: not one of several parts that take too long together; `names`: of a second try, as many as messages."""
        if self.takes_steps and is_alone and len(parts := self.cut(indexes)) > 1:
            for part in parts:
                self._send_some(
                    messages, part, places, now, reply, origins, turn, names, is_alone=False, is_one_try=is_one_try
                )
            return
        is_whole = len(indexes) == len(messages)
        chosen = messages if is_whole else [messages[index] for index in indexes]

        def accepted(numbers: list[int], now: Millis) -> None:
            self._answered(turn, len(indexes))
            reply.accepted(indexes, numbers, now)

        def refused(error: MessagingError, now: Millis) -> None:
            is_too_much = isinstance(error, QuotaExceeded | MessageTooLarge) and len(indexes) > 1
            if is_too_much and (names is not None or self._fits_any(places, chosen)):
                # There is room for some of them: none is refused for the size of those beside it. What has a name may be there.
                middle = len(indexes) // 2
                for half in (indexes[:middle], indexes[middle:]):
                    self._send_some(messages, half, places, now, reply, origins, turn, names, is_one_try=is_one_try)
                return
            self._answered(turn, len(indexes))
            for index in indexes:
                reply.refused(index, self._worded(error, [messages[index]]), now)

        chosen_origins = None if origins is None else [origins[index] for index in indexes]
        chosen_names = None if names is None else [names[index] for index in indexes]
        run = Run(
            self,
            chosen,
            places,
            accepted,
            refused,
            chosen_origins,
            chosen_names,
            is_alone=is_alone,
            is_one_try=is_one_try,
        )
        run.attempt(now)

    def _fits_any(self, places: Sequence[int], messages: Sequence[Message]) -> bool:
        """Whether one of these fragments has room for the smallest of the messages."""
        smallest = min(messages, key=lambda message: len(message.content))
        return any(self._has_room(self.fragments[place], [smallest]) for place in places)

    def _has_room(self, fragment: Fragment, messages: Sequence[Message]) -> bool:
        try:
            self._check_room(fragment, messages)
        except MessagingError:
            return False
        return fragment.is_available

    def _worded(self, error: MessagingError, messages: Sequence[Message]) -> MessagingError:
        """What the sender of messages with one key has to know, where the entity is partitioned."""
        if len(self.fragments) == 1 or type(error) not in (QuotaExceeded, FragmentUnavailable, OutcomeUnknown):
            return error
        key, path = self.key_of(messages[0]), self.settings.path
        others = "messages with other keys, or without one,"
        if self.settings.requires_session:
            others = "messages of other sessions"
        elif self.settings.duplicate_window:
            others = "messages with other keys"
        if isinstance(error, FragmentUnavailable):
            return error if key is None else type(error)(f"{error} Meanwhile {others} go to other fragments.")
        if key is None or not any(self._has_room(fragment, messages) for fragment in self.fragments):
            return QuotaExceeded(
                f"'{path}' is full: none of its {len(self.fragments)} fragments has room for this. Receive messages from "
                "it, or give it a larger size."
            )
        return QuotaExceeded(
            f"The fragment of '{path}' that takes messages with the key '{key}' is full; {others} still fit. Receive "
            "messages from it, or give it a larger size."
        )

    def _answered(self, turn: int | None, count: int) -> None:
        if turn == self._turn:
            self._turn_under_way -= count


def _reply_numbers(reply: Reply[list[int]], numbers: list[int], now: Millis) -> None:
    reply(numbers)
