"""What the control plane asks of the entities that run; `twinbus.broker.entity.entities.Entities` implements it.

A change touches every fragment or fails whole (contract A6), and is answered once that is certain. `elsewhere` names the stores
of other processes that work; None: nobody has to ask, because an earlier change is undone.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

from twinbus.broker.replies import Holdings, Reply
from twinbus.clock import Millis
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription


class Placed(Protocol):
    """A queue or topic that has just been created."""

    @property
    def first_store(self) -> int: ...


class Counting(Protocol):
    def count(self, path: str, now: Millis, reply: Reply[Holdings]) -> None: ...


class Runtime(Counting, Protocol):
    """Of this process; what others have of an entity, they change themselves."""

    def create_queue(
        self,
        entity_id: int,
        description: QueueDescription,
        now: Millis,
        reply: Reply[Placed],
        elsewhere: Collection[int] | None = (),
    ) -> None: ...

    def create_topic(
        self,
        entity_id: int,
        description: TopicDescription,
        now: Millis,
        reply: Reply[Placed],
        elsewhere: Collection[int] | None = (),
    ) -> None: ...

    def create_subscription(
        self,
        entity_id: int,
        description: SubscriptionDescription,
        rules: Iterable[RuleDescription],
        now: Millis,
        reply: Reply[Any],
        elsewhere: Collection[int] | None = (),
    ) -> None: ...

    def update(
        self,
        description: QueueDescription | TopicDescription | SubscriptionDescription,
        now: Millis,
        reply: Reply[None],
        elsewhere: Collection[int] | None = (),
    ) -> None: ...

    def delete(self, path: str, now: Millis, reply: Reply[None], elsewhere: Collection[int] | None = ()) -> None: ...

    def delete_subscription(
        self, topic: str, name: str, now: Millis, reply: Reply[None], elsewhere: Collection[int] | None = ()
    ) -> None: ...

    def name_at(self, path: str) -> str | None:
        """None if nothing runs at this path."""
        ...

    def close_if_idle(self, path: str, now: Millis) -> bool:
        """Whether nobody has used it for its auto-delete duration; False if it does not run. If so, every use of it is refused until it is
        deleted or reopened."""
        ...

    def reopen(self, path: str) -> None: ...

    def check_all_available(self, path: str, elsewhere: Collection[int] | None = ()) -> None:
        """Raises FragmentUnavailable while a fragment of it or of what is below it has no working store."""
        ...

    def restore_queue(
        self, entity_id: int, description: QueueDescription, now: Millis, first_store: int | None = None
    ) -> object: ...

    def restore_topic(
        self, entity_id: int, description: TopicDescription, now: Millis, first_store: int | None = None
    ) -> object: ...

    def restore_subscription(
        self, entity_id: int, description: SubscriptionDescription, rules: Iterable[RuleDescription], now: Millis
    ) -> object: ...

    def check_rules_can_change(
        self,
        topic: str,
        subscription: str,
        now: Millis,
        reply: Reply[None],
        elsewhere: Collection[int] | None = (),
    ) -> None: ...

    def change_rules(
        self,
        topic: str,
        subscription: str,
        removed: Sequence[str],
        added: Sequence[RuleDescription],
        now: Millis,
        reply: Reply[None],
    ) -> None: ...
