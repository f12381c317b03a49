"""How many AMQP connections the namespace has: those here, and those of the other nodes as they said with their last beat."""


class ConnectionCount:
    def __init__(self) -> None:
        self.own = 0
        self.elsewhere = 0

    def changed(self, own_count: int) -> None:
        self.own = own_count
