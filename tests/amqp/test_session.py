import time

import pytest

from tests.amqp.wire import Script, Wire, frames_in
from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.error_condition import ErrorCondition, FaultOfPeer
from twinbus.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Flow,
    Performative,
    Transfer,
)
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.events import (
    ConnectionClosed,
    CreditChanged,
    Deliveries,
    LinkAttached,
    LinkDetached,
    SessionBegun,
    SessionEnded,
)
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.errors import ServerBusy


def test_the_answer_to_a_begin_names_the_peers_channel_and_real_windows() -> None:
    script = Script(incoming_window=77, handle_max=9).open()
    script.begin(5, next_outgoing_id=3)
    ((channel, begin, _),) = frames_in(script.raw())
    assert isinstance(begin, Begin)
    assert (channel, begin.remote_channel, begin.incoming_window, begin.handle_max) == (5, 5, 77, 9)


def test_both_ends_of_a_session_end_once() -> None:
    wire = Wire().open()
    session, other = wire.session()
    wire.client_sender(session)
    session.end(ServerBusy("later"))
    wire.run()
    ended = wire.server.only(SessionEnded)
    assert ended.session is other
    assert ended.error is not None
    assert ended.error.condition == "com.microsoft:server-busy"
    assert wire.client.only(SessionEnded).session is session
    for end in (wire.client, wire.server):
        end.only(LinkDetached)
        assert [type(p) for _, p, _ in frames_in(end.sent[end.sent.index(b"AMQP\0") + 8 :])].count(End) == 1


def test_the_answer_to_our_end_gets_no_answer() -> None:
    script = Script().open()
    session = script.begin()
    script.raw()
    session.end()
    assert script.heard() == [End()]
    script.say(End())
    assert script.heard() == []


def test_frames_that_cross_our_end_are_ignored() -> None:
    script = Script().open()
    session = script.begin()
    script.sender()
    session.end()
    script.raw()
    script.say(
        Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, settled=False),
        Transfer(handle=9, delivery_id=1),
        Attach(name="new", handle=0, role=SENDER),
        Detach(handle=0, closed=True),
    )
    assert script.raw() == b""
    assert not script.end.take(Deliveries)
    assert not script.end.take(LinkAttached)


@pytest.mark.parametrize(
    ("frame", "condition"),
    [
        (Transfer(handle=4, delivery_id=0, delivery_tag=b"t"), "amqp:session:unattached-handle"),
        (
            Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1, handle=4),
            "amqp:session:unattached-handle",
        ),
        (Attach(name="other", handle=0, role=SENDER), "amqp:session:handle-in-use"),
    ],
)
def test_a_fault_of_a_session_ends_it_and_leaves_the_others(frame: Performative, condition: str) -> None:
    script = Script().open()
    ill = script.begin(0)
    script.sender()
    well = script.begin(1)
    script.raw()
    script.say(frame)
    (end,) = script.heard()
    assert isinstance(end, End)
    assert end.error is not None
    assert end.error.condition == condition
    ended = script.end.only(SessionEnded)
    assert ended.session is ill
    assert ended.error == FaultOfPeer(condition=condition, description=end.error.description)
    assert script.end.only(LinkDetached).error == ended.error
    script.say(End())
    assert script.raw() == b""
    assert not script.end.events
    script.attach(role=SENDER, channel=1)
    assert well.state.name == "MAPPED"


def test_links_end_with_the_error_that_the_peer_ends_their_session_with() -> None:
    script = Script().open()
    script.begin()
    script.sender()
    error = ErrorCondition(condition="amqp:session:window-violation", description="why")
    script.say(End(error=error))
    assert script.end.only(SessionEnded).error == error
    assert script.end.only(LinkDetached).error == error


def test_a_detach_for_no_link_is_not_worth_a_session() -> None:
    script = Script().open()
    script.begin()
    script.raw()
    script.say(Detach(handle=3, closed=True))
    assert script.raw() == b""
    assert not script.end.events


def test_a_handle_over_the_maximum_closes_the_connection() -> None:
    script = Script(handle_max=3).open()
    script.begin()
    script.attach(3, role=SENDER)
    script.say(Attach(name="too high", handle=4, role=SENDER))
    error = script.end.only(ConnectionClosed).error
    assert error is not None
    assert error.condition == "amqp:connection:framing-error"


