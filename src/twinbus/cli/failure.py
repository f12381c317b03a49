"""What a command cannot do, as one line for the person at the keyboard."""

from twinbus.errors import MessagingError


class CommandFailed(MessagingError):
    """The command was right and did not work; the exit code is 1."""
