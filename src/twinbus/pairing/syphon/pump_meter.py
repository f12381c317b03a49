"""Reports a pump's operations to a meter: its requests and their answers pass through, and what they cost is recorded."""

from collections.abc import Generator, Sequence
from typing import TypeVar

from twinbus.clock import Clock
from twinbus.meter.operation import NO_FRAGMENT, NO_METER, SYPHON_PRODUCT, Cause, Meter, Operation, Path, units_of
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.pair_meter import record
from twinbus.pairing.syphon.transport import (
    Abandon,
    Answer,
    Complete,
    DeadLetter,
    GiveBackLeft,
    Receive,
    Request,
    SendAll,
    Taken,
    Transfer,
)

Result = TypeVar("Result")


def metered(
    steps: Generator[Request, Answer, Result], queue: str, meter: Meter, clock: Clock
) -> Generator[Request, Answer, Result]:
    """The same steps. A failed request is not an operation."""
    if meter is NO_METER:
        return (yield from steps)
    try:
        request = next(steps)
        while True:
            try:
                answer = yield request
            except Exception as error:
                request = steps.throw(error)
            else:
                for operation in _operations(request, answer, queue, clock.now()):
                    record(meter, operation)
                request = steps.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


def _operations(request: Request, answer: Answer, queue: str, now: int) -> list[Operation]:
    match request:
        case Receive():
            sizes = [_size(each) for each in _sequence(answer) if isinstance(each, Taken)]
            return [_by_size(Cause.RECEIVE, queue, sizes, now) if sizes else _empty_receive(queue, now)]
        case SendAll(chunks):
            sent = [chunk for chunk, error in zip(chunks, _sequence(answer), strict=True) if error is None]
            return [
                _by_size(Cause.SEND, chunk.path, [transfer.size for transfer in chunk.transfers], now) for chunk in sent
            ]
        case Complete(taken) | Abandon(taken):
            return [_settlement(queue, len(taken), now)]
        case GiveBackLeft(tokens):
            return [_settlement(queue, len(tokens), now)]
        case DeadLetter():
            return [_settlement(queue, 1, now)]
    return []


def _sequence(answer: Answer) -> Sequence[Taken | Exception | None]:
    return () if answer is None or isinstance(answer, Survey) else answer


def _size(taken: Taken) -> int:
    """Of what cannot be brought home, nobody has looked at the size."""
    return taken.content.size if isinstance(taken.content, Transfer) else 0


def _by_size(cause: Cause, entity: str, sizes: Sequence[int], now: int) -> Operation:
    count, units = len(sizes), sum(map(units_of, sizes))
    return Operation(
        now, cause, entity, NO_FRAGMENT, count, sum(sizes), units, Path.SYPHON, SYPHON_PRODUCT, operations=count
    )


def _empty_receive(queue: str, now: int) -> Operation:
    return Operation(now, Cause.EMPTY_RECEIVE, queue, NO_FRAGMENT, 0, 0, 1, Path.SYPHON, SYPHON_PRODUCT)


def _settlement(queue: str, count: int, now: int) -> Operation:
    return Operation(now, Cause.SETTLE, queue, NO_FRAGMENT, count, 0, 0, Path.SYPHON, SYPHON_PRODUCT, operations=count)
