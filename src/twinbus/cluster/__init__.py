"""A namespace on several nodes: what one node asks of another, and what its gateways see of the whole. No I/O.

line, line_frames     the protocol between two nodes: bytes in, calls out; bytes out for every call
talk                  what is said over lines about messages
values, columns       values with their types; messages by the hundred
error_values          errors that cross a line
part                  what other nodes ask of the fragments of this one; `visitor`: what each of them holds here
left_overs            who has to know of messages that nobody has credit for
peers                 the other nodes, as fronts ask them
fronts                the entities of the namespace at one node: each itself, or a front
front_target          where messages are sent to: `front_runs` looks for a node that takes them, `held_sends` are those that wait for one
front_source          where they are received from: `front_receiver` and `demand` share credit out to its `shares` at the parts,
                      `front_commands` asks around, `session_waiter` waits for a message session
front_transaction     a transaction at the node that has its fragment
ownership             which node has which fragments
keeping               how much of its own a node may keep, so that it crosses no line
moves, mover          stores that are about to have another owner; `moved_frames`: the locks that go with them
"""
