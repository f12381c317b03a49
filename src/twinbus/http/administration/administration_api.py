"""The administration API: Atom entries in and out, in front of the control plane. Everything needs Manage."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from twinbus.clock import Millis
from twinbus.errors import ArgumentError, MethodNotAllowed, PreconditionFailed
from twinbus.http.access import HttpAccess
from twinbus.http.administration.administration_request import (
    RequestContext,
    read_api_version,
    read_content,
    read_entity,
    read_first_rules,
    read_subscription,
)
from twinbus.http.administration.presenter import Presenter, etag_of
from twinbus.http.administration.resources import (
    EntityResource,
    NamespaceResource,
    QueueList,
    Resource,
    RuleList,
    RuleResource,
    SubscriptionList,
    SubscriptionResource,
    TopicList,
    management_operation,
    read_resource,
)
from twinbus.http.atom.entity_reader import read_integer
from twinbus.http.atom.entity_writer import View
from twinbus.http.atom.envelopes import AtomEntry, write_entry, write_feed, write_feed_entry
from twinbus.http.atom.rule_xml import read_rule_description
from twinbus.http.refusals import XmlResponder
from twinbus.http.request_body import Bodies
from twinbus.management.catalog import Entry
from twinbus.management.control_plane import ControlPlane
from twinbus.meter.operation import NO_METER, Meter, who_of_agent
from twinbus.model.descriptions import (
    EntityDescription,
    QueueDescription,
    Right,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.paths import subscription_path

BODY_SIZE_MAX = 1024 * 1024
PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1_000


@dataclass(frozen=True, slots=True)
class AdministrationSettings:
    amqp_authority: str  # host:port for requests that name no host
    new_id: Callable[[], str]
    new_key: Callable[[], str]


class AdministrationApi:
    """An ASGI application that answers every path: mount it behind the routes of others."""

    def __init__(
        self,
        control: ControlPlane,
        access: HttpAccess,
        settings: AdministrationSettings,
        bodies: Bodies,
        meter: Meter = NO_METER,
    ) -> None:
        self._control = control
        self._catalog = control.catalog
        self._access = access
        self._settings = settings
        self._bodies = bodies
        self._responder = XmlResponder(settings.new_id, control.clock)
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "nothing speaks WebSocket at this path"})
            return
        await self._responder.answer(scope, receive, send, self._answer)

    async def _answer(self, request: Request) -> Response:
        # The path as asked for, not the entity's: some clients sign every request for its own URL.
        self._access.require(request, request.scope["path"].strip("/"), Right.MANAGE)
        resource = read_resource(request.scope["path"])
        version = read_api_version(request.query_params.get("api-version"))
        view = View(version, self._host(request))
        response = await self._perform(
            request, resource, Presenter(self._catalog, self._control.counting, self._control.clock, view)
        )
        who = who_of_agent(request.headers.get("user-agent", ""))
        self._meter.record(management_operation(resource, who, self._control.clock.now()))
        return response

    async def _perform(self, request: Request, resource: Resource, presenter: Presenter) -> Response:
        match request.method:
            case "GET":
                return await self._get(request, resource, presenter)
            case "PUT":
                return await self._put(request, resource, presenter)
            case "DELETE":
                return await self._delete(request, resource)
        raise MethodNotAllowed(f"{request.method} is not supported here. Use GET, PUT or DELETE.")

    async def _get(self, request: Request, resource: Resource, presenter: Presenter) -> Response:
        match resource:
            case NamespaceResource():
                return self._one(request, presenter.namespace(self._catalog.namespace))
            case EntityResource(path):
                return self._one(request, await presenter.counted_entity(self._catalog.get(path)))
            case SubscriptionResource(topic, name):
                return self._one(request, await presenter.counted_entity(self._control.subscription(topic, name)))
            case RuleResource(topic, subscription, name):
                rule = self._control.rule(topic, subscription, name)
                return self._one(request, presenter.rule(topic, subscription, rule))
            case QueueList():
                return await self._entity_page(request, "Queues", self._catalog.entries(QueueDescription), presenter)
            case TopicList():
                return await self._entity_page(request, "Topics", self._catalog.entries(TopicDescription), presenter)
            case SubscriptionList(topic):
                self._control.topic(topic)
                return await self._entity_page(request, "Subscriptions", self._catalog.subscriptions(topic), presenter)
            case RuleList(topic, subscription):
                rules = self._control.subscription(topic, subscription).rules
                page = presenter.rules(topic, subscription, rules.page(*_paging(request)))
                return await self._feed(request, "Rules", page, len(rules))
        assert_never(resource)

    async def _put(self, request: Request, resource: Resource, presenter: Presenter) -> Response:
        async with self._bodies.read(request, BODY_SIZE_MAX) as body:
            return await self._put_body(request, resource, body, presenter)

    async def _put_body(self, request: Request, resource: Resource, body: bytes, presenter: Presenter) -> Response:
        match resource:
            case EntityResource(path):
                return await self._put_entity(request, path, body, presenter)
            case SubscriptionResource(topic, name):
                return await self._put_subscription(request, topic, name, body, presenter)
            case RuleResource(topic, subscription, name):
                rule = read_rule_description(name, read_content(body, "RuleDescription"))
                if not _is_update(request):
                    rule = await self._control.create_rule(topic, subscription, rule)
                    return self._one(request, presenter.rule(topic, subscription, rule), 201)
                _check_match(request, self._control.rule(topic, subscription, name).created_at)
                rule = await self._control.update_rule(topic, subscription, rule)
                return self._one(request, presenter.rule(topic, subscription, rule))
        raise ArgumentError("A list cannot be written. Put the name of one entity, subscription or rule into the path.")

    async def _put_entity(self, request: Request, path: str, body: bytes, presenter: Presenter) -> Response:
        element = read_content(body, "QueueDescription", "TopicDescription")
        context = self._context(presenter.view)

        def read(before: EntityDescription | None) -> QueueDescription | TopicDescription:
            description = read_entity(path, element, before, context)
            self._require_forwarding(request, description)
            return description

        if _is_update(request):
            return self._one(request, await presenter.entity(await self._update(request, path, read)))
        description = read(None)
        if isinstance(description, QueueDescription):
            entry = await self._control.create_queue(description)
        else:
            entry = await self._control.create_topic(description)
        return self._one(request, await presenter.entity(entry), 201)

    async def _put_subscription(
        self, request: Request, topic: str, name: str, body: bytes, presenter: Presenter
    ) -> Response:
        element = read_content(body, "SubscriptionDescription")
        context = self._context(presenter.view)

        def read(before: EntityDescription | None) -> SubscriptionDescription:
            description = read_subscription(topic, name, element, before, context)
            self._require_forwarding(request, description)
            return description

        if _is_update(request):
            path = subscription_path(topic, name)
            return self._one(request, await presenter.entity(await self._update(request, path, read)))
        entry = await self._control.create_subscription(read(None), read_first_rules(element))
        return self._one(request, await presenter.entity(entry), 201)

    async def _update(
        self, request: Request, path: str, read: Callable[[EntityDescription | None], EntityDescription]
    ) -> Entry:
        def changed(entry: Entry) -> EntityDescription:
            _check_match(request, entry.updated_at)
            return read(entry.description)

        return await self._control.change(path, changed)

    async def _delete(self, request: Request, resource: Resource) -> Response:
        match resource:
            case EntityResource(path):
                _check_match(request, self._catalog.get(path).updated_at)
                await self._control.delete(path)
            case SubscriptionResource(topic, name):
                _check_match(request, self._control.subscription(topic, name).updated_at)
                await self._control.delete_subscription(topic, name)
            case RuleResource(topic, subscription, name):
                _check_match(request, self._control.rule(topic, subscription, name).created_at)
                await self._control.delete_rule(topic, subscription, name)
            case _:
                raise ArgumentError("A list cannot be deleted. Put the name of one entity into the path.")
        return Response(status_code=200)

    def _require_forwarding(self, request: Request, description: EntityDescription) -> None:
        """To let an entity forward, the caller needs Send on the target."""
        if isinstance(description, TopicDescription):
            return
        for target, header in (
            (description.forward_to, "ServiceBusSupplementaryAuthorization"),
            (description.forward_dead_letters_to, "ServiceBusDlqSupplementaryAuthorization"),
        ):
            if target is not None:
                self._access.require(request, target, Right.SEND, header)

    def _host(self, request: Request) -> str:
        """Clients compare a target with one that they make of their own address: it is shown with the host they used."""
        return request.headers.get("host") or self._settings.amqp_authority

    def _context(self, view: View) -> RequestContext:
        settings = self._settings
        return RequestContext(view.api_version, self._control.clock.now(), settings.new_key)

    def _one(self, request: Request, entry: AtomEntry, status: int = 200) -> Response:
        return Response(
            write_entry(entry, _base_url(request)),
            status,
            {"ETag": etag_of(entry.updated_at)},
            "application/atom+xml;type=entry;charset=utf-8",
        )

    async def _entity_page(
        self, request: Request, title: str, entries: Sequence[Entry], presenter: Presenter
    ) -> Response:
        skip, top = _paging(request)
        return await self._feed(request, title, presenter.entities(entries[skip : skip + top]), len(entries))

    async def _feed(self, request: Request, title: str, page: AsyncIterator[AtomEntry], count: int) -> Response:
        skip, top = _paging(request)
        here, base_url = str(request.url), _base_url(request)
        following = f"{base_url}{request.url.path}?$skip={skip + top}&$top={top}"
        has_more = skip + top < count
        entries = [write_feed_entry(entry, base_url) async for entry in page]
        xml = write_feed(title, here, following if has_more else None, entries, self._control.clock.now())
        return Response(xml, 200, media_type="application/atom+xml;type=feed;charset=utf-8")


def _is_update(request: Request) -> bool:
    """With If-Match a request is for something that exists."""
    return "if-match" in request.headers


def _check_match(request: Request, updated_at: Millis) -> None:
    if request.headers.get("if-match", "*") not in ("*", etag_of(updated_at)):
        raise PreconditionFailed(
            "The entity was changed meanwhile. Read it again, or send If-Match: * to overwrite it."
        )


def _base_url(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _paging(request: Request) -> tuple[int, int]:
    skip = read_integer(request.query_params.get("$skip", "0"), "$skip")
    top = read_integer(request.query_params.get("$top", str(PAGE_SIZE_DEFAULT)), "$top")
    if skip < 0 or top < 1:
        raise ArgumentError(f"$skip is {skip} and $top is {top}. Use $skip of 0 or more and $top of 1 or more.")
    return skip, min(top, PAGE_SIZE_MAX)
