from typing import Any

import pytest

from tests.amqp.wire import Script, Wire, frames_in
from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.delivery_state import ACCEPTED
from twinbus.amqp.codec.error_condition import FaultOfPeer
from twinbus.amqp.codec.frames import encode_frame
from twinbus.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Detach,
    Disposition,
    Flow,
    ReceiverSettleMode,
    SenderSettleMode,
    Transfer,
)
from twinbus.amqp.codec.terminus import Coordinator, Source, Target
from twinbus.amqp.codec.types import Long, Symbol
from twinbus.amqp.errors import LinkFault
from twinbus.amqp.events import (
    ConnectionClosed,
    CreditChanged,
    Deliveries,
    LinkAttached,
    LinkDetached,
    LinkOpened,
    OversizeDelivery,
)
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.link import LinkState
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.errors import EntityNotFound, Unauthorized


def started(**server: Any) -> Script:
    script = Script(**server).open()
    script.begin()
    script.raw()
    return script


def test_an_accepted_attach_echoes_source_target_and_settle_modes() -> None:
    script = started()
    source = Source(address="amqps://here/queue", filter={Symbol("f"): "session"})
    link = script.attach(
        7,
        role=RECEIVER,
        source=source,
        target=Target(address="me"),
        snd_settle_mode=SenderSettleMode.SETTLED,
        rcv_settle_mode=ReceiverSettleMode.SECOND,
    )
    assert isinstance(link, OutgoingLink)
    assert (link.source, link.snd_settle_mode) == (source, SenderSettleMode.SETTLED)
    link.accept(properties={Symbol("until"): Long(5)})
    (attach,) = script.heard()
    assert attach == Attach(
        name="link-7",
        handle=7,
        role=SENDER,
        source=source,
        target=Target(address="me"),
        snd_settle_mode=SenderSettleMode.SETTLED,
        rcv_settle_mode=ReceiverSettleMode.SECOND,
        initial_delivery_count=0,
        properties={"until": 5},
    )


def test_the_attach_of_a_sender_is_echoed_too() -> None:
    script = started()
    source, target = Source(address="me"), Target(address="queue")
    link = script.attach(role=SENDER, source=source, target=target, properties={Symbol("a"): "b"})
    assert isinstance(link, IncomingLink)
    assert link.properties == {"a": "b"}
    link.accept()
    attach = script.heard()[0]
    assert isinstance(attach, Attach)
    assert (attach.source, attach.target) == (source, target)
    assert script.attach(1, role=SENDER).properties == {}


def test_the_other_side_sees_where_a_link_of_ours_leads() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    _, theirs = wire.client_receiver(session)
    assert (theirs.source, theirs.target) == (Source(address="queue"), Target(address="me"))
    session.attach("nowhere", is_sender=True)
    wire.run()
    link = wire.server.only(LinkAttached).link
    assert (link.source, link.target) == (Source(), Target())


@pytest.mark.parametrize(("size", "is_taken"), [(110, True), (111, False)])
def test_a_message_may_exceed_the_announced_size_by_the_allowance(size: int, is_taken: bool) -> None:
    script = started()
    script.sender(max_message_size=100, size_allowance=10)
    script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), payload=bytes(size))
    assert bool(script.end.take(Deliveries)) == is_taken


def test_a_null_or_empty_terminus_is_answered_with_a_full_one() -> None:
    script = started()
    link = script.attach(role=SENDER, source=None, target=Target())
    assert isinstance(link, IncomingLink)
    link.accept()
    attach = script.heard()[0]
    assert isinstance(attach, Attach)
    assert (attach.source, attach.target) == (Source(), Target())


def test_the_application_may_answer_with_another_source() -> None:
    script = started()
    link = script.attach(role=RECEIVER)
    assert isinstance(link, OutgoingLink)
    link.accept(source=Source(address="a", filter={Symbol("f"): "actual"}))
    (attach,) = script.heard()
    assert isinstance(attach, Attach)
    assert attach.source == Source(address="a", filter={"f": "actual"})


def test_a_sender_gets_no_credit_unless_some_is_given() -> None:
    script = started()
    link = script.attach(role=SENDER)
    assert isinstance(link, IncomingLink)
    link.accept()
    assert [each.link_credit for each in script.heard() if isinstance(each, Flow)] == [0]
    assert link.credit == 0


