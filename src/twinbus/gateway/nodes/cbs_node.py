"""The `$cbs` node: tokens in, grants of the connection out."""

from twinbus.broker.entity.entities import Entities
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, EntityNotFound, MessagingError, NotImplementedHere
from twinbus.gateway.addresses import resolve
from twinbus.gateway.authorization import AccessRules, Grants, audience_path, verify_token
from twinbus.gateway.namespace_view import Traffic
from twinbus.gateway.nodes.request_message import Request, Response, text_of
from twinbus.model.paths import parse_address

PUT_TOKEN = "put-token"


class CbsNode:
    def __init__(self, entities: Entities, rules: AccessRules, traffic: Traffic) -> None:
        self._entities = entities
        self._rules = rules
        self._traffic = traffic

    def answer(self, request: Request, grants: Grants, now: Millis) -> Response:
        """Add what the token gives to `grants`. A refused token leaves them as they were."""
        try:
            self._put_token(request, grants, now)
        except MessagingError as error:
            self._traffic.tokens_refused += 1
            return Response.failed(error)
        self._traffic.tokens_accepted += 1
        return Response(202, "Accepted")

    def _put_token(self, request: Request, grants: Grants, now: Millis) -> None:
        if request.operation != PUT_TOKEN:
            raise NotImplementedHere(f"$cbs supports only the operation {PUT_TOKEN}, not '{request.operation}'.")
        audience, token = text_of(request.properties.get("name")), text_of(request.body)
        if not audience:
            raise ArgumentError("put-token needs the audience as application property 'name'.")
        path = audience_path(audience)
        grant = verify_token(token, path, self._rules, now)
        # After the token: only the holder of a valid key may learn what exists.
        self._require_existing(path)
        grants.add(grant)

    def _require_existing(self, path: str) -> None:
        if not path or path.startswith("$"):
            return
        try:
            resolve(self._entities, parse_address(path))
        except EntityNotFound:
            raise EntityNotFound.at(path) from None
