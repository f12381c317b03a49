"""SAS rules over HTTP, as JSON. All of it needs Manage, on the namespace or with `?entity=PATH` on that entity.

GET    /$access                                 all rules with their keys
PUT    /$access/{name}                          make one: {"rights": ["Send"], "primary_key": "...", ...}      201
POST   /$access/{name}/regenerate?key=K         a new primary or secondary key                                 200
DELETE /$access/{name}                                                                                         200
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twinbus.errors import ArgumentError, MessagingError, Unauthorized
from twinbus.http.administration.administration_api import Authorize
from twinbus.http.atom.access_xml import RIGHTS_ORDER
from twinbus.management.access import AccessControl
from twinbus.model.descriptions import AuthorizationRule, Right, WhichKey
from twinbus.model.iso8601 import write_time

BODY_SIZE_MAX = 16 * 1024

Handler: TypeAlias = Callable[[Request, str], Awaitable[Response]]


class AccessApi:
    def __init__(self, access: AccessControl, authorize: Authorize) -> None:
        self._access = access
        self._authorize = authorize

    def routes(self) -> list[Route]:
        return [
            Route("/$access", self._guarded(self._list)),
            Route("/$access/{name}", self._guarded(self._create), methods=["PUT"]),
            Route("/$access/{name}", self._guarded(self._delete), methods=["DELETE"]),
            Route("/$access/{name}/regenerate", self._guarded(self._regenerate), methods=["POST"]),
        ]

    def _guarded(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            entity = request.query_params.get("entity", "").strip("/")
            try:
                token = request.headers.get("authorization", "")
                if not token:
                    raise Unauthorized("This needs an Authorization header with a signature that has Manage.")
                self._authorize(token, entity, Right.MANAGE)
                return await handler(request, entity)
            except MessagingError as error:
                return JSONResponse({"error": str(error)}, status_code=error.status)

        return respond

    async def _list(self, _: Request, entity: str) -> Response:
        return JSONResponse([_record(rule) for rule in self._access.rules(entity)])

    async def _create(self, request: Request, entity: str) -> Response:
        body = await _read_object(request)
        rights = _read_rights(body.get("rights"))
        keys = _read_key(body, "primary_key"), _read_key(body, "secondary_key")
        rule = await self._access.create(entity, request.path_params["name"], rights, *keys)
        return JSONResponse(_record(rule), status_code=201)

    async def _regenerate(self, request: Request, entity: str) -> Response:
        try:
            which = WhichKey(request.query_params.get("key", ""))
        except ValueError:
            raise ArgumentError("'key' has to be primary or secondary.") from None
        return JSONResponse(_record(await self._access.regenerate(entity, request.path_params["name"], which)))

    async def _delete(self, request: Request, entity: str) -> Response:
        await self._access.delete(entity, request.path_params["name"])
        return JSONResponse({})


def _record(rule: AuthorizationRule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "rights": [right.value for right in RIGHTS_ORDER if right in rule.rights],
        "primary_key": rule.primary_key,
        "secondary_key": rule.secondary_key or None,
        "modified": write_time(rule.modified_at),
    }


async def _read_object(request: Request) -> dict[str, object]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_SIZE_MAX:
            raise ArgumentError(f"The body of the request is larger than {BODY_SIZE_MAX} bytes.")
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise ArgumentError('The body of the request has to be a JSON object like {"rights": ["Send"]}.')
    return given


def _read_rights(given: object) -> set[Right]:
    names = {right.value.casefold(): right for right in Right}
    if not isinstance(given, list) or not all(isinstance(each, str) and each.casefold() in names for each in given):
        raise ArgumentError("'rights' has to be a list of Send, Listen or Manage.")
    return {names[each.casefold()] for each in given}


def _read_key(body: dict[str, object], name: str) -> str | None:
    key = body.get(name)
    if key is not None and not (isinstance(key, str) and key.isascii() and key.isprintable()):
        raise ArgumentError(f"'{name}' has to be a text of printable ASCII characters, or left out.")
    return key
