"""One sub-queue (main, dead-letter or transfer dead-letter) of a queue or subscription, over all of its fragments."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, TypeVar, cast

from twinbus.broker import commands
from twinbus.broker.commands import Command
from twinbus.broker.consumer import Consumer, SessionLock, SessionRequest
from twinbus.broker.entity.forwarding import Find, Forwarder
from twinbus.broker.entity.receive_merge import ReceiveMerge
from twinbus.broker.entity.session_desk import NO_WAITER, SessionDesk
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import (
    check_any_store,
    counts_of,
    fragment_at,
    fragment_of_tokens,
    places_by_fragment,
)
from twinbus.broker.fragment.lane import Lane
from twinbus.broker.fragment.settlement import check_live, lock_lost, settle_all, settle_each
from twinbus.broker.operations import bulk, by_number, overview, peek, repair, sessions
from twinbus.broker.operations.asked_queue import AskedQueue, WaysOut
from twinbus.broker.operations.steps import Steps, run
from twinbus.broker.outcomes import Outcome
from twinbus.broker.replies import QueueCounts, Reply, SettleReply, Waiter
from twinbus.broker.source import Source
from twinbus.broker.telling import tell
from twinbus.clock import Millis
from twinbus.errors import EntityNotFound, FragmentUnavailable, MessagingError, NotAllowed
from twinbus.store.changes import FragmentKey, SubQueue

T = TypeVar("T")


class MessageQueue:
    """Where messages are received from. A receiver cannot tell how many fragments there are (contract A5).

    A dead-letter queue takes and gives no message sessions, whatever its entity requires.
    """

    def __init__(self, settings: EntitySettings, fragments: Sequence[Fragment], find: Find) -> None:
        self.settings = settings
        self.fragments = fragments
        self.requires_session = settings.requires_session and fragments[0].sub_queue is SubQueue.MAIN
        self._merge = ReceiveMerge(fragments)
        self._find = find
        self._forwarder = Forwarder(find)
        self._desk = SessionDesk(fragments) if self.requires_session else None
        self._ways_out: WaysOut | None = None
        self._is_claimed_from = False
        self._after_reading: list[Callable[[], None]] = []
        for fragment in fragments:
            fragment.set_watcher(self)

    @property
    def key(self) -> FragmentKey:
        """That of its first fragment: it names this sub-queue of this very entity."""
        return self.fragments[0].key

    @property
    def own_fragments(self) -> list[Fragment]:
        """Without those whose stores other nodes serve."""
        return [fragment for fragment in self.fragments if not fragment.broker.is_foreign]

    @property
    def receiver_count(self) -> int:
        return len(self._merge) + (len(self._desk) if self._desk is not None else 0)

    @property
    def is_in_use(self) -> bool:
        """Whether somebody receives from it or has a message of it locked, or a message waits for its time."""
        return self.receiver_count > 0 or any(
            fragment.tally.scheduled_count or len(fragment.locks) for fragment in self.fragments
        )

    @property
    def is_taken_from(self) -> bool:
        is_received_from = self._desk is not None or len(self._merge) > 0 or self._is_claimed_from
        return is_received_from or self.fragments[0].forwards_to is not None

    @property
    def is_reading(self) -> bool:
        """Whether messages for its receivers are on their way from a store."""
        return any(fragment.lane.is_filling and fragment.is_available for fragment in self.fragments)

    def after_reading(self, call: Callable[[], None]) -> None:
        """Call it when nothing is on its way any more, handed over or not: at once where that is so already."""
        if self.is_reading:
            self._after_reading.append(call)
        else:
            call()

    def set_ways_out(self, ways: WaysOut) -> None:
        """To be called once, when the entity is made."""
        self._ways_out = ways

    @property
    def ways_out(self) -> WaysOut:
        assert self._ways_out is not None
        return self._ways_out

    def settings_of(self, path: str) -> EntitySettings:
        target = self._find(path)
        if target is None:
            raise EntityNotFound.at(path)
        return target.settings

    def fragments_of(self, path: str) -> Sequence[Fragment]:
        queue = getattr(self._find(path), "main", None)
        return () if queue is None else cast(Source, queue).fragments_here

    @property
    def fragments_here(self) -> Sequence[Fragment]:
        return self.fragments

    def expect_claims(self) -> None:
        """Messages are claimed from it: a claim must know where the first free ones are."""
        if not self._is_claimed_from:
            self._is_claimed_from = True
            self._read_ahead()

    def _read_ahead(self) -> None:
        for fragment in self.fragments:
            fragment.refill(fragment.lane)

    def tell_left_over(self, call: Callable[[Callable[[], int]], None]) -> None:
        """From now on, whenever messages are ready that no receiver has credit for, with what tells how many."""
        self._merge.left_over = call

    # Receiving

    def attach(self, receiver: Consumer, now: Millis) -> None:
        """Hand messages to it from now on. Raises EntityDisabled, NotAllowed where sessions do not fit, or
        FragmentUnavailable: a queue whose stores are all lost must not look like an empty one."""
        self.settings.last_used_at = now
        self.check_receiver(receiver)
        check_any_store(self.fragments)
        if self._desk is not None:
            self._desk.attach(receiver, now)
        else:
            self._merge.add(receiver)
            self._read_ahead()
            self.pump(now)

    def check_receiver(self, receiver: Consumer) -> None:
        """Raises the reason if it cannot receive from here, whether or not a store is lost."""
        self.settings.check_can_receive()
        self._check_not_forwarding()
        if self._desk is not None and receiver.session is None:
            raise NotAllowed(f"'{self.settings.path}' requires message sessions. Accept a session to receive.")
        if self._desk is None and receiver.session is not None:
            raise self._no_sessions()

    def detach(self, receiver: Consumer, now: Millis) -> None:
        """Hand it nothing more. Its message locks live on; its message session, if any, is released at once."""
        self.settings.last_used_at = now
        if self._desk is not None:
            self._desk.detach(receiver, now)
        else:
            self._merge.remove(receiver)
            self._rest()

    def _rest(self) -> None:
        if not self.is_taken_from:
            for fragment in self.fragments:
                fragment.rest()

    def pump(self, now: Millis, receiver: Consumer | None = None) -> None:
        """Hand messages to receivers with credit. To be called when credit was raised, with the receiver if there is
        one: everything else that makes messages ready pumps by itself."""
        if not self.settings.can_receive:
            return
        if self._desk is None:
            self._forward_all(now)
            self._merge.pump(now)
        elif receiver is not None:
            self._desk.pump(receiver, now)
        else:
            self._desk.pump_all(now)

    def settings_changed(self, now: Millis) -> None:
        """If it forwards from now on, its receivers are told. Otherwise there may be something for them."""
        try:
            self._check_not_forwarding()
        except NotAllowed as error:
            # One with message sessions keeps its messages, and its receivers with them.
            if self._desk is None:
                self.close(error)
        self.pump(now)

    def recall(self, receiver: Consumer, now: Millis, *, waits: bool = True) -> None:
        """Its credit is 0 now: what was passed on of it before comes back, as messages or as credit. Here nothing is passed on.

        `waits`: for what is being read from a store."""

    def close(self, error: MessagingError) -> None:
        """Nothing can be received: its receivers, and those that wait for a session of it, get this error."""
        for receiver in self._merge.remove_all():
            tell(receiver.session_lost, error)
        self._rest()
        if self._desk is not None:
            self._desk.close(error)

    # Called by the fragments

    def messages_ready(self, fragment: Fragment, lane: Lane, now: Millis) -> None:
        if not self.settings.can_receive:
            return
        if self._desk is None:
            self._forwarder.pump(fragment, now)
            self._merge.pump(now)
        elif lane.session_id is not None:
            self._desk.pump_session(lane.session_id, now)

    def messages_read(self) -> None:
        if self._after_reading and not self.is_reading:
            waiting, self._after_reading = self._after_reading, []
            for call in waiting:
                tell(call)

    def session_free(self, now: Millis) -> None:
        if self._desk is not None:
            self._desk.serve_waiters(now)

    def session_came(self, fragment: Fragment, lock: SessionLock) -> None:
        self.sessions().watch(fragment, lock)

    def fragment_lost(self, fragment: Fragment) -> None:
        self.messages_read()
        if self._desk is not None:
            self._desk.fragment_lost(fragment)
        try:
            check_any_store(self.fragments)
        except FragmentUnavailable as error:
            self.close(error)

    def fragment_moved(self, fragment: Fragment, locks: Set[SessionLock]) -> None:
        """Its receivers stay: those who attached them see where it has moved to."""
        if self._desk is not None:
            self._desk.fragment_moved(fragment, locks)

    def _forward_all(self, now: Millis) -> None:
        if self.fragments[0].forwards_to is not None:
            for fragment in self.fragments:
                self._forwarder.pump(fragment, now)

    def _check_not_forwarding(self) -> None:
        target = self.fragments[0].forwards_to
        if target is not None:
            raise NotAllowed(f"'{self.settings.path}' forwards its messages to '{target}'. Receive them from there.")

    # Settling

    def settle_each(
        self,
        tokens: Sequence[bytes],
        outcome: Outcome,
        now: Millis,
        reply: SettleReply,
        session: SessionLock | None = None,
    ) -> None:
        """Settle independent messages: AMQP dispositions. `session`: what the receiver holds, or held."""
        for fragment_index, places in places_by_fragment(tokens).items():
            fragment = fragment_at(self.fragments, fragment_index)
            if fragment is None:
                for place in places:
                    reply.failed(place, lock_lost(self.fragments[0], session, now), now)
                continue
            chosen = tokens if len(places) == len(tokens) else [tokens[place] for place in places]
            settle_each(fragment, chosen, places, outcome, now, reply, session)

    def settle(
        self,
        tokens: Sequence[bytes],
        outcome: Outcome,
        now: Millis,
        reply: Reply[None],
        session: SessionLock | None = None,
    ) -> None:
        """Settle all or none; tokens of several fragments are refused with NotAllowed (contract A8)."""
        try:
            fragment = fragment_of_tokens(self.fragments, tokens)
        except MessagingError as error:
            reply(error)
            return
        settle_all(fragment, tokens, outcome, now, lambda _: reply(None), lambda error, _: reply(error), session)

    def renew(
        self, tokens: Sequence[bytes], now: Millis, reply: Reply[list[Millis]], *, is_check: bool = False
    ) -> None:
        """Restart the lock duration of all of them or none, in any fragments; replies until when each is locked.

        `is_check`: only see whether that could be done.
        """
        if self._desk is not None:
            reply(NotAllowed("Messages of a session are locked as long as the session is. Renew its lock."))
            return
        groups = [
            (fragment_at(self.fragments, index) or self.fragments[0], [tokens[place] for place in places])
            for index, places in places_by_fragment(tokens).items()
        ]
        for fragment, chosen in groups:
            lost = check_live(fragment, chosen, now)
            if lost is None and not fragment.broker.may_hand_over():
                lost = fragment.broker.unavailable()
            if lost is not None:
                reply(lost)
                return
        until = now + self.settings.lock_duration
        for fragment, chosen in () if is_check else groups:
            fragment.locks.renew(chosen, until)
            fragment.wake()
        reply([until] * len(tokens))

    # Message sessions

    def accept_session(
        self, request: SessionRequest, deadline: Millis, now: Millis, reply: Reply[SessionLock]
    ) -> Waiter:
        """Lock a named message session, or the next free one, waiting for one until `deadline`."""
        self.settings.last_used_at = now
        try:
            self.settings.check_can_receive()
            check_any_store(self.fragments)
            return self.sessions().accept(request, deadline, now, reply)
        except MessagingError as error:
            reply(error)
            return NO_WAITER

    def release_session(self, lock: SessionLock, now: Millis) -> None:
        """Give it back in good order: its messages are free at once and no delivery count rises."""
        self.sessions().release(lock, now)

    def renew_session(self, session_id: str, now: Millis, reply: Reply[Millis]) -> None:
        try:
            lock = self.sessions().renew(session_id, now)
        except MessagingError as error:
            reply(error)
            return
        reply(lock.locked_until)

    def session_lock(self, session_id: str, now: Millis) -> SessionLock | None:
        """What holds this message session at the moment."""
        return None if self._desk is None else self._desk.lock_of(session_id, now)

    def sessions(self) -> SessionDesk:
        if self._desk is None:
            raise self._no_sessions()
        return self._desk

    def _no_sessions(self) -> NotAllowed:
        return NotAllowed(f"'{self.settings.path}' has no message sessions: it was created without RequiresSession.")

    # Everything else

    def counts(self) -> QueueCounts:
        """From memory, so at once."""
        return counts_of(self.fragments)

    def ask(self, command: Command[T], now: Millis, reply: Reply[T]) -> None:
        """Do what `twinbus.broker.commands` says of it."""
        self.settings.last_used_at = now
        try:
            self.settings.check_stays()
        except MessagingError as error:
            reply(error)
            return
        run(OPERATIONS[type(command)](self, command, now), now, reply)


OPERATIONS: Final[Mapping[type[Command[Any]], Callable[[AskedQueue, Any, Millis], Steps[Any]]]] = {
    commands.Peek: peek.peek,
    commands.PeekMerged: peek.peek_merged,
    commands.PeekRange: peek.peek_range,
    commands.PeekPacked: peek.peek_packed,
    commands.ReceiveDeferred: by_number.receive_deferred,
    commands.CancelScheduled: by_number.cancel_scheduled,
    commands.Purge: bulk.purge,
    commands.Claim: bulk.claim,
    commands.DeleteDeferred: bulk.delete_deferred,
    commands.Undefer: bulk.undefer,
    commands.UndeferAll: bulk.undefer_all,
    commands.Repair: repair.repair,
    commands.PreviewRepair: repair.preview,
    commands.GetSessionState: sessions.get_session_state,
    commands.SetSessionState: sessions.set_session_state,
    commands.ListSessions: sessions.list_sessions,
    commands.CountSessions: sessions.count_sessions,
    commands.ListFragments: overview.list_fragments,
    commands.FindTimes: overview.find_times,
    commands.CountShares: overview.count_shares,
}
