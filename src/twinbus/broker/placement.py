"""Which fragment takes a message, and where it goes when that one is ill (contract A2, A3, A4, A8).

Messages without a key that arrive together go to one fragment together, the next ones to the next: a run is one change
in one store, so bigger is cheaper. A run whose fragment is unavailable, or fails while the run is being written, goes on
to the next. When a store fails nobody knows whether it wrote the run, so a run that goes on can end up in two fragments:
at least once, as promised. Where duplicates are detected every message is pinned, and nothing goes on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from twinbus.broker.fragment import Fragment
from twinbus.broker.intake import Staged
from twinbus.broker.replies import Reply, SendReply
from twinbus.broker.settings import EntitySettings
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, MessagingError, NotAllowed
from twinbus.model.message import Message
from twinbus.model.partition_key import candidates, pinning_key

RUN_MAX = 64
"""Messages without a key that go to one fragment together."""

Stage = Callable[[Fragment, Sequence[Message], Millis, Sequence[int] | None], Staged]


@dataclass(slots=True)
class _Run:
    """Messages on their way into one fragment."""

    messages: Sequence[Message]
    candidates: list[int]
    accepted: Callable[[list[int]], None]
    refused: Callable[[MessagingError], None]
    origins: Sequence[int] | None


class Placement:
    """The way into a queue or topic. `stage` says what taking messages means there."""

    def __init__(self, settings: EntitySettings, fragments: Sequence[Fragment], stage: Stage) -> None:
        self._settings = settings
        self._fragments = fragments
        self._stage = stage
        self._turn = 0

    def send_each(
        self, messages: Sequence[Message], now: Millis, reply: SendReply, origins: Sequence[int] | None = None
    ) -> None:
        places = self._places(messages, reply)
        for fragment_index, indexes in places.items():
            if fragment_index is not None:
                self._send_some(messages, indexes, [fragment_index], now, reply, origins)
                continue
            for start in range(0, len(indexes), RUN_MAX):
                run = indexes[start : start + RUN_MAX]
                self._send_some(messages, run, self._next_candidates(), now, reply, origins)

    def send_together(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None:
        """All or none, in one fragment; replies their numbers."""
        try:
            self._settings.check_can_send()
            keys = {self._key(message) for message in messages}
        except MessagingError as error:
            reply(error)
            return
        if not messages:
            reply([])
        elif len(self._fragments) == 1:
            self._attempt(_Run(messages, [0], reply, reply, None), now)
        elif len(keys) > 1:
            reply(
                NotAllowed(
                    "The messages of a batch for a partitioned entity must all have the same session id or partition "
                    "key, or none of them any. Send one batch for each key."
                )
            )
        else:
            (key,) = keys
            places = self._next_candidates() if key is None else candidates(key, len(self._fragments), 0)
            self._attempt(_Run(messages, places, reply, reply, None), now)

    def _places(self, messages: Sequence[Message], reply: SendReply) -> dict[int | None, list[int]]:
        """Indexes of the messages by the fragment they are pinned to; those that cannot be taken are refused."""
        places: dict[int | None, list[int]] = {}
        fragment_count = len(self._fragments)
        refusal: MessagingError | None = None
        try:
            self._settings.check_can_send()
        except MessagingError as error:
            refusal = error
        for index, message in enumerate(messages):
            try:
                if refusal is not None:
                    raise refusal
                key = self._key(message)
            except MessagingError as error:
                reply.refused(index, error)
                continue
            place = 0 if fragment_count == 1 else None if key is None else candidates(key, fragment_count, 0)[0]
            places.setdefault(place, []).append(index)
        return places

    def _key(self, message: Message) -> str | None:
        settings = self._settings
        if message.session_id is None and settings.requires_session:
            raise NotAllowed(f"'{settings.path}' requires message sessions. Set a session id on every message.")
        return pinning_key(message.session_id, message.partition_key, message.message_id, settings.duplicate_window > 0)

    def _next_candidates(self) -> list[int]:
        self._turn += 1
        return candidates(None, len(self._fragments), self._turn - 1)

    def _send_some(
        self,
        messages: Sequence[Message],
        indexes: list[int],
        places: list[int],
        now: Millis,
        reply: SendReply,
        origins: Sequence[int] | None,
    ) -> None:
        is_whole = len(indexes) == len(messages)

        def accepted(_: list[int]) -> None:
            reply.accepted(indexes)

        def refused(error: MessagingError) -> None:
            for index in indexes:
                reply.refused(index, error)

        chosen = messages if is_whole else [messages[index] for index in indexes]
        chosen_origins = None if origins is None else [origins[index] for index in indexes]
        self._attempt(_Run(chosen, places, accepted, refused, chosen_origins), now)

    def _attempt(self, run: _Run, now: Millis) -> None:
        """Give the run to its first candidate that is there."""
        fragment = self._fragments[run.candidates[0]]
        while run.candidates:
            fragment = self._fragments[run.candidates.pop(0)]
            if not fragment.is_available:
                continue
            try:
                staged = self._stage(fragment, run.messages, now, run.origins)
            except MessagingError as error:
                run.refused(error)
                return
            fragment.broker.commit(staged.changes, partial(self._committed, run, fragment, staged))
            return
        run.refused(fragment.broker.unavailable())

    def _committed(self, run: _Run, fragment: Fragment, staged: Staged, error: FragmentUnavailable | None) -> None:
        if error is None:
            staged.take_effect()
            run.accepted(staged.numbers)
        elif run.candidates:
            self._attempt(run, fragment.broker.clock.now())
        else:
            run.refused(error)
