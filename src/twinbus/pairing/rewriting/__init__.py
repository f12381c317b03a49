"""What a message becomes on its way through a backlog queue, and what it is again at home: messages in, messages out.

`transfer` sets aside what a backlog queue would act on, `stages` adds what keeps a session in order over several of them, `restore`
turns it back, and `preflight` refuses on a good day what could not go this way.
"""
