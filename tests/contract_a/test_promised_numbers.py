"""Numbers that the contract, the service or a client's own defaults promise: a wrong one works, and surprises somebody later."""

from datetime import timedelta

from twinbus.amqp.codec.sections import BODY_SECTIONS_MAX
from twinbus.amqp.connection_settings import ConnectionSettings
from twinbus.broker import fragment_transaction, message_broker, outcomes
from twinbus.broker.fragment import locks
from twinbus.gateway.links import bindings, outcome_states, receiver_attach, session_attach
from twinbus.gateway.nodes import coordinator, management_node, request_message
from twinbus.gateway.requests import browse, bulk, call, repair, rules, schedule, sessions
from twinbus.gateway.web_tokens import RSA_BITS_MIN
from twinbus.model import descriptions, durations, identity, iso8601, message_limits, pairing_limits, paths, wire_names
from twinbus.model.annotations import KEY_LENGTH_MAX
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.entity_properties import PROPERTIES
from twinbus.model.rules import index, parser, values
from twinbus.store.postgres.connection import SERVER_VERSION_MIN

MINUTE, DAY = 60_000, 24 * 60 * 60_000


def test_sizes_of_messages() -> None:
    limits = message_limits
    assert (limits.MESSAGE_SIZE_MAX, limits.MESSAGE_SIZE_CEILING) == (256 * 1024, 100 * 1024 * 1024)
    assert (limits.LARGE_MESSAGE_KB_MIN, limits.LARGE_MESSAGE_KB_MAX) == (1_025, 102_400)
    assert (limits.BATCH_SIZE_MAX, limits.HEADER_SIZE_MAX) == (1024 * 1024, 64 * 1024)
    assert (limits.PROPERTY_SIZE_MAX, limits.TIME_TO_LIVE_MAX) == (32 * 1024, 2**32 - 1)
    assert (limits.PEEK_COUNT_MAX, limits.RANGE_COUNT_MAX, limits.TIMES_COUNT_MAX) == (250, 1_000, 256)
    assert (identity.ID_LENGTH_MAX, KEY_LENGTH_MAX) == (128, 128)


def test_names() -> None:
    assert (paths.ENTITY_PATH_LENGTH_MAX, paths.SUBSCRIPTION_NAME_LENGTH_MAX) == (260, 50)


def test_connections() -> None:
    settings = ConnectionSettings(container_id="c")
    assert (settings.frame_size_max, settings.channel_max, settings.handle_max) == (65_536, 4_999, 65_535)
    assert (settings.idle_timeout, settings.incoming_window) == (240_000, 5_000)
    assert (settings.link_count_max, settings.message_size_max) == (10_000, 1_048_576)


def test_links_and_requests() -> None:
    assert (bindings.IDLE_MAX, receiver_attach.RECEIVERS_MAX) == (10 * MINUTE, 5_000)
    assert (session_attach.WAIT_DEFAULT, management_node.TIMEOUT_DEFAULT) == (65_000, MINUTE)
    assert (call.LOCK_TOKENS_MAX, browse.SEQUENCE_NUMBERS_MAX, schedule.SEQUENCE_NUMBERS_MAX) == (4_096,) * 3
    assert (bulk.DELETE_COUNT_MAX, message_limits.BATCH_COUNT_MAX) == (4_000, 4_500)
    assert (rules.LIST_COUNT_MAX, sessions.LIST_COUNT_MAX, repair.PREVIEWS_DEFAULT) == (100, 100, 10)
    assert (request_message.VALUES_MAX, coordinator.SIZE_MAX, BODY_SECTIONS_MAX) == (65_536, 64 * 1024, 16_384)
    assert locks.TOKEN_SIZE == 16
    no_answers = (call.NO_MESSAGES, rules.NO_RULES, sessions.NO_SESSIONS)
    assert {each.status for each in no_answers} == {204}


def test_transactions_delays_and_stores() -> None:
    assert (fragment_transaction.MESSAGES_MAX, fragment_transaction.DURATION_MAX) == (100, 2 * MINUTE)
    assert (outcomes.DELAY_MAX, message_broker.SILENCE_MAX) == (7 * DAY, 15_000)
    assert SERVER_VERSION_MIN == 150_000


def test_rules() -> None:
    assert (parser.TEXT_LENGTH_MAX, parser.STATEMENT_COUNT_MAX) == (1_024, 32)
    assert (index.SQL_FILTER_COUNT_MAX, index.CORRELATION_FILTER_COUNT_MAX) == (2_000, 100_000)


