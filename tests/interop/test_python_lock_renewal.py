"""The SDK's lock renewer: it goes by the machine's clock, so the server's must not be far ahead of it."""

from azure.servicebus import AutoLockRenewer

from tests.interop.running_server import RunningServer, wait_until


def test_the_lock_renewer_keeps_a_lock_beyond_its_duration(server: RunningServer) -> None:
    queue = server.create_queue("renewed", lock_duration=10_000)
    server.put(queue, "a")
    with server.client() as client, AutoLockRenewer() as renewer, client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        # It renews when less than ten seconds are left of a lock, and this one never has more.
        renewer.register(receiver, message, max_lock_renewal_duration=60)
        server.clock.advance(6)
        before = server.server.traffic.of(queue).requests
        wait_until(lambda: server.server.traffic.of(queue).requests > before)
        server.clock.advance(6)
        receiver.complete_message(message)
