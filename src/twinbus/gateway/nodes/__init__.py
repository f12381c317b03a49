"""Nodes that are not entities: requests and transactions in, replies out on the client's links.

request_message   requests and replies as message bytes
request_links     a client's two links to a node
cbs_node          `$cbs`: tokens to grants
management_node   `$management`: requests to handlers, with a timeout
read_turns        requests that bring messages: few at a time
coordinator       transactions: declare, discharge, and who they belong to
transaction_homes the entity that the transactions of an AMQP session are on
"""
