from collections.abc import Callable

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError

from twinbus.pairing.backlog.provision import Answer, Backlog, CreateQueue, ListQueues, Request, provision
from twinbus.pairing.errors import PairingError
from twinbus.pairing.stock.steps import run


class Secondary:
    """Answers requests, and fails those that `fails` names."""

    def __init__(
        self, names: tuple[str, ...] = (), fails: Callable[[Request], Exception | None] = lambda _: None
    ) -> None:
        self.names, self.waiting = names, 0
        self.fails = fails
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        error = self.fails(request)
        if error is not None:
            raise error
        return dict.fromkeys(self.names, self.waiting) if isinstance(request, ListQueues) else {}


def path(index: int) -> str:
    return f"contoso/x-servicebus-transfer/{index}"


@pytest.mark.rule("B1.4")
def test_only_missing_queues_are_created() -> None:
    secondary = Secondary((path(1), path(7), "orders"))
    assert run(provision("contoso", 3), secondary) == Backlog({0: path(0), 1: path(1), 2: path(2)})
    assert secondary.requests == [ListQueues(), CreateQueue(path(0)), CreateQueue(path(2))]


@pytest.mark.rule("B8.7")
@pytest.mark.parametrize(("name", "waiting", "is_told"), [(path(1), 3, True), (path(1), 0, False), (path(7), 3, False)])
def test_messages_that_wait_in_a_queue_of_the_pair_are_told(name: str, waiting: int, is_told: bool) -> None:
    """With the answer that lists the queues: a pair that begins with an empty backlog has nothing to look for."""
    secondary = Secondary((name.upper(),))
    secondary.waiting = waiting
    assert run(provision("contoso", 3), secondary).has_waiting is is_told


@pytest.mark.rule("B1.7")
def test_an_index_that_cannot_be_created_in_three_tries_is_dropped() -> None:
    secondary = Secondary(fails=lambda request: HttpResponseError("no") if request == CreateQueue(path(1)) else None)
    assert run(provision("contoso", 3), secondary) == Backlog({0: path(0), 2: path(2)})
    assert secondary.requests.count(CreateQueue(path(1))) == 3


@pytest.mark.rule("B1.8")
def test_pairing_fails_when_no_queue_is_left() -> None:
    secondary = Secondary(fails=lambda request: HttpResponseError("full") if isinstance(request, CreateQueue) else None)
    with pytest.raises(PairingError, match="full"):
        run(provision("contoso", 2), secondary)


@pytest.mark.rule("B1")
def test_a_queue_that_another_process_creates_at_the_same_time_is_used() -> None:
    secondary = Secondary(fails=lambda request: ResourceExistsError() if isinstance(request, CreateQueue) else None)
    assert run(provision("contoso", 1), secondary) == Backlog({0: path(0)})


@pytest.mark.rule("B1.8")
@pytest.mark.parametrize("kind", [ListQueues, CreateQueue])
def test_a_missing_right_ends_pairing_at_once(kind: type) -> None:
    secondary = Secondary(fails=lambda request: ClientAuthenticationError("401") if isinstance(request, kind) else None)
    with pytest.raises(PairingError, match="Manage right"):
        run(provision("contoso", 2), secondary)
    assert len([request for request in secondary.requests if isinstance(request, kind)]) == 1


@pytest.mark.rule("B1")
def test_a_secondary_that_is_down_is_asked_three_times() -> None:
    secondary = Secondary(fails=lambda _: ConnectionError("down"))
    with pytest.raises(PairingError, match="cannot be listed: down"):
        run(provision("contoso", 2), secondary)
    assert len(secondary.requests) == 3
