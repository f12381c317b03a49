"""SAS rules as JSON. All of it needs Manage, on the namespace or with `?entity=PATH` on that entity.

GET    /$access                                 all rules with their keys
PUT    /$access/{name}                          create one: {"rights": ["Send"], "primary_key": "...", ...}      201
POST   /$access/{name}/regenerate?key=K         a new primary or secondary key                                 200
DELETE /$access/{name}                                                                                         200
"""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twinbus.errors import ArgumentError
from twinbus.http.access import Answer, HttpAccess
from twinbus.http.atom.access_xml import RIGHTS_ORDER
from twinbus.http.request_body import Bodies
from twinbus.management.access_control import AccessControl
from twinbus.model.descriptions import AuthorizationRule, Right, WhichKey
from twinbus.model.iso8601 import write_time

BODY_SIZE_MAX = 16 * 1024


class AccessRulesApi:
    def __init__(self, rules: AccessControl, access: HttpAccess, bodies: Bodies) -> None:
        self._rules = rules
        self._access = access
        self._bodies = bodies

    def routes(self) -> list[Route]:
        return [
            self._route("/$access", "GET", self._list),
            self._route("/$access/{name}", "PUT", self._create),
            self._route("/$access/{name}", "DELETE", self._delete),
            self._route("/$access/{name}/regenerate", "POST", self._regenerate),
        ]

    def _route(self, path: str, method: str, answer: Answer) -> Route:
        return Route(path, self._access.page(answer, at=_entity), methods=[method])

    async def _list(self, request: Request) -> Response:
        return JSONResponse([_record(rule) for rule in self._rules.rules(_entity(request))])

    async def _create(self, request: Request) -> Response:
        async with self._bodies.read(request, BODY_SIZE_MAX) as data:
            body = _read_object(data)
        rights = _read_rights(body.get("rights"))
        keys = _read_key(body, "primary_key"), _read_key(body, "secondary_key")
        rule = await self._rules.create(_entity(request), request.path_params["name"], rights, *keys)
        return JSONResponse(_record(rule), status_code=201)

    async def _regenerate(self, request: Request) -> Response:
        try:
            which = WhichKey(request.query_params.get("key", ""))
        except ValueError:
            raise ArgumentError("'key' has to be primary or secondary.") from None
        return JSONResponse(_record(await self._rules.regenerate(_entity(request), request.path_params["name"], which)))

    async def _delete(self, request: Request) -> Response:
        await self._rules.delete(_entity(request), request.path_params["name"])
        return JSONResponse({})


def _entity(request: Request) -> str:
    return request.query_params.get("entity", "").strip("/")


def _record(rule: AuthorizationRule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "rights": [right.value for right in RIGHTS_ORDER if right in rule.rights],
        "primary_key": rule.primary_key,
        "secondary_key": rule.secondary_key or None,
        "modified": write_time(rule.modified_at),
    }


def _read_object(body: bytes) -> dict[str, object]:
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
        raise ArgumentError(f"'{name}' has to be a string of printable ASCII characters, or omitted.")
    return key