def test_transfers_wait_for_the_peers_window_and_keep_their_order() -> None:
    script = Script().open()
    script.begin(incoming_window=2)
    link = script.receiver(credit=10)
    script.flow(incoming_window=2)
    script.end.events.clear()
    first = link.transfers([(b"%d" % number, b"payload %d" % number) for number in range(5)])
    link.transfer(b"payload 5", b"5")
    assert first == 0
    assert [payload for _, payload in script.heard_payloads()] == [b"payload 0", b"payload 1"]
    assert link.credit == 0
    script.flow(next_incoming_id=2, incoming_window=3)
    assert [payload for _, payload in script.heard_payloads()] == [b"payload 2", b"payload 3", b"payload 4"]
    assert not script.end.take(CreditChanged)
    script.flow(next_incoming_id=5, incoming_window=3)
    ((transfer, payload),) = script.heard_payloads()
    assert isinstance(transfer, Transfer)
    assert (transfer.delivery_id, payload) == (5, b"payload 5")
    assert script.connection.held_back_size == 0
    changed = script.end.only(CreditChanged)
    assert (changed.credit, changed.is_news) == (4, False), "the client said nothing of credit"


def test_a_window_that_opens_tells_every_sender_with_credit() -> None:
    script = Script().open()
    script.begin(incoming_window=0)
    links = [script.receiver(handle, credit=5) for handle in range(2)]
    script.flow(incoming_window=0)
    links[0].transfer(b"payload", b"tag")
    assert [link.credit for link in links] == [0, 0]
    script.flow(incoming_window=10)
    assert {event.link: event.credit for event in script.end.take(CreditChanged)} == {links[0]: 4, links[1]: 5}


@pytest.mark.parametrize("window", [1, 5])
def test_a_drained_link_says_so_behind_the_transfers_that_wait(window: int) -> None:
    """Which needs no room in the window."""
    script = Script().open()
    script.begin(incoming_window=0)
    link = script.receiver(credit=5)
    script.flow(incoming_window=0)
    link.transfer(b"payload", b"tag")
    script.flow(incoming_window=0, handle=0, delivery_count=0, link_credit=5, drain=True)
    link.drained()
    assert script.heard() == []
    script.flow(incoming_window=window)
    transfer, flow = script.heard()
    assert isinstance(transfer, Transfer)
    assert isinstance(flow, Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain, flow.next_outgoing_id) == (5, 0, True, 1)


def test_what_waits_for_a_window_is_dropped_with_its_link() -> None:
    script = Script().open()
    script.begin(incoming_window=0)
    gone, stays = [script.receiver(handle, credit=5) for handle in range(2)]
    script.flow(incoming_window=0)
    gone.transfer(b"lost", b"tag")
    before = script.connection.held_back_size
    stays.transfer(b"kept", b"tag")
    kept = script.connection.held_back_size - before
    script.say(Detach(handle=0, closed=True))
    assert script.connection.held_back_size == kept
    script.raw()
    script.flow(incoming_window=5)
    assert [payload for p, payload in script.heard_payloads() if isinstance(p, Transfer)] == [b"kept"]


def test_a_session_whose_window_stays_shut_is_ended_at_the_limit() -> None:
    script = Script(held_back_size_max=10_000).open()
    script.begin(incoming_window=0)
    link = script.receiver(credit=1000)
    script.flow(incoming_window=0)
    for _ in range(10):
        link.transfer(bytes(1000), b"tag")
    assert script.raw() == b""
    link.transfer(bytes(1000), b"tag")
    (end,) = script.heard()
    assert isinstance(end, End)
    assert end.error is not None
    assert end.error.condition == "amqp:resource-limit-exceeded"
    assert link.transfer(b"more", b"tag") is None


def held_back(**server: int) -> tuple[Script, OutgoingLink]:
    script = Script(**server).open()
    script.begin(incoming_window=0)
    link = script.receiver(credit=1_000)
    script.flow(incoming_window=0)
    link.transfer(bytes(1_000), b"tag")
    return script, link


