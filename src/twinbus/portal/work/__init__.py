"""Long actions in the background: each has progress, can be stopped, and says at the end what it did.

jobs        what runs, and how far it is
purge       remove the messages of a queue
moving      repair where the namespace cannot: receive, change, send, complete
repairing   repair by the operation of twinbus
loading     messages from JSON lines to an entity
programs    other programs of twinbus: the syphon, a rehearsal
"""
