"""The entities of the namespace at one node: each itself, or a front over its parts at several nodes.

fronts        finds them
target        where messages are sent to: `runs` of them go to a node that takes them, which `search` looks for
source        where they are received from: `receiver` and `demand` share credit out to its `shares` at the parts,
              `settling` settles and renews, `commands` asks around, `session_waiter` waits for a message session
transaction   a transaction at the node that has its fragment
"""
