"""AMQP 1.0 without I/O, for both roles: bytes and time in, events and bytes out.

`codec` turns bytes into frames and values and back, and knows nothing of connections. The modules here are the state
machines on top of it, from the socket inwards:

connection           the whole machine: what a server or a client drives (`connection_settings`: what it announces, its limits)
handshake            protocol headers and SASL, up to the first AMQP frame
lasting              what of a peer's frames stays in memory, and how much of it may
channels, session    the sessions of a connection; frames of one channel, numbering, windows (`windows`)
link_table, link     the links of a session; how every link begins and ends
incoming_link        transfers in, whole deliveries out (`reassembly`), credit granted (`credit`)
outgoing_link        deliveries in, transfers out, within credit and window
dispositions         settling what was sent and received
events               what all of this reports to the application

`connection_context` is what these share within one connection, `serial_number` how they count, and `errors` which
scope a fault ends: connection, session or link.
"""
