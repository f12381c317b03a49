"""Whether copies keep the ids of their originals: the user's choice and what is known of a destination in, the answer out.

    --message-ids   destination        dead letters, which are removed     messages of a lake, which stays
    auto            detects duplicates  new                                 kept, with a warning
                    does not            kept                                kept
                    is not known        refused                             kept
    keep            detects duplicates  refused: they would be lost         kept
                    otherwise           kept                                kept
    new                                 new                                 new

Only dead letters can be lost: a lake still has what a destination dropped. And for a lake the same id is a service: a
replay that is run again from its start adds only what is missing.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

from twinbus.errors import ArgumentError

OPTION = "--message-ids"

Detects = Callable[[str], bool | None]
"""Whether the entity with this path, or one that it forwards to, detects duplicates; None if that cannot be found out."""


class MessageIds(StrEnum):
    AUTO = "auto"
    KEEP = "keep"
    NEW = "new"


def renamed_dead_letters(destinations: Iterable[str], chosen: MessageIds, detects: Detects) -> dict[str, bool]:
    """By destination, whether copies get ids of their own. Raises ArgumentError before anything would be lost."""
    if chosen is MessageIds.NEW:
        return dict.fromkeys(destinations, True)
    return {path: _is_renamed(path, chosen, detects(path)) for path in sorted(set(destinations))}


def _is_renamed(path: str, chosen: MessageIds, is_detecting: bool | None) -> bool:
    if chosen is MessageIds.KEEP:
        if is_detecting:
            raise ArgumentError(
                f"'{path}' detects duplicates: it would drop copies with the ids of their originals, and the dead letters "
                f"would be lost. Use {OPTION} new."
            )
        return False
    if is_detecting is None:
        raise ArgumentError(
            f"Whether '{path}' detects duplicates cannot be determined: that needs the Manage right on it, and its HTTP "
            f"address. If it does, give copies new ids with {OPTION} new; if you know that it does not, use {OPTION} keep."
        )
    return is_detecting


def dropping_destinations(destinations: Iterable[str], chosen: MessageIds, detects: Detects) -> list[str]:
    """Of a replay from a lake: those that may drop what is sent to them, where nobody said that this is wanted."""
    if chosen is not MessageIds.AUTO:
        return []
    return [path for path in sorted(set(destinations)) if detects(path)]
