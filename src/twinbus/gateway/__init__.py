"""Between AMQP and the broker: events of a connection in, calls on entities out, and their answers back on the wire.

No I/O happens here; a transport feeds bytes in and writes bytes out. In the order of the flow:

connections          all open connections of a namespace
turns, weight        whose bytes are worked on next, and for how long; who sends much
namespace_view       what they share: entities, control plane, access rules, traffic counters
transaction_room     what open transactions may hold in memory, by connection and in all
spans                what a tracer is told of messages
latencies            how long sends and waits took, for the metrics
connection_gateway   one connection: AMQP events to bindings
authorization        the one place that checks a right
web_tokens           JSON web tokens, of issuers that are values of trusted_issuer
addresses            an address to the entity it names
links                bindings of links to entities: send, receive, settle, meter
nodes                `$cbs`, `$management` and the coordinator of transactions
requests             the handlers behind `$management`
"""