def test_a_coordinator_is_a_target() -> None:
    script = started()
    link = script.attach(role=SENDER, target=Coordinator(capabilities=("amqp:local-transactions",)))
    assert isinstance(link, IncomingLink)
    link.accept()
    attach = script.heard()[0]
    assert isinstance(attach, Attach)
    assert attach.target == Coordinator(capabilities=("amqp:local-transactions",))


def test_a_sender_gets_credit_at_once() -> None:
    script = started()
    link = script.attach(role=SENDER)
    assert isinstance(link, IncomingLink)
    link.accept(credit=500, max_message_size=262_144)
    attach, flow = script.heard()
    assert isinstance(attach, Attach)
    assert isinstance(flow, Flow)
    assert attach.max_message_size == 262_144
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.next_incoming_id) == (0, 0, 500, 0)


@pytest.mark.parametrize("start", [0, 7, 0xFFFFFFFF])
def test_deliveries_are_counted_from_where_their_sender_starts(start: int) -> None:
    script = started()
    link = script.attach(role=SENDER, initial_delivery_count=start)
    assert isinstance(link, IncomingLink)
    link.accept(credit=10)
    _, flow = script.heard()
    assert isinstance(flow, Flow)
    assert (flow.delivery_count, flow.link_credit) == (start, 10)
    script.flow(handle=0, delivery_count=(start + 4) & 0xFFFFFFFF, link_credit=6)
    assert link.credit == 6


@pytest.mark.parametrize(("is_sender", "count"), [(True, 0), (False, None)])
def test_a_sender_of_ours_says_where_it_starts_to_count_and_a_receiver_does_not(
    is_sender: bool, count: int | None
) -> None:
    wire = Wire().open()
    session, _ = wire.session()
    session.attach("link", is_sender=is_sender, source=Source(address="a"), target=Target(address="b"))
    ((_, attach, _),) = frames_in(wire.client.connection.data_to_send())
    assert isinstance(attach, Attach)
    assert attach.initial_delivery_count == count


def test_a_receiver_of_ours_counts_from_where_the_answer_starts() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    link = session.attach("receiver", is_sender=False, source=Source(address="queue"), target=Target(address="me"))
    assert isinstance(link, IncomingLink)
    wire.client.connection.data_to_send()
    answer = Attach(name="receiver", handle=0, role=SENDER, source=Source(), target=Target(), initial_delivery_count=7)
    wire.feed(wire.client, encode_frame(0, encode_composite(answer)))
    link.grant(10)
    ((_, flow, _),) = frames_in(wire.client.connection.data_to_send())
    assert isinstance(flow, Flow)
    assert (flow.delivery_count, flow.link_credit) == (7, 10)


def test_a_refusal_is_an_attach_without_terminus_and_a_detach_in_one_write() -> None:
    script = started()
    script.attach(2, role=RECEIVER).refuse(EntityNotFound.at("queue"))
    attach, detach = script.heard()
    assert isinstance(attach, Attach)
    assert (attach.source, attach.target, attach.initial_delivery_count) == (None, None, 0)
    assert isinstance(detach, Detach)
    assert (detach.handle, detach.closed) == (2, True)
    assert detach.error is not None
    assert detach.error.condition == "amqp:not-found"
    script.flow(handle=2, delivery_count=0, link_credit=10)
    script.say(Detach(handle=2, closed=True))
    assert script.raw() == b""
    assert [type(event) for event in script.end.events] == [LinkDetached]


def test_a_refused_client_link_never_opens_and_learns_why() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    link = session.attach("sender", is_sender=True, target=Target(address="nowhere"))
    wire.run()
    wire.server.only(LinkAttached).link.refuse(Unauthorized("No token."))
    wire.run()
    assert not wire.client.take(LinkOpened)
    detached = wire.client.only(LinkDetached)
    assert detached.link is link
    assert detached.error is not None
    assert str(detached.error) == "amqp:unauthorized-access: No token."


def test_an_attach_may_be_answered_later_and_its_credit_is_kept() -> None:
    script = started()
    link = script.attach(role=RECEIVER)
    assert isinstance(link, OutgoingLink)
    script.flow(handle=0, delivery_count=None, link_credit=10)
    assert script.raw() == b""
    assert link.credit == 0
    link.accept()
    assert link.credit == 10


