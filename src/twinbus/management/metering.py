"""What a request to the administration API is on the bill: the resource it was about in, an operation out.

Only what was done is one; a request that is refused is not.
"""

from twinbus.clock import Millis
from twinbus.management.catalog import subscription_path
from twinbus.management.resources import (
    EntityResource,
    Resource,
    RuleList,
    RuleResource,
    SubscriptionList,
    SubscriptionResource,
)
from twinbus.meter.operation import NO_FRAGMENT, Cause, EntityType, Operation, path_of

NAMESPACE_PATH = ""


def management_operation(resource: Resource, who: str, now: Millis) -> Operation:
    entity, kind = _entity_of(resource)
    return Operation(now, Cause.MANAGEMENT, entity, NO_FRAGMENT, 0, 0, 1, path_of(entity, who), who, entity_type=kind)


def _entity_of(resource: Resource) -> tuple[str, EntityType]:
    """Whether a path is a queue's or a topic's, a request to delete it does not say: all such count as queues'."""
    match resource:
        case EntityResource(path):
            return path, EntityType.QUEUE
        case SubscriptionList(topic):
            return topic, EntityType.TOPIC
        case SubscriptionResource(topic, name) | RuleResource(topic, name, _) | RuleList(topic, name):
            return subscription_path(topic, name), EntityType.SUBSCRIPTION
    return NAMESPACE_PATH, EntityType.NAMESPACE
