"""The `$cbs` node: tokens in, grants of the connection out."""

from twinbus.broker.directory import Directory
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, EntityNotFound, MessagingError, NotImplementedHere
from twinbus.gateway.addresses import resolve
from twinbus.gateway.authorization import (
    AccessRules,
    Grants,
    WebTokenRules,
    audience_path,
    is_web_token,
    verify_token,
)
from twinbus.gateway.namespace_view import Traffic
from twinbus.gateway.nodes.request_message import Request, Response, text_of
from twinbus.gateway.requests.call import Respond
from twinbus.model.paths import parse_address

PUT_TOKEN = "put-token"


class CbsNode:
    def __init__(
        self, entities: Directory, rules: AccessRules, traffic: Traffic, web_tokens: WebTokenRules | None = None
    ) -> None:
        self._entities = entities
        self._rules = rules
        self._traffic = traffic
        self._web_tokens = web_tokens

    def answer(self, request: Request, grants: Grants, now: Millis, respond: Respond) -> None:
        """Add what the token gives to `grants`. A refused token leaves them as they were."""

        def ready(later: Millis) -> None:
            respond(self._judge(request, grants, later))

        token, web_tokens = text_of(request.body), self._web_tokens
        if web_tokens is None or not is_web_token(token) or not web_tokens.when_key_is_known(token, now, ready):
            ready(now)

    def _judge(self, request: Request, grants: Grants, now: Millis) -> Response:
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
        grant = verify_token(token, path, self._rules, now, self._web_tokens)
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
