"""The bulk client for code that blocks: the same verbs, the same outcomes, from any thread."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.blocking import BlockingNamespace, LoopThread
from twinbus.client.message import encode_message
from twinbus.client.remote_errors import ConnectionLost
from twinbus.errors import ArgumentError, EntityNotFound, MessageTooLarge

WAIT_S = 5.0


@pytest.fixture
def blocking(server: RunningServer) -> Iterator[BlockingNamespace]:
    with BlockingNamespace.connect(server.connection_string, clock=server.clock) as namespace:
        yield namespace


def test_messages_go_in_and_come_out(server: RunningServer, blocking: BlockingNamespace) -> None:
    sender = blocking.sender(server.create_queue("plain"))
    assert sender.send([encode_message("a")]) == [None]
    assert sender.send_batches([encode_message("b"), encode_message("c")]) == [None, None]
    receiver = blocking.receiver("plain")
    messages = receiver.collect(3, WAIT_S)
    assert [message.body for message in messages] == [b"a", b"b", b"c"]
    assert receiver.complete(messages) == [None] * 3
    receiver.close()
    sender.close()


def test_every_way_to_settle_is_there(server: RunningServer, blocking: BlockingNamespace) -> None:
    server.put(server.create_queue("ways"), "a")
    receiver = blocking.receiver("ways", credit=1)
    assert receiver.abandon(receiver.receive(1, WAIT_S)) == [None]
    assert receiver.release(receiver.receive(1, WAIT_S)) == [None]
    (message,) = receiver.receive(1, WAIT_S)
    assert message.delivery_count == 1
    assert receiver.defer([message]) == [None]
    entity = blocking.entity("ways")
    (deferred,) = blocking.run(entity.receive_deferred([message.sequence_number or 0]))
    blocking.run(entity.abandon([deferred]))
    assert [found.body for found in blocking.run(entity.peek(5))] == [b"a"]


def test_a_dead_letter_has_its_reason(server: RunningServer, blocking: BlockingNamespace) -> None:
    server.put(server.create_queue("dead"), "a")
    receiver = blocking.receiver("dead")
    assert receiver.dead_letter(receiver.receive(1, WAIT_S), "bad") == [None]
    (dead,) = blocking.receiver("dead/$DeadLetterQueue", deletes=True).receive(1, WAIT_S)
    assert dead.dead_letter_reason == "bad"


def test_sessions_are_received_from(server: RunningServer, blocking: BlockingNamespace) -> None:
    sender = blocking.sender(server.create_queue("sessions", requires_session=True))
    assert sender.send([encode_message("a", session_id="s")]) == [None]
    receiver = blocking.session_receiver("sessions")
    assert receiver.session_id == "s"
    assert len(receiver.receive(1, WAIT_S)) == 1


def test_several_threads_may_use_one_connection(server: RunningServer, blocking: BlockingNamespace) -> None:
    sender = blocking.sender(server.create_queue("threads"))
    outcomes: list[object] = []

    def send() -> None:
        for _ in range(20):
            outcomes.extend(sender.send([encode_message("x")]))

    threads = [threading.Thread(target=send) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [None] * 100


def test_errors_are_raised_and_returned_as_in_the_other_client(
    server: RunningServer, blocking: BlockingNamespace
) -> None:
    with pytest.raises(EntityNotFound):
        blocking.sender("unknown")
    sender = blocking.sender(server.create_queue("errors"))
    assert [type(error) for error in sender.send([encode_message(bytes(300_000))])] == [MessageTooLarge]


def test_a_connection_that_fails_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with pytest.raises(ArgumentError):
        BlockingNamespace.connect("Endpoint=sb://")
    with pytest.raises(ConnectionLost):
        BlockingNamespace.connect(
            "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
        )
    assert threading.active_count() == before


def test_whoever_waits_for_a_loop_that_is_stopped_waits_no_longer() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    loop = LoopThread()
    waiting = loop.start(forever())
    loop.stop()
    with pytest.raises(CancelledError):
        waiting.result(timeout=5)


def test_closing_ends_the_thread_and_what_waits_in_it(server: RunningServer) -> None:
    before = threading.active_count()
    namespace = BlockingNamespace.connect(server.connection_string, clock=server.clock)
    receiver = namespace.receiver(server.create_queue("ending"))
    found: list[BaseException] = []

    def wait() -> None:
        try:
            receiver.receive(1, wait_s=60)
        except ConnectionLost as error:
            found.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while receiver._receiver._arrival is None:
        threading.Event().wait(0.001)
    namespace.close()
    waiting.join(WAIT_S)
    assert len(found) == 1
    assert threading.active_count() == before
