"""How many connections each node has: a few numbers in memory that all processes of a namespace see.

A node writes its own row and reads the others'. Nobody waits for anybody: a limit of the namespace is as exact as the moment in
which two nodes accept a connection each. The supervisor clears the row of a node that has ended.
"""

import mmap
import os
import tempfile

AMQP, OPEN, BEAT = range(3)
"""Connections that speak AMQP and have put a valid token; all sockets of clients; a number that changes while the node's loop turns."""
ROW_SIZE = 8
NUMBER_SIZE = 8


class SharedCounts:
    def __init__(self, descriptor: int, node_count: int) -> None:
        self._memory = mmap.mmap(descriptor, node_count * ROW_SIZE * NUMBER_SIZE)
        self._numbers = memoryview(self._memory).cast("q")
        self._node_count = node_count

    def get(self, node: int, what: int) -> int:
        return self._numbers[node * ROW_SIZE + what]

    def put(self, node: int, what: int, value: int) -> None:
        self._numbers[node * ROW_SIZE + what] = value

    def sum_of_others(self, node: int, what: int) -> int:
        return sum([self.get(each, what) for each in range(self._node_count) if each != node])

    def clear(self, node: int) -> None:
        for what in range(ROW_SIZE):
            self.put(node, what, 0)

    def close(self) -> None:
        self._numbers.release()
        self._memory.close()


def make_shared_memory(node_count: int) -> int:
    """The descriptor of a file without a name, large enough."""
    with tempfile.TemporaryFile(buffering=0) as file:
        file.truncate(node_count * ROW_SIZE * NUMBER_SIZE)
        return os.dup(file.fileno())
