"""What another process has changed in the catalog is found again, all of it."""

from pathlib import Path

from twinbus.management.catalog import Catalog
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription

NOW = 1_000


def test_what_is_new_changed_or_gone_is_told_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"
    writer = Catalog.in_file(file, "shop", NOW)
    for name in ("kept", "changed", "gone"):
        writer.add(writer.new_id(), QueueDescription(name), NOW)
    writer.add(writer.new_id(), TopicDescription("news"), NOW)
    writer.add(writer.new_id(), SubscriptionDescription("news", "all"), NOW, (RuleDescription("one"),))
    reader = Catalog.in_file(file, "shop", NOW)
    assert reader.reread_all() == []
    writer.update(QueueDescription("changed", max_delivery_count=3), NOW + 1)
    writer.remove("gone")
    writer.add(writer.new_id(), QueueDescription("new"), NOW)
    writer.set_rule("news/Subscriptions/all", RuleDescription("two"))
    assert reader.reread_all() == ["changed", "gone", "new", "news/Subscriptions/all"]
    assert reader.find("gone") is None
    assert [rule.name for rule in reader.get("news/Subscriptions/all").rules] == ["one", "two"]
    assert reader.count(QueueDescription) == 3
    assert reader.reread_all() == []
    writer.close()
    reader.close()
