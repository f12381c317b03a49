"""JSON web tokens of trusted issuers, as clients of Microsoft Entra ID send them: a token in, a grant out, or Unauthorized.

    base64url(header) . base64url(claims) . base64url(signature)
    header   alg, kid            which key of which issuer signed it
    claims   iss, aud, exp, nbf  whose it is, for whom, and when it is valid
             any other           what it allows: `ClaimGrant` says which value gives which rights

Nothing of a token counts before its signature does, and the signature counts only with an asymmetric algorithm that fits the
key: a token that names "none", or a public key as a shared secret, is refused. Keys come from the issuer's key set alone,
never from the token. Reading key sets is I/O, so it is done elsewhere (`KeyFetcher`); here a token whose key is unknown says
that a new set is wanted, at most every `REREAD_AFTER`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import jwt
from jwt.api_jws import PyJWS

from twinbus.clock import Millis
from twinbus.errors import ArgumentError, Unauthorized
from twinbus.gateway.authorization import CLOCK_SKEW, Grant, entity_of
from twinbus.gateway.trusted_issuer import TrustedIssuer
from twinbus.model.descriptions import MINUTE, SECOND, Right
from twinbus.model.paths import path_key

TOKEN_LENGTH_MAX = 16_384
KEY_SET_SIZE_MAX = 256 * 1024
KEYS_MAX = 100
"""Of one issuer."""
RSA_BITS_MIN = 2_048
REREAD_AFTER: Millis = 30 * SECOND
KEYS_AGE_MAX: Millis = 10 * MINUTE
"""A key that the issuer no longer has is forgotten after this."""
WAITING_MAX = 1_000
"""Tokens that wait for a key set at a time."""
SECONDS_MAX = 10**11

RSA, EC, OKP = "RSA", "EC", "OKP"
KEY_TYPES: Mapping[str, tuple[str, str | None]] = {
    "RS256": (RSA, None),
    "RS384": (RSA, None),
    "RS512": (RSA, None),
    "PS256": (RSA, None),
    "PS384": (RSA, None),
    "PS512": (RSA, None),
    "ES256": (EC, "P-256"),
    "ES384": (EC, "P-384"),
    "ES512": (EC, "P-521"),
    "EdDSA": (OKP, "Ed25519"),
}
"""Algorithms that are accepted, with the type of key and the curve that each needs."""
PRIVATE_FIELDS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
WORDS = frozenset({"scp", "scope"})
"""Claims whose text is a list of words."""

_signatures = PyJWS(algorithms=list(KEY_TYPES), options={"verify_signature": True, "enforce_minimum_key_length": True})


class SigningKey:
    """One public key of a key set."""

    __slots__ = ("_by_algorithm", "_fields", "kid")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.kid = fields.get("kid")
        self._fields = {name: value for name, value in fields.items() if name not in PRIVATE_FIELDS}
        self._by_algorithm: dict[str, jwt.PyJWK] = {}

    @property
    def is_for_signatures(self) -> bool:
        return self._fields.get("kty") in (RSA, EC, OKP) and self._fields.get("use", "sig") == "sig"

    def fits(self, algorithm: str) -> bool:
        kind, curve = KEY_TYPES[algorithm]
        has = self._fields
        return (
            has.get("kty") == kind and has.get("alg", algorithm) == algorithm and curve in (None, has.get("crv", curve))
        )

    def public_key(self, algorithm: str) -> jwt.PyJWK:
        """Raises jwt.PyJWTError, or what the library raises for a key that makes no sense."""
        if algorithm not in self._by_algorithm:
            self._by_algorithm[algorithm] = jwt.PyJWK(self._fields, algorithm=algorithm)
        return self._by_algorithm[algorithm]


def read_key_set(text: bytes) -> tuple[SigningKey, ...]:
    """The keys of a JSON web key set that can have signed a token. Raises ArgumentError if it is none or has no such key."""
    if len(text) > KEY_SET_SIZE_MAX:
        raise ArgumentError(f"The key set must have at most {KEY_SET_SIZE_MAX} bytes.")
    try:
        document = json.loads(text)
        listed = document["keys"]
        keys = [SigningKey(fields) for fields in listed]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ArgumentError("That is not a JSON web key set: an object with a list of keys.") from None
    found = tuple(key for key in keys if key.is_for_signatures and _is_readable(key))
    if not found:
        raise ArgumentError("The key set has no public key for signatures, and needs one.")
    if len(found) > KEYS_MAX:
        raise ArgumentError(f"The key set has {len(found)} keys; the limit is {KEYS_MAX}.")
    return found


def _is_readable(key: SigningKey) -> bool:
    algorithm = next((name for name in KEY_TYPES if key.fits(name)), None)
    if algorithm is None:
        return False
    try:
        public = key.public_key(algorithm).key
    except Exception:  # the library raises errors of its own, of cryptography and of Python for what it cannot read
        return False
    return getattr(public, "key_size", RSA_BITS_MIN) >= RSA_BITS_MIN or KEY_TYPES[algorithm][0] != RSA


@dataclass(slots=True)
class _Known:
    issuer: TrustedIssuer
    keys: tuple[SigningKey, ...] = ()
    read_at: Millis = field(default=-KEYS_AGE_MAX)  # when the key set was last asked for, with or without success


class KeyFetcher(Protocol):
    def fetch(self, done: Callable[[Millis], None]) -> None:
        """Read the key sets of all issuers again and call back, on the loop, whether or not that worked."""
        ...


class WebTokens:
    """The issuers that a namespace trusts, with the keys of theirs that are known."""

    def __init__(self, issuers: Sequence[TrustedIssuer]) -> None:
        self._known = [_Known(issuer) for issuer in issuers]
        self.fetcher: KeyFetcher | None = None
        self._waiting: list[Callable[[Millis], None]] = []

    @property
    def issuers(self) -> list[TrustedIssuer]:
        return [known.issuer for known in self._known]

    def set_keys(self, issuer: TrustedIssuer, keys: tuple[SigningKey, ...] | None, now: Millis) -> None:
        """What was read of its key set; None: it could not be read, and the keys known so far stay."""
        for known in self._known:
            if known.issuer is issuer:
                known.read_at = now
                if keys is not None:
                    known.keys = keys

    def when_key_is_known(self, token: str, now: Millis, ready: Callable[[Millis], None]) -> bool:
        """Whether the key sets are read again before the token can be judged: then `ready` is called when they are."""
        if self.fetcher is None or not self._lacks_key(token):
            self._renew_keys(now)
            return False
        if not self._waiting and not self._is_due(now, REREAD_AFTER):
            return False
        if len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting.append(ready)
        if len(self._waiting) == 1:
            self.fetcher.fetch(self._fetched)
        return True

    def _renew_keys(self, now: Millis) -> None:
        """Keys that are old are read again, and nobody waits for it."""
        if self.fetcher is not None and not self._waiting and self._is_due(now, KEYS_AGE_MAX):
            self._waiting.append(lambda _: None)
            self.fetcher.fetch(self._fetched)

    def clock_stepped(self, by: Millis) -> None:
        for known in self._known:
            known.read_at += by

    def _is_due(self, now: Millis, after: Millis) -> bool:
        return all(now - known.read_at >= after for known in self._known)

    def _fetched(self, now: Millis) -> None:
        waiting, self._waiting = self._waiting, []
        for ready in waiting:
            ready(now)

    def _lacks_key(self, token: str) -> bool:
        try:
            algorithm, kid = _header(token)
        except Unauthorized:
            return False
        return not self._candidates(algorithm, kid)

    def _candidates(self, algorithm: str, kid: str | None) -> list[tuple[TrustedIssuer, SigningKey]]:
        """Keys that may have signed it. A token without a key id is that of an issuer with a single key."""
        return [
            (known.issuer, key)
            for known in self._known
            for key in known.keys
            if key.fits(algorithm) and (key.kid == kid if kid is not None else len(known.keys) == 1)
        ]

    def verify(self, token: str, path: str, now: Millis) -> Grant:
        """What this token opens at a path. Raises Unauthorized."""
        algorithm, kid = _header(token)
        for issuer, key in self._candidates(algorithm, kid):
            claims = _signed_claims(token, algorithm, key)
            if claims is not None and claims.get("iss") == issuer.issuer:
                return _grant(issuer, claims, path, now)
        raise Unauthorized(
            "The JSON web token was not signed by an issuer that this namespace trusts. Check the tenant of the client."
        )


def _header(token: str) -> tuple[str, str | None]:
    """Algorithm and key id, which nothing proves yet."""
    if len(token) > TOKEN_LENGTH_MAX:
        raise Unauthorized(f"The token has {len(token)} characters; the limit is {TOKEN_LENGTH_MAX}.")
    if token.count(".") != 2 or not token.isascii():
        raise Unauthorized("The token must be a shared access signature or a signed JSON web token.")
    try:
        header = _signatures.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise Unauthorized(
            "The header of the JSON web token cannot be read: it must be a JSON object in base64url."
        ) from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in KEY_TYPES:
        raise Unauthorized(
            f"Tokens signed with '{str(algorithm)[:20]}' are not accepted. Use one of {', '.join(KEY_TYPES)}."
        )
    if "crit" in header or header.get("b64", True) is not True:
        raise Unauthorized("The JSON web token must have no critical header fields (crit, b64).")
    return algorithm, None if kid is None else str(kid)


def _signed_claims(token: str, algorithm: str, key: SigningKey) -> dict[str, Any] | None:
    """The claims, if this key signed them."""
    try:
        claims = json.loads(_signatures.decode(token, key.public_key(algorithm), algorithms=[algorithm]))
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def _grant(issuer: TrustedIssuer, claims: Mapping[str, Any], path: str, now: Millis) -> Grant:
    expires_at, begins_at = _time(claims, "exp"), _time(claims, "nbf")
    if expires_at is None:
        raise Unauthorized("The JSON web token has no expiry, and needs one (exp).")
    if now >= expires_at + CLOCK_SKEW:
        raise Unauthorized("The token has expired. Get a new one, or check the clock of the client.")
    if begins_at is not None and now < begins_at - CLOCK_SKEW:
        raise Unauthorized("The token is not valid yet (nbf). Check the clock of the client.")
    if issuer.audiences.isdisjoint(_texts(claims.get("aud"))):
        raise Unauthorized(
            f"The token is for the audience '{str(claims.get('aud'))[:100]}'; this namespace expects '{min(issuer.audiences)}'."
        )
    rights, wide_rights = _rights(issuer, claims, path), _rights(issuer, claims, "")
    if not rights:
        raise Unauthorized(
            f"The claims of the token give no rights on '{path}'. Ask whoever serves the namespace to grant them."
        )
    name = claims.get("sub")
    who = name if isinstance(name, str) else issuer.issuer
    return Grant(path, rights, expires_at, who, None if rights == wide_rights else entity_of(path))


def _rights(issuer: TrustedIssuer, claims: Mapping[str, Any], path: str) -> frozenset[Right]:
    entity = entity_of(path)
    given = (
        each.rights
        for each in issuer.grants
        if each.value in _texts(claims.get(each.claim), are_words=each.claim in WORDS)
        and (each.entity is None or path_key(each.entity) == entity)
    )
    return frozenset().union(*given)


def _texts(value: object, *, are_words: bool = False) -> list[str]:
    """The values of a claim that has one or several."""
    if isinstance(value, str):
        return value.split() if are_words else [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _time(claims: Mapping[str, Any], name: str) -> Millis | None:
    value = claims.get(name)
    if value is None:
        return None
    # Infinity and NaN, which JSON in Python has, are not in the range either.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= SECONDS_MAX:
        raise Unauthorized(f"'{name}' of the JSON web token must be a number of seconds since 1970.")
    return int(value * 1_000)
