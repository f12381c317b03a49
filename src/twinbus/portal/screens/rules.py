"""Rules of a subscription: list, create, edit, delete; and an editor that parses while one types and tries messages at hand."""

from collections.abc import Sequence

from starlette.responses import HTMLResponse, Response

from twinbus.amqp.errors import DecodeError
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import ArgumentError, FilterError, MessagingError
from twinbus.model.paths import parse_address
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Markup, el, join
from twinbus.portal.html.parts import (
    Cell,
    address,
    button,
    field,
    form,
    hidden,
    link,
    notice,
    section,
    table,
    tag,
    text_area,
    text_input,
)
from twinbus.portal.messages.bodies import first_words
from twinbus.portal.messages.browser import peek
from twinbus.portal.messages.filters import Change, changes_by, compiled_action, compiled_filter
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.namespaces.entity_list import EntityList
from twinbus.portal.screens.rule_list import RuleText, read_rules
from twinbus.portal.visit import Visit, go_to

AT_HAND = 20
HINT = "Such as: colour = 'red' AND sys.Label LIKE 'order%'. Empty matches every message."
ACTION_HINT = "Such as: SET seen = TRUE; REMOVE secret. Optional."


def _names(visit: Visit) -> tuple[str, str]:
    found = parse_address(visit.path)
    if found.subscription is None:
        raise ArgumentError(f"'{visit.path}' is not a subscription: only subscriptions have rules.")
    return found.path, found.subscription


async def show(visit: Visit) -> Response:
    topic, subscription = _names(visit)
    rules = await read_rules(visit.bus, topic, subscription)
    chosen = next((rule for rule in rules if rule.name == visit.query.get("rule")), None)
    return _page(visit, rules, chosen)


def _page(visit: Visit, rules: Sequence[RuleText], chosen: RuleText | None, problem: str = "") -> Response:
    rows = [
        (
            link(rule.name, f"/ns/{visit.namespace}/rules", path=visit.path, rule=rule.name),
            el("code", rule.filter),
            el("code", rule.action) if rule.action else None,
            _delete(visit, rule.name),
        )
        for rule in rules
    ]
    trail = (
        link(visit.namespace, f"/ns/{visit.namespace}/entities"),
        link(visit.path, f"/ns/{visit.namespace}/entity", path=visit.path),
    )
    listed = section(
        "Rules", table(("Name", "Filter", "Action", ""), rows, "Rules", empty="No rule: it receives no messages.")
    )
    status = 400 if problem else 200
    return page(visit.frame("entities"), "Rules", listed, _editor(visit, chosen, problem), trail=trail, status=status)


def _delete(visit: Visit, name: str) -> Markup:
    return form(
        address(f"/ns/{visit.namespace}/rules/delete", path=visit.path),
        hidden(name=name),
        button("Delete", "bad small", data_ask=f"Delete the rule '{name}'?"),
    )


def _editor(visit: Visit, chosen: RuleText | None, problem: str) -> Markup:
    title = f"Edit {chosen.name}" if chosen is not None else "New rule"
    rule = chosen or RuleText("", "", "")
    return section(
        title,
        notice("bad", problem) if problem else None,
        form(
            address(f"/ns/{visit.namespace}/rules", path=visit.path),
            hidden(was=rule.name or None),
            field("Name", text_input("name", rule.name, required=True, maxlength=50, readonly=chosen is not None)),
            field("SQL filter", text_area("filter", rule.filter, 3), HINT),
            field("SQL action", text_area("action", rule.action, 2), ACTION_HINT),
            button("Save the rule"),
            class_="stack",
            data_check=address(f"/ns/{visit.namespace}/rules/check", path=visit.path),
            data_result="rule-result",
        ),
        el("div", id="rule-result", aria_live="polite"),
    )


