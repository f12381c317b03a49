"""Which fragment takes a message, and where it goes when that one is not available (contract A2, A3, A4, A8).

Messages without a key go round the fragments in turns. Those that arrive while the fragment whose turn it is has not
yet written the ones before join its turn, up to a limit: what waits for one store is written at once, so bigger is
cheaper, and messages sent one after the other still go round one by one. A run whose fragment is unavailable or far
behind, or fails while the run is being written, goes to the next one. When a store fails, it is unknown whether it wrote
the run, so a run that goes elsewhere can end up in two fragments: at least once, as promised. Where duplicates are detected
every message is pinned, and nothing goes elsewhere.

A run is in one fragment at a time: the next candidate is tried only when the answer of the last one is an error, and
then that fragment has dropped what it knew of the run. To try two at once would answer a sender twice.
"""

from collections.abc import Callable, Sequence

from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.replies import Reply, SendReply
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, MessagingError, NotAllowed
from twinbus.model.message import Message
from twinbus.model.partition_key import candidates, pinning_key

TURN_MAX = 256
"""Messages without a key that one fragment takes before it is the next one's turn."""

Stage = Callable[[Decision, Sequence[Message], Millis, Sequence[int] | None], list[int]]
"""Adds messages to a decision about a fragment and returns their sequence numbers, or raises and adds nothing."""
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
        self.check_room = check_room
        self._turn = -1
        self._turn_left = 0
        self._turn_under_way = 0  # messages of this turn that are not answered yet

    def check_open(self) -> None:
        """Raises the reason if nothing can be sent here now. For callers that stage messages, and do not send."""
        self.settings.check_can_send()

    def prepare(self, messages: Sequence[Message]) -> Sequence[Message]:
        """As they are to be stored here. For callers that stage them, and do not send."""
        return messages

    def send_each(
        self, messages: Sequence[Message], now: Millis, reply: SendReply, origins: Sequence[int] | None = None
    ) -> None:
        self.settings.last_used_at = now
        places = self._places(messages, now, reply)
        for fragment_index, indexes in places.items():
            if fragment_index is not None:
                self._send_some(messages, indexes, [fragment_index], now, reply, origins)
                continue
            start = 0
            while start < len(indexes):
                if not self._turn_left or not self._turn_under_way:
                    self._next_turn()
                run = indexes[start : start + self._turn_left]
                start += len(run)
                self._turn_left -= len(run)
                self._turn_under_way += len(run)
                order = candidates(None, len(self.fragments), self._turn)
                self._send_some(messages, run, order, now, reply, origins, turn=self._turn)

    def send_together(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None:
        """All or none, in one fragment; replies their numbers."""
        self.settings.last_used_at = now
        try:
            self.settings.check_can_send()
            keys = {self.key_of(message) for message in messages}
        except MessagingError as error:
            reply(error)
            return
        if not messages:
            reply([])
        elif len(self.fragments) == 1:
            self._send_all(messages, [0], now, reply)
        elif len(keys) > 1:
            reply(
                NotAllowed(
                    "The messages of a batch for a partitioned entity must all have the same session id or partition "
                    "key, or none of them any. Send one batch for each key."
                )
            )
        else:
            (key,) = keys
            if key is None:
                self._next_turn()
            places = candidates(key, len(self.fragments), self._turn)
            self._send_all(messages, places, now, reply)

    def _send_all(self, messages: Sequence[Message], places: list[int], now: Millis, reply: Reply[list[int]]) -> None:
        _Run(self, messages, places, lambda numbers, _: reply(numbers), lambda error, _: reply(error), None).attempt(
            now
        )

    def _places(self, messages: Sequence[Message], now: Millis, reply: SendReply) -> dict[int | None, list[int]]:
        """Indexes of the messages by the fragment they are pinned to; those that cannot be taken are refused."""
        places: dict[int | None, list[int]] = {}
        fragment_count = len(self.fragments)
        refusal: MessagingError | None = None
        try:
            self.settings.check_can_send()
        except MessagingError as error:
            refusal = error
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
    ) -> None:
        is_whole = len(indexes) == len(messages)

        def accepted(numbers: list[int], now: Millis) -> None:
            self._answered(turn, len(indexes))
            reply.accepted(indexes, numbers, now)

        def refused(error: MessagingError, now: Millis) -> None:
            self._answered(turn, len(indexes))
            for index in indexes:
                reply.refused(index, error, now)

        chosen = messages if is_whole else [messages[index] for index in indexes]
        chosen_origins = None if origins is None else [origins[index] for index in indexes]
        _Run(self, chosen, places, accepted, refused, chosen_origins).attempt(now)

    def _answered(self, turn: int | None, count: int) -> None:
        if turn == self._turn:
            self._turn_under_way -= count


class _Run:
    """Messages on their way into one fragment: the first of the candidates that takes them."""

    __slots__ = ("_accepted", "_candidates", "_messages", "_numbers", "_origins", "_placement", "_refused")

    def __init__(
        self,
        placement: Placement,
        messages: Sequence[Message],
        candidates: list[int],
        accepted: Callable[[list[int], Millis], None],
        refused: Callable[[MessagingError, Millis], None],
        origins: Sequence[int] | None,
    ) -> None:
        self._placement = placement
        self._messages = messages
        self._candidates = candidates
        self._accepted = accepted
        self._refused = refused
        self._origins = origins
        self._numbers: list[int] = []

    def attempt(self, now: Millis) -> None:
        """Give them to the next candidate that takes them."""
        placement, refusal = self._placement, None
        while self._candidates:
            fragment = placement.fragments[self._candidates.pop(0)]
            refusal = fragment.refusal
            if refusal is not None:
                continue
            decision = Decision(fragment)
            try:
                self._numbers = placement.stage(decision, self._messages, now, self._origins)
            except MessagingError as error:
                self._refused(error, now)
                return
            decision.commit(self._durable, self._failed)
            return
        assert refusal is not None
        self._refused(refusal, now)

    def _durable(self, now: Millis) -> None:
        self._accepted(self._numbers, now)

    def _failed(self, error: FragmentUnavailable, now: Millis) -> None:
        if self._candidates:
            self.attempt(now)
        else:
            self._refused(error, now)
