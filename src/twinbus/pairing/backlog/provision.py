"""Making sure that a primary's backlog queues exist: the requests to the secondary, in order, as a generator."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from azure.core.exceptions import ClientAuthenticationError, ResourceExistsError

from twinbus.pairing.backlog.queues import CREATE_TRIES_MAX, DESCRIPTION, backlog_queue_path, existing_indexes
from twinbus.pairing.errors import PairingError
from twinbus.pairing.partnership import Partner


@dataclass(frozen=True, slots=True)
class ListQueues:
    """Answered with the names of all queues of the secondary."""


@dataclass(frozen=True, slots=True)
class CreateQueue:
    path: str

    @property
    def description(self) -> dict[str, Any]:
        return DESCRIPTION


@dataclass(frozen=True, slots=True)
class AskName:
    """Answered with the name that this namespace gives itself."""

    partner: Partner


Request = ListQueues | CreateQueue | AskName
Steps = Generator[Request, list[str], dict[int, str]]


def check_two(may_be_one: bool) -> Generator[Request, list[str], None]:
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
    """The backlog queues to use, by index. Raises PairingError if there would be none.

    An index that cannot be created in three tries is dropped: fewer queues are better than no
    pair. Queues above `count` and descriptions that differ are left alone.
    """
    existing = existing_indexes(primary, (yield from _list_queues()))
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
    return usable


def _list_queues() -> Generator[Request, list[str], list[str]]:
    for _ in range(CREATE_TRIES_MAX):
        try:
            return (yield ListQueues())
        except ClientAuthenticationError as error:
            raise _no_right(error) from error
        except Exception as error:
            failure = error
    raise PairingError(f"The queues of the secondary cannot be listed: {failure}", error=failure) from failure


def _create(path: str) -> Generator[Request, list[str], Exception | None]:
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
