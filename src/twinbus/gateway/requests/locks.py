"""`$management`: renew message locks, settle by lock token."""

from twinbus.amqp.codec.types import Array, Timestamp
from twinbus.broker.outcomes import COMPLETE, DELAY_MAX, Abandon, DeadLetter, Defer, Outcome
from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.gateway.links.outcome_states import abandon
from twinbus.gateway.nodes.request_message import Arguments, Response
from twinbus.gateway.requests.call import Call, done, lock_tokens
from twinbus.model import wire_names


def renew_lock(call: Call) -> None:
    def body(ends: list[Millis]) -> Response:
        return Response.ok({"expirations": Array([Timestamp(end) for end in ends])})

    call.queue().renew(lock_tokens(call.arguments), call.now, call.answer(body))


def update_disposition(call: Call) -> None:
    outcome = named_outcome(call.arguments)
    queue, tokens, session = call.queue(), lock_tokens(call.arguments), call.session_meant()
    if call.transaction is not None:
        call.transaction.settle(queue, tokens, outcome, call.now, call.enlisted, call.home, session)
        return
    if call.named is not None and isinstance(outcome, Abandon) and not outcome.hidden_until(call.now):
        call.named.failed(call.now)
    queue.settle(tokens, outcome, call.now, call.answer(done), session)


def named_outcome(arguments: Arguments) -> Outcome:
    status = arguments.text("disposition-status").lower()
    properties = arguments.mapping("properties-to-modify")
    if status == "completed":
        return COMPLETE
    if status == "abandoned":
        return abandon(properties, _delay(arguments))
    if status == "defered":  # spelled like this on the wire
        return Defer(properties)
    if status == "suspended":
        reason = arguments.optional_text("deadletter-reason")
        description = arguments.optional_text("deadletter-description")
        return DeadLetter(reason, description, properties)
    raise ArgumentError(f"'{status}' is not a disposition status. Use completed, abandoned, defered or suspended.")


def _delay(arguments: Arguments) -> Millis:
    delay = arguments.number(wire_names.ABANDON_DELAY, 0)
    if not 0 <= delay <= DELAY_MAX:
        raise ArgumentError(f"'{wire_names.ABANDON_DELAY}' is {delay}. Use 0 to {DELAY_MAX} milliseconds.")
    return delay
