"""The home of the transactions of an AMQP session: the entity that they are on, whatever is sent in them goes via it.

SDKs that let a transaction span entities attach everything to one AMQP session, control links and links to entities, and
name no entity to send via. There the first entity that a link is attached to is the home, for as long as the AMQP session
lives: links come and go meanwhile. A control link with an AMQP session of its own declares transactions without a home.
"""

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from twinbus.amqp.link import Link
from twinbus.amqp.session import Session
from twinbus.broker.directory import Directory
from twinbus.broker.target import Target
from twinbus.errors import EntityNotFound, NotAllowed
from twinbus.model.paths import Address, path_key


@dataclass(slots=True)
class _Claim:
    """A link to an entity that is the home if no earlier link is accepted."""

    address: Address
    is_sender: bool
    is_certain: bool  # the link is accepted; otherwise it waits for a message session


@dataclass(slots=True)
class _Home:
    claims: dict[tuple[str, bool], _Claim] = field(default_factory=dict)
    """By name of the link and whether it sends, in the order of attaching; nothing behind the first certain one."""
    is_coordinated: bool = False
    """The AMQP session has, or had, a control link."""

    @property
    def claim(self) -> _Claim | None:
        """Of the home. A link that still waits for a message session counts: its first operation may be on the way."""
        return next(iter(self.claims.values()), None)

    @property
    def last_claim(self) -> _Claim | None:
        return next(reversed(self.claims.values()), None)

    def add(self, link_name: str, claim: _Claim) -> None:
        # Of those that wait under one name, the first one counts.
        if self.last_claim is None or not self.last_claim.is_certain:
            self.claims.setdefault((link_name, claim.is_sender), claim)


class TransactionHomes:
    """Of one connection."""

    def __init__(self, entities: Directory) -> None:
        self._entities = entities
        self._homes: WeakKeyDictionary[Session, _Home] = WeakKeyDictionary()

    def control_link_attached(self, link: Link) -> None:
        self._of(link).is_coordinated = True

    def check_receiver(self, link: Link, address: Address) -> None:
        """Raise NotAllowed where a receiver would be of no use: it cannot settle in transactions on another entity."""
        home = self._of(link)
        claim = home.claim
        if not home.is_coordinated or claim is None or not claim.is_sender:
            return
        if path_key(claim.address.path) != path_key(address.path):
            raise NotAllowed(
                f"The first link of this AMQP session sends to '{claim.address.entity_path}', which its transactions are "
                f"on, so it cannot receive from '{address.entity_path}'. Use another connection to receive from it."
            )

    def waiting(self, link: Link, address: Address) -> None:
        """A receiver link waits for a message session: `attached` or `gone` follows."""
        self._of(link).add(link.name, _Claim(address, is_sender=False, is_certain=False))

    def attached(self, link: Link, address: Address, *, is_sender: bool) -> None:
        """The link is accepted."""
        home = self._of(link)
        claim = home.claims.get((link.name, is_sender))
        if claim is None:
            home.add(link.name, _Claim(address, is_sender, is_certain=True))
            return
        claim.is_certain = True
        while home.last_claim is not claim:
            home.claims.popitem()

    def gone(self, link: Link) -> None:
        """A link that waited for a message session got none: the next link that is attached, or waits, has the home."""
        # Found at once: ten thousand may wait, and end together with their connection.
        claims = self._of(link).claims
        claim = claims.get((link.name, False))
        if claim is not None and not claim.is_certain:
            del claims[link.name, False]

    def of(self, session: Session) -> Target | None:
        """Where its transactions are at home. Raises EntityNotFound if the entity is gone."""
        home = self._homes.get(session)
        claim = None if home is None else home.claim
        if claim is None:
            return None
        # For each operation, not once for the AMQP session: the entity may be deleted and created again meanwhile.
        entity = self._entities.find(claim.address.path)
        if entity is None:
            raise EntityNotFound.at(claim.address.path)
        return entity

    def _of(self, link: Link) -> _Home:
        return self._homes.setdefault(link.session, _Home())
