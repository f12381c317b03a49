"""One request to a page: who asks, what is known, and the frame around the answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse

from twinbus.errors import ArgumentError
from twinbus.portal.access.visitors import Visitor
from twinbus.portal.form_body import read_form
from twinbus.portal.html.layout import Frame
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.namespaces.entity_list import EntityLists
from twinbus.portal.namespaces.watch import Watch
from twinbus.portal.settings import PortalSettings
from twinbus.portal.work.jobs import Jobs

SEE_OTHER = 303


@dataclass(slots=True)
class Services:
    """What the screens share, for as long as the portal runs."""

    settings: PortalSettings
    lists: EntityLists = field(default_factory=EntityLists)
    jobs: Jobs = field(default_factory=Jobs)
    watches: dict[Bus, Watch] = field(default_factory=dict)

    def watch(self, bus: Bus) -> Watch:
        if bus not in self.watches:
            # Of namespaces that are gone, or whose visitor has left, nothing is kept.
            self.watches = {each: watch for each, watch in self.watches.items() if not each.is_closed}
            self.watches[bus] = Watch(bus)
        return self.watches[bus]


@dataclass(frozen=True, slots=True)
class Visit:
    request: Request
    visitor: Visitor
    services: Services

    @property
    def namespace(self) -> str:
        name: str = self.request.path_params["namespace"]
        return name

    @property
    def bus(self) -> Bus:
        """The namespace in the address. Raises EntityNotFound."""
        return self.visitor.directory.get(self.namespace)

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    @property
    def path(self) -> str:
        """Of the entity that the page is about. Raises ArgumentError."""
        path = self.query.get("path", "").strip("/")
        if not path:
            raise ArgumentError("The address has no entity. Choose one in the list of entities.")
        return path

    def frame(self, screen: str) -> Frame:
        return Frame(
            namespaces=self.visitor.directory.names(),
            namespace=self.request.path_params.get("namespace"),
            screen=screen,
            is_logged_in=bool(self.visitor.token),
        )

    async def form(self) -> dict[str, str]:
        """The fields of a form that was sent; a box that is not ticked has none."""
        return dict(await read_form(self.request))

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A number in the address; one that is none, or beyond the limits, is brought within them."""
        text = self.query.get(name, "")
        given = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default
        return min(most, max(least, given))


def go_to(address: str) -> RedirectResponse:
    assert address.startswith("/"), address
    assert not address.startswith("//"), address
    return RedirectResponse(address, SEE_OTHER)


Json = dict[str, Any]
