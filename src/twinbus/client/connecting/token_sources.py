"""Tokens that prove the rights of a client: an audience and the time in, a token out.

A key signs a shared access signature for each audience. A signature in the connection string is used as it is. A credential of
azure-identity, or anything else with its `get_token`, asks an authority for a token that is valid for all entities.
"""

import asyncio
import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qs, quote

from twinbus.client.connecting.connection_string import ConnectionString
from twinbus.client.connecting.dialling import within
from twinbus.clock import Millis
from twinbus.errors import OperationTimeout, Unauthorized

TOKEN_LIFETIME_S = 3600


def sign(resource: str, key_name: str, key: str, expires_at_s: int) -> str:
    """A token for `resource` and all below it, valid until `expires_at_s` (seconds since 1970)."""
    encoded = quote(resource, safe="")
    # The service uses the text of the key as it is, although it looks like base64.
    digest = hmac.new(key.encode(), f"{encoded}\n{expires_at_s}".encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(digest), safe="")
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se={expires_at_s}&skn={quote(key_name, safe='')}"


SIGNATURE = "servicebus.windows.net:sastoken"
JSON_WEB_TOKEN = "jwt"
SCOPE = "https://servicebus.azure.net/.default"
_REASON_LENGTH_MAX = 500


class TokenUnavailable(Unauthorized):
    """The credential has no token now; its authority may be unreachable."""

    is_transient = True


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str = field(repr=False)
    expires_at_s: int
    is_renewable: bool = True


class TokenSource(Protocol):
    async def token(self, audience: str, now: Millis) -> Token:
        """Raises Unauthorized, TokenUnavailable or OperationTimeout if there is no token."""
        ...


class AccessToken(Protocol):
    @property
    def token(self) -> str: ...

    @property
    def expires_on(self) -> int:
        """Seconds since 1970."""
        ...


class TokenCredential(Protocol):
    """As in azure.core: `get_token` blocks, and caches what is still valid."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken: ...


class KeyTokens:
    def __init__(self, key_name: str, key: str) -> None:
        self._key_name = key_name
        self._key = key

    async def token(self, audience: str, now: Millis) -> Token:
        expires_at_s = now // 1000 + TOKEN_LIFETIME_S
        return Token(SIGNATURE, sign(audience, self._key_name, self._key, expires_at_s), expires_at_s)


class GivenToken:
    def __init__(self, signature: str) -> None:
        self._token = Token(SIGNATURE, signature, _expiry_of(signature), is_renewable=False)

    async def token(self, audience: str, now: Millis) -> Token:
        return self._token


class CredentialTokens:
    def __init__(self, credential: TokenCredential, timeout_s: float) -> None:
        self._credential = credential
        self._timeout_s = timeout_s

    async def token(self, audience: str, now: Millis) -> Token:
        asking = asyncio.to_thread(self._credential.get_token, SCOPE)
        try:
            given = await within(asking, self._timeout_s)
        except OperationTimeout:
            raise OperationTimeout(f"The credential gave no token within {self._timeout_s:g} s. Try again.") from None
        except Exception as failure:  # a credential written by others may raise anything
            raise _refusal(failure) from None
        return Token(JSON_WEB_TOKEN, given.token, int(given.expires_on))


def token_source(target: ConnectionString, credential: TokenCredential | None, timeout_s: float) -> TokenSource:
    if credential is not None:
        return CredentialTokens(credential, timeout_s)
    if target.signature:
        return GivenToken(target.signature)
    return KeyTokens(target.key_name, target.key)


def _refusal(failure: Exception) -> Unauthorized:
    # Not at the top: it is slower to import than the whole client, and code that has a credential has loaded it already.
    from azure.core.exceptions import AzureError, ClientAuthenticationError

    is_final = isinstance(failure, ClientAuthenticationError) or not isinstance(failure, AzureError | OSError)
    reason = " ".join(str(failure).split())[:_REASON_LENGTH_MAX]
    kind = Unauthorized if is_final else TokenUnavailable
    return kind(f"The credential gave no token ({type(failure).__name__}): {reason}")


def _expiry_of(signature: str) -> int:
    """In seconds since 1970, as the token says; 0 leaves it to the namespace to find what is wrong with it."""
    text = parse_qs(signature.partition(" ")[2]).get("se", [""])[0]
    return int(text) if text.isdecimal() else 0
