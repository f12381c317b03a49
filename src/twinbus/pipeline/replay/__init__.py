"""Replay: messages from a lake, or from dead-letter queues, back to entities.

    choice (Spark SQL over the source's columns) -> what it is, counted and shown (a dry run ends here) -> rounds

From a lake rows are written by the sink. Dead letters are moved by tasks that receive, send and complete themselves, so
that each is removed only once its copy is acknowledged.
"""
