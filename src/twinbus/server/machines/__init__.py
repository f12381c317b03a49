"""One namespace served by several machines, whose messaging stores are in PostgreSQL: any client may be connected to any of them.

    node a, b, c    each a namespace with gateway, message brokers and a store process; alike, and none of them is first

register      who is a node, in the catalog's database: numbers, beats, turns for changes
lookout       who owns which store, as the leases in the databases say
share_out     which node is to own which store: pure
claims        which node serves which store, as nodes tell each other, with epochs: pure
claiming      tells the others what this node serves, and hears what they do
keeper        owns and releases stores so that what is, becomes what is to be
identity      certificates for lines
tcp_mesh      lines
catalog_watch what this node knows of the catalog that all of them change, and what waits for that
assembly      what nodes ask each other over lines
reach         which of the others a node reaches
node          all of it together: what makes a server one of several

The database is the meeting place: nodes find each other there, and its clock decides who lives. Nothing that a message needs goes through it,
except the message itself. That a store has one owner is kept by its lease and its epoch (`twinbus.store.postgres.lease`); everything here only
decides who tries to take it, and where messages are sent. So a wrong view of the others costs time, never a message.
"""
