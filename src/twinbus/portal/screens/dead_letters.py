"""Dead letters: grouped by what they have in common; choose, see what would change, repair and move."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from twinbus.amqp.errors import DecodeError
from twinbus.client.entity_extras import Repair
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import ArgumentError, FilterError, NotImplementedHere
from twinbus.model.message_limits import PEEK_COUNT_MAX
from twinbus.model.paths import dead_letter_path, parse_address
from twinbus.portal.form_body import read_form
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Child, Markup, el, join
from twinbus.portal.html.parts import (
    Cell,
    TableCell,
    address,
    button,
    button_link,
    check_box,
    choice,
    field,
    form,
    hidden,
    link,
    notice,
    section,
    size_text,
    table,
    text_area,
    text_input,
)
from twinbus.portal.messages.browser import both, peek, read_page
from twinbus.portal.messages.filters import Change, Matches, changes_by, compiled_action, compiled_filter
from twinbus.portal.messages.groups import Group, GroupKey, Groups, key_of
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.screens.rules import change_list
from twinbus.portal.screens.tabs import entity_path, entity_tabs, is_dead_letter, trail
from twinbus.portal.visit import Visit, go_to
from twinbus.portal.work.moving import DIFFERENCES, Move, moving
from twinbus.portal.work.purge import count_messages
from twinbus.portal.work.repairing import preview, repairing

LOOKED_AT = 5_000
LOOKED_AT_MAX = 200_000
GROUPS_SHOWN = 100
PREVIEWED = 10
BACK, ELSEWHERE, REMOVE = "back", "to", "remove"
GOALS = {BACK: "back to where they came from", ELSEWHERE: "to another entity", REMOVE: "nowhere: remove them"}


async def show(visit: Visit) -> Response:
    if not visit.query.get("path"):
        return await _all(visit)
    path = _dead_letters_of(visit.path)
    look = visit.number("look", LOOKED_AT, 1, LOOKED_AT_MAX)
    groups, is_all = await survey(visit.bus, path, look)
    count = (await count_messages(visit.bus, path)).count
    found = groups.largest(GROUPS_SHOWN)
    rows = [_row(visit, path, group) for group in found]
    of_all = f" of {count:,}" if count is not None else ""
    said = f"{groups.count:,}{of_all} dead letters in {len(groups.found):,} groups."
    more = None
    if not is_all and look < LOOKED_AT_MAX:
        more = button_link(
            f"Look at {look * 10:,}", f"/ns/{visit.namespace}/dead-letters", "quiet small", path=path, look=look * 10
        )
    heads = ("Choose", "Messages", "Reason", "Description", "Body begins with", "Size", "Oldest")
    content = form(
        f"/ns/{visit.namespace}/repair",
        hidden(path=path),
        section(
            "Groups",
            el("p", said, " ", more),
            table(heads, rows, "Groups of dead letters", empty="There are no dead letters. Nothing to repair."),
        ),
        _wishes(visit, Wish(path)) if rows else None,
        method="get",
    )
    browse = button_link("Browse them", f"/ns/{visit.namespace}/messages", "quiet", path=path)
    title = f"Dead letters of {entity_path(path)}"
    tabs = entity_tabs(visit, "dead-letters", is_topic=False)
    return page(visit.frame("dead-letters"), title, tabs, content, trail=trail(visit, path), tools=browse)


def _dead_letters_of(path: str) -> str:
    return path if is_dead_letter(path) else dead_letter_path(parse_address(path).entity_path)


async def _all(visit: Visit) -> Response:
    listed = await visit.services.lists.fresh(visit.bus)
    dead = sorted((each for each in listed.entities if each.dead_letters), key=lambda each: -(each.dead_letters or 0))
    rows = [
        (
            link(each.path, f"/ns/{visit.namespace}/dead-letters", path=dead_letter_path(each.path)),
            each.type.value,
            each.dead_letters,
        )
        for each in dead
        if each.type.value != "topic"
    ]
    content = section(
        "Entities with dead letters",
        table(
            ("Entity", "Kind", "Dead letters"), rows, "Entities with dead letters", empty="No entity has dead letters."
        ),
    )
    return page(visit.frame("dead-letters"), f"Dead letters of {visit.namespace}", content)


async def survey(bus: Bus, path: str, count_max: int) -> tuple[Groups, bool]:
    """The groups of the first messages, and whether those are all."""
    groups, positions = Groups(), dict[int, int]()
    while groups.count < count_max:
        found, positions = await peek(bus, path, positions, min(PEEK_COUNT_MAX, count_max - groups.count))
        if not found:
            return groups, True
        groups.add(found)
    return groups, False


def _row(visit: Visit, path: str, group: Group) -> list[TableCell]:
    key = group.key
    box = el(
        "input",
        type="checkbox",
        name="group",
        value=_written(key),
        aria_label=f"Choose {key.reason or 'no reason'}: {key.words}",
    )
    number = None if group.oldest is None else group.oldest.sequence_number
    return [
        Cell(box, ""),
        group.count,
        key.reason,
        key.description,
        Cell(el("code", key.words), key.words),
        Cell(size_text(group.size_bytes), group.size_bytes, is_number=True),
        link(str(number), f"/ns/{visit.namespace}/message", path=path, number=number),
    ]


def _written(key: GroupKey) -> str:
    return json.dumps([key.reason, key.description, key.words])


def _read(text: str) -> GroupKey:
    try:
        reason, description, words = json.loads(text)
    except (ValueError, TypeError):
        raise ArgumentError("The address of this page is damaged. Choose the groups again.") from None
    return GroupKey(reason, description, str(words))


# What somebody wishes to do with them


@dataclass(frozen=True, slots=True)
class Wish:
    path: str
    groups: tuple[GroupKey, ...] = ()
    sql: str = ""
    action: str = ""
    goal: str = BACK
    to: str = ""
    resets: bool = False

    @property
    def chosen(self) -> Matches | None:
        """What the filter of a repair cannot say: None if it says everything. Raises ArgumentError."""
        if not self.groups:
            return None
        keys = frozenset(self.groups)
        return both(lambda message: key_of(message) in keys, compiled_filter(self.sql) if self.sql.strip() else None)

    @property
    def matches(self) -> Matches:
        return self.chosen or compiled_filter(self.sql)

    @property
    def repair(self) -> Repair:
        return Repair(
            filter=self.sql.strip() or None,
            action=self.action.strip() or None,
            destination=self.destination,
            removes=self.goal == REMOVE,
            resets_delivery_count=self.resets,
        )

    @property
    def destination(self) -> str | None:
        if self.goal != ELSEWHERE:
            return None
        if not self.to.strip():
            raise ArgumentError("Choose the entity that the messages go to.")
        return self.to.strip()

    def fields(self) -> list[tuple[str, str]]:
        values = [("path", self.path), *(("group", _written(key)) for key in self.groups), ("sql", self.sql)]
        values += [
            ("action", self.action),
            ("goal", self.goal),
            ("to", self.to),
            ("resets", "on" if self.resets else ""),
        ]
        return [(name, value) for name, value in values if value]


def read_wish(sent: Sequence[tuple[str, str]]) -> Wish:
    """Raises ArgumentError that says what is wrong."""
    values = dict(sent)
    goal = values.get("goal", BACK)
    if goal not in GOALS:
        raise ArgumentError("Choose whether messages go back, go to another entity, or are removed.")
    wish = Wish(
        _dead_letters_of(values.get("path", ""))
        if values.get("goal") == BACK or not values.get("path")
        else values["path"],
        tuple(_read(text) for name, text in sent if name == "group"),
        values.get("sql", ""),
        values.get("action", ""),
        goal,
        values.get("to", ""),
        values.get("resets") == "on",
    )
    compiled_filter(wish.sql)
    compiled_action(wish.action)
    return wish


def _wishes(visit: Visit, wish: Wish) -> Markup:
    return section(
        "Repair",
        el(
            "p",
            "The ticked groups, the messages that match the filter or, if both are given, the matching messages of these groups.",
        ),
        field(
            "SQL filter",
            text_area("sql", wish.sql, 2),
            "Such as: DeadLetterReason = 'ValidationFailed' AND region = 'north'. Empty: all.",
        ),
        field(
            "SQL action",
            text_area("action", wish.action, 2),
            "Changes to the messages, such as: SET attempt = 0; REMOVE stale. Optional.",
        ),
        el(
            "div",
            field("They go", choice("goal", GOALS, wish.goal)),
            field("Other entity", text_input("to", wish.to)),
            class_="row",
        ),
        check_box("resets", "Start with a delivery count of 0", is_checked=wish.resets),
        el("p", button("See what would change")),
    )


async def show_repair(visit: Visit) -> Response:
    """The first messages, before and after; nothing is changed yet."""
    where = (*trail(visit, visit.path), link("Dead letters", f"/ns/{visit.namespace}/dead-letters", path=visit.path))
    try:
        wish = read_wish(visit.request.query_params.multi_items())
        shown, differs = await _preview(visit, wish)
    except ArgumentError as wrong:
        again = button_link("Back to the dead letters", f"/ns/{visit.namespace}/dead-letters", path=visit.path)
        return page(visit.frame("dead-letters"), "Repair", notice("bad", str(wrong)), again, trail=where, status=400)
    goal = GOALS[wish.goal] if wish.goal != ELSEWHERE else f"to {wish.destination}"
    summary = el(
        "ul",
        el("li", "Chosen: ", _words(wish)),
        el("li", "Changed by: ", el("code", wish.action) if wish.action.strip() else "nothing"),
        el("li", f"They go {goal}."),
    )
    confirm = form(
        f"/ns/{visit.namespace}/repair",
        join([el("input", type="hidden", name=name, value=value) for name, value in wish.fields()]),
        button("Remove them" if wish.goal == REMOVE else "Repair and move", "bad" if wish.goal == REMOVE else ""),
    )
    content = [
        section("What would happen", summary, notice("warn", DIFFERENCES) if differs else None, shown),
        section("Go on", el("p", "It starts after five seconds, shows its progress and can be stopped."), confirm),
    ]
    return page(visit.frame("dead-letters"), f"Repair {entity_path(wish.path)}", *content, trail=where)


def _words(wish: Wish) -> Child:
    parts: list[Child] = []
    if wish.groups:
        parts.append(f"{len(wish.groups)} groups")
    if wish.sql.strip():
        parts += [" that match " if wish.groups else "messages that match ", el("code", wish.sql)]
    return join(*parts) if parts else "all messages"


async def _preview(visit: Visit, wish: Wish) -> tuple[Markup, bool]:
    """The table, and whether this namespace cannot repair by itself."""
    bus = visit.bus

    async def first() -> Sequence[ReceivedMessage]:
        return (await read_page(bus, wish.path, matches=wish.matches, count_max=PREVIEWED)).messages

    try:
        found = await preview(bus, wish.path, wish.repair, wish.chosen, first, PREVIEWED)
        rows = [
            _previewed(visit, wish, each.before, _difference(each.before, each.after), each.refusal) for each in found
        ]
        differs = False
    except NotImplementedHere:
        rows, differs = [_tried(visit, wish, message) for message in await first()], True
    text = "No messages are selected. Choose other groups or another filter."
    return table(
        ("Number", "Message id", "What changes", "Goes"), rows, f"The first {PREVIEWED} messages", empty=text
    ), differs


def _tried(visit: Visit, wish: Wish, message: ReceivedMessage) -> list[TableCell]:
    try:
        changes = changes_by(compiled_action(wish.action), message, names_rule=False)
        return _previewed(visit, wish, message, changes, None)
    except (FilterError, DecodeError) as error:
        return _previewed(visit, wish, message, [], str(error))


def _previewed(
    visit: Visit, wish: Wish, before: ReceivedMessage, changes: Sequence[Change], refusal: str | None
) -> list[TableCell]:
    number = before.sequence_number
    goes: Child = f"stays: {refusal}" if refusal else "removed" if wish.goal == REMOVE else wish.to or "back"
    return [
        Cell(link(str(number), f"/ns/{visit.namespace}/message", path=wish.path, number=number), str(number)),
        str(before.message_id or ""),
        Cell(change_list(changes), ", ".join(f"{each.name}: {each.before} > {each.after}" for each in changes)),
        el("span", goes, class_="tag bad") if refusal else str(goes),
    ]


def _difference(before: ReceivedMessage, after: ReceivedMessage | None) -> list[Change]:
    if after is None:
        return []
    try:
        was, becomes = before.application_properties, after.application_properties
        changes = [
            Change(str(name), was.get(name), becomes.get(name))
            for name in sorted({*was, *becomes}, key=str)
            if repr(was.get(name)) != repr(becomes.get(name))
        ]
        for field_name in ("message_id", "subject", "correlation_id", "group_id", "to", "reply_to", "content_type"):
            pair = getattr(before.properties, field_name), getattr(after.properties, field_name)
            if pair[0] != pair[1]:
                changes.append(Change(f"sys.{field_name}", *pair))
    except DecodeError:
        return []
    if before.delivery_count != after.delivery_count:
        changes.append(Change("delivery count", before.delivery_count, after.delivery_count))
    return changes


async def repair(visit: Visit) -> Response:
    wish = read_wish(await read_form(visit.request))
    bus, repair_wish = visit.bus, wish.repair
    try:
        # Also says whether the namespace has the operation, and whether it accepts the wish.
        await (await bus.amqp()).extras(wish.path).preview_repair(repair_wish, 0, 0, 1)
        work = repairing(bus, wish.path, repair_wish, wish.chosen)
    except NotImplementedHere:
        goal = None if wish.goal == REMOVE else wish.destination or _home(wish.path)
        work = moving(bus, wish.path, Move(goal, wish.action), wish.matches)
    back = address(f"/ns/{visit.namespace}/dead-letters", path=wish.path)
    title = f"{'Remove' if wish.goal == REMOVE else 'Repair'} dead letters of {entity_path(wish.path)}"
    job = visit.services.jobs.start(title, back, visit.visitor.token, work)
    return go_to(f"/jobs/{job.id}")


def _home(path: str) -> str:
    """Where messages can be sent so that they come back: nobody can send to a subscription alone."""
    return parse_address(path).path


ROUTES = (
    ("GET", "/ns/{namespace}/dead-letters", show),
    ("GET", "/ns/{namespace}/repair", show_repair),
    ("POST", "/ns/{namespace}/repair", repair),
)