def test_a_session_may_have_as_much_waiting_as_the_limit_says_and_one_transfer_more() -> None:
    size = held_back()[0].connection.held_back_size
    script, link = held_back(held_back_size_max=size)
    link.transfer(bytes(1_000), b"tag")
    assert script.raw() == b""
    link.transfer(bytes(1_000), b"tag")
    assert isinstance(script.heard()[0], End)


def test_what_waits_for_the_window_of_a_session_that_the_peer_ends_is_dropped() -> None:
    script = Script().open()
    script.begin(incoming_window=0)
    link = script.receiver(credit=1000)
    script.flow(incoming_window=0)
    link.transfer(bytes(1000), b"tag")
    assert script.connection.held_back_size >= 1000
    script.say(End())
    assert script.connection.held_back_size == 0


def test_what_waits_for_windows_is_limited_for_all_sessions_of_a_connection_together() -> None:
    wire = Wire(client={"incoming_window": 0}, server={"held_back_size_max": 10_000}).open()
    links = []
    for number in range(5):
        session, at_server = wire.session()
        _, link = wire.client_receiver(session, name=f"receiver {number}", credit=1_000)
        links.append((link, at_server))
    for link, _ in links:
        for _ in range(2):
            link.transfer(bytes(1_000), b"tag")
    assert wire.server.connection.held_back_size >= 10_000
    assert all(session.is_held_back for _, session in links)
    link, session = links[0]
    link.transfer(bytes(1_000), b"tag")
    assert not session.is_held_back
    assert 8_000 <= wire.server.connection.held_back_size < 10_000
    wire.run()
    assert [event.session for event in wire.client.take(SessionEnded)] != []


def test_our_window_is_announced_again_before_it_is_used_up() -> None:
    wire = Wire(server={"incoming_window": 10}).open()
    session, _ = wire.session()
    sender, _ = wire.client_sender(session, credit=1000)
    for _ in range(50):
        sender.transfer(b"payload", b"tag", settled=True)
        wire.run()
    assert not session.is_held_back
    assert sum(len(event.deliveries) for event in wire.server.take(Deliveries)) == 50


def test_our_window_is_announced_again_where_no_message_is_whole_yet() -> None:
    script = Script(incoming_window=4).open()
    script.begin()
    script.sender()
    for count in (0, 1):
        script.say(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True), payload=b"part")
        assert [each.incoming_window for each in script.heard() if isinstance(each, Flow)] == [4] * count


def test_a_burst_larger_than_our_window_arrives_whole() -> None:
    wire = Wire(server={"incoming_window": 4}).open()
    session, _ = wire.session()
    sender, _ = wire.client_sender(session, credit=1000)
    sender.transfers([(b"%d" % number, bytes([number])) for number in range(100)], settled=True)
    assert session.is_held_back
    wire.run()
    assert not session.is_held_back
    payloads = [delivery.payload for event in wire.server.take(Deliveries) for delivery in event.deliveries]
    assert payloads == [bytes([number]) for number in range(100)]


def test_a_peer_beyond_our_window_is_not_punished() -> None:
    script = Script(incoming_window=2).open()
    script.begin()
    script.sender()
    for number in range(9):
        script.say(Transfer(handle=0, delivery_id=number, delivery_tag=b"t", message_format=0, settled=True))
    assert sum(len(event.deliveries) for event in script.end.take(Deliveries)) == 9
    assert not script.end.events


def test_every_flow_carries_the_state_of_the_session() -> None:
    script = Script(incoming_window=100).open()
    script.begin(next_outgoing_id=40)
    out = script.receiver(0)
    script.sender(1)
    script.say(Transfer(handle=1, delivery_id=0, delivery_tag=b"t", message_format=0, settled=True))
    out.transfers([(b"a", b""), (b"b", b"")])
    script.raw()
    script.flow(echo=True)
    (flow,) = script.heard()
    assert isinstance(flow, Flow)
    assert (flow.next_incoming_id, flow.incoming_window, flow.next_outgoing_id) == (41, 100, 2)
    assert flow.outgoing_window > 0
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain) == (None, None, None, False), "of no link"


