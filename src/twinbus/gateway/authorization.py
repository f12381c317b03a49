"""The one place that checks rights: tokens in, grants out, and Unauthorized for anything they do not allow.

A token is a shared access signature or, where the namespace trusts an issuer of such, a JSON web token (`web_tokens`).

    SharedAccessSignature sr=<uri>&sig=<base64>&se=<seconds>&skn=<rule>      fields in any order, each percent-encoded

The signature is HMAC-SHA256, keyed with the text of the key as it stands, over the raw `sr` field, a line
feed and `se`. Raw, because the SDKs encode the same URI in different ways and some not at all. What a token opens is
the audience it was put for; its `sr` must be that audience or a prefix of it.

Two kinds of clients ask here. A connection puts tokens on `$cbs` and collects what they give in `Grants`: links ask it when
they attach and again while they live, `$management` asks it for every request. A later token for the same audience replaces
the earlier one, even if it gives less. A request over HTTP brings its token along and asks `TokenGate`, which keeps nothing.
Control links of transactions need no right: what is done in a transaction is done on links that were asked for theirs.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from urllib.parse import unquote_plus

from twinbus.clock import NEVER, Clock, Millis
from twinbus.errors import ArgumentError, Unauthorized
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.model.paths import parse_address, path_key

TOKEN_PREFIX = "SharedAccessSignature "
BEARER = "bearer "
TOKEN_LENGTH_MAX = 8_192
CLOCK_SKEW: Millis = 5_000
SCOPE_LENGTH_MAX = 1_024  # more than the longest address of an entity
AUDIENCES_MAX = 10_000
"""As many as a connection has links: a client with a single connection puts a token for each entity."""
AUDIENCES_SIZE_MAX = 1_024 * 1_024
"""Characters of all of them."""


class AccessRules(Protocol):
    """Where the SAS rules are kept."""

    def rules_named(self, name: str, path: str) -> Iterable[AuthorizationRule]:
        """The rules of this name that apply to the path: the entity's own and the namespace's."""
        ...


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights on everything at and below `scope` ("" is the namespace) until `expires_at`.

    Rights from an entity's own rule end with the entity: a rule of queue `a` opens nothing of a queue `a/b`.
    """

    scope: str
    rights: frozenset[Right]
    expires_at: Millis
    key_name: str
    entity: str | None = None  # whose own rule gave it; None: a rule of the namespace

    def opens(self, path: str) -> bool:
        return covers(self.scope, path) and self.entity in (None, entity_of(path))


class WebTokenRules(Protocol):
    """The issuers of JSON web tokens that the namespace trusts."""

    def verify(self, token: str, path: str, now: Millis) -> Grant:
        """What this token opens at a path. Raises Unauthorized."""
        ...

    def when_key_is_known(self, token: str, now: Millis, ready: Callable[[Millis], None]) -> bool:
        """Whether keys have to be read before the token can be judged: then `ready` is called when they are."""
        ...


class SignedToken(NamedTuple):
    resource: str  # as signed, that is still percent-encoded
    signature: str
    expiry: str
    key_name: str


def audience_path(uri: str) -> str:
    """The path of an `sb://host:port/path?query` audience or token resource, as the client spelled it."""
    rest = uri.partition("://")[2] or uri
    return rest.partition("?")[0].partition("/")[2].strip("/")


def covers(scope: str, path: str) -> bool:
    """Whether `path` is `scope` or lies below it. Paths compare without case, by whole segments."""
    scope, path = path_key(scope), path_key(path)
    return not scope or path == scope or path.startswith(scope + "/")


def _scopes_over(path: str) -> Iterator[str]:
    """Every scope that covers the path and can be an entity's, one for each of its segments, in the form that is compared."""
    path = path_key(path)
    yield ""
    place = path.find("/")
    # Any client may send a path of many thousand segments; its cost must not grow with their square.
    while 0 <= place <= SCOPE_LENGTH_MAX:
        yield path[:place]
        place = path.find("/", place + 1)
    yield path


def parse_token(token: str) -> SignedToken:
    if not token.startswith(TOKEN_PREFIX):
        raise Unauthorized(
            "The token is not a shared access signature. JSON web tokens are not accepted: connect with a shared access key."
        )
    if len(token) > TOKEN_LENGTH_MAX:
        raise Unauthorized(f"The token has {len(token)} characters; the limit is {TOKEN_LENGTH_MAX}.")
    parts = dict(part.partition("=")[::2] for part in token[len(TOKEN_PREFIX) :].split("&"))
    try:
        return SignedToken(parts["sr"], unquote_plus(parts["sig"]), parts["se"], unquote_plus(parts["skn"]))
    except KeyError as missing:
        raise Unauthorized(f"The token has no field {missing}; it needs sr, sig, se and skn.") from None


def signature(resource: str, expiry: str, key: str) -> str:
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def is_web_token(token: str) -> bool:
    return not token.startswith(TOKEN_PREFIX)


def verify_token(
    token: str, path: str, rules: AccessRules, now: Millis, web_tokens: WebTokenRules | None = None
) -> Grant:
    """What this token opens at a path. Raises Unauthorized, and never reveals whether the name or the key was wrong."""
    if web_tokens is not None and is_web_token(token):
        return web_tokens.verify(token, path, now)
    parsed = parse_token(token)
    expires_at = _expiry(parsed.expiry)
    if now >= expires_at + CLOCK_SKEW:
        raise Unauthorized("The token has expired. Sign a new one, or check the clock of the client.")
    if not _resource_covers(parsed.resource, path):
        raise Unauthorized(
            f"The token was signed for '{parsed.resource}', which does not cover '{path}'. Sign one for that."
        )
    rights = _rights(parsed, rules.rules_named(parsed.key_name, path))
    if not rights:
        raise Unauthorized(
            f"The signature of the token does not match the key '{parsed.key_name}', or there is no such key. Check the connection string."
        )
    wide_rights = _rights(parsed, rules.rules_named(parsed.key_name, ""))
    return Grant(path, rights, expires_at, parsed.key_name, None if rights == wide_rights else entity_of(path))


