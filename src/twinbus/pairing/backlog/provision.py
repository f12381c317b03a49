"""Making sure that a primary's backlog queues exist: the requests to the secondary, in order, as a generator."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from azure.core.exceptions import ClientAuthenticationError, ResourceExistsError

from twinbus.model.paths import path_key
from twinbus.pairing.backlog.queues import CREATE_TRIES_MAX, DESCRIPTION, backlog_queue_path, existing_indexes
from twinbus.pairing.errors import PairingError
from twinbus.pairing.partnership import Partner


@dataclass(frozen=True, slots=True)
class ListQueues:
    """Answered with all queues of the secondary: by name, how many messages wait there."""


@dataclass(frozen=True, slots=True)
class CreateQueue:
    path: str

    @property
    def description(self) -> dict[str, Any]:
        return DESCRIPTION


@dataclass(frozen=True, slots=True)
class AskName:
    """Answered with the name that this namespace gives itself, as the only one."""

    partner: Partner


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog queues to use, by index, and whether messages wait in one of them."""

    queues: dict[int, str]
    has_waiting: bool = False


Request = ListQueues | CreateQueue | AskName
Answer = dict[str, int]
Steps = Generator[Request, Answer, Backlog]


def check_two(may_be_one: bool) -> Generator[Request, Answer, None]:
    """Raises PairingError if both addresses lead to one namespace, by what it says of itself. One that does not say is
    given the benefit of the doubt: many namespaces may share an address."""
    if not may_be_one:
        return
    try:
        (primary,) = yield AskName(Partner.PRIMARY)
        (secondary,) = yield AskName(Partner.SECONDARY)
    except Exception:
        return
    if primary == secondary:
        raise PairingError(
            f"A namespace cannot be paired with itself: both addresses lead to '{primary}'. Give another secondary."
        )


def provision(primary: str, count: int) -> Steps:
    """Raises PairingError if there would be no backlog queue.

    An index that cannot be created in three tries is dropped: fewer queues are better than no
    pair. Queues above `count` and descriptions that differ are left alone.
    """
    found = yield from _list_queues()
    existing = existing_indexes(primary, found)
    usable: dict[int, str] = {}
    failure: Exception | None = None
    for index in range(count):
        path = backlog_queue_path(primary, index)
        if index not in existing:
            failed = yield from _create(path)
            if failed is not None:
                failure = failed
                continue
        usable[index] = path
    if not usable:
        raise PairingError(
            f"None of the {count} backlog queues of '{primary}' could be created on the secondary: {failure}",
            error=failure,
        )
    waiting = {path_key(name) for name, count in found.items() if count}
    return Backlog(usable, any(path_key(path) in waiting for path in usable.values()))


def _list_queues() -> Generator[Request, Answer, Answer]:
    for _ in range(CREATE_TRIES_MAX):
        try:
            return (yield ListQueues())
        except ClientAuthenticationError as error:
            raise _no_right(error) from error
        except Exception as error:
            failure = error
    raise PairingError(f"The queues of the secondary cannot be listed: {failure}", error=failure) from failure


def _create(path: str) -> Generator[Request, Answer, Exception | None]:
    failure: Exception | None = None
    for _ in range(CREATE_TRIES_MAX):
        try:
            yield CreateQueue(path)
        except ResourceExistsError:
            return None  # another process pairs the same namespaces
        except ClientAuthenticationError as error:
            raise _no_right(error) from error
        except Exception as error:
            failure = error
        else:
            return None
    return failure


def _no_right(error: Exception) -> PairingError:
    return PairingError(
        "Pairing needs the Manage right on the secondary namespace, to list and create its backlog queues. "
        f"Use a key that has it. The service said: {error}",
        error=error,
    )
