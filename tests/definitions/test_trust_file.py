"""Files of trusted issuers."""

from pathlib import Path

import pytest

from twinbus.definitions.trust_file import ISSUERS_MAX, read_trust
from twinbus.errors import ArgumentError
from twinbus.gateway.trusted_issuer import AUDIENCES_DEFAULT, ClaimGrant, TrustedIssuer
from twinbus.model.descriptions import Right

GRANT = '[[issuer.grant]]\nclaim = "roles"\nvalue = "sender"\nrights = ["Send"]\n'
ISSUER = '[[issuer]]\nissuer = "https://a.test"\nkeys = "keys.json"\n'


def read(folder: Path, text: str, name: str = "trust.toml") -> tuple[TrustedIssuer, ...]:
    (folder / name).write_text(text)
    return read_trust(folder / name)


def test_no_file_means_no_issuer() -> None:
    assert read_trust(None) == ()


def test_an_issuer_has_keys_an_audience_and_grants(tmp_path: Path) -> None:
    text = ISSUER + 'audience = "api://me"\n' + GRANT
    more = '[[issuer.grant]]\nclaim = "oid"\nvalue = "x"\nrights = ["Manage"]\nentity = "orders"\n'
    assert read(tmp_path, text + more) == (
        TrustedIssuer(
            "https://a.test",
            str(tmp_path / "keys.json"),
            (
                ClaimGrant("roles", "sender", frozenset({Right.SEND})),
                ClaimGrant("oid", "x", frozenset(Right), "orders"),
            ),
            frozenset({"api://me"}),
        ),
    )


def test_the_audience_is_that_of_the_sdks_if_it_is_omitted_and_a_url_stays_one(tmp_path: Path) -> None:
    (issuer,) = read(tmp_path, ISSUER.replace("keys.json", "https://a.test/keys") + GRANT)
    assert (issuer.keys, issuer.audiences) == ("https://a.test/keys", frozenset(AUDIENCES_DEFAULT))


def test_json_says_the_same(tmp_path: Path) -> None:
    text = '{"issuer": [{"issuer": "https://a.test", "keys": "keys.json", "grant": [{"claim": "roles", "value": "sender", "rights": ["Send"]}]}]}'
    assert read(tmp_path, text, "trust.json") == read(tmp_path, ISSUER + GRANT)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no issuer"),
        ("x = 1", "'x' is unknown"),
        (ISSUER, "'grant' is missing"),
        ("[[issuer]]\nissuer = 'a'\n" + GRANT, "'keys' is missing"),
        ("[[issuer]]\nkeys = 'a'\n" + GRANT, "'issuer' is missing"),
        (ISSUER + "audience = []\n" + GRANT, "'audience'"),
        (ISSUER + "audience = [5]\n" + GRANT, "'audience'"),
        (ISSUER + "other = 1\n" + GRANT, "'other' is unknown"),
        (ISSUER + GRANT.replace("Send", "Fly"), "'rights'"),
        (ISSUER + GRANT.replace('"sender"', "5"), "'value'"),
        (ISSUER + GRANT + 'entity = "a//b"\n', "'entity'"),
        (2 * (ISSUER + GRANT), "twice"),
        ("".join(ISSUER.replace("a.test", f"{n}.test") + GRANT for n in range(ISSUERS_MAX + 1)), "the limit"),
        ("[", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=r"trust\.toml") as wrong:
        read(tmp_path, text)
    assert said in str(wrong.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"gone\.toml"):
        read_trust(tmp_path / "gone.toml")
