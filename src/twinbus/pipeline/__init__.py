"""Service Bus entities in Spark: `source` and `sink` of the format `servicebus`, and ready-made jobs.

The jobs are capture (an entity into a lake), `replay` (a lake or dead letters back into entities), `syphon` (backlog queues to
their primaries) and `bill` (operations logs into a bill).
"""
