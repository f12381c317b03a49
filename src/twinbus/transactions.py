"""Transactions: messages that are sent and settled together or not at all.

    from twinbus.client.message import encode_message
    from twinbus.client.namespace import Namespace

    async with await Namespace.connect(connection_string) as namespace:
        receiver = await namespace.receiver("orders")
        sender = await namespace.sender("invoices", via="orders")
        for order in await receiver.receive(10, wait_s=5):
            async with namespace.transaction() as transaction:
                await transaction.complete(receiver, [order])
                await transaction.send(sender, [encode_message(order.body)])

Leaving the block commits; leaving it by an exception rolls back. Until the commit nobody sees what was sent, and what was settled
stays locked; after it everything has happened, even if the namespace crashes.

A transaction stays on one entity, where a topic and its subscriptions are one; to reach another one, send via the first. It holds at most 100 messages and lasts at most two
minutes from its first operation. On a partitioned entity all its messages must have the same session id or partition key (the same
via-partition-key if they are sent via it). A lock that ends before the commit makes the commit fail.
"""

from twinbus.client.transaction import Transaction
from twinbus.errors import TransactionTimeout, TransactionUnknown

__all__ = ["Transaction", "TransactionTimeout", "TransactionUnknown"]