def test_a_link_that_is_detached_before_its_answer_is_attached_and_detached() -> None:
    script = started()
    link = script.attach(role=RECEIVER)
    assert isinstance(link, OutgoingLink)
    script.say(Detach(handle=0, closed=True))
    attach, detach = script.heard()
    assert isinstance(attach, Attach)
    assert detach == Detach(handle=0, closed=True)
    script.end.only(LinkDetached)
    link.accept()
    link.refuse(Unauthorized("late"))
    assert script.raw() == b""


def test_a_detach_is_answered_once_in_kind() -> None:
    script = started()
    script.sender()
    script.say(Detach(handle=0, closed=False))
    assert script.heard() == [Detach(handle=0, closed=False)]
    assert script.end.only(LinkDetached).closed is False


def test_a_detach_whose_answer_is_held_is_answered_after_what_is_still_owed() -> None:
    script = started()
    link = script.receiver()
    link.is_answer_held = True
    link.transfer(b"payload", b"tag")
    script.raw()
    script.say(Disposition(role=RECEIVER, first=0, state=ACCEPTED), Detach(handle=0, closed=False))
    assert script.raw() == b""
    script.end.only(LinkDetached)
    assert link.transfer(b"payload", b"tag") is None
    flow = Flow(handle=0, link_credit=5, incoming_window=10, next_outgoing_id=0, outgoing_window=10)
    script.say(flow, Detach(handle=0, closed=True))
    link.confirm(0, 0, ACCEPTED)
    link.end()
    link.end()
    disposition, detach = script.heard()
    assert isinstance(disposition, Disposition)
    assert detach == Detach(handle=0, closed=False)
    assert link.state is LinkState.GONE
    script.receiver()


def test_a_handle_is_free_while_the_answer_to_its_detach_is_held_back() -> None:
    script = started()
    held = script.receiver()
    held.is_answer_held = True
    script.say(Detach(handle=0, closed=True))
    script.end.only(LinkDetached)
    sender = script.sender()
    assert (sender.handle, sender.remote_handle) == (1, 0)
    held.end()
    assert script.heard() == [Detach(handle=0, closed=True)]
    script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"tag"), payload=b"payload")
    assert [each.payload for each in script.end.only(Deliveries).deliveries] == [b"payload"]
    script.say(Detach(handle=0, closed=True))
    assert script.heard()[-1] == Detach(handle=1, closed=True)


def test_the_answer_to_our_detach_gets_no_answer() -> None:
    script = started()
    link = script.sender()
    link.detach(Unauthorized("The token ran out."))
    (detach,) = script.heard()
    assert isinstance(detach, Detach)
    assert not script.end.events
    script.say(Detach(handle=0, closed=True))
    assert script.raw() == b""
    assert script.end.only(LinkDetached).error is None


def test_a_handle_is_used_again_after_both_detaches() -> None:
    script = started()
    for _ in range(3):
        link = script.sender(4)
        link.detach()
        script.say(Detach(handle=4, closed=True))
        script.raw()
    assert len(script.end.take(LinkDetached)) == 3


def test_nothing_happens_on_a_link_that_is_gone() -> None:
    script = started()
    incoming, outgoing = script.sender(0), script.receiver(1)
    script.say(Detach(handle=0, closed=True), Detach(handle=1, closed=True))
    script.raw()
    incoming.settle(0, 5, None)
    incoming.grant(10)
    incoming.detach()
    outgoing.confirm(0, 5, None)
    outgoing.drained()
    assert outgoing.transfer(b"payload", b"tag") is None
    assert outgoing.transfers([(b"tag", b"payload")]) is None
    assert outgoing.credit == 0
    assert script.raw() == b""


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        ([Transfer(handle=0, delivery_tag=b"t")], "amqp:invalid-field"),
        (
            [
                Transfer(handle=0, delivery_id=1, delivery_tag=b"t", more=True),
                Transfer(handle=0, delivery_id=2, delivery_tag=b"u"),
            ],
            "amqp:invalid-field",
        ),
        ([Transfer(handle=1, delivery_id=0, delivery_tag=b"t")], "amqp:not-allowed"),
    ],
)
def test_a_fault_of_a_link_detaches_it_and_leaves_the_others(frames: list[Transfer], condition: str) -> None:
    script = started()
    script.sender(0)
    script.receiver(1)
    well = script.sender(2)
    script.say(*frames)
    (detach,) = script.heard()
    assert isinstance(detach, Detach)
    assert detach.error is not None
    assert detach.error.condition == condition
    found = script.end.only(LinkDetached).error
    assert found == FaultOfPeer(condition=condition, description=detach.error.description)
    script.say(Transfer(handle=detach.handle, delivery_id=9, delivery_tag=b"crossing", settled=True))
    script.say(Detach(handle=detach.handle, closed=True))
    assert script.raw() == b""
    assert not script.end.events
    assert well.is_attached


