"""What becomes of messages that a client leaves without an outcome, where its source names a default one; and what a source
may not ask for."""

from pathlib import Path

import pytest

from tests.gateway.control_link import DISCHARGE, Control, active
from tests.gateway.front import Client, Front, payload
from twinbus.amqp.codec.delivery_state import ACCEPTED, RELEASED, Modified, Rejected, TransactionalState
from twinbus.amqp.codec.delivery_state import Outcome as OutcomeState
from twinbus.amqp.codec.sections import decode_sections
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.codec.types import Described, Symbol, ULong
from twinbus.amqp.events import Incoming, LinkDetached
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.gateway.links.receiver_binding import ReceiverBinding
from twinbus.model.descriptions import QueueDescription

FAILED = Modified(delivery_failed=True)


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders"))
    return front


def attach(client: Client, source: Source, credit: int = 10) -> IncomingLink:
    link = client.begin().attach("receiver", is_sender=False, source=source, target=Target(address="me"))
    assert isinstance(link, IncomingLink)
    client.run()
    link.grant(credit)
    client.run()
    return link


def taken(client: Client, default: OutcomeState | None) -> tuple[IncomingLink, Incoming]:
    """A message that the client has received and not settled."""
    client.sender("orders").transfer(payload("a"), b"1")
    link = attach(client, Source(address="orders", default_outcome=default))
    (message,) = client.received()
    return link, message


def next_counts(front: Front) -> list[int]:
    """Delivery counts of what another client can receive now, and so has not seen yet."""
    witness = front.client(container_id="witness")
    witness.receiver("orders", credit=10)
    headers = [decode_sections(each.payload).header for each in witness.received()]
    witness.connection.close()
    witness.run()
    return [(header.delivery_count or 0) if header is not None else 0 for header in headers]


@pytest.mark.parametrize(
    ("default", "counts"),
    [(FAILED, [1]), (RELEASED, [0]), (ACCEPTED, []), (Rejected(), []), (None, [])],
    ids=["modified", "released", "accepted", "rejected", "none"],
)
@pytest.mark.parametrize("how", ["detached", "ended", "closed", "lost"])
def test_a_link_that_ends_gives_its_messages_the_default_outcome(
    front: Front, how: str, default: OutcomeState | None, counts: list[int]
) -> None:
    client = front.client()
    link, _ = taken(client, default)
    if how == "detached":
        link.detach()
    elif how == "ended":
        client.session.end()
    elif how == "closed":
        client.connection.close()
    else:
        client.gateway.lost(front.sim.now)
    client.run()
    assert next_counts(front) == counts
    queue = front.sim.entities.queue("orders")
    # Without a default the lock outlives the link, as the SDKs expect.
    is_left = 1 if default is None else len(counts)
    assert (queue.main.counts().active, queue.dead_letter.counts().active) == (is_left, int(default == Rejected()))


def test_what_was_settled_is_not_given_back_when_the_link_ends(front: Front) -> None:
    client = front.client()
    link, message = taken(client, FAILED)
    link.settle(message.delivery_id, message.delivery_id, ACCEPTED)
    client.run()
    link.detach()
    client.run()
    assert (next_counts(front), active(front)) == ([], 0)


@pytest.mark.parametrize("is_in_transaction", [False, True])
def test_a_link_that_settles_what_it_receives_remembers_nothing_of_it(front: Front, is_in_transaction: bool) -> None:
    client = front.client()
    control = Control(client)
    link, message = taken(client, FAILED)
    (binding,) = [each for each in client.gateway._bindings.values() if isinstance(each, ReceiverBinding)]
    assert binding._unsettled
    txn_id = control.declare()
    state = TransactionalState(txn_id=txn_id, outcome=ACCEPTED) if is_in_transaction else ACCEPTED
    link.settle(message.delivery_id, message.delivery_id, state)
    client.run()
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    assert not binding._unsettled


def test_a_delivery_that_is_settled_without_an_outcome_gets_the_default_one(front: Front) -> None:
    client = front.client()
    link, message = taken(client, FAILED)
    link.grant(0)
    link.settle(message.delivery_id, message.delivery_id, None)
    client.run()
    assert next_counts(front) == [1]


