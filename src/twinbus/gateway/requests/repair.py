"""`$management` requests that repair messages where they lie, and show beforehand what a repair would do.

Both are ours; a namespace without them answers 501. One request looks at a bounded number of messages of one fragment and says
where to go on, so a client shows progress, stops when it likes and continues later. Moving a message takes it out of one entity
and puts it into another: the caller needs the right to listen here and the right to send there.
"""

from twinbus.amqp.codec.types import Int, Long, Value
from twinbus.broker.commands import (
    CALL_COUNT_MAX,
    PREVIEWS_MAX,
    REPAIRED_NUMBERS_MAX,
    PreviewPage,
    PreviewRepair,
    Repair,
    RepairPage,
    RepairPreview,
)
from twinbus.gateway.nodes.request_message import Response
from twinbus.gateway.requests.browse import states_of
from twinbus.gateway.requests.call import Call
from twinbus.model.delivery import encode_peeked_row
from twinbus.model.descriptions import Right, SqlAction, SqlFilter
from twinbus.store.reads import ACTIVE_ONLY

PREVIEWS_DEFAULT = 10


def repair(call: Call) -> None:
    call.ask(_repair(call), _repaired)


def preview_repair(call: Call) -> None:
    count = call.arguments.count("preview-count", PREVIEWS_MAX, PREVIEWS_DEFAULT)
    call.ask(PreviewRepair(_repair(call), count), _previewed)


def _repair(call: Call) -> Repair:
    call.queue()  # before anything is said of the arguments: a topic has no messages to repair
    arguments = call.arguments
    numbers = None
    if arguments.fields.get("sequence-numbers") is not None:
        numbers = arguments.sequence("sequence-numbers", int, "numbers", REPAIRED_NUMBERS_MAX)
    first = min(numbers, default=0) if numbers is not None else arguments.number("first-sequence-number")
    last = max(numbers, default=-1) if numbers is not None else arguments.number("last-sequence-number")
    condition, action = arguments.optional_text("filter"), arguments.optional_text("action")
    destination, removes = arguments.optional_text("destination"), arguments.is_set("remove")
    if not removes:
        call.require(Right.SEND, destination or str(call.node.address))
    return Repair(
        first,
        last,
        arguments.count("message-count", CALL_COUNT_MAX, CALL_COUNT_MAX),
        numbers,
        None if condition is None else SqlFilter(condition),
        None if action is None else SqlAction(action),
        destination,
        removes,
        arguments.is_set("reset-delivery-count"),
        states_of(arguments, ACTIVE_ONLY),
    )


def _repaired(page: RepairPage) -> Response:
    refusals: list[Value] = [
        {"sequence-number": Long(refusal.sequence_number), "reason": refusal.reason} for refusal in page.refusals
    ]
    return Response.ok(
        {
            "message-count": Int(len(page.numbers)),
            "examined-count": Int(page.examined_count),
            "held-count": Int(page.held_count),
            "refused-count": Int(page.refused_count),
            "refusals": refusals,
            **_following(page.next_number),
        }
    )


def _previewed(page: PreviewPage) -> Response:
    previews: list[Value] = [_preview(each) for each in page.previews]
    return Response.ok(
        {"previews": previews, "examined-count": Int(page.examined_count), **_following(page.next_number)}
    )


def _preview(preview: RepairPreview) -> dict[str, Value]:
    shown: dict[str, Value] = {"message": encode_peeked_row(preview.before)}
    if preview.after is not None:
        shown["repaired"] = encode_peeked_row(preview.after)
    if preview.refusal is not None:
        shown["refusal"] = preview.refusal
    return shown


def _following(number: int | None) -> dict[str, Value]:
    return {} if number is None else {"next-sequence-number": Long(number)}
