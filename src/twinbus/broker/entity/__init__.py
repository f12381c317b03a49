"""Queues, topics and subscriptions as a whole: what spans the fragments of an entity, or several entities.

entities                            all of them, by path
queue_entity, topic_entity          where messages are sent to
message_queue                       where they are received from: one sub-queue, over all of its fragments
sub_queues                          the fragments of an entity, and in which stores they are
placement, topic_placement          which fragment takes a message, and what a topic takes in steps
runs                                messages on their way into a fragment, and into another one if that cannot take them
named_stage                         what a fragment takes of messages that it may have: those of second tries
fan_out, topic_room                 copies for subscriptions, and whether there is room for them
receive_merge, session_desk         which receiver gets which messages, and which message session
forwarding, transfers               messages on their way to another entity: auto-forwarding and send-via
metering                            what happens without a client, for the meter
"""
