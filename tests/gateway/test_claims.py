"""What a claim allows on links that are open already: tokens that end, are renewed, or come to give less."""

from pathlib import Path

import pytest

from tests.gateway.front import LISTENS, ROOT, SENDS, Client, Front, NodeClient, payload
from twinbus.amqp.codec.delivery_state import ACCEPTED
from twinbus.amqp.codec.sections import Sections
from twinbus.amqp.codec.types import Symbol
from twinbus.amqp.events import Deliveries, Dispositions, LinkDetached
from twinbus.clock import Millis
from twinbus.gateway.authorization import CLOCK_SKEW
from twinbus.gateway.links.bindings import LOOK_EVERY
from twinbus.gateway.requests.handlers import HANDLERS
from twinbus.model.descriptions import AuthorizationRule, QueueDescription, Right

LIFETIME: Millis = 60_000
NEED_SEND = {"com.microsoft:schedule-message", "com.microsoft:cancel-scheduled-message"}
RIGHTS = {SENDS: Right.SEND, LISTENS: Right.LISTEN}
SESSION_FILTER = {Symbol("com.microsoft:session-filter"): "s"}


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders"))
    front.sim.queue(QueueDescription("orders/below"))
    front.sim.queue(QueueDescription("talks", requires_session=True))
    return front


def put_token(client: Client, cbs: NodeClient, path: str, rule: AuthorizationRule, lifetime: Millis = LIFETIME) -> int:
    reply = cbs.ask("put-token", client.front.token(path, rule, lifetime), name=f"sb://host/{path}")
    return int((reply.application_properties or {})["status-code"])


def conditions(client: Client) -> list[str]:
    return [event.error.condition for event in client.take(LinkDetached) if event.error is not None]


def status(reply: Sections) -> tuple[int, str | None]:
    properties = reply.application_properties or {}
    return properties["statusCode"], properties.get("errorCondition")


@pytest.mark.rule("A17.5")
@pytest.mark.parametrize("operation", HANDLERS)
@pytest.mark.parametrize("rule", RIGHTS, ids=lambda rule: rule.name)
def test_every_operation_of_a_node_needs_the_claim_of_its_kind(
    front: Front, operation: str, rule: AuthorizationRule
) -> None:
    reply = front.client(rule).node("orders/$management").ask(operation, {})
    is_refused = status(reply) == (401, "amqp:unauthorized-access")
    needed = Right.SEND if operation in NEED_SEND else Right.LISTEN
    assert is_refused is (needed is not RIGHTS[rule])


def test_a_link_lives_until_its_token_has_run_out_and_no_longer(front: Front) -> None:
    client = front.client(None)
    put_token(client, client.node("$cbs"), "orders", ROOT)
    client.receiver("orders", credit=1)
    client.sender("orders")
    client.advance(LIFETIME + CLOCK_SKEW - 1_000)
    assert conditions(client) == []
    client.advance(1_000)
    assert conditions(client) == ["com.microsoft:auth-failed"] * 2


def test_a_link_lives_on_when_its_token_is_renewed_in_time(front: Front) -> None:
    client = front.client(None)
    cbs = client.node("$cbs")
    put_token(client, cbs, "orders", SENDS)
    sender = client.sender("orders")
    for _ in range(5):
        client.advance(LIFETIME - 5_000)
        assert put_token(client, cbs, "orders", SENDS) == 202
        client.take(Dispositions)
        sender.transfer(payload("a"), b"1")
        client.run()
        assert [event.state for event in client.take(Dispositions)] == [ACCEPTED]
    assert conditions(client) == []


def test_a_refused_renewal_leaves_the_link_its_old_token(front: Front) -> None:
    client = front.client(None)
    cbs = client.node("$cbs")
    put_token(client, cbs, "orders", ROOT)
    client.sender("orders")
    wrong = AuthorizationRule("Root", "wrong", "", frozenset())
    assert put_token(client, cbs, "orders", wrong) == 401
    client.advance(LIFETIME - 1_000)
    assert conditions(client) == []
    client.advance(1_000 + CLOCK_SKEW)
    assert conditions(client) == ["com.microsoft:auth-failed"]


def test_a_token_that_gives_less_ends_the_links_it_does_not_allow(front: Front) -> None:
    client = front.client(None)
    cbs = client.node("$cbs")
    put_token(client, cbs, "orders", ROOT)
    client.sender("orders")
    client.receiver("orders", credit=1)
    put_token(client, cbs, "orders", LISTENS)
    client.advance(2 * LOOK_EVERY)
    assert len(conditions(client)) == 1
    client.sender("orders")
    assert conditions(client) == ["amqp:unauthorized-access"]


def test_an_expired_token_closes_the_node_for_requests(front: Front) -> None:
    client = front.client(None)
    cbs = client.node("$cbs")
    put_token(client, cbs, "orders", ROOT)
    # Another token keeps the connection itself alive.
    put_token(client, cbs, "talks", ROOT, lifetime=10 * LIFETIME)
    node = client.node("orders/$management")
    peek = "com.microsoft:peek-message"
    request = {"from-sequence-number": 0, "message-count": 1}
    assert status(node.ask(peek, request))[0] == 204
    client.advance(LIFETIME + CLOCK_SKEW)
    assert status(node.ask(peek, request)) == (401, "amqp:unauthorized-access")


def test_a_link_ends_with_its_token_though_links_were_looked_at_just_before(front: Front) -> None:
    client = front.client(None)
    cbs = client.node("$cbs")
    put_token(client, cbs, "orders", ROOT)
    put_token(client, cbs, "talks", ROOT, lifetime=10 * LIFETIME)
    client.sender("orders")
    assert front.sim.now % 1_000 == 0
    client.advance(LIFETIME + CLOCK_SKEW - 1)
    assert conditions(client) == []
    client.advance(1)
    assert conditions(client) == ["com.microsoft:auth-failed"]


def test_a_message_session_is_free_when_the_token_of_its_holder_has_run_out(front: Front) -> None:
    client, other = front.client(None), front.client()
    put_token(client, client.node("$cbs"), "talks", ROOT, lifetime=10_000)
    other.sender("talks").transfer(payload("hello", group_id="s"), b"1")
    other.run()
    client.receiver("talks", credit=1, session_filter=SESSION_FILTER)
    assert len(client.take(Deliveries)) == 1
    client.advance(10_000 + CLOCK_SKEW)
    assert conditions(client) == ["com.microsoft:auth-failed"]
    other.receiver("talks", credit=1, session_filter=SESSION_FILTER)
    assert len(other.take(Deliveries)) == 1


def test_an_entity_that_does_not_exist_looks_like_one_that_may_not_be_used(front: Front) -> None:
    client = front.client(None)
    put_token(client, client.node("$cbs"), "orders", ROOT)
    errors = []
    for path in ("talks", "nothing", "talks/$management", "nothing/$management"):
        client.sender(path)
        client.receiver(path)
        errors += [
            (event.error.condition, str(event.error).replace(path, "PATH"))
            for event in client.take(LinkDetached)
            if event.error
        ]
    assert len(errors) == 8
    assert {condition for condition, _ in errors} == {"amqp:unauthorized-access"}
    assert len({text for _, text in errors}) == 1
