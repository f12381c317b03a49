"""What a fragment does by itself as time passes."""

from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.duplicates import DuplicateHistory
from twinbus.broker.fragment.expiry import sweep
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.schedule import Activate, activate, look_for_due
from twinbus.broker.fragment.settlement import expire_locks
from twinbus.clock import Millis
from twinbus.store.changes import DuplicatesForgotten


def keep_up(fragment: Fragment, now: Millis) -> None:
    """For the fragments of queues and subscriptions."""
    keep_up_with(fragment, now, activate)


def keep_up_with(fragment: Fragment, now: Millis, activate_due: Activate) -> None:
    expire_locks(fragment, now)
    look_for_due(fragment, now, activate_due)
    sweep(fragment, now)
    if fragment.duplicates is not None and fragment.duplicates.next_end <= now:
        _forget_duplicates(fragment, fragment.duplicates, now)


def _forget_duplicates(fragment: Fragment, history: DuplicateHistory, now: Millis) -> None:
    if history.forget(now):
        decision = Decision(fragment)
        decision.write(DuplicatesForgotten(fragment.key, now))
        # Keys that stayed in a store which failed are dropped with the next ones.
        decision.commit()
