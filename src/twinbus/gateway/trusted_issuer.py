"""An issuer of JSON web tokens that a namespace trusts, as a value: its keys, and which claims give which rights."""

from dataclasses import dataclass

from twinbus.model.descriptions import Right

AUDIENCES_DEFAULT = ("https://servicebus.azure.net", "https://servicebus.azure.net/")
"""What the SDKs ask tokens for."""


@dataclass(frozen=True, slots=True)
class ClaimGrant:
    """Rights for those whose claim has this value: on the namespace, or on one entity alone."""

    claim: str
    value: str
    rights: frozenset[Right]
    entity: str | None = None


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    issuer: str  # as the claim `iss` has it
    keys: str  # file or URL of the key set
    grants: tuple[ClaimGrant, ...]
    audiences: frozenset[str] = frozenset(AUDIENCES_DEFAULT)
