"""Messaging stores behind the event loop: commits and queries in, answers out in the same order; the loop never blocks.

pool           brokers, each with its store
served_store   one store as the loop sees it: order of answers, loss and return, switches
pressure       who has to wait when a store is behind
places         where the stores are, and how one is opened there
leases         until when those in a database are ours
process        the stores in a second process: start, loss, restart, stop
socket_line    the line to a store there, as the namespace has it
in_order       requests that take several turns of the loop, and those behind them
host_process   that process, hired first and told what to keep later
line_frames    frames between the two processes
shared_room    memory that they share, for what is large
host           the second process: a thread for each store
worker         what the thread of a store does
threads        the stores on threads of this process, for tests and embedded namespaces
"""
