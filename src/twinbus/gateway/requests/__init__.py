"""The handlers of `$management` requests: a `Call` in, one response out.

handlers   the table: name, right, place on the bill
call       what a handler is given and how it answers
locks      renew locks, settle by lock token
browse     peek, receive deferred messages, fragments, backlog
bulk       delete, purge, undefer, claim
repair     move, change or remove dead letters
schedule   schedule and cancel
sessions   locks, states and list of message sessions
rules      rules of a subscription
"""
