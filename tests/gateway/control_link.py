"""A client's control link, and what its answers say."""

from tests.gateway.front import Client, Front, NodeClient
from twinbus.amqp.codec.delivery_state import Declared, DeliveryState, Rejected, TransactionalState
from twinbus.amqp.codec.sections import MessageProperties, Sections, ValueBody, encode_sections
from twinbus.amqp.codec.terminus import Coordinator
from twinbus.amqp.codec.types import Described, ULong, Value
from twinbus.amqp.events import Dispositions
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.session import Session

DECLARE, DISCHARGE = 0x31, 0x32


class Control:
    """A client's control link, on an AMQP session of its own unless it is given one."""

    def __init__(self, client: Client, session: Session | None = None) -> None:
        self._client = client
        link = (session or client.connection.begin()).attach(
            f"control-{id(self)}", is_sender=True, target=Coordinator()
        )
        assert isinstance(link, OutgoingLink)
        self.link = link
        client.run()

    def ask(self, code: int, *fields: Value) -> DeliveryState | None:
        self._client.take(Dispositions)
        self.link.transfer(encode_sections(Sections(body=ValueBody(Described(ULong(code), list(fields))))), b"c")
        self._client.run()
        found = self._client.take(Dispositions)
        self._client.events += [event for event in found if event.link is not self.link]
        (answer,) = [event for event in found if event.link is self.link]
        return answer.state

    def declare(self) -> bytes:
        state = self.ask(DECLARE, None)
        assert isinstance(state, Declared)
        return state.txn_id


def answers(client: Client) -> list[DeliveryState | None]:
    return [event.state for event in client.take(Dispositions)]


def condition(state: DeliveryState | None) -> str | None:
    """Of a refusal, whether or not it is inside a transaction."""
    if isinstance(state, TransactionalState):
        state = state.outcome
    return state.error.condition if isinstance(state, Rejected) and state.error else None


def active(front: Front, path: str = "orders") -> int:
    return front.sim.entities.queue(path).main.counts().active


def ask_in(client: Client, node: NodeClient, txn_id: bytes, operation: str, body: dict[str, Value]) -> dict[str, Value]:
    """Ask a `$management` node for something in a transaction: the properties of its reply."""
    reply = reply_in(client, node, txn_id, operation, body)
    return {str(name): value for name, value in (reply.application_properties or {}).items()}


def reply_in(client: Client, node: NodeClient, txn_id: bytes, operation: str, body: dict[str, Value]) -> Sections:
    request = Sections(
        properties=MessageProperties(message_id="1"),
        application_properties={"operation": f"com.microsoft:{operation}"},
        body=ValueBody(body),
    )
    node.requests.transfer(encode_sections(request), b"1", state=TransactionalState(txn_id=txn_id))
    client.run()
    (reply,) = node.answers()
    return reply