def settled_in_transaction(front: Front, default: OutcomeState | None) -> tuple[Client, Control, bytes]:
    """The client has settled its delivery, so nothing it could say reaches it any more."""
    client = front.client()
    control = Control(client)
    link, message = taken(client, default)
    link.grant(0)
    txn_id = control.declare()
    link.settle(message.delivery_id, message.delivery_id, TransactionalState(txn_id=txn_id, outcome=ACCEPTED))
    client.run()
    return client, control, txn_id


@pytest.mark.rule("A7")
@pytest.mark.parametrize(("default", "counts"), [(FAILED, [1]), (None, [0])], ids=["modified", "none"])
def test_a_delivery_settled_in_a_transaction_goes_back_when_it_is_rolled_back(
    front: Front, default: OutcomeState | None, counts: list[int]
) -> None:
    _, control, txn_id = settled_in_transaction(front, default)
    assert next_counts(front) == []
    assert control.ask(DISCHARGE, txn_id, True) == ACCEPTED
    assert next_counts(front) == counts


@pytest.mark.rule("A7")
def test_a_delivery_settled_in_a_transaction_is_gone_when_it_is_committed(front: Front) -> None:
    client, control, txn_id = settled_in_transaction(front, FAILED)
    assert control.ask(DISCHARGE, txn_id, False) == ACCEPTED
    client.connection.close()
    client.run()
    assert (next_counts(front), active(front)) == ([], 0)


@pytest.mark.rule("A7")
def test_a_delivery_settled_in_a_transaction_goes_back_when_the_commit_fails(front: Front) -> None:
    client, control, txn_id = settled_in_transaction(front, FAILED)
    sender = client.sender("orders")
    # Sent settled and refused: the client does not learn of it, so the commit has to fail.
    sender.transfer(b"\x00" * 10, b"2", settled=True, state=TransactionalState(txn_id=txn_id))
    client.run()
    assert isinstance(control.ask(DISCHARGE, txn_id, False), Rejected)
    assert next_counts(front) == [1]


@pytest.mark.rule("A7")
def test_a_delivery_settled_in_a_transaction_goes_back_with_the_connection(front: Front) -> None:
    client, _, _ = settled_in_transaction(front, FAILED)
    client.gateway.lost(front.sim.now)
    assert next_counts(front) == [1]


def test_a_delivery_settled_in_an_unknown_transaction_goes_back_at_once(front: Front) -> None:
    client = front.client()
    link, message = taken(client, FAILED)
    link.grant(0)
    link.settle(message.delivery_id, message.delivery_id, TransactionalState(txn_id=b"none", outcome=ACCEPTED))
    client.run()
    assert next_counts(front) == [1]


SELECTOR = "apache.org:selector-filter:string"


@pytest.mark.parametrize(
    "source",
    [
        Source(address="orders", filter={Symbol("jms-selector"): Described(ULong(0x468C00000004), "a = 1")}),
        Source(address="orders", filter={Symbol(SELECTOR): Described(Symbol(SELECTOR), "a = 1")}),
        Source(address="orders", distribution_mode=Symbol("copy")),
    ],
    ids=["selector by code", "selector by name", "browser"],
)
def test_a_receiver_that_selects_or_browses_is_refused_rather_than_given_other_messages(
    front: Front, source: Source
) -> None:
    client = front.client()
    attach(client, source, credit=0)
    (gone,) = client.take(LinkDetached)
    assert gone.error is not None
    assert gone.error.condition == "amqp:not-implemented"


@pytest.mark.parametrize("session_id", [None, "one"], ids=["any", "named"])
def test_a_default_outcome_that_makes_no_sense_is_refused_before_a_message_session_is_taken(
    front: Front, session_id: str | None
) -> None:
    front.sim.queue(QueueDescription("work", requires_session=True))
    client = front.client()
    filters = {Symbol("com.microsoft:session-filter"): session_id}
    default = Modified(message_annotations={Symbol("x-opt-delivery-time"): "soon"})
    attach(client, Source(address="work", filter=filters, default_outcome=default))
    client.sender("work").transfer(payload("a", group_id="one"), b"1")
    client.run()
    (refusal,) = client.take(LinkDetached)
    assert refusal.error is not None
    assert refusal.error.condition == "com.microsoft:argument-error"
    attach(client, Source(address="work", filter=filters))
    assert len(client.received()) == 1
