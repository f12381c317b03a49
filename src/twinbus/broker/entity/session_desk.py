"""Which receiver gets which message session of a queue: accepting, waiting, renewing and losing (contract A9).

One receiver at a time holds a session. A hold that is not exclusive has a token, and whoever presents it takes the session
over while it is held: the receiver that had it loses it at once, and what that one was handed stays locked, for the new
holder to settle.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from functools import partial
from hmac import compare_digest
from typing import Final

from twinbus.broker.consumer import Consumer, ReceiveMode, SessionLock, SessionRequest
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hand_over import take_and_delete
from twinbus.broker.fragment.message_sessions import MessageSessions
from twinbus.broker.fragment.settlement import session_lost
from twinbus.broker.replies import Reply, Waiter
from twinbus.broker.telling import tell
from twinbus.broker.wakeups import Wakeup
from twinbus.clock import Millis
from twinbus.errors import (
    ArgumentError,
    EntityNotFound,
    MessagingError,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
)
from twinbus.model.partition_key import candidates

DETACH_SLACK: Millis = 2_000
"""A receiver that waits for exactly the duration of its lock does not meet an error on a quiet link; one that waits a few
seconds longer finds its link closed."""


class _Waiter:
    def __init__(self, reply: Reply[SessionLock], forget: Callable[["_Waiter"], object], *, is_exclusive: bool) -> None:
        self.reply = reply
        self.is_exclusive = is_exclusive
        self._forget = forget

    def cancel(self) -> None:
        self._forget(self)


class _Answered:
    def cancel(self) -> None:
        pass


NO_WAITER: Final[Waiter] = _Answered()
"""For a request that was answered at once."""


class SessionDesk:
    """One for each queue that requires message sessions. Every fragment has its `MessageSessions`."""

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self._fragments = fragments
        self._sessions = [MessageSessions(fragment) for fragment in fragments]
        for fragment, sessions in zip(fragments, self._sessions, strict=True):
            fragment.set_sessions(sessions)
        self._receivers: dict[SessionLock, Consumer] = {}
        self._served: set[SessionLock] = set()  # those whose receivers are being handed something
        self._watches: dict[SessionLock, Wakeup] = {}
        """When locks end, for as long as that concerns anybody: a client may accept and close thousands of times until one would have."""
        self._waiters: OrderedDict[_Waiter, Wakeup] = OrderedDict()
        """Until when they wait, in the order in which they came. Those that give up leave nothing: their time may be far away."""
        self._turn = 0

    def __len__(self) -> int:
        """Receivers, and those that wait for a session."""
        return len(self._receivers) + len(self._waiters)

    def place(self, session_id: str) -> Fragment:
        return self._fragments[candidates(session_id, len(self._fragments), 0)[0]]

    def sessions_of(self, fragment: Fragment) -> MessageSessions:
        return self._sessions[self._fragments.index(fragment)]

    # Accepting

    def accept(self, request: SessionRequest, deadline: Millis, now: Millis, reply: Reply[SessionLock]) -> Waiter:
        if request.session_id is not None:
            reply(self._accept_named(request.session_id, request, now))
            return NO_WAITER
        if request.token is not None:
            raise ArgumentError("A lock token is for one message session. Name that session, or omit the token.")
        waiter = _Waiter(reply, self._stop_waiting, is_exclusive=request.is_exclusive)
        wakeups = self._fragments[0].broker.wakeups
        self._waiters[waiter] = wakeups.at(deadline, partial(self._time_out, waiter))
        self.serve_waiters(now)
        return waiter

    def _stop_waiting(self, waiter: _Waiter) -> None:
        wakeup = self._waiters.pop(waiter, None)
        if wakeup is not None:
            wakeup.cancel()

    def _accept_named(self, session_id: str, request: SessionRequest, now: Millis) -> SessionLock | MessagingError:
        fragment = self.place(session_id)
        if not fragment.is_available or not fragment.broker.may_hand_over():
            return fragment.broker.unavailable()
        sessions = self.sessions_of(fragment)
        sessions.end_overdue(session_id, now)
        lock = sessions.lock_of(session_id, now)
        if request.token is not None and lock is None:
            return SessionLockLost(
                f"Nobody holds the message session '{session_id}' any more. Accept it without a lock token."
            )
        if lock is None:
            return self._hold(fragment, session_id, now, is_exclusive=request.is_exclusive)
        if request.token is None or lock.token is None or not compare_digest(request.token, lock.token):
            return SessionCannotBeLocked(
                f"The message session '{session_id}' is held by another receiver. Try again when that one has closed."
            )
        return self._take_over(fragment, lock, session_id, now)

    def _take_over(self, fragment: Fragment, lock: SessionLock, session_id: str, now: Millis) -> SessionLock:
        successor = self.sessions_of(fragment).take_over(lock, session_id, now)
        self._tell(
            lock,
            SessionLockLost(
                "Another receiver has taken the message session over. Accept it again when that one has closed."
            ),
        )
        self.watch(fragment, successor)
        return successor

    def serve_waiters(self, now: Millis) -> None:
        """Give free sessions to those who wait for any, first come first served."""
        # Thousands may wait, and this is asked for every message.
        while self._waiters:
            free = self._oldest_free()
            if free is None:
                return
            waiter, wakeup = self._waiters.popitem(last=False)
            wakeup.cancel()
            tell(waiter.reply, self._hold(*free, now, is_exclusive=waiter.is_exclusive))

    def _oldest_free(self) -> tuple[Fragment, str] | None:
        """Numbers of different fragments do not compare, so the fragments take turns."""
        count = len(self._fragments)
        for step in range(count):
            turn = (self._turn + step) % count
            fragment = self._fragments[turn]
            is_served = fragment.is_available and fragment.broker.may_hand_over()
            free = self._sessions[turn].first_free() if is_served else None
            if free is not None:
                self._turn = turn + 1
                return fragment, free[1]
        return None

    def _hold(self, fragment: Fragment, session_id: str, now: Millis, *, is_exclusive: bool) -> SessionLock:
        lock = self.sessions_of(fragment).accept(session_id, now, is_exclusive=is_exclusive)
        self.watch(fragment, lock)
        return lock

    def watch(self, fragment: Fragment, lock: SessionLock) -> None:
        """See when it ends."""
        self._unwatch(lock)
        wakeup = fragment.broker.wakeups.at(lock.locked_until, partial(self._look_at, fragment, lock))
        self._watches[lock] = wakeup

    def _unwatch(self, lock: SessionLock) -> None:
        wakeup = self._watches.pop(lock, None)
        if wakeup is not None:
            wakeup.cancel()

    def _time_out(self, waiter: _Waiter, now: Millis) -> None:
        del self._waiters[waiter]
        waiter.reply(OperationTimeout("No message session with messages came free in time. Try again."))

    # Holding

    def attach(self, receiver: Consumer, now: Millis) -> None:
        lock = receiver.session
        if lock is None or not lock.is_held:
            raise session_lost()
        self._receivers[lock] = receiver
        self.pump(receiver, now)

    def detach(self, receiver: Consumer, now: Millis) -> None:
        lock = receiver.session
        if lock is not None:
            self.release(lock, now)

    def release(self, lock: SessionLock, now: Millis) -> None:
        self._receivers.pop(lock, None)
        self._unwatch(lock)
        if lock.is_held:
            sessions = self._sessions[lock.fragment_index]
            if lock.locked_until > now:
                sessions.release(lock, now)
            else:
                sessions.lose(lock, now)

    def renew(self, session_id: str, now: Millis) -> SessionLock:
        lock = self.check_held(session_id, now)
        fragment = self.place(session_id)
        if not fragment.broker.may_hand_over():
            raise fragment.broker.unavailable()
        watched_until, lock.locked_until = lock.locked_until, now + fragment.settings.lock_duration
        if lock.locked_until < watched_until:
            # The lock duration was shortened by an update. Until the former end nobody would look at the lock.
            self.watch(fragment, lock)
        return lock

    def lock_of(self, session_id: str, now: Millis) -> SessionLock | None:
        return self.sessions_of(self.place(session_id)).lock_of(session_id, now)

    def check_held(self, session_id: str, now: Millis) -> SessionLock:
        """The lock on it; raises SessionLockLost if there is none."""
        fragment = self.place(session_id)
        if not fragment.is_available:
            raise fragment.broker.unavailable()
        lock = self.lock_of(session_id, now)
        if lock is None:
            raise session_lost()
        return lock

    def _look_at(self, fragment: Fragment, lock: SessionLock, now: Millis) -> None:
        """The lock ends now, unless it was renewed or is long gone."""
        del self._watches[lock]
        if not lock.is_held:
            self._tell_after_slack(fragment, lock)
        elif lock.locked_until > now:
            self.watch(fragment, lock)
        else:
            self.sessions_of(fragment).lose(lock, now)
            self._tell_after_slack(fragment, lock)

    def _tell_after_slack(self, fragment: Fragment, lock: SessionLock) -> None:
        if lock in self._receivers:
            when = lock.locked_until + DETACH_SLACK
            self._watches[lock] = fragment.broker.wakeups.at(when, lambda _: self._tell(lock, session_lost()))

    def _tell(self, lock: SessionLock, error: MessagingError) -> None:
        self._unwatch(lock)
        receiver = self._receivers.pop(lock, None)
        if receiver is not None:
            tell(receiver.session_lost, error)

    def fragment_lost(self, fragment: Fragment) -> None:
        """Every hold on it is gone: those who held one have to know at once."""
        lost = [lock for lock in self._receivers if not lock.is_held and lock.fragment_index == fragment.index]
        settings = fragment.settings
        for lock in lost:
            self._tell(lock, EntityNotFound.at(settings.path) if settings.is_deleted else session_lost())

    def fragment_moved(self, fragment: Fragment, locks: Set[SessionLock]) -> None:
        """These are held at another node from now on."""
        for lock in locks:
            self._receivers.pop(lock, None)
            self._unwatch(lock)
        self.fragment_lost(fragment)

    def close(self, error: MessagingError) -> None:
        """There are no sessions any more, for anybody."""
        for lock in list(self._receivers):
            self._tell(lock, error)
        for waiter in list(self._waiters):
            self._stop_waiting(waiter)
            tell(waiter.reply, error)

    # Hand-over

    def pump_all(self, now: Millis) -> None:
        for receiver in list(self._receivers.values()):
            self.pump(receiver, now)

    def pump_session(self, session_id: str, now: Millis) -> None:
        lock = self.lock_of(session_id, now)
        receiver = self._receivers.get(lock) if lock is not None else None
        if receiver is not None:
            self.pump(receiver, now)

    def pump(self, receiver: Consumer, now: Millis) -> None:
        lock = receiver.session
        if lock is None or not lock.is_held or lock.locked_until <= now or receiver.credit <= 0:
            return
        if lock in self._served:
            return  # it asks for more in its turn, and the loop that serves it looks again
        self._served.add(lock)
        try:
            self._serve(receiver, lock, now)
        finally:
            self._served.discard(lock)

    def _serve(self, receiver: Consumer, lock: SessionLock, now: Millis) -> None:
        fragment, sessions = self._fragments[lock.fragment_index], self._sessions[lock.fragment_index]
        lane = sessions.lane(lock.session_id)
        while lane.ready and not lane.is_held_back and receiver.credit > 0:
            if receiver.mode is ReceiveMode.PEEK_LOCK:
                deliveries = sessions.take_and_lock(lock, receiver.credit, now)
                if deliveries:
                    receiver.credit -= len(deliveries)
                    tell(receiver.deliver, deliveries)
            else:
                self._delete(fragment, receiver, lock, now)

    def _delete(self, fragment: Fragment, receiver: Consumer, lock: SessionLock, now: Millis) -> None:
        def failed(missing: int, _: Millis) -> None:
            receiver.credit += missing

        lane = self.sessions_of(fragment).lane(lock.session_id)
        receiver.credit -= take_and_delete(fragment, lane, receiver.credit, now, receiver.deliver, failed)
