from twinbus.amqp.serial_number import MASK
from twinbus.amqp.windows import SessionWindows


def windows(incoming_window: int = 100, remote: int = 10) -> SessionWindows:
    made = SessionWindows(incoming_window)
    made.begun(next_outgoing_id=5, incoming_window=remote)
    return made


def test_every_frame_sent_uses_up_room_at_the_peer() -> None:
    session = windows(remote=10)
    session.sent(4)
    assert session.remote_incoming_window == 6
    assert session.next_outgoing_id == 4


def test_a_flow_counts_from_what_the_peer_had_seen_when_it_wrote_it() -> None:
    session = windows(remote=10)
    session.sent(4)
    session.flow_received(next_incoming_id=1, incoming_window=10)
    assert session.remote_incoming_window == 7


def test_a_flow_without_a_number_counts_from_the_beginning() -> None:
    session = windows(remote=10)
    session.sent(4)
    session.flow_received(next_incoming_id=None, incoming_window=10)
    assert session.remote_incoming_window == 6


def test_a_window_smaller_than_what_is_on_its_way_leaves_no_room() -> None:
    session = windows(remote=10)
    session.sent(10)
    session.flow_received(next_incoming_id=0, incoming_window=3)
    assert session.remote_incoming_window == 0


def test_outgoing_numbers_wrap_around() -> None:
    session = windows(remote=10)
    session.next_outgoing_id = MASK
    session.sent(2)
    session.flow_received(next_incoming_id=MASK, incoming_window=10)
    assert session.next_outgoing_id == 1
    assert session.remote_incoming_window == 8


def test_our_window_is_announced_again_when_half_of_it_is_used() -> None:
    session = windows(incoming_window=100)
    session.incoming_count += 49
    assert not session.is_announcement_due
    session.incoming_count += 1
    assert session.is_announcement_due
    assert session.incoming_window == 50
    session.announce()
    assert session.incoming_window == 100
    assert session.next_incoming_id == 55
    assert not session.is_announcement_due


def test_our_window_is_not_enforced() -> None:
    session = windows(incoming_window=100)
    session.incoming_count += 1000
    assert session.incoming_window == 0
