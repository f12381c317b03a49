import asyncio
from dataclasses import replace

import pytest

from tests.management.memory_runtime import MemoryRuntime
from twinbus.errors import (
    ArgumentError,
    EntityAlreadyExists,
    EntityNotFound,
    ForwardTargetMissing,
    FragmentUnavailable,
    InternalError,
    MessagingError,
    OperationInProgress,
    QuotaExceeded,
)
from twinbus.management import quotas
from twinbus.management.catalog import Catalog, Entry
from twinbus.management.control_plane import ControlPlane
from twinbus.management.own_process import restore
from twinbus.management.waiting import Turns
from twinbus.model.content import application_properties
from twinbus.model.descriptions import (
    MINUTE,
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Simulation


@pytest.mark.rule("A6.1")
async def test_an_unhealthy_fragment_fails_creation_and_nothing_exists_afterwards(
    control: ControlPlane, catalog: Catalog, runtime: MemoryRuntime
) -> None:
    runtime.is_ill = True
    with pytest.raises(FragmentUnavailable):
        await control.create_queue(QueueDescription("q", enable_partitioning=True))
    assert catalog.find("q") is None


@pytest.mark.rule("A6.2")
async def test_an_unhealthy_fragment_fails_update_and_deletion_and_everything_stays(
    control: ControlPlane, catalog: Catalog, runtime: MemoryRuntime
) -> None:
    before = await control.create_queue(QueueDescription("q"))
    runtime.is_ill = True
    with pytest.raises(FragmentUnavailable):
        await control.update(QueueDescription("q", lock_duration=2 * MINUTE))
    with pytest.raises(FragmentUnavailable):
        await control.delete("q")
    assert catalog.get("q") == before


async def test_an_update_reaches_the_brokers_and_the_catalog(
    control: ControlPlane, catalog: Catalog, runtime: MemoryRuntime
) -> None:
    before = await control.create_queue(QueueDescription("Queue"))
    after = await control.update(QueueDescription("QUEUE", lock_duration=2 * MINUTE))
    assert (
        after.description == QueueDescription("Queue", lock_duration=2 * MINUTE) == runtime.queue("queue").description
    )
    assert (after.id, after.created_at) == (before.id, before.created_at)
    assert after.updated_at > before.updated_at


async def test_an_update_that_cannot_be_written_is_taken_back_from_the_brokers(
    control: ControlPlane, catalog: Catalog, runtime: MemoryRuntime
) -> None:
    await control.create_queue(QueueDescription("q"))
    catalog.close()
    with pytest.raises(InternalError):
        await control.update(QueueDescription("q", lock_duration=2 * MINUTE))
    assert runtime.queue("q").description == QueueDescription("q")


async def test_what_cannot_be_followed_is_not_tried_for_ever_when_the_namespace_has_stopped(
    control: ControlPlane, catalog: Catalog
) -> None:
    """A spare serves again in the same process."""
    await control.create_queue(QueueDescription("q"))
    await control.create_queue(QueueDescription("p"))
    catalog.close()
    with pytest.raises(InternalError):
        await control.delete("q")
    assert len(asyncio.all_tasks()) == 2
    control.close()
    with pytest.raises(InternalError):
        await control.delete("p")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_queue_and_a_topic_cannot_have_the_same_name(control: ControlPlane) -> None:
    await control.create_queue(QueueDescription("name"))
    with pytest.raises(EntityAlreadyExists):
        await control.create_topic(TopicDescription("NAME"))
    with pytest.raises(EntityAlreadyExists):
        await control.update(TopicDescription("name"))


@pytest.mark.rule("A1.7")
async def test_the_hundred_and_first_partitioned_entity_is_refused(control: ControlPlane) -> None:
    for number in range(100):
        await control.create_queue(QueueDescription(f"q{number}", enable_partitioning=True))
    with pytest.raises(QuotaExceeded, match="100 partitioned"):
        await control.create_topic(TopicDescription("t", enable_partitioning=True))
    await control.create_topic(TopicDescription("t"))
    await control.delete("q7")
    await control.create_queue(QueueDescription("q7", enable_partitioning=True))


@pytest.mark.rule("A1.7")
async def test_entities_subscriptions_and_filters_have_quotas(
    control: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "ENTITY_COUNT_MAX", 2)
    monkeypatch.setattr(quotas, "SUBSCRIPTION_COUNT_MAX", 2)
    monkeypatch.setattr(quotas, "SQL_FILTER_COUNT_MAX", 3)
    monkeypatch.setattr(quotas, "CORRELATION_FILTER_COUNT_MAX", 1)
    await control.create_topic(TopicDescription("t"))
    await control.create_queue(QueueDescription("q"))
    with pytest.raises(QuotaExceeded):
        await control.create_queue(QueueDescription("more"))
    for name in ("s1", "s2"):
        await control.create_subscription(SubscriptionDescription("t", name))
    with pytest.raises(QuotaExceeded):
        await control.create_subscription(SubscriptionDescription("t", "s3"))
    await control.create_rule("t", "s1", RuleDescription("sql", SqlFilter("1=1")))
    await control.create_rule("t", "s2", RuleDescription("correlation", CorrelationFilter(label="a")))
    for chosen in (SqlFilter("1=1"), CorrelationFilter(label="b")):
        with pytest.raises(QuotaExceeded):
            await control.create_rule("t", "s1", RuleDescription("more", chosen))
    with pytest.raises(QuotaExceeded):
        await control.update_rule("t", "s2", RuleDescription("correlation", SqlFilter("2=2")))
    await control.update_rule("t", "s2", RuleDescription("correlation", CorrelationFilter(label="c")))


async def test_a_subscription_whose_rules_do_not_all_fit_is_refused_with_how_many_there_would_be(
    control: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "SQL_FILTER_COUNT_MAX", 3)
    await control.create_topic(TopicDescription("t"))
    await control.create_subscription(SubscriptionDescription("t", "s1"))
    rules = [RuleDescription(name, SqlFilter("1=1")) for name in "abc"]
    with pytest.raises(QuotaExceeded, match="would have 4 SQL filters; the limit is 3"):
        await control.create_subscription(SubscriptionDescription("t", "s2"), rules)
    await control.create_subscription(SubscriptionDescription("t", "s2"), rules[:2])


async def test_forwarding_needs_a_target_that_exists_and_receives(control: ControlPlane) -> None:
    await control.create_topic(TopicDescription("t"))
    await control.create_subscription(SubscriptionDescription("t", "s"))
    await control.create_queue(QueueDescription("q", forward_dead_letters_to="T"))
    with pytest.raises(ForwardTargetMissing, match="'gone'"):
        await control.create_queue(QueueDescription("q2", forward_to="gone"))
    with pytest.raises(ForwardTargetMissing, match="'gone'"):
        await control.update(QueueDescription("q", forward_dead_letters_to="gone"))
    with pytest.raises(MessagingError, match="is a subscription"):
        await control.create_queue(QueueDescription("q2", forward_to="t/subscriptions/s"))


@pytest.mark.rule("A11.6")
@pytest.mark.parametrize("way", ["forward_to", "forward_dead_letters_to"])
async def test_nothing_is_created_that_forwards_to_itself(control: ControlPlane, way: str) -> None:
    await control.create_topic(TopicDescription("t"))
    for refused in (
        control.create_queue(QueueDescription("new", **{way: "NEW"})),  # type: ignore[arg-type]
        control.create_subscription(SubscriptionDescription("t", "s", **{way: "T"})),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentError, match="cannot forward to itself"):
            await refused


@pytest.mark.rule("A11.6")
@pytest.mark.parametrize("way", ["forward_to", "forward_dead_letters_to"])
async def test_what_exists_may_be_changed_to_forward_to_itself(control: ControlPlane, way: str) -> None:
    """The live tests of the Python SDK do so with a queue, and with a subscription and its topic."""
    await control.create_topic(TopicDescription("t"))
    await control.create_queue(QueueDescription("q"))
    await control.create_subscription(SubscriptionDescription("t", "s"))
    await control.update(QueueDescription("q", **{way: "Q"}))  # type: ignore[arg-type]
    await control.update(SubscriptionDescription("t", "s", **{way: "T"}))  # type: ignore[arg-type]


@pytest.mark.rule("A11.6")
async def test_forwarding_in_a_circle_that_is_known_is_refused(control: ControlPlane) -> None:
    await control.create_queue(QueueDescription("c"))
    await control.create_topic(TopicDescription("b"))
    await control.create_queue(QueueDescription("a", forward_to="b"))
    await control.create_subscription(SubscriptionDescription("b", "s", forward_to="c"))
    for _ in range(2):
        with pytest.raises(ArgumentError, match="in a circle: c > A > b > c"):
            await control.update(QueueDescription("c", forward_to="A"))
    with pytest.raises(ArgumentError, match="in a circle: b > a > b"):
        await control.create_subscription(SubscriptionDescription("b", "s2", forward_to="a"))
    await control.update(QueueDescription("c", forward_dead_letters_to="a"))  # only what fails goes round


async def test_an_entity_in_a_circle_of_before_can_still_be_changed(control: ControlPlane) -> None:
    await control.create_queue(QueueDescription("b"))
    await control.create_queue(QueueDescription("a", forward_to="b"))
    control.catalog.update(QueueDescription("b", forward_to="a"), 0)
    await control.update(QueueDescription("b", forward_to="a", max_delivery_count=3))
    await control.update(QueueDescription("b"))
    with pytest.raises(ArgumentError, match="in a circle"):
        await control.update(QueueDescription("b", forward_to="a"))


async def test_a_new_subscription_takes_everything_unless_it_says_otherwise(
    control: ControlPlane, runtime: MemoryRuntime
) -> None:
    await control.create_topic(TopicDescription("t"))
    plain = await control.create_subscription(SubscriptionDescription("T", "plain"))
    own = await control.create_subscription(
        SubscriptionDescription("t", "own"), [RuleDescription("r", SqlFilter("a=1"))]
    )
    assert [rule.name for rule in plain.rules] == ["$Default"]
    assert [rule.name for rule in own.rules] == ["r"]
    assert plain.description.topic == "t"  # type: ignore[union-attr]
    assert list(runtime.subscription("t", "own").rules) == ["r"]


@pytest.mark.rule("A6.3")
async def test_an_unhealthy_fragment_fails_changes_of_rules_and_everything_stays(
    control: ControlPlane, catalog: Catalog, runtime: MemoryRuntime
) -> None:
    await control.create_topic(TopicDescription("t"))
    await control.create_subscription(SubscriptionDescription("t", "s"), [RuleDescription("rule")])
    before = catalog.get("t/subscriptions/s").rules
    runtime.is_ill = True
    changes = [
        control.create_rule("t", "s", RuleDescription("more")),
        control.update_rule("t", "s", RuleDescription("rule", SqlFilter("1=2"))),
        control.delete_rule("t", "s", "rule"),
    ]
    for change in changes:
        with pytest.raises(FragmentUnavailable):
            await change
    assert catalog.get("t/subscriptions/s").rules == before
    assert list(runtime.subscription("t", "s").rules.values()) == list(before)


async def test_a_rule_that_is_refused_is_not_there_at_the_next_start(
    control: ControlPlane, runtime: MemoryRuntime
) -> None:
    await control.create_topic(TopicDescription("t"))
    await control.create_subscription(SubscriptionDescription("t", "s"))
    await control.create_rule("t", "s", RuleDescription("rule"))
    for change in (control.create_rule, control.update_rule):
        with pytest.raises(ArgumentError, match="no system property"):
            await change("t", "s", RuleDescription("rule", SqlFilter("sys.Nothing = 1")))
    entry = control.catalog.get("t/Subscriptions/s")
    assert [(rule.name, rule.filter) for rule in entry.rules] == [("$Default", TrueFilter()), ("rule", TrueFilter())]


async def test_an_update_of_a_rule_takes_effect_where_python_sees_no_difference(
    control: ControlPlane, catalog: Catalog, runtime: MemoryRuntime
) -> None:
    await control.create_topic(TopicDescription("t"))
    await control.create_subscription(SubscriptionDescription("t", "s"))
    await control.create_rule("t", "s", RuleDescription("rule"))
    for value in (1, True, 1.0):
        await control.update_rule("t", "s", RuleDescription("rule", CorrelationFilter(properties=(("p", value),))))
        (_, kept) = catalog.get("t/Subscriptions/s").rules
        for found in (kept, runtime.subscription("t", "s").rules["rule"]):
            assert isinstance(found.filter, CorrelationFilter)
            assert type(found.filter.properties[0][1]) is type(value)


async def test_rules_are_added_changed_and_removed_in_the_catalog_and_the_brokers(
    control: ControlPlane, runtime: MemoryRuntime
) -> None:
    await control.create_topic(TopicDescription("t"))
    await control.create_subscription(SubscriptionDescription("t", "s"))
    made = await control.create_rule("t", "s", RuleDescription("Rule", SqlFilter("a = 1")))
    with pytest.raises(EntityAlreadyExists):
        await control.create_rule("t", "s", RuleDescription("RULE"))
    changed = await control.update_rule("t", "S", RuleDescription("rule", SqlFilter("a = 2")))
    assert changed == replace(made, filter=SqlFilter("a = 2"))
    assert runtime.subscription("t", "s").rules["Rule"] == changed
    await control.delete_rule("t", "s", "$default")
    assert list(runtime.subscription("t", "s").rules) == ["Rule"]
    for missing in (control.delete_rule("t", "s", "gone"), control.update_rule("t", "s", RuleDescription("gone"))):
        with pytest.raises(EntityNotFound):
            await missing


async def test_a_topic_is_deleted_with_what_is_below_it(control: ControlPlane, runtime: MemoryRuntime) -> None:
    await control.create_topic(TopicDescription("t"))
    await control.create_subscription(SubscriptionDescription("t", "s"))
    await control.delete("t")
    assert runtime.entities == {}
    with pytest.raises(EntityNotFound):
        await control.create_subscription(SubscriptionDescription("t", "s"))


async def test_of_two_creations_at_once_one_wins(control: ControlPlane, runtime: MemoryRuntime) -> None:
    results = await asyncio.gather(
        *(control.create_queue(QueueDescription(name)) for name in ("q", "Q", "q")), return_exceptions=True
    )
    assert sum(isinstance(result, EntityAlreadyExists) for result in results) == 2
    assert runtime.change_count == 1


async def test_a_change_gives_up_when_another_one_to_the_same_entity_does_not_end() -> None:
    turns = Turns(wait_s=0)
    async with turns.of("q"):
        with pytest.raises(OperationInProgress):
            async with turns.of("Q"):
                raise AssertionError("both were let in")
        async with turns.of("another"):
            pass
    async with turns.of("q"):
        pass


async def test_a_submitted_change_answers_with_its_result_or_its_error(control: ControlPlane) -> None:
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    control.submit(control.delete("gone"), answered.set_result)
    assert isinstance(await answered, EntityNotFound)


UNFIT_RULES = (
    RuleDescription("filter", SqlFilter("no filter at all (")),
    RuleDescription("action", SqlFilter("1=1"), SqlAction("SET sys.NoSuchProperty = 1")),
    RuleDescription("nothing", CorrelationFilter()),
)


@pytest.mark.rule("A16")
@pytest.mark.parametrize("rule", UNFIT_RULES, ids=[rule.name for rule in UNFIT_RULES])
async def test_a_rule_that_cannot_be_compiled_any_more_keeps_nothing_from_starting(
    catalog: Catalog, rule: RuleDescription
) -> None:
    sim = Simulation()
    catalog.add(1, TopicDescription("t"), sim.now)
    good = RuleDescription("good", SqlFilter("1=1"))
    catalog.add(2, SubscriptionDescription("t", "ill"), sim.now, (rule,))
    catalog.add(3, SubscriptionDescription("t", "well"), sim.now, (good,))
    catalog.add(4, SubscriptionDescription("t", "quiet", dead_letter_on_filter_error=False), sim.now, (rule,))
    restore(catalog, sim.entities, sim.now)
    sim.run()
    ill, well, quiet = (sim.entities.subscription("t", name) for name in ("ill", "well", "quiet"))
    assert sim.send(sim.entities.topic("t"), make_message("m")).good == {0}
    assert well.main.counts().active == 1
    assert [each.main.counts().active for each in (ill, quiet)] == [0, 0]
    assert quiet.dead_letter.counts().active == 0
    (dead,) = sim.receiver(ill.dead_letter, 1).take()
    described = str(application_properties(dead.message.content)["DeadLetterErrorDescription"])
    assert described.startswith(f"The rule '{rule.name}' cannot be used.")
    sim.entities.remove_rule("t", "ill", rule.name)
    sim.entities.add_rule("t", "ill", good)
    sim.send(sim.entities.topic("t"), make_message("n"))
    assert ill.main.counts().active == 1


@pytest.mark.rule("A1.7")
async def test_entities_that_are_made_at_the_same_time_stay_within_the_limit(
    control: ControlPlane, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "PARTITIONED_COUNT_MAX", 3)
    monkeypatch.setattr(quotas, "ENTITY_COUNT_MAX", 5)
    for is_partitioned, limit in ((True, 3), (False, 5)):
        wanted = [QueueDescription(f"q{is_partitioned}{n}", enable_partitioning=is_partitioned) for n in range(8)]
        made = await asyncio.gather(*map(control.create_queue, wanted), return_exceptions=True)
        assert {type(each) for each in made} == {Entry, QuotaExceeded}
        assert catalog.count(QueueDescription) == limit


def _refuse_on_disk(catalog: Catalog, what: str) -> None:
    catalog._database.rows(
        f"CREATE TEMP TRIGGER refused BEFORE {what} ON entities BEGIN SELECT RAISE(FAIL, 'the disk is full'); END"
    )


def _allow_on_disk(catalog: Catalog) -> None:
    catalog._database.rows("DROP TRIGGER refused")


async def test_what_the_catalog_could_not_take_does_not_run_either_and_can_be_made_later(
    control: ControlPlane, catalog: Catalog, runtime: MemoryRuntime
) -> None:
    await control.create_topic(TopicDescription("t"))
    _refuse_on_disk(catalog, "INSERT")
    with pytest.raises(InternalError):
        await control.create_queue(QueueDescription("q"))
    with pytest.raises(InternalError):
        await control.create_subscription(SubscriptionDescription("t", "s"))
    assert list(runtime.entities) == ["t"]
    _allow_on_disk(catalog)
    await control.create_queue(QueueDescription("q"))
    await control.create_subscription(SubscriptionDescription("t", "s"))


async def test_a_deletion_that_the_catalog_could_not_take_can_be_repeated(
    control: ControlPlane, catalog: Catalog
) -> None:
    await control.create_queue(QueueDescription("q"))
    await control.create_topic(TopicDescription("t"))
    await control.create_subscription(SubscriptionDescription("t", "s"))
    _refuse_on_disk(catalog, "DELETE")
    with pytest.raises(InternalError):
        await control.delete("q")
    with pytest.raises(InternalError):
        await control.delete_subscription("t", "s")
    _allow_on_disk(catalog)
    await control.delete("q")
    await control.delete_subscription("t", "s")
    assert (catalog.find("q"), catalog.subscriptions("t")) == (None, [])