def verify_key(key_name: str, key: str, rules: AccessRules) -> Grant:
    """What the key of a namespace rule opens (SASL PLAIN): the whole namespace, without expiry."""
    for rule in rules.rules_named(key_name, ""):
        if key and _equal(key, rule.primary_key) | _equal(key, rule.secondary_key):
            return Grant("", rule.rights, NEVER, key_name)
    raise Unauthorized(f"The key given for '{key_name}' is wrong, or there is no such key. Check both.")


def _rights(token: SignedToken, rules: Iterable[AuthorizationRule]) -> frozenset[Right]:
    return frozenset().union(*(rule.rights for rule in rules if _is_signed_by(token, rule)))


def entity_of(path: str) -> str:
    """The queue or topic of an address, in the form that is compared."""
    return path_key(parse_address(path).path)


def _expiry(text: str) -> Millis:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise Unauthorized("The field 'se' of the token has to be a number of seconds.")
    return int(text) * 1_000


def _resource_covers(resource: str, path: str) -> bool:
    return covers(audience_path(unquote_plus(resource)), path)


def _is_signed_by(token: SignedToken, rule: AuthorizationRule) -> bool:
    # Both keys are always tried, so that the time taken does not reveal which of them matches.
    fits = [
        _equal(token.signature, signature(token.resource, token.expiry, key)) and bool(key)
        for key in (rule.primary_key, rule.secondary_key)
    ]
    return any(fits)


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


@dataclass(slots=True)
class Grants:
    """What one connection may do, by audience."""

    _by_scope: dict[str, Grant] = field(default_factory=dict)
    _size: int = 0

    def add(self, grant: Grant) -> None:
        scope = path_key(grant.scope)
        if scope not in self._by_scope:
            self._check_room(scope)
            self._size += len(scope)
        self._by_scope[scope] = grant

    def _check_room(self, scope: str) -> None:
        if len(scope) > SCOPE_LENGTH_MAX:
            raise ArgumentError(f"The audience has {len(scope)} characters; the limit is {SCOPE_LENGTH_MAX}.")
        if len(self._by_scope) >= AUDIENCES_MAX or self._size + len(scope) > AUDIENCES_SIZE_MAX:
            raise ArgumentError(
                f"A connection holds tokens for at most {AUDIENCES_MAX} audiences, with {AUDIENCES_SIZE_MAX} characters "
                "together. Open another connection."
            )

    def rights_on(self, path: str, now: Millis) -> frozenset[Right]:
        rights: frozenset[Right] = frozenset()
        for scope in _scopes_over(path):
            grant = self._by_scope.get(scope)
            if grant is not None and grant.expires_at + CLOCK_SKEW > now and grant.opens(path):
                rights |= grant.rights
        return rights

    def require(self, right: Right, path: str, now: Millis) -> None:
        """Raise Unauthorized unless some grant that is still valid gives this right on the path."""
        if not self.allows(right, path, now):
            self.require_any(path, now)
            raise _missing(right, path)

    def require_any(self, path: str, now: Millis) -> None:
        """Raise Unauthorized unless some grant that is still valid gives any right on the path."""
        if not self.rights_on(path, now):
            raise Unauthorized(f"No valid token for '{path}'. Put one on $cbs before attaching to it.")

    def allows(self, right: Right, path: str, now: Millis) -> bool:
        return _includes(self.rights_on(path, now), right)

    def is_any_valid(self, now: Millis) -> bool:
        return any(grant.expires_at + CLOCK_SKEW > now for grant in self._by_scope.values())

    def next_expiry(self, now: Millis) -> Millis:
        """When the next grant that is still valid runs out; NEVER if none does."""
        ends = [
            grant.expires_at + CLOCK_SKEW for grant in self._by_scope.values() if grant.expires_at < NEVER - CLOCK_SKEW
        ]
        return min((end for end in ends if end > now), default=NEVER)


class TokenGate:
    """For requests that bring their token along, as those over HTTP do."""

    def __init__(self, rules: AccessRules, clock: Clock, web_tokens: WebTokenRules | None = None) -> None:
        self._rules = rules
        self._clock = clock
        self._web_tokens = web_tokens

    def require(self, token: str, path: str, right: Right) -> None:
        """Raise Unauthorized unless the token gives this right on the path ("" is the namespace)."""
        if not token:
            raise Unauthorized(
                f"The request has no token. Send an Authorization header with a shared access signature that has {right.value}."
            )
        # A grant is for the very path the token was verified at, so its scope needs no second look.
        grant = verify_token(without_scheme(token), path, self._rules, self._clock.now(), self._web_tokens)
        if not _includes(grant.rights, right):
            raise _missing(right, path)


def without_scheme(header: str) -> str:
    """The token of an `Authorization` header: a shared access signature is its own scheme."""
    return header[len(BEARER) :].strip() if header[: len(BEARER)].lower() == BEARER else header


def _includes(rights: frozenset[Right], right: Right) -> bool:
    # Manage includes the other two, as it does for the rules of the service.
    return right in rights or Right.MANAGE in rights


def _missing(right: Right, path: str) -> Unauthorized:
    return Unauthorized(f"'{right.value}' claim is required for '{path}'. Use a key whose rule has it.")
