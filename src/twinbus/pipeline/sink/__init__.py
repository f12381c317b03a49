"""The Spark sink: `df.write.format("servicebus")`.

writers > writing > messages > delivery > links
Spark's   a task    rows to     waves,     connections of
classes             payloads    retries    the process
"""
