"""A namespace whose messages may be as large as those of the service's largest tier."""

from pathlib import Path

from twinbus.amqp.connection_settings import BUFFER_SIZE
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.testing.local_namespace import LocalNamespace

WAIT_S = 30.0


async def test_a_message_of_more_than_the_usual_buffers_passes(tmp_path: Path) -> None:
    payload = encode_message(bytes(BUFFER_SIZE + 1))
    with LocalNamespace(tmp_path, store_count=1) as local:
        local.create_queue("large", max_message_size_in_kilobytes=-(-len(payload) // 1024))
        async with await Namespace.connect(local.connection_string) as namespace:
            sender = await namespace.sender("large")
            assert await sender.send([payload]) == [None]
            receiver = await namespace.receiver("large", credit=1, deletes=True)
            (received,) = await receiver.receive(1, WAIT_S)
            assert len(received.body) == BUFFER_SIZE + 1
