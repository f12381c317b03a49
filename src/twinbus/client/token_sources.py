"""What a client proves its rights with: an audience and the time in, a token out.

A key signs one for each audience. A signature that the connection string brought along is used as it stands. A credential
of azure-identity, or anything else with its `get_token`, asks an authority for one that is good for all entities.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qs

from twinbus.client.connection_string import ConnectionString
from twinbus.client.dialling import within
from twinbus.client.shared_access import TOKEN_LIFETIME_S, sign
from twinbus.clock import Millis
from twinbus.errors import OperationTimeout, Unauthorized

SIGNATURE = "servicebus.windows.net:sastoken"
JSON_WEB_TOKEN = "jwt"
SCOPE = "https://servicebus.azure.net/.default"
_REASON_LENGTH_MAX = 500


class TokenUnavailable(Unauthorized):
    """The credential has no token for us now; its authority may be out of reach."""

    is_transient = True


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str = field(repr=False)
    expires_at_s: int
    is_renewable: bool = True


class TokenSource(Protocol):
    async def token(self, audience: str, now: Millis) -> Token:
        """Raises Unauthorized, TokenUnavailable or OperationTimeout where there is none to be had."""
        ...


class AccessToken(Protocol):
    @property
    def token(self) -> str: ...

    @property
    def expires_on(self) -> int:
        """Seconds since 1970."""
        ...


class TokenCredential(Protocol):
    """As azure.core has it: `get_token` blocks, and keeps what is still good."""

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
        except Exception as failure:  # whatever a credential that others wrote may raise
            raise _refusal(failure) from None
        return Token(JSON_WEB_TOKEN, given.token, int(given.expires_on))


def token_source(target: ConnectionString, credential: TokenCredential | None, timeout_s: float) -> TokenSource:
    if credential is not None:
        return CredentialTokens(credential, timeout_s)
    if target.signature:
        return GivenToken(target.signature)
    return KeyTokens(target.key_name, target.key)


def _refusal(failure: Exception) -> Unauthorized:
    # Not at the top: it takes longer to import than all of the client, and a program with a credential has loaded it.
    from azure.core.exceptions import AzureError, ClientAuthenticationError

    is_final = isinstance(failure, ClientAuthenticationError) or not isinstance(failure, AzureError | OSError)
    reason = " ".join(str(failure).split())[:_REASON_LENGTH_MAX]
    kind = Unauthorized if is_final else TokenUnavailable
    return kind(f"The credential gave no token ({type(failure).__name__}): {reason}")


def _expiry_of(signature: str) -> int:
    """Seconds since 1970 as the token itself has them; 0 lets the namespace find what is wrong with it."""
    text = parse_qs(signature.partition(" ")[2]).get("se", [""])[0]
    return int(text) if text.isdecimal() else 0