async def save(visit: Visit) -> Response:
    from azure.servicebus.management import SqlRuleAction, SqlRuleFilter, TrueRuleFilter

    from twinbus.portal.namespaces.sentences import sentence_of

    topic, subscription = _names(visit)
    sent = await visit.form()
    name, filter_text, action_text = (sent.get(part, "").strip() for part in ("name", "filter", "action"))
    try:
        compiled_filter(filter_text)
        compiled_action(action_text)
        chosen = SqlRuleFilter(filter_text) if filter_text else TrueRuleFilter()
        action = SqlRuleAction(action_text) if action_text else None
        async with visit.bus.administration() as client:
            if sent.get("was"):
                rule = await client.get_rule(topic, subscription, sent["was"])
                rule.filter, rule.action = chosen, action
                await client.update_rule(topic, subscription, rule)
            else:
                await client.create_rule(topic, subscription, name, filter=chosen, action=action)
    except Exception as error:
        text = sentence_of(error)
        if text is None:
            raise
        return _page(
            visit, await read_rules(visit.bus, topic, subscription), RuleText(name, filter_text, action_text), text
        )
    return go_to(address(f"/ns/{visit.namespace}/rules", path=visit.path))


async def delete(visit: Visit) -> Response:
    topic, subscription = _names(visit)
    async with visit.bus.administration() as client:
        await client.delete_rule(topic, subscription, (await visit.form()).get("name", ""))
    return go_to(address(f"/ns/{visit.namespace}/rules", path=visit.path))


async def check(visit: Visit) -> Response:
    """What the texts mean for messages at hand: HTML for the page's script."""
    topic, _ = _names(visit)
    sent = await visit.form()
    name, filter_text, action_text = (sent.get(part, "") for part in ("name", "filter", "action"))
    try:
        matches = compiled_filter(filter_text)
        action = compiled_action(action_text, name or "rule")
    except ArgumentError as wrong:
        return HTMLResponse(notice("bad", str(wrong)))
    try:
        listed = await visit.services.lists.of(visit.bus)
        messages = await at_hand(visit.bus, listed, topic, visit.path)
    except MessagingError as error:
        return HTMLResponse(join(notice("good", "Filter and action are valid."), notice("warn", str(error))))
    rows = []
    count = 0
    for message in messages:
        try:
            does_match = matches(message)
            changes = changes_by(action, message, names_rule=True) if does_match else []
            verdict = tag("matches", "good") if does_match else tag("does not match")
        except (FilterError, DecodeError) as error:
            does_match, changes, verdict = False, [], tag(f"fails: {error}", "bad")
        count += does_match
        rows.append((str(message.message_id or ""), _words(message), verdict, Cell(change_list(changes), None)))
    said = (
        f"Valid. {count} of {len(messages)} sample messages match."
        if messages
        else "Valid. There are no messages to try it on."
    )
    return HTMLResponse(
        join(
            notice("good", said),
            table(("Message id", "Body", "Filter", "What the action changes"), rows, "Sample messages")
            if rows
            else None,
        )
    )


def _words(message: ReceivedMessage) -> str:
    try:
        return first_words(message.body)
    except DecodeError:
        return "(cannot be read)"


def change_list(changes: Sequence[Change]) -> Markup | str:
    if not changes:
        return "–"
    return el("ul", *(_change(each) for each in changes), class_="plain")


def _change(change: Change) -> Markup:
    before = el("del", shown_value(change.before)) if change.before is not None else None
    after = el("ins", shown_value(change.after)) if change.after is not None else None
    return el("li", el("b", change.name), ": ", before, " " if before and after else None, after)


def shown_value(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


async def at_hand(bus: Bus, listed: EntityList, topic: str, path: str) -> list[ReceivedMessage]:
    """Some messages that were sent to the topic: of this subscription first, then of the others, and of dead letters."""
    others = [each.path for each in listed.subscriptions(topic) if each.path != path]
    found: list[ReceivedMessage] = []
    for place in [path, f"{path}/$DeadLetterQueue", *others[:5]]:
        if len(found) >= AT_HAND:
            break
        messages, _ = await peek(bus, place, {}, AT_HAND - len(found))
        seen = {message.message_id for message in found}
        found += [message for message in messages if message.message_id not in seen]
    return found


ROUTES = (
    ("GET", "/ns/{namespace}/rules", show),
    ("POST", "/ns/{namespace}/rules", save),
    ("POST", "/ns/{namespace}/rules/delete", delete),
    ("POST", "/ns/{namespace}/rules/check", check),
)
