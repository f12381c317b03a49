"""`$management` of a subscription: add, remove and list rules."""

from twinbus.errors import EntityNotFound, NotAllowed
from twinbus.gateway.nodes.request_message import Response
from twinbus.gateway.requests.call import Call, done
from twinbus.model.rules.wire import read_rule, write_rule

LIST_COUNT_MAX = 100
NO_RULES = Response(204, "No rules", None, EntityNotFound.condition)


def add_rule(call: Call) -> None:
    rule = read_rule(call.arguments.text("rule-name"), call.arguments.mapping("rule-description"))
    topic, subscription = _subscription_of(call)
    call.control.submit(call.control.create_rule(topic, subscription, rule), call.answer(done))


def remove_rule(call: Call) -> None:
    name = call.arguments.text("rule-name")
    topic, subscription = _subscription_of(call)
    call.control.submit(call.control.delete_rule(topic, subscription, name), call.answer(done))


def enumerate_rules(call: Call) -> None:
    skip = max(call.arguments.number("skip", 0), 0)
    top = call.arguments.count("top", LIST_COUNT_MAX, LIST_COUNT_MAX)
    rules = call.control.subscription(*_subscription_of(call)).rules.page(skip, top)
    call.billed_as(call, rules)
    if not rules:
        call.respond(NO_RULES)
    else:
        call.respond(Response.ok({"rules": [{"rule-description": write_rule(rule)} for rule in rules]}))


def _subscription_of(call: Call) -> tuple[str, str]:
    address = call.node.address
    if address.subscription is None:
        raise NotAllowed(f"'{call.node.path}' has no rules: ask one of the topic's subscriptions.")
    return address.path, address.subscription
