"""Finding a pair's backlog on a secondary that may hang: on a thread, with a deadline, again and again if it need not be there.

An application whose primary is healthy must not wait for a spare namespace. The SDK's administration client has retries and
timeouts of its own, of minutes, and cannot be interrupted: a thread that is late is left to itself, and its answer is not used.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from twinbus.pairing.errors import PairingError

RETRY_S = 10.0

T = TypeVar("T")


def found_in_time(find_backlog: Callable[[], T], timeout_s: float) -> T:
    try:
        return in_time(find_backlog, timeout_s)
    except TimeoutError:
        raise late(timeout_s) from None


def in_time(work: Callable[[], T], timeout_s: float) -> T:
    """What `work` returns or raises, on a thread of its own; raises TimeoutError if it takes longer."""
    done = threading.Event()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        done.set()

    threading.Thread(target=run, name="twinbus-provision", daemon=True).start()
    if not done.wait(timeout_s):
        raise TimeoutError(f"There was no answer within {timeout_s:g} s.")
    if errors:
        raise errors[0]
    return results[0]


def late(timeout_s: float) -> PairingError:
    return PairingError(
        f"The secondary did not answer within {timeout_s:g} s, so its backlog queues are not known. Check that it can be "
        "reached, allow more time with the option pairing_timeout, or start without it with require_backlog=False."
    )
