"""Links bound to entities: an attach in, a binding out that lives until detach, expiry of its token or idleness.

attachment        decides what a link is bound to
receiver_attach   binds receivers, at once or when a message session is free
session_attach    the message session in an attach: filter, wait, reply
bindings          all bindings of a connection, and when each ends
sender_binding    deliveries to the entity, settlements back
receiver_binding  credit to the queue, messages out, dispositions in, confirmations out
outcome_states    AMQP delivery states and the broker's outcomes
receive_window    which receives were empty
failure_pace      how long a receiver rests that only fails
link_meter        what a client did, for the book of operations
"""
