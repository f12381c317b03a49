"""What messages, entities and rules are, as values and pure functions: used by servers and clients alike, without I/O.

message, message_reader        an incoming message: payload in, routing facts and the content to store out
header, annotations, identity  the sections of which these facts are read (`decimal128`: one type that is rewritten)
content, delivery              the stored content and its changes; the payload for a receiver
claim_owner                    who claimed a deferred message, beside its state
hops                           how often a message was forwarded, beside its number
effective_lifetime             the time to live that a delivery shows
packed_payloads                many payloads as two values
received_payload               that payload again, cut in front of its body, for those who send the message on
rules                          filters and actions of subscriptions
paths, partition_key           names of entities; which fragment a key belongs to
session_key                    when two session ids mean the same message session
descriptions, entity_properties, durations, iso8601, properties_page   the properties of entities, and how they are written
wire_names, dead_letter_reasons, message_limits, pairing_limits        names and limits that several packages share
"""
