"""The other nodes, as the fronts of this one ask them.

peer, peers   one of them, and all
hold          a hold on a message session, at whichever node
held_sends    messages without a key that wait for a node that takes them
keeping       how much of its own a node may keep, so that it crosses no line
"""
