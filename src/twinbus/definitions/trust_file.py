"""Trusted issuers of JSON web tokens: a TOML or JSON file in, values out.

[[issuer]]
issuer = "https://login.microsoftonline.com/TENANT/v2.0"
keys = "https://login.microsoftonline.com/TENANT/discovery/v2.0/keys"      or a file, beside this one
audience = ["https://servicebus.azure.net"]                                what the SDKs ask for, if omitted

[[issuer.grant]]
claim = "roles"
value = "Azure Service Bus Data Sender"
rights = ["Send"]
entity = "orders"                                                          the whole namespace, if omitted
"""

from pathlib import Path

from twinbus.definitions.entity_file import read_document
from twinbus.definitions.entity_table import read_rights
from twinbus.definitions.table import Table
from twinbus.errors import ArgumentError
from twinbus.gateway.trusted_issuer import AUDIENCES_DEFAULT, ClaimGrant, TrustedIssuer
from twinbus.model.paths import check_entity_path

ISSUERS_MAX = 10


def read_trust(file: Path | None) -> tuple[TrustedIssuer, ...]:
    """Raises ArgumentError, naming the file and the key, for whatever is wrong in it."""
    if file is None:
        return ()
    document = Table(str(file), read_document(file, "issuer"), name_key="issuer")
    document.only(("issuer",))
    issuers = tuple(_issuer(table, file.parent) for table in document.list_of("issuer"))
    if not issuers:
        raise ArgumentError(f"{file} names no issuer to trust.")
    if len(issuers) > ISSUERS_MAX:
        raise ArgumentError(f"{file} names {len(issuers)} issuers; the limit is {ISSUERS_MAX}.")
    if len({each.issuer for each in issuers}) < len(issuers):
        raise ArgumentError(f"{file} names an issuer twice. List all its grants in one place.")
    return issuers


def _issuer(table: Table, folder: Path) -> TrustedIssuer:
    table.only(("issuer", "keys", "audience", "grant"))
    keys = _text(table, "keys")
    grants = tuple(_grant(each) for each in table.list_of("grant"))
    if not grants:
        table.refuse("grant", "is missing. Map claims to rights")
    return TrustedIssuer(
        issuer=_text(table, "issuer"),
        keys=keys if "://" in keys else str(folder / keys),
        grants=grants,
        audiences=_audiences(table),
    )


def _audiences(table: Table) -> frozenset[str]:
    given = table.values.get("audience", list(AUDIENCES_DEFAULT))
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(each, str) and each for each in texts):
        table.refuse("audience", "must be a string or a list of strings")
    return frozenset(texts)


def _grant(table: Table) -> ClaimGrant:
    table.only(("claim", "value", "rights", "entity"))
    entity = table.text("entity")
    if entity is not None:
        table.at("entity").check(check_entity_path, entity, "queue or topic")
    return ClaimGrant(_text(table, "claim"), _text(table, "value"), read_rights(table), entity)


def _text(table: Table, key: str) -> str:
    text = table.text(key)
    if not text:
        table.refuse(key, "is missing")
    return text
