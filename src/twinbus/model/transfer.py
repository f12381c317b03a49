"""The words that senders of a pair, its syphon and the namespace of its backlog queues have in common."""

TRANSFER_SEGMENT = "x-servicebus-transfer"
"""Second part of the path of every backlog queue, behind the name of its primary."""

DESTINATION_PROPERTY = "x-ms-path"
"""Application property of a message in a backlog queue: where it is to go."""


def is_backlog_queue(path: str) -> bool:
    return f"/{TRANSFER_SEGMENT}/" in path.lower()
