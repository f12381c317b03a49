"""What is asked of a queue and takes several steps: a command in, a generator of reads and commits out, whose result is the reply.

steps              how such a generator is written and run
asked_queue        what it may use of the queue
peek, by_number    look at messages; receive deferred ones, cancel scheduled ones
bulk               purge, claim, delete what was claimed, un-defer
repair             move dead letters home or elsewhere, changed on the way
sessions           states, list and counts of message sessions
overview           what lies in the fragments
fragment_changes   create and delete the fragments of an entity
"""
