"""A namespace on several nodes: what one node asks of another, and what its gateways see of the whole. No I/O.

lines       the connection between two nodes: frames, and what is said in them
parts       what other nodes ask of the fragments of this one
peers       the other nodes, as this one asks them
fronts      the entities of the namespace at one node, wherever their fragments are
ownership   which node has which fragments
moves       stores that are about to have another owner, and the locks that go with them
"""
