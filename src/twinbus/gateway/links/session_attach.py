"""Attaching to a message session: the filter in the link's source, the wait for a free session, and the reply that names it.

    com.microsoft:session-filter                      session id or null          the session is held exclusively
    described as non-exclusive-session-filter:list    [session id or null, lock token or null]

A filter of the second kind is found by its descriptor, under whatever name, and echoed under that name with the session and
the lock token it got. With a lock token, the client takes a session over that another receiver holds.
"""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from twinbus.amqp.codec.terminus import Source
from twinbus.amqp.codec.types import Described, Long, Symbol, Value
from twinbus.broker.consumer import SessionLock, SessionRequest
from twinbus.broker.replies import Waiter
from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.gateway.addresses import EntityNode
from twinbus.gateway.links.link_meter import LinkMeter
from twinbus.meter.operation import Cause
from twinbus.model import wire_names
from twinbus.model.identity import ID_LENGTH_MAX

SESSION_FILTER = Symbol(wire_names.SESSION_FILTER)
NON_EXCLUSIVE_DESCRIPTORS = (wire_names.NON_EXCLUSIVE_SESSION_CODE, wire_names.NON_EXCLUSIVE_SESSION_FILTER)
LOCKED_UNTIL = Symbol(wire_names.SESSION_LOCKED_UNTIL)
WAIT_DEFAULT: Millis = 65_000
TICKS_AT_EPOCH = 621_355_968_000_000_000
TICKS_PER_MILLI = 10_000


def has_session_filter(source: Source) -> bool:
    return source.filter is not None and (SESSION_FILTER in source.filter or _non_exclusive(source) is not None)


def wanted_session(source: Source) -> SessionRequest:
    """The message session that the client asks for."""
    assert source.filter is not None
    found = _non_exclusive(source)
    if found is None:
        value = source.filter[SESSION_FILTER]
        return SessionRequest(_session_id(value.value if isinstance(value, Described) else value))
    if SESSION_FILTER in source.filter:
        raise ArgumentError("A link has one session filter: exclusive or non-exclusive.")
    fields = found[1].value
    if not isinstance(fields, list) or len(fields) > 2:
        raise ArgumentError("The non-exclusive session filter must be a list of session id and lock token.")
    session_id, token = (*fields, None, None)[:2]
    if token is not None and not isinstance(token, UUID):
        raise ArgumentError("The lock token of the non-exclusive session filter must be a UUID or null.")
    return SessionRequest(_session_id(session_id), is_exclusive=False, token=None if token is None else token.bytes)


def _non_exclusive(source: Source) -> tuple[Value, Described] | None:
    for name, value in (source.filter or {}).items():
        if isinstance(value, Described) and value.descriptor in NON_EXCLUSIVE_DESCRIPTORS:
            return name, value
    return None


def _session_id(value: Value) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or isinstance(value, Symbol):
        raise ArgumentError("The session filter must be the session id as a string, or null for the next free session.")
    if len(value) > ID_LENGTH_MAX:
        raise ArgumentError(f"The session id has {len(value)} characters; use at most {ID_LENGTH_MAX}.")
    return value


def wait_of(properties: dict[Value, Value] | None) -> Millis:
    """How long the client waits for a free session."""
    timeout = (properties or {}).get(wire_names.SESSION_TIMEOUT)
    return timeout if isinstance(timeout, int) and timeout > 0 else WAIT_DEFAULT


def session_source(source: Source, lock: SessionLock) -> Source:
    """The source as the client sent it, with the session it got in the form in which it asked: SDKs read no other. Go's is a
    described value, all others have a plain string; a non-exclusive session comes with its lock token."""
    assert source.filter is not None
    found = _non_exclusive(source)
    if found is not None and lock.token is not None:
        name, value = found
        return replace(source, filter={name: Described(value.descriptor, [lock.session_id, UUID(bytes=lock.token)])})
    asked = source.filter[SESSION_FILTER]
    granted = Described(asked.descriptor, lock.session_id) if isinstance(asked, Described) else lock.session_id
    return replace(source, filter={SESSION_FILTER: granted})


def unfiltered_source(source: Source) -> Source:
    """The source as the client sent it, without filters: an echoed filter means it is applied (AMQP 1.0, section 3.5.3)."""
    return source if source.filter is None else replace(source, filter=None)


def session_properties(lock: SessionLock) -> dict[Value, Value]:
    return {LOCKED_UNTIL: Long(TICKS_AT_EPOCH + lock.locked_until * TICKS_PER_MILLI)}


class PendingSession:
    """A receiver link whose attach is held back until a message session is free."""

    __slots__ = ("_gone", "meter", "node", "path", "waiter")

    def __init__(self, node: EntityNode, path: str, meter: LinkMeter, gone: Callable[[], None]) -> None:
        self.node = node
        self.path = path
        self.meter = meter
        self._gone = gone
        self.waiter: Waiter | None = None

    def unbind(self, now: Millis) -> None:
        """The client gave up, or the connection is gone."""
        self.meter.counted(Cause.EMPTY_RECEIVE)
        self._gone()
        if self.waiter is not None:
            self.waiter.cancel()
