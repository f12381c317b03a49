import pytest

from twinbus.gateway.addresses import Address, parse_address
from twinbus.store.changes import SubQueue


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("orders", Address("orders")),
        ("amqps://localhost:5672/orders", Address("orders")),
        ("sb://localhost/contoso/x-servicebus-transfer/0", Address("contoso/x-servicebus-transfer/0")),
        ("/orders/", Address("orders")),
        ("orders/$DeadLetterQueue", Address("orders", None, SubQueue.DEAD_LETTER)),
        ("orders/$deadletterqueue/$management", Address("orders", None, SubQueue.DEAD_LETTER, True)),
        ("orders/$Transfer/$DeadLetterQueue", Address("orders", None, SubQueue.TRANSFER_DEAD_LETTER)),
        ("news/Subscriptions/all", Address("news", "all")),
        ("a/news/subscriptions/all/$management", Address("a/news", "all", SubQueue.MAIN, True)),
        ("news/Subscriptions/all/$DeadLetterQueue", Address("news", "all", SubQueue.DEAD_LETTER)),
        ("subscriptions", Address("subscriptions")),
        ("$management", Address("$management")),
    ],
)
def test_an_address_names_an_entity_a_sub_queue_and_a_node(text: str, address: Address) -> None:
    assert parse_address(text) == address


def test_an_entity_path_leaves_out_sub_queue_and_node() -> None:
    address = parse_address("amqp://h/News/Subscriptions/All/$DeadLetterQueue/$management")
    assert address.entity_path == "News/Subscriptions/All"
