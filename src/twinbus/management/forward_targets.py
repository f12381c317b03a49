"""Whether messages can be forwarded as a description says: nothing comes out, or an error that says why not.

A target exists, takes messages, and does not lead back. Only what is known is refused: two changes at the same time can
still close a circle, and dead letters may go round, since each time round somebody has to fail with them. An entity that
exists may be changed to forward to itself, because the service allows it and the live tests of its SDKs do so. The limit of
hops ends all of these (contract A11).
"""

from twinbus.errors import ArgumentError, ForwardTargetMissing
from twinbus.management.catalog import Catalog, path_of
from twinbus.model.descriptions import EntityDescription, QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.paths import path_key


def check_forwarding(catalog: Catalog, description: EntityDescription, before: EntityDescription | None = None) -> None:
    """`before`: what the entity is, if it exists. A circle that it is in already does not keep it from being changed."""
    if isinstance(description, TopicDescription):
        return
    for target in (description.forward_to, description.forward_dead_letters_to):
        if target is not None:
            if before is None and _is_itself(description, target):
                raise ArgumentError(f"'{path_of(description)}' cannot forward to itself. Choose another target.")
            _check_target(catalog, target)
    target = description.forward_to
    if (
        target is not None
        and not _is_itself(description, target)
        and (before is None or _forwards_to(before) != target)
    ):
        _check_no_circle(catalog, description, target)


def _is_itself(description: QueueDescription | SubscriptionDescription, target: str) -> bool:
    return path_key(target) == path_key(_sent_to(description))


def _check_target(catalog: Catalog, target: str) -> None:
    entry = catalog.find(target)
    if entry is None:
        raise ForwardTargetMissing(f"The forwarding target '{target}' does not exist. Create it first.")
    if isinstance(entry.description, SubscriptionDescription):
        raise ArgumentError(f"'{target}' is a subscription. Forward to a queue or topic.")


def _check_no_circle(catalog: Catalog, description: QueueDescription | SubscriptionDescription, target: str) -> None:
    home = _sent_to(description)
    ways, seen = [[target]], {path_key(target)}
    while ways:
        way = ways.pop()
        for following in _targets_of(catalog, way[-1]):
            if path_key(following) == path_key(home):
                circle = " > ".join([home, *way, home])
                raise ArgumentError(f"Forwarding would go in a circle: {circle}. Choose another target.")
            if path_key(following) not in seen:
                seen.add(path_key(following))
                ways.append([*way, following])


def _sent_to(description: QueueDescription | SubscriptionDescription) -> str:
    """The entity through which messages come into it."""
    return description.topic if isinstance(description, SubscriptionDescription) else description.name


def _targets_of(catalog: Catalog, path: str) -> list[str]:
    """Where messages go that are sent there; subscriptions count whatever their rules are, for those can change."""
    entry = catalog.find(path)
    if entry is None:
        return []
    holders = catalog.subscriptions(path) if isinstance(entry.description, TopicDescription) else [entry]
    targets = [_forwards_to(holder.description) for holder in holders]
    return [target for target in targets if target is not None]


def _forwards_to(description: EntityDescription) -> str | None:
    return None if isinstance(description, TopicDescription) else description.forward_to
