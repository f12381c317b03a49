"""One namespace served by several processes, so that it uses all cores of the machine.

    supervisor      holds the data folder and the ports, starts the nodes and starts them again; hands them connections
    node 0 to N-1   each a namespace with gateway, message brokers and a store process, for the messaging stores it owns

supervisor     the process that was started: nodes, ports, switchboard
node           a node's process
membership     what makes a server one of several, and answers: what it answers the others
seat           what a node is told at its start: which of them it is, which stores are its own
switchboard    what nodes ask each other through the supervisor, and turns for changes
leash          a node's end of its connection to the supervisor
word_line      what both ends of it are
mesh           the lines of a node to all others, which messages take
reception      accepts connections and hands each to the node with the fewest
totals         the metrics of all nodes, past ones included
shared_counts  how many connections each node has, in memory that all of them see

If a node ends, its stores are out of reach until it has been started again, and nothing else is. If the supervisor ends, so do
the nodes. The lock on the data folder is inherited by all nodes, so the folder is free when the last of them is gone.
"""
