"""The groups of entities against a real namespace."""

from tests.cli.conftest import Commands


def test_a_queue_is_made_shown_changed_and_deleted(commands: Commands) -> None:
    made = commands.json("queue", "create", "orders", "--partitioned", "--lock-duration", "30s", "--max-size", "2048")
    assert (made["name"], made["partitioned"], made["lock_duration"], made["max_size_mb"]) == (
        "orders",
        True,
        "30s",
        32768,
    )
    assert "already" in commands.failure("queue", "create", "orders")
    changed = commands.json("queue", "update", "orders", "--max-delivery-count", "3", "--status", "SendDisabled")
    assert (changed["max_delivery_count"], changed["status"], changed["lock_duration"]) == (3, "SendDisabled", "30s")
    shown = commands.text("queue", "show", "orders")
    assert "max delivery count" in shown
    assert "never" in shown
    assert "orders" in [queue["name"] for queue in commands.json("queue", "list")]
    assert commands.text("queue", "delete", "orders", "--yes") == "Queue 'orders' is deleted.\n"
    assert "could not be found" in commands.failure("queue", "delete", "orders", "--yes")


def test_topics_subscriptions_and_rules_are_made_shown_changed_and_deleted(commands: Commands) -> None:
    commands.json("queue", "create", "audit")
    commands.json("topic", "create", "events", "--ttl", "7d")
    commands.json("subscription", "create", "events", "all", "--forward-to", "audit")
    assert commands.json("subscription", "update", "events", "all", "--forward-to", "")["forward_to"] is None
    commands.json("rule", "create", "events", "all", "red", "--sql", "colour = 'red'", "--action", "SET seen = 1")
    commands.json("rule", "create", "events", "all", "hot", "--match", "sys.label=hot", "--match", "size=xl")
    rules = commands.json("rule", "list", "events", "all")
    assert [(rule["name"], rule["filter"], rule["action"]) for rule in rules] == [
        ("$Default", "1=1", None),
        ("hot", "sys.label=hot, size=xl", None),
        ("red", "colour = 'red'", "SET seen = 1"),
    ]
    assert commands.json("rule", "update", "events", "all", "red", "--action", "")["action"] is None
    assert commands.json("rule", "show", "events", "all", "red")["filter"] == "colour = 'red'"
    assert "expected" in commands.failure("rule", "create", "events", "all", "bad", "--sql", "colour =")
    commands.json("rule", "delete", "events", "all", "$Default", "--yes")
    topic = commands.json("topic", "show", "events")
    assert (topic["subscriptions"], topic["time_to_live"]) == (1, "7d")
    assert commands.json("topic", "update", "events", "--ttl", "never")["time_to_live"] == "never"
    assert [each["name"] for each in commands.json("subscription", "list", "events")] == ["all"]
    assert commands.json("subscription", "show", "events", "all")["sessions"] is False
    commands.json("subscription", "delete", "events", "all", "--yes")
    commands.json("topic", "delete", "events", "--yes")
    assert "events" not in [topic["name"] for topic in commands.json("topic", "list")]
    commands.json("queue", "delete", "audit", "--yes")
