"""Where a send goes: results of sends and pings in, routes out. Nothing here sends, waits or reads a clock.

`send_availability` is the whole, for all senders of a pair: an `entity_watch` for each entity, with a `failover` for the whole of it
and for each fragment in trouble (`partitioning`); `catching_up` keeps sessions behind their own backlog, by what a `survey`
found there (`lookout` says when to look), and `backlog_rotation` says which backlog queue is next.
"""