def test_times() -> None:
    ticks_at_epoch = 621_355_968_000_000_000
    assert (ticks_at_epoch,) * 2 == (session_attach.TICKS_AT_EPOCH, values.DATETIME_OFFSET_EPOCH_TICKS)
    assert (session_attach.TICKS_PER_MILLI, outcome_states.TICKS_PER_MILLISECOND) == (10_000, 10_000)
    assert sessions.ALL_SESSIONS == 253_402_300_799_999  # the last millisecond of the year 9999
    assert iso8601.NEVER_FROM == identity.LIFETIME_MAX == 922_337_203_685_477
    assert durations.NEVER_DELTA // timedelta(milliseconds=1) == 922_337_203_685_477
    assert durations.UNITS_MS == {"ms": 1, "s": 1_000, "m": MINUTE, "h": 60 * MINUTE, "d": DAY}
    assert iso8601.UNITS_MS["weeks"] == 7 * iso8601.UNITS_MS["days"] == 7 * DAY
    assert (iso8601.UNITS_MS["hours"], iso8601.UNITS_MS["minutes"]) == (60 * MINUTE, MINUTE)


def test_defaults_of_entities() -> None:
    queue, topic, subscription = QueueDescription("q"), TopicDescription("t"), SubscriptionDescription("t", "s")
    assert (descriptions.SECOND, descriptions.MINUTE, descriptions.DAY) == (1_000, MINUTE, DAY)
    assert (queue.max_delivery_count, subscription.max_delivery_count) == (10, 10)
    assert (queue.lock_duration, subscription.lock_duration) == (MINUTE, MINUTE)
    assert (queue.duplicate_detection_window, topic.duplicate_detection_window) == (10 * MINUTE, 10 * MINUTE)
    assert (queue.max_size_mb, topic.max_size_mb, descriptions.FRAGMENT_COUNT) == (1_024, 1_024, 16)
    assert (queue.requires_session, queue.requires_duplicate_detection, queue.enable_partitioning) == (False,) * 3
    assert (queue.dead_letter_on_expiry, queue.enable_express, queue.enable_batched_operations) == (False, False, True)
    assert (topic.support_ordering, topic.filter_before_publishing, topic.enable_batched_operations) == (
        True,
        False,
        True,
    )
    assert (subscription.dead_letter_on_filter_error, subscription.dead_letter_on_expiry) == (True, False)


def test_limits_of_properties() -> None:
    known = {each.element: each for each in PROPERTIES}
    assert (known["LockDuration"].least, known["LockDuration"].most) == (5_000, 5 * MINUTE)
    window = known["DuplicateDetectionHistoryTimeWindow"]
    assert (window.least, window.most) == (20_000, 7 * DAY)
    assert (known["MaxDeliveryCount"].least, known["MaxDeliveryCount"].most) == (1, 2**31 - 1)
    assert (known["AutoDeleteOnIdle"].least, known["UserMetadata"].most) == (5 * MINUTE, 1_024)
    assert tuple(known["MaxSizeInMegabytes"].choices) == (1_024, 2_048, 3_072, 4_096, 5_120)


def test_pairs() -> None:
    limits = pairing_limits
    assert (limits.BACKLOG_QUEUE_COUNT_DEFAULT, limits.SET_ASIDE_SIZE, limits.SET_ASIDE_SIZE_MAX) == (10, 512, 1_024)
    minutes = [limits.FAILOVER_INTERVAL_DEFAULT, limits.FAILOVER_INTERVAL_MAX, limits.PING_INTERVAL_DEFAULT]
    minutes += [limits.PING_INTERVAL_MAX, limits.PING_TIMEOUT, limits.SYPHON_POLL]
    assert [each // timedelta(minutes=1) for each in minutes] == [1, 60, 1, 30, 2, 15]
    seconds = [limits.PING_INTERVAL_MIN, limits.PING_TIME_TO_LIVE, limits.PARTNER_CLOSE_GRACE]
    assert [each // timedelta(seconds=1) for each in seconds] == [1, 1, 5]


def test_names_on_the_wire() -> None:
    assert (wire_names.BATCH_FORMAT, wire_names.SELECTOR_FILTER_CODE) == (0x80013700, 0x468C00000004)
    assert (wire_names.NON_EXCLUSIVE_SESSION_CODE, RSA_BITS_MIN) == (0x137000000E, 2_048)
