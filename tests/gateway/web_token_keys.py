"""An issuer of JSON web tokens for tests: keys that are made here, tokens that it signs, and the key set that it publishes."""

import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from twinbus.clock import Millis
from twinbus.gateway.trusted_issuer import ClaimGrant, TrustedIssuer
from twinbus.gateway.web_tokens import WebTokens, read_key_set
from twinbus.model.descriptions import Right

ISSUER = "https://issuer.test/tenant/v2.0"
AUDIENCE = "https://servicebus.azure.net"
ROLE_OWNER = "Azure Service Bus Data Owner"
GRANTS = (
    ClaimGrant("roles", ROLE_OWNER, frozenset(Right)),
    ClaimGrant("roles", "sender", frozenset({Right.SEND})),
    ClaimGrant("roles", "receiver", frozenset({Right.LISTEN})),
    ClaimGrant("oid", "only-orders", frozenset({Right.SEND, Right.LISTEN}), entity="Orders"),
    ClaimGrant("scp", "queue.read", frozenset({Right.LISTEN})),
)
TRUSTED = TrustedIssuer(ISSUER, "keys.json", GRANTS)


def private_key(kind: str = "RS256", number: int = 0) -> Any:
    return _made(kind, number)


@cache
def _made(kind: str, number: int) -> Any:
    """Making an RSA key takes a while, so each is made once."""
    if kind == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if kind.startswith("ES"):
        return ec.generate_private_key(
            {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}[kind]
        )
    return rsa.generate_private_key(65_537, 1_024 if kind == "short" else 2_048)


def public_pem(kind: str = "RS256", number: int = 0) -> bytes:
    public = private_key(kind, number).public_key()
    return bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def jwk(kid: str | None, kind: str = "RS256", number: int = 0, **more: Any) -> dict[str, Any]:
    algorithm = jwt.get_algorithm_by_name("RS256" if kind in ("short", "PS256", "RS512") else kind)
    fields = algorithm.to_jwk(private_key(kind, number).public_key(), as_dict=True)
    fields.pop("key_ops", None)
    return {**fields, **({} if kid is None else {"kid": kid}), **more}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def claims(now: Millis, **changes: Any) -> dict[str, Any]:
    """A change to None removes a claim."""
    basis = {"iss": ISSUER, "aud": AUDIENCE, "exp": now // 1_000 + 600, "nbf": now // 1_000, "roles": [ROLE_OWNER]}
    return {name: value for name, value in {**basis, "sub": "me", **changes}.items() if value is not None}


def sign(
    said: dict[str, Any], kid: str | None = "one", algorithm: str = "RS256", kind: str = "RS256", number: int = 0
) -> str:
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(said, private_key(kind, number), algorithm=algorithm, headers=headers)


def trusting(*keys: dict[str, Any], issuer: TrustedIssuer = TRUSTED, now: Millis = 0) -> WebTokens:
    """A namespace's trust in an issuer with these keys."""
    tokens = WebTokens([issuer])
    tokens.set_keys(issuer, read_key_set(key_set(*(keys or (jwk("one"),)))), now)
    return tokens
