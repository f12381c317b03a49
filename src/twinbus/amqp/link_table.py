"""The links of one session by their handles: attach and detach frames in, links out.

Each side numbers links by handles of its own: frames that arrive carry the peer's.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import ref

from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.amqp.codec.performatives import RECEIVER, UINT_MAX, Attach, Detach
from twinbus.amqp.connection_context import ConnectionContext
from twinbus.amqp.errors import HANDLE_IN_USE, RESOURCE_LIMIT_EXCEEDED, ConnectionFault, LinkFault, SessionFault
from twinbus.amqp.events import LinkAttached, LinkOpened
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.link import Link, LinkState
from twinbus.amqp.outgoing_link import OutgoingLink

if TYPE_CHECKING:
    from twinbus.amqp.session import Session


class LinkTable:
    def __init__(self, session: "Session", context: ConnectionContext) -> None:
        # The session has this. Without circles nothing of a connection that has ended is left to the collector.
        self._session_ref = ref(session)
        self._context = context
        self.remote_handle_max = UINT_MAX
        self.by_remote_handle: dict[int, Link] = {}
        self.receiving: dict[int, IncomingLink] = {}
        """By the peer's handle, the links whose common transfers can be taken without further checks."""
        self._by_handle: dict[int, Link] = {}
        self._unanswered: dict[tuple[str, bool], Link] = {}
        """Links that we attached, by name and direction: the answer does not carry our handle."""
        self._handle_hint = 0

    @property
    def _session(self) -> "Session":
        session = self._session_ref()
        assert session is not None, "whoever calls this comes from it"
        return session

    @property
    def is_empty(self) -> bool:
        return not self._by_handle

    def outgoing(self) -> Iterator[OutgoingLink]:
        return (link for link in self._by_handle.values() if isinstance(link, OutgoingLink))

    def attach(self, attach: Attach) -> Link:
        """Attach a link of our own, at a handle that is free."""
        is_sender = attach.role is not RECEIVER
        if (attach.name, is_sender) in self._unanswered:
            raise LinkFault(f"A link named {attach.name!r} is already being attached; choose another name.")
        attach = replace(attach, handle=self._free_handle(0))
        link = self._make(attach, attach.handle, is_sender, LinkState.ATTACHING)
        self._unanswered[attach.name, is_sender] = link
        self._session.send(attach)
        return link

    def attach_received(self, attach: Attach) -> None:
        """The peer attaches a link, or answers an attach of ours."""
        if attach.handle > self._context.settings.handle_max:
            raise ConnectionFault(f"Handle {attach.handle} is over handle-max, {self._context.settings.handle_max}.")
        earlier = self.by_remote_handle.get(attach.handle)
        # The peer's detach has freed its handle (section 2.7.7), also while our answer is held back.
        if earlier is not None and earlier.state is not LinkState.ENDING:
            raise SessionFault(f"Handle {attach.handle} already has a link.", HANDLE_IN_USE)
        is_sender = attach.role is RECEIVER
        link = self._unanswered.pop((attach.name, is_sender), None)
        if link is None:
            self._offer(attach, is_sender)
        else:
            self._answered(link, attach)

    def detach_received(self, detach: Detach) -> None:
        link = self.by_remote_handle.get(detach.handle)
        # A detach for a handle without a link does no harm, so the session goes on.
        if link is not None:
            link.detach_received(detach)
            if link.state is LinkState.GONE:
                self.remove(link)

    def stop_receiving(self, link: Link) -> None:
        if link.remote_handle is not None:
            self.receiving.pop(link.remote_handle, None)

    def ending(self) -> list[Link]:
        """Links that the peer has detached and that still owe it the answer."""
        return [link for link in self._by_handle.values() if link.state is LinkState.ENDING]

    def clear(self, error: ErrorCondition | None, *, spares_ending: bool = False) -> None:
        """The session is over."""
        spared = self.ending() if spares_ending else []
        self._by_handle, before = {link.handle: link for link in spared}, self._by_handle
        links = [link for handle, link in before.items() if handle not in self._by_handle]
        self._context.link_count -= len(links)
        self.by_remote_handle.clear()
        self.receiving.clear()
        self._unanswered.clear()
        for link in links:
            link.session_ended(error)

    def _offer(self, attach: Attach, is_sender: bool) -> None:
        link_count_max = self._context.link_count_max
        # Refused links count until the peer has detached them: one that never does cannot use memory without end.
        if self._context.link_count >= 2 * link_count_max:
            raise ConnectionFault(
                f"The connection has {self._context.link_count} links, most of them refused. Detach those that were refused.",
                RESOURCE_LIMIT_EXCEEDED,
            )
        link = self._make(attach, self._free_handle(attach.handle), is_sender, LinkState.OFFERED)
        self._map(link, attach.handle)
        if self._context.link_count > link_count_max:
            link.refuse_unreported(
                LinkFault(
                    f"A connection has at most {link_count_max} links; close some or open another connection.",
                    RESOURCE_LIMIT_EXCEEDED,
                )
            )
        else:
            self._session.report(LinkAttached(link))

    def _answered(self, link: Link, attach: Attach) -> None:
        self._map(link, attach.handle)
        link.attach = attach
        if link.state is not LinkState.ATTACHING:
            self.stop_receiving(link)
            return
        link.state = LinkState.ATTACHED
        # An attach without a terminus on the far side is a refusal; the detach that follows has the reason.
        if (attach.target if link.is_sender else attach.source) is not None:
            if isinstance(link, IncomingLink):
                link.attach_answered()
            self._session.report(LinkOpened(link))

    def _make(self, attach: Attach, handle: int, is_sender: bool, state: LinkState) -> Link:
        cls = OutgoingLink if is_sender else IncomingLink
        link = self._by_handle[handle] = cls(self._session, handle, attach, state)
        self._context.link_count += 1
        return link

    def _map(self, link: Link, remote_handle: int) -> None:
        link.remote_handle = remote_handle
        self.by_remote_handle[remote_handle] = link
        if isinstance(link, IncomingLink):
            self.receiving[remote_handle] = link

    def remove(self, link: Link) -> None:
        # Another link may have the peer's handle by now.
        if link.remote_handle is not None and self.by_remote_handle.get(link.remote_handle) is link:
            del self.by_remote_handle[link.remote_handle]
            self.stop_receiving(link)
        if self._by_handle.pop(link.handle, None) is not None:
            self._context.link_count -= 1
        self._handle_hint = min(self._handle_hint, link.handle)

    def _free_handle(self, wanted: int) -> int:
        """The peer's own number if it is free, which it nearly always is; else the lowest."""
        if wanted in self._by_handle or wanted > self.remote_handle_max:
            wanted = self._handle_hint
            while wanted in self._by_handle:
                wanted += 1
            self._handle_hint = wanted
        if wanted > self.remote_handle_max:
            raise SessionFault("All handles that the peer allows are in use.", RESOURCE_LIMIT_EXCEEDED)
        return wanted
