"""The SDK's own senders as a pair uses them: shared by many callers, kept to their timeout, their failures named.

`guarded_sender` performs an `attempt` when its `line` has come to it, `local_lag` knows the time that this process lost, `failures`
says what an error means, `steps` runs generators of decisions over them, and `side_by_side` runs calls that block.
"""
