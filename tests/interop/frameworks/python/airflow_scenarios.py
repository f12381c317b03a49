"""Tasks with Airflow's operators for Service Bus, each executed as a worker would, without a scheduler or a database."""

from typing import Any

from airflow.providers.microsoft.azure.hooks.asb import AdminClientHook, MessageHook
from airflow.providers.microsoft.azure.operators.asb import (
    ASBReceiveSubscriptionMessageOperator,
    AzureServiceBusCreateQueueOperator,
    AzureServiceBusDeleteQueueOperator,
    AzureServiceBusReceiveMessageOperator,
    AzureServiceBusSendMessageOperator,
    AzureServiceBusSubscriptionCreateOperator,
    AzureServiceBusSubscriptionDeleteOperator,
    AzureServiceBusTopicCreateOperator,
    AzureServiceBusTopicDeleteOperator,
    AzureServiceBusUpdateSubscriptionOperator,
)
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import SqlRuleFilter
from scenarios import play_all, raised, scenario

_task_count = 0


def run(operator: Any, **settings: Any) -> Any:
    global _task_count
    _task_count += 1
    return operator(task_id=f"task-{_task_count}", **settings).execute({})


def is_there(kind: str, *names: str) -> bool:
    with AdminClientHook().get_conn() as client:
        try:
            getattr(client, f"get_{kind}")(*names)
        except ResourceNotFoundError:
            return False
    return True


def collect(operator: Any, **settings: Any) -> list[Any]:
    found: list[Any] = []
    run(operator, message_callback=lambda message, context: found.append(message), **settings)
    return found


@scenario("administration", "a queue is created and deleted by its operators")
def queue() -> None:
    run(AzureServiceBusCreateQueueOperator, queue_name="created", max_delivery_count=5)
    with AdminClientHook().get_conn() as client:
        assert client.get_queue("created").max_delivery_count == 5
    run(AzureServiceBusDeleteQueueOperator, queue_name="created")
    assert not is_there("queue", "created")


@scenario("send", "one message, a list and a batch are sent and received")
def send() -> None:
    run(AzureServiceBusCreateQueueOperator, queue_name="orders")
    headers = {"region": "emea"}
    run(
        AzureServiceBusSendMessageOperator, queue_name="orders", message="one", message_id="m1", message_headers=headers
    )
    run(AzureServiceBusSendMessageOperator, queue_name="orders", message=["two", "three"])
    run(AzureServiceBusSendMessageOperator, queue_name="orders", message=["four", "five"], batch=True)
    found: list[Any] = []
    while len(found) < 5:
        some = collect(AzureServiceBusReceiveMessageOperator, queue_name="orders", max_message_count=10)
        assert some, f"only {len(found)} came"
        found += some
    assert [str(message) for message in found] == ["one", "two", "three", "four", "five"]
    assert found[0].message_id == "m1"
    assert {key.decode(): value.decode() for key, value in found[0].application_properties.items()} == headers


@scenario("settlement", "a message whose callback fails is abandoned and comes again")
def abandoned() -> None:
    run(AzureServiceBusCreateQueueOperator, queue_name="poison")
    run(AzureServiceBusSendMessageOperator, queue_name="poison", message="bad")

    def fail(message: Any, context: Any) -> None:
        raise ValueError("cannot process")

    raised(ValueError, lambda: run(AzureServiceBusReceiveMessageOperator, queue_name="poison", message_callback=fail))
    (again,) = collect(AzureServiceBusReceiveMessageOperator, queue_name="poison")
    assert (str(again), again.delivery_count) == ("bad", 1)


@scenario("topics and rules", "a topic and subscriptions with a rule are created, updated, received from and deleted")
def topic() -> None:
    name = run(AzureServiceBusTopicCreateOperator, topic_name="news", user_metadata="from a task")
    assert name == "news"
    # Twice: the operator looks whether it is there.
    assert run(AzureServiceBusTopicCreateOperator, topic_name="news") == "news"
    run(AzureServiceBusSubscriptionCreateOperator, topic_name="news", subscription_name="all")
    run(
        AzureServiceBusSubscriptionCreateOperator,
        topic_name="news",
        subscription_name="emea",
        filter_rule=SqlRuleFilter("region = 'emea'"),
        filter_rule_name="emea",
    )
    run(AzureServiceBusUpdateSubscriptionOperator, topic_name="news", subscription_name="all", max_delivery_count=3)
    with AdminClientHook().get_conn() as client:
        assert client.get_subscription("news", "all").max_delivery_count == 3
        assert [rule.name for rule in client.list_rules("news", "emea")] == ["emea"]
    with MessageHook().get_conn() as client, client.get_topic_sender("news") as sender:
        sender.send_messages(
            [ServiceBusMessage("a", application_properties={"region": "emea"}), ServiceBusMessage("b")]
        )
    source = {"topic_name": "news", "max_message_count": 10}
    got = collect(ASBReceiveSubscriptionMessageOperator, subscription_name="emea", **source)
    assert [str(message) for message in got] == ["a"]
    got = collect(ASBReceiveSubscriptionMessageOperator, subscription_name="all", **source)
    assert [str(message) for message in got] == ["a", "b"]
    run(AzureServiceBusSubscriptionDeleteOperator, topic_name="news", subscription_name="all")
    assert not is_there("subscription", "news", "all")
    run(AzureServiceBusTopicDeleteOperator, topic_name="news")
    assert not is_there("topic", "news")


@scenario("errors", "an operator for an unknown queue raises what the SDK raises")
def unknown() -> None:
    raised(ResourceNotFoundError, lambda: run(AzureServiceBusDeleteQueueOperator, queue_name="unknown"))


if __name__ == "__main__":
    play_all()
