"""The home of the transactions of an AMQP session: the entity that they are on, whatever is sent in them goes via it.

SDKs that let a transaction span entities attach everything to one AMQP session, control links and links to entities, and
name no entity to send via. There the first entity that a link is attached to is the home, for as long as the AMQP session
lives: links come and go meanwhile. A control link with an AMQP session of its own declares transactions without a home.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from twinbus.amqp.link import Link
from twinbus.amqp.session import Session
from twinbus.broker.entity.entities import Entities
from twinbus.broker.entity.transfers import Transfers
from twinbus.errors import EntityNotFound, NotAllowed
from twinbus.model.paths import Address, path_key


@dataclass(slots=True)
class _Home:
    address: Address | None = None
    is_sent_to: bool = False  # its first link was a sender's
    pending: str | None = None  # name of the link that chose it, until that is accepted
    is_coordinated: bool = False  # the AMQP session has, or had, a control link


class TransactionHomes:
    """Of one connection."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self._homes: WeakKeyDictionary[Session, _Home] = WeakKeyDictionary()

    def control_link_attached(self, link: Link) -> None:
        self._of(link).is_coordinated = True

    def check_receiver(self, link: Link, address: Address) -> None:
        """Raise NotAllowed where a receiver would be of no use: it cannot settle in transactions on another entity."""
        home = self._of(link)
        if not home.is_coordinated or home.address is None or not home.is_sent_to:
            return
        if path_key(home.address.path) != path_key(address.path):
            raise NotAllowed(
                f"The first link of this AMQP session sends to '{home.address.entity_path}', which its transactions are "
                f"on, so it cannot receive from '{address.entity_path}'. Use another connection to receive from it."
            )

    def attached(self, link: Link, address: Address, *, is_sender: bool, is_certain: bool = True) -> None:
        """`is_certain`: the link is accepted; otherwise it waits for a message session."""
        home = self._of(link)
        if home.address is None:
            home.address, home.is_sent_to, home.pending = address, is_sender, None if is_certain else link.name
        elif is_certain and home.pending == link.name:
            home.pending = None

    def refused(self, link: Link) -> None:
        """A link that waited for a message session: the next one that is attached chooses the home."""
        home = self._of(link)
        if home.pending == link.name:
            home.address = home.pending = None

    def of(self, session: Session) -> Transfers | None:
        """Where its transactions are at home. Raises EntityNotFound if the entity is gone."""
        home = self._homes.get(session)
        if home is None or home.address is None:
            return None
        # For each operation, not once for the AMQP session: the entity may be deleted and created again meanwhile.
        entity = self._entities.find(home.address.path)
        if entity is None:
            raise EntityNotFound.at(home.address.path)
        return entity.transfers

    def _of(self, link: Link) -> _Home:
        return self._homes.setdefault(link.session, _Home())