def test_ten_thousand_links_work_and_the_next_one_is_refused() -> None:
    script = started(handle_max=20_000)
    for handle in range(10_000):
        link = script.attach(handle, role=SENDER)
        assert isinstance(link, IncomingLink)
        link.accept(credit=1)
    script.raw()
    script.say(Attach(name="one too many", handle=10_000, role=SENDER))
    assert not script.end.events
    attach, detach = script.heard()
    assert isinstance(attach, Attach)
    assert isinstance(detach, Detach)
    assert detach.error is not None
    assert detach.error.condition == "amqp:resource-limit-exceeded"
    script.say(Detach(handle=10_000, closed=True), Detach(handle=5, closed=True))
    script.sender(10_000)
    script.say(Transfer(handle=9_999, delivery_id=0, delivery_tag=b"t", settled=True))
    assert len(script.end.take(Deliveries)) == 1


def test_a_peer_that_heaps_up_refused_links_is_disconnected() -> None:
    script = started(link_count_max=5)
    for handle in range(10):
        script.say(Attach(name=str(handle), handle=handle, role=SENDER))
    assert not script.end.take(ConnectionClosed)
    script.say(Attach(name="11", handle=11, role=SENDER))
    script.end.only(ConnectionClosed)


def test_credit_is_set_and_not_added() -> None:
    script = started()
    link = script.receiver(credit=10)
    link.transfers([(b"a", b""), (b"b", b"")])
    script.flow(next_incoming_id=2, handle=0, delivery_count=1, link_credit=10)
    assert script.end.only(CreditChanged).credit == link.credit == 9


def test_a_drain_is_answered_with_the_count_advanced_by_the_rest() -> None:
    script = started()
    link = script.receiver(credit=10)
    script.flow(handle=0, delivery_count=0, link_credit=10, drain=True)
    assert script.end.only(CreditChanged).drain
    assert link.is_draining
    link.transfers([(b"a", b""), (b"b", b"")])
    link.drained()
    *_, flow = script.heard()
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain) == (0, 10, 0, True)
    assert link.credit == 0
    assert not link.is_draining


def test_a_receiver_learns_that_its_drain_is_done() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    receiver, sender = wire.client_receiver(session, credit=10)
    receiver.drain()
    wire.run()
    assert [event.drain for event in wire.server.take(CreditChanged)] == [False, True]
    sender.transfer(b"last", b"tag")
    sender.drained()
    wire.run()
    kinds = [type(event) for event in wire.client.events if isinstance(event, Deliveries | CreditChanged)]
    assert kinds == [Deliveries, CreditChanged]
    assert wire.client.only(CreditChanged).credit == receiver.credit == 0


@pytest.mark.parametrize("count", [1, 4, 10])
def test_after_a_drain_credit_is_what_was_granted_however_many_messages_came_with_its_answer(count: int) -> None:
    wire = Wire().open()
    session, _ = wire.session()
    receiver, sender = wire.client_receiver(session, credit=10)
    receiver.drain()
    wire.run()
    sender.transfers([(str(number).encode(), b"payload") for number in range(count)])
    sender.drained()
    wire.run()
    receiver.grant(3)
    wire.run()
    assert sender.credit == 3


def test_an_echo_is_answered_and_a_flow_that_asks_for_none_is_not() -> None:
    script = started()
    script.receiver(credit=10)
    script.flow(handle=0, delivery_count=0, link_credit=8)
    assert script.heard() == []
    script.flow(handle=0, delivery_count=0, link_credit=7, echo=True)
    (flow,) = script.heard()
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.link_credit, flow.drain) == (0, 7, False)


def test_a_sender_that_asks_for_an_echo_is_told_its_credit_and_others_are_not() -> None:
    script = started()
    script.sender(credit=50)
    script.flow(handle=0, delivery_count=0, link_credit=50)
    assert script.heard() == []
    script.flow(handle=0, delivery_count=0, link_credit=50, echo=True)
    (flow,) = script.heard()
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.link_credit) == (0, 50)


