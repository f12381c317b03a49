"""The test kit: for users' own tests a namespace in their process, for ours a simulated one.

pytest_plugin     fixtures, wherever twinbus is installed
local_namespace   a real server on loopback in a thread of the test

simulation        brokers and entities under a clock that the test moves
sim_clock         that clock
stepped_port      a store port that works when the test says so
faulty_store      a messaging store with faults
messages          messages as senders encode them
cluster_simulation
                  several nodes under that clock: `cluster_nodes`; `cluster_stand_ins` are what a test has in place of their entities
auditor           an independent witness of what was promised
"""
