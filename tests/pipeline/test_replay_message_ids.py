"""Whether copies keep their ids: the rule, and what a namespace says about its entities."""

import pytest

from twinbus.client.administration import administration_client
from twinbus.errors import ArgumentError
from twinbus.pipeline.replay.duplicate_detection import detects_duplicates
from twinbus.pipeline.replay.message_ids import MessageIds, dropping_destinations, renamed_dead_letters
from twinbus.testing.local_namespace import LocalNamespace
from twinbus.testing.pytest_plugin import namespace_fixture

bus = namespace_fixture(scope="module")
KNOWN = {"detecting": True, "other": False, "secret": None}
AUTO, KEEP, NEW = MessageIds


def renamed(path: str, chosen: MessageIds) -> bool:
    return renamed_dead_letters([path, path], chosen, KNOWN.__getitem__)[path]


def test_dead_letters_get_new_ids_where_theirs_would_be_dropped() -> None:
    assert renamed("detecting", AUTO)
    assert not renamed("other", AUTO)


def test_what_is_not_known_is_for_the_user_to_say() -> None:
    with pytest.raises(ArgumentError, match=r"'secret' detects duplicates cannot be determined.*new.*keep"):
        renamed("secret", AUTO)
    assert not renamed("secret", KEEP)
    assert renamed("secret", NEW)


def test_ids_are_not_kept_where_it_is_known_that_dead_letters_would_be_lost() -> None:
    with pytest.raises(ArgumentError, match=r"'detecting' detects duplicates.*--message-ids new"):
        renamed("detecting", KEEP)
    assert not renamed("other", KEEP)


def test_new_ids_need_no_question() -> None:
    def never(path: str) -> bool:
        raise AssertionError(path)

    assert renamed_dead_letters(["a", "b"], NEW, never) == {"a": True, "b": True}


def test_of_a_lake_only_what_nobody_decided_is_mentioned() -> None:
    assert dropping_destinations(KNOWN, AUTO, KNOWN.__getitem__) == ["detecting"]
    assert dropping_destinations(KNOWN, KEEP, KNOWN.__getitem__) == []
    assert dropping_destinations(KNOWN, NEW, KNOWN.__getitem__) == []


def test_a_queue_and_a_topic_say_whether_they_detect_duplicates(bus: LocalNamespace) -> None:
    bus.create_queue("plain")
    bus.create_queue("detecting", requires_duplicate_detection=True)
    bus.create_topic("plain-topic", "s")
    bus.create_topic("detecting-topic", "s", requires_duplicate_detection=True)
    found = {
        path: detects_duplicates(bus.administration, path)
        for path in ("plain", "DETECTING", "plain-topic", "detecting-topic", "nowhere")
    }
    assert found == {
        "plain": False,
        "DETECTING": True,
        "plain-topic": False,
        "detecting-topic": True,
        "nowhere": None,
    }


def test_what_an_entity_forwards_to_counts_as_well(bus: LocalNamespace) -> None:
    bus.create_queue("end/of-it", requires_duplicate_detection=True)
    bus.create_queue("middle", forward_to="end/of-it")
    bus.create_queue("start", forward_to="middle")
    bus.create_topic("forwarding-topic")
    bus.administration.create_subscription("forwarding-topic", "s", forward_to="start")
    assert detects_duplicates(bus.administration, "start")
    assert detects_duplicates(bus.administration, "forwarding-topic")
    bus.create_queue("round")
    properties = bus.administration.get_queue("round")
    properties.forward_to = "round"
    bus.administration.update_queue(properties)
    assert detects_duplicates(bus.administration, "round") is False


def test_a_key_that_may_not_ask_gets_no_answer(bus: LocalNamespace) -> None:
    from azure.servicebus.management import AccessRights, AuthorizationRule

    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        key_name="app",
        primary_key="a" * 43 + "=",
        secondary_key="b" * 43 + "=",
        rights=[AccessRights.SEND, AccessRights.LISTEN],
        claim_type="SharedAccessKey",
        claim_value="None",
    )
    bus.create_queue("guarded", authorization_rules=[rule])
    parts = dict(part.split("=", 1) for part in bus.connection_string.split(";") if part)
    parts |= {"SharedAccessKeyName": "app", "SharedAccessKey": str(rule.primary_key)}
    limited = ";".join(f"{name}={value}" for name, value in parts.items())
    with administration_client(limited, bus.endpoint, connect_retries=0) as administration:
        assert detects_duplicates(administration, "guarded") is None
    with administration_client(limited, "http://127.0.0.1:1", connect_retries=0) as administration:
        assert detects_duplicates(administration, "guarded") is None