def test_credit_is_topped_up_as_deliveries_are_settled() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    sender, receiver = wire.client_sender(session, credit=10)
    sender.transfers([(b"%d" % number, b"") for number in range(10)])
    wire.run()
    assert sender.credit == 0
    assert receiver.unsettled_count == 10
    receiver.settle(0, 3, None)
    wire.run()
    assert sender.credit == 0
    receiver.settle(4, 4, None)
    wire.run()
    assert sender.credit == 5


def test_deliveries_that_are_not_settled_yet_count_for_another_credit_too() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    sender, receiver = wire.client_sender(session, credit=10)
    sender.transfers([(b"%d" % number, b"") for number in range(10)])
    wire.run()
    for credit, left in ((15, 5), (8, 0)):
        receiver.keep_credit(credit)
        wire.run()
        assert sender.credit == left


def test_credit_for_settled_messages_is_topped_up_as_they_arrive() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    sender, _ = wire.client_sender(session, credit=10)
    for _ in range(100):
        sender.transfer(b"payload", b"tag", settled=True)
        wire.run()
        assert sender.credit > 0


def test_a_sender_that_ignores_credit_is_served() -> None:
    script = started()
    script.sender(credit=1)
    for number in range(50):
        script.say(Transfer(handle=0, delivery_id=number, delivery_tag=b"t", message_format=0, settled=False))
    assert sum(len(event.deliveries) for event in script.end.take(Deliveries)) == 50


def test_reading_should_pause_while_too_much_waits_for_the_application() -> None:
    script = started(inflow_count_max=10)
    link = script.sender(credit=1)
    for number in range(11):
        assert not script.connection.is_flooded
        script.say(Transfer(handle=0, delivery_id=number, delivery_tag=b"t", message_format=0, settled=False))
    assert script.connection.is_flooded
    link.settle(0, 4, None)
    assert script.connection.is_flooded
    link.settle(5, 5, None)
    assert not script.connection.is_flooded


def test_a_link_that_is_gone_keeps_nobody_from_reading() -> None:
    script = started(inflow_size_max=100)
    script.sender()
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, settled=False)
    script.say(transfer, payload=bytes(200))
    assert script.connection.is_flooded
    script.say(Detach(handle=0, closed=True))
    assert not script.connection.is_flooded
    script.sender()
    script.say(transfer, Detach(handle=0, closed=True), payload=bytes(200))
    assert not script.connection.is_flooded


def test_an_oversize_message_counts_until_it_is_settled() -> None:
    script = started(inflow_count_max=0)
    link = script.sender(max_message_size=3)
    script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, settled=False), payload=b"four")
    script.end.only(OversizeDelivery)
    assert script.connection.is_flooded
    link.settle(0, 0, None)
    assert not script.connection.is_flooded


def test_an_oversize_message_that_was_sent_settled_costs_no_credit() -> None:
    """Nobody will settle it."""
    script = started()
    link = script.sender(credit=2, max_message_size=3)
    for number in range(4):
        transfer = Transfer(handle=0, delivery_id=number, delivery_tag=b"t", message_format=0, settled=True)
        script.say(transfer, payload=b"four")
        assert script.end.only(OversizeDelivery).settled
    assert link.credit == 2


def test_messages_that_cross_the_detach_of_an_unanswered_link_are_not_reported() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    link = session.attach("name", is_sender=False)
    wire.feed(wire.server, wire.client.connection.data_to_send())
    sender = wire.server.only(LinkAttached).link
    assert isinstance(sender, OutgoingLink)
    sender.accept()
    sender.transfer(b"payload", b"tag")
    link.detach()
    wire.run()
    assert not wire.client.take(Deliveries)
    assert wire.client.only(LinkDetached).link is link


def test_a_name_cannot_be_attached_twice_before_it_is_answered() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    session.attach("name", is_sender=True)
    with pytest.raises(LinkFault, match="choose another name"):
        session.attach("name", is_sender=True)


def test_a_client_link_that_detaches_before_its_answer_is_cleaned_up() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    link = session.attach("name", is_sender=False)
    link.detach()
    wire.run()
    assert not wire.client.take(LinkOpened)
    assert wire.client.only(LinkDetached).link is link
    wire.server.only(LinkAttached)
    wire.client_receiver(session, "name")
