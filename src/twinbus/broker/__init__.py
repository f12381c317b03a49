"""The broker: calls and commands in, changes for the stores and replies out. No I/O, one thread, and time is an argument.

directory               the entities of a namespace as those above see them: `target`, `source` and `transaction` are what each can do
message_broker          the fragments of one messaging store: commits, reads, and what happens when the store is lost
store_port              how it reaches the store without waiting for it
session_preparations    lists of message sessions that a store makes in steps, for all who wait for them
entity                  queues, topics and subscriptions, over all of their fragments
fragment                one sub-queue in one store: its rows, lanes, locks and sessions
commands, operations    what can be asked of a queue, and how each is done
outcomes                what a receiver may decide about a message
consumer, replies       what takes messages, and how answers come back
fragment_transaction    what is done together or not at all; transaction_work is what happens at its commit
entity_settings         what all parts of an entity know of its description
wide_lanes              which lanes of a namespace may keep more in memory than others
moved_locks             locks on the way to another node
forwarding_gate         when forwarding pauses
held_contents           which contents of locked messages stay in memory
wakeups, telling        calls at a time, long work in steps, and calls of code outside that may raise
"""
