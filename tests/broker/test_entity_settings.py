"""What the parts of an entity know of its description."""

import pytest

from twinbus.broker.entity_settings import (
    UNLIMITED,
    EntitySettings,
    queue_settings,
    subscription_settings,
    topic_settings,
)
from twinbus.errors import EntityDisabled, EntityNotFound
from twinbus.model.descriptions import (
    LOCK_DURATION_DEFAULT,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)


@pytest.mark.parametrize("is_set", [False, True])
def test_the_settings_of_a_queue_are_those_of_its_description(is_set: bool) -> None:
    description = QueueDescription(
        "Orders/New",
        lock_duration=1,
        max_size_mb=2,
        requires_duplicate_detection=is_set,
        requires_session=is_set,
        default_time_to_live=3,
        dead_letter_on_expiry=is_set,
        duplicate_detection_window=4,
        max_delivery_count=5,
        status=EntityStatus.SEND_DISABLED,
        enable_partitioning=is_set,
        forward_to="a",
        forward_dead_letters_to="b",
        max_message_size_kb=6,
    )
    assert queue_settings(description) == EntitySettings(
        path="Orders/New",
        root="orders/new",
        status=EntityStatus.SEND_DISABLED,
        default_time_to_live=3,
        is_partitioned=is_set,
        size_max_bytes=2 << 20,
        message_size_max=6 << 10,
        requires_session=is_set,
        has_sessions=is_set,
        duplicate_window=4 if is_set else 0,
        lock_duration=1,
        max_delivery_count=5,
        dead_letter_on_expiry=is_set,
        dead_letter_on_filter_error=False,
        forward_to="a",
        forward_dead_letters_to="b",
    )


@pytest.mark.parametrize("is_set", [False, True])
def test_the_settings_of_a_topic_and_a_subscription_are_those_of_their_descriptions(is_set: bool) -> None:
    topic = TopicDescription(
        "News",
        max_size_mb=2,
        requires_duplicate_detection=is_set,
        default_time_to_live=3,
        duplicate_detection_window=4,
        status=EntityStatus.DISABLED,
        enable_partitioning=is_set,
        max_message_size_kb=6,
    )
    assert topic_settings(topic) == EntitySettings(
        path="News",
        root="news",
        status=EntityStatus.DISABLED,
        default_time_to_live=3,
        is_partitioned=is_set,
        size_max_bytes=2 << 20,
        message_size_max=6 << 10,
        requires_session=False,
        has_sessions=True,
        duplicate_window=4 if is_set else 0,
        lock_duration=LOCK_DURATION_DEFAULT,
    )
    subscription = SubscriptionDescription(
        "News",
        "All",
        lock_duration=1,
        requires_session=is_set,
        default_time_to_live=7,
        dead_letter_on_expiry=is_set,
        dead_letter_on_filter_error=not is_set,
        max_delivery_count=5,
        status=EntityStatus.RECEIVE_DISABLED,
        forward_to="a",
        forward_dead_letters_to="b",
    )
    assert subscription_settings(subscription, topic) == EntitySettings(
        path="News/Subscriptions/All",
        root="news",
        status=EntityStatus.RECEIVE_DISABLED,
        default_time_to_live=7,
        is_partitioned=is_set,
        size_max_bytes=UNLIMITED,
        message_size_max=6 << 10,
        requires_session=is_set,
        has_sessions=is_set,
        duplicate_window=0,
        lock_duration=1,
        max_delivery_count=5,
        dead_letter_on_expiry=is_set,
        dead_letter_on_filter_error=not is_set,
        forward_to="a",
        forward_dead_letters_to="b",
    )


@pytest.mark.parametrize(
    ("status", "can_send", "can_receive"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
        (EntityStatus.DISABLED, False, False),
    ],
)
def test_a_status_says_what_an_entity_takes_and_gives(status: EntityStatus, can_send: bool, can_receive: bool) -> None:
    settings = queue_settings(QueueDescription("q", status=status))
    assert (settings.can_send, settings.can_receive) == (can_send, can_receive)
    for check, is_allowed in ((settings.check_can_send, can_send), (settings.check_can_receive, can_receive)):
        if is_allowed:
            check()
        else:
            with pytest.raises(EntityDisabled, match=f"'q'.*{status.value}"):
                check()
        settings.is_deleted = True
        with pytest.raises(EntityNotFound):
            check()
        settings.is_deleted = False


def test_an_entity_is_unused_so_long_after_it_began_or_was_used_last() -> None:
    settings = queue_settings(QueueDescription("q"))
    settings.alive_at = 100
    assert [settings.is_unused(now, 10) for now in (109, 110)] == [False, True]
    settings.last_used_at = 105
    assert [settings.is_unused(now, 10) for now in (114, 115)] == [False, True]


def test_a_new_description_changes_everything_but_what_happened_to_the_entity() -> None:
    settings = queue_settings(QueueDescription("q"))
    settings.is_deleted, settings.alive_at, settings.last_used_at = True, 1, 2
    other = queue_settings(QueueDescription("Q", max_delivery_count=3, forward_to="a", requires_session=True))
    settings.follow(other)
    assert (settings.is_deleted, settings.alive_at, settings.last_used_at) == (True, 1, 2)
    other.is_deleted, other.alive_at, other.last_used_at = True, 1, 2
    assert settings == other