def test_delivery_ids_are_consecutive_over_all_links_of_a_session() -> None:
    script = Script().open()
    script.begin()
    first, second = script.receiver(0), script.receiver(1)
    ids = [first.transfer(b"", b"a"), second.transfer(b"", b"b"), first.transfers([(b"c", b""), (b"d", b"")])]
    ids.append(second.transfer(b"", b"e", settled=True, message_format=7))
    assert ids == [0, 1, 2, 4]
    assert [p.delivery_id for p in script.heard() if isinstance(p, Transfer)] == [0, 1, 2, 3, 4]


def test_the_same_name_in_both_directions_makes_two_links() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    sender = session.attach("node", is_sender=True)
    receiver = session.attach("node", is_sender=False)
    wire.run()
    for event in wire.server.take(LinkAttached):
        event.link.accept() if isinstance(event.link, OutgoingLink) else event.link.detach()
    wire.run()
    assert (sender.is_attached, receiver.is_attached) == (False, True)


def test_a_begin_that_answers_nothing_closes_the_connection() -> None:
    script = Script().open()
    script.say(Begin(remote_channel=3, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    script.end.only(ConnectionClosed)
    assert not script.end.take(SessionBegun)


def test_a_session_that_ends_before_its_answer_is_cleaned_up() -> None:
    wire = Wire().open()
    session = wire.client.connection.begin()
    session.end()
    wire.run()
    assert not wire.client.take(SessionBegun)
    assert wire.client.only(SessionEnded).session is session
    wire.server.only(SessionBegun)
    again, _ = wire.session()
    assert again.channel == session.channel


def test_roles_are_seen_from_the_other_side() -> None:
    script = Script().open()
    script.begin()
    assert script.attach(0, role=RECEIVER).is_sender
    assert not script.attach(1, role=SENDER).is_sender


def test_each_of_very_many_links_drops_its_own_frames_that_wait_for_the_window() -> None:
    link_count, message_count = 1_500, 20
    script = Script().open()
    session = script.begin(incoming_window=0)
    script.say(*(Attach(name=f"{each}", handle=each, role=RECEIVER, source=Source()) for each in range(link_count)))
    links = [event.link for event in script.end.take(LinkAttached)]
    for link in links:
        assert isinstance(link, OutgoingLink)
        link.accept()
        link.transfers([(b"t", b"m")] * message_count)
    script.raw()
    before = time.thread_time()
    for link in links[1:]:
        link.detach()
    assert time.thread_time() - before < 0.8
    script.raw()
    script.flow(incoming_window=1_000_000)
    assert not session.is_held_back
    assert script.connection.held_back_size == 0
    assert [type(each) for each in script.heard()] == [Transfer] * message_count


def held_detach() -> tuple[Script, OutgoingLink]:
    """The peer has detached a link whose application still owes it something, and then ended the session."""
    script = Script().open()
    script.begin()
    script.sender()
    link = script.receiver(1)
    link.is_answer_held = True
    script.raw()
    script.say(Detach(handle=1, closed=True), End())
    return script, link


def test_an_end_is_answered_after_the_detaches_that_came_before_it() -> None:
    script, link = held_detach()
    assert script.raw() == b""
    assert len(script.end.take(LinkDetached)) == 2
    script.say(Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1), End())  # what crosses it is ignored
    link.end()
    assert script.heard() == [Detach(handle=1, closed=True), End()]
    link.end()
    assert script.raw() == b""


def test_a_channel_is_free_again_once_a_late_end_is_answered() -> None:
    script, link = held_detach()
    link.end()
    script.raw()
    script.begin()
    ((channel, begin, _),) = frames_in(script.raw())
    assert isinstance(begin, Begin)
    assert channel == begin.remote_channel == 0


def test_a_close_ends_the_wait_of_an_end() -> None:
    script, link = held_detach()
    script.say(Close())
    assert script.heard() == [Detach(handle=1, closed=True), End(), Close()]
    link.end()
    assert script.raw() == b""


def test_very_many_detaches_that_an_end_waits_for_are_answered_at_once() -> None:
    count = 8_000
    script = Script(link_count_max=2 * count).open()
    script.begin()
    script.say(*(Attach(name=f"{each}", handle=each, role=RECEIVER, source=Source()) for each in range(2 * count)))
    links = [event.link for event in script.end.take(LinkAttached)]
    for link in links:
        link.is_answer_held = link.handle % 2 == 1
        assert isinstance(link, OutgoingLink)
        link.accept()
    script.say(*(Detach(handle=each, closed=True) for each in range(1, 2 * count, 2)))
    script.raw()
    before = time.thread_time()
    script.say(End())
    for link in links[1::2]:
        link.end()
    assert time.thread_time() - before < 1
    assert script.heard()[-2:] == [Detach(handle=2 * count - 1, closed=True), End()]


def test_a_connection_that_is_lost_ends_the_wait_of_an_end() -> None:
    script, link = held_detach()
    events = script.end.connection.lost()
    assert [type(event) for event in events] == [SessionEnded, ConnectionClosed]
    link.end()


def test_a_peer_may_use_its_channel_again_before_its_end_is_answered() -> None:
    script, link = held_detach()
    again = script.begin()
    ((channel, begin, _),) = frames_in(script.raw())
    assert isinstance(begin, Begin)
    assert (begin.remote_channel, channel) == (0, 1)
    link.end()
    assert [(channel, type(frame)) for channel, frame, _ in frames_in(script.raw())] == [(0, Detach), (0, End)]
    script.say(End())
    assert [(channel, type(frame)) for channel, frame, _ in frames_in(script.raw())] == [(1, End)]
    assert script.end.take(SessionEnded)[-1].session is again


def test_a_transfer_in_an_unusual_form_counts_once_too() -> None:
    """With an extended header, which the quick way does not take."""
    script = Script(incoming_window=100).open()
    script.begin()
    link = script.sender()
    for number in range(5):
        body = encode_composite(Transfer(handle=0, delivery_id=number, delivery_tag=b"t", settled=True)) + b"payload"
        script.feed((12 + len(body)).to_bytes(4) + b"\x03\x00\x00\x00" + bytes(4) + body)
    link.grant(1)
    (flow,) = [each for each in script.heard() if isinstance(each, Flow)]
    assert (flow.next_incoming_id, flow.incoming_window) == (5, 100)


def test_links_of_a_session_that_is_over_are_counted_off_once() -> None:
    wire = Wire().open()
    session, _ = wire.session()
    for name in "ab":
        wire.client_sender(session, name)
    context = session._links._context
    assert context.link_count == 2
    session.end()
    wire.run()
    session.connection_closed(None)
    assert context.link_count == 0
    assert list(session._links.outgoing()) == []


def test_our_handles_stay_within_what_the_peer_allows() -> None:
    script = Script().open()
    script.begin(handle_max=1)
    ours = [script.attach(handle, role=RECEIVER).handle for handle in (1, 7)]
    assert ours == [1, 0], "the peer's own number where that is allowed, else the lowest that is free"
    script.raw()
    wanted = Attach(name="more", handle=9, role=RECEIVER, source=Source(address="a"), target=Target(address="b"))
    script.say(wanted)
    (end,) = script.heard()
    assert isinstance(end, End)
    assert end.error is not None
    assert end.error.condition == "amqp:resource-limit-exceeded"


def test_our_channels_stay_within_what_the_peer_allows() -> None:
    script = Script().open(channel_max=1)
    assert [script.begin(channel).channel for channel in (1, 7)] == [1, 0]
    script.raw()
    script.say(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10), channel=8)
    *_, close = script.heard()
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == "amqp:resource-limit-exceeded"


def test_a_stranger_begins_as_many_sessions_as_it_may_have_and_no_more() -> None:
    script = Script(stranger_session_count_max=2).open()
    script.connection.restrain()
    assert [script.begin(channel).channel for channel in (0, 1)] == [0, 1]
    script.raw()
    script.say(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10), channel=2)
    *_, close = script.heard()
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == "amqp:resource-limit-exceeded"


def test_a_begin_that_answers_ours_is_not_one_more_session() -> None:
    script = Script(stranger_session_count_max=1).open()
    script.connection.restrain()
    session = script.connection.begin()
    script.say(Begin(remote_channel=session.channel, next_outgoing_id=0, incoming_window=10, outgoing_window=10))
    assert session.remote_channel == 0
