"""What a JSON web token must be to open anything: signed by a key of a trusted issuer, for us, now, with claims that count."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.web_token_keys import (
    AUDIENCE,
    ISSUER,
    ROLE_OWNER,
    TRUSTED,
    claims,
    jwk,
    key_set,
    private_key,
    public_pem,
    sign,
    trusting,
)
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, Unauthorized
from twinbus.gateway.authorization import CLOCK_SKEW
from twinbus.gateway.trusted_issuer import TrustedIssuer
from twinbus.gateway.web_tokens import (
    KEY_SET_SIZE_MAX,
    KEYS_AGE_MAX,
    KEYS_MAX,
    REREAD_AFTER,
    SECONDS_MAX,
    TOKEN_LENGTH_MAX,
    WAITING_MAX,
    WebTokens,
    read_key_set,
)
from twinbus.model.descriptions import Right

NOW = 1_900_000_000_000
SECOND = 1_000


def refusal(token: str, tokens: WebTokens | None = None, path: str = "orders", now: Millis = NOW) -> str:
    with pytest.raises(Unauthorized) as refused:
        (tokens or trusting()).verify(token, path, now)
    return str(refused.value)


def encoded(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


@pytest.mark.rule("A17.6")
def test_a_signed_token_gives_the_rights_of_its_claims_until_it_expires() -> None:
    grant = trusting().verify(sign(claims(NOW)), "orders", NOW)
    assert grant.rights == frozenset(Right)
    assert (grant.scope, grant.expires_at, grant.key_name, grant.entity) == ("orders", NOW + 600 * SECOND, "me", None)


@pytest.mark.parametrize("kind", ["RS256", "ES256", "EdDSA"])
def test_a_key_set_that_holds_private_parts_as_well_checks_signatures_by_the_public_ones(kind: str) -> None:
    whole = jwt.get_algorithm_by_name(kind).to_jwk(private_key(kind), as_dict=True) | {"kid": "one"}
    whole.pop("key_ops", None)
    assert "d" in whole
    token = sign(claims(NOW), algorithm=kind, kind=kind)
    assert trusting(whole).verify(token, "orders", NOW).key_name == "me"


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("RS256", "RS256"),
        ("RS512", "RS256"),
        ("PS256", "RS256"),
        ("ES256", "ES256"),
        ("ES384", "ES384"),
        ("EdDSA", "EdDSA"),
    ],
)
def test_asymmetric_algorithms_are_accepted_with_a_key_that_fits(algorithm: str, kind: str) -> None:
    assert trusting(jwk("one", kind)).verify(sign(claims(NOW), "one", algorithm, kind), "", NOW).rights


def test_a_token_without_a_signature_is_refused() -> None:
    for algorithm in ("none", "None", "NONE", ""):
        token = f"{encoded({'alg': algorithm, 'kid': 'one'})}.{encoded(claims(NOW))}."
        assert "not accepted" in refusal(token)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(algorithm: str) -> None:
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[algorithm]
    signed = f"{encoded({'alg': algorithm, 'kid': 'one'})}.{encoded(claims(NOW))}"
    for secret in (public_pem(), key_set(jwk("one")), jwk("one")["n"].encode()):
        mac = hmac.new(secret, signed.encode(), digest).digest()
        assert "not accepted" in refusal(f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}")


def test_a_shared_secret_in_a_key_set_is_not_a_key() -> None:
    with pytest.raises(ArgumentError, match="no public key"):
        read_key_set(key_set({"kty": "oct", "kid": "one", "k": "c2VjcmV0"}))


def test_a_key_is_used_with_its_own_algorithm_alone() -> None:
    tokens = trusting(jwk("one", alg="RS256"))
    assert tokens.verify(sign(claims(NOW)), "", NOW).rights
    assert "not signed by" in refusal(sign(claims(NOW), algorithm="PS256"), tokens)
    assert "not signed by" in refusal(sign(claims(NOW), algorithm="ES256", kind="ES256"), tokens)


def test_a_key_in_the_header_of_the_token_counts_for_nothing() -> None:
    headers = {"kid": "one", "jwk": jwk("one", number=1), "jku": "https://evil.test/keys"}
    token = jwt.encode(claims(NOW), private_key(number=1), algorithm="RS256", headers=headers)
    assert "not signed by" in refusal(token)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_token_that_was_changed_is_refused(place: int) -> None:
    parts = sign(claims(NOW)).split(".")
    parts[place] = ("A" if parts[place][10] != "A" else "B").join((parts[place][:10], parts[place][11:]))
    refusal(".".join(parts))


def test_claims_cannot_be_exchanged_under_a_signature() -> None:
    head, _, signature = sign(claims(NOW, roles=["sender"])).split(".")
    assert "not signed by" in refusal(f"{head}.{encoded(claims(NOW))}.{signature}")


@pytest.mark.parametrize(
    "header", [{"crit": ["exp"], "exp": 1}, {"b64": False}, {"crit": ["b64"], "b64": True}, {"crit": []}]
)
def test_a_header_that_must_be_understood_is_refused_even_if_it_is_signed(header: dict[str, Any]) -> None:
    signed = f"{encoded({'alg': 'RS256', 'kid': 'one', **header})}.{encoded(claims(NOW))}"
    signature = private_key().sign(signed.encode(), PKCS1v15(), SHA256())
    token = f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    refusal(token)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exp": None}, "no expiry"),
        ({"exp": NOW // 1_000 - 6}, "expired"),
        ({"exp": "soon"}, "'exp'"),
        ({"exp": True}, "'exp'"),
        ({"exp": -1}, "'exp'"),
        ({"exp": 10**400}, "'exp'"),
        ({"exp": float("inf")}, "'exp'"),
        ({"exp": float("nan")}, "'exp'"),
        ({"nbf": NOW // 1_000 + 6}, "not valid yet"),
        ({"nbf": []}, "'nbf'"),
        ({"iss": "https://issuer.test/other"}, "not signed by"),
        ({"iss": None}, "not signed by"),
        ({"iss": ISSUER + "/"}, "not signed by"),
        ({"aud": "https://vault.azure.net"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": [1, {}]}, "audience"),
        ({"aud": AUDIENCE.upper()}, "audience"),
        ({"roles": None}, "no rights"),
        ({"roles": "nobody"}, "no rights"),
        ({"roles": {"x": ROLE_OWNER}}, "no rights"),
        ({"roles": f"x {ROLE_OWNER}"}, "no rights"),
    ],
)
def test_a_claim_that_is_wrong_is_refused(changes: dict[str, Any], said: str) -> None:
    # Not by `encode`, which refuses some of these itself.
    payload = json.dumps(claims(NOW, **changes)).encode()
    token = jwt.api_jws.encode(payload, private_key(), algorithm="RS256", headers={"kid": "one"})
    assert said in refusal(token)


def test_a_token_may_be_for_good() -> None:
    assert trusting().verify(sign(claims(NOW, exp=SECONDS_MAX)), "orders", NOW).expires_at == SECONDS_MAX * SECOND
    assert "'exp'" in refusal(sign(claims(NOW, exp=SECONDS_MAX + 1)))


def test_a_token_may_be_valid_from_the_beginning_of_time() -> None:
    assert trusting().verify(sign(claims(NOW, nbf=0)), "", NOW).rights


def test_clocks_may_differ_a_little() -> None:
    skew = CLOCK_SKEW // SECOND
    early = sign(claims(NOW, nbf=NOW // 1_000 + skew))
    late = sign(claims(NOW, exp=NOW // 1_000 - skew + 1))
    assert trusting().verify(early, "", NOW).rights
    assert trusting().verify(late, "", NOW).rights


@pytest.mark.parametrize(
    ("changes", "path", "rights"),
    [
        ({"roles": ["x", "sender", "receiver"]}, "orders", {Right.SEND, Right.LISTEN}),
        ({"roles": "sender"}, "orders", {Right.SEND}),
        ({"roles": None, "scp": "profile queue.read"}, "orders", {Right.LISTEN}),
        ({"roles": None, "oid": "only-orders"}, "orders", {Right.SEND, Right.LISTEN}),
        ({"roles": None, "oid": "only-orders"}, "ORDERS/$management", {Right.SEND, Right.LISTEN}),
        ({"aud": ["x", AUDIENCE], "roles": "sender"}, "", {Right.SEND}),
        ({"aud": AUDIENCE + "/", "roles": "sender"}, "", {Right.SEND}),
    ],
)
def test_claims_add_up_to_rights(changes: dict[str, Any], path: str, rights: set[Right]) -> None:
    assert trusting().verify(sign(claims(NOW, **changes)), path, NOW).rights == rights


@pytest.mark.parametrize("path", ["", "orders2", "orders/below", "other"])
def test_rights_on_one_entity_open_no_other(path: str) -> None:
    assert "no rights" in refusal(sign(claims(NOW, roles=None, oid="only-orders")), path=path)


def test_a_grant_for_one_entity_ends_with_the_entity() -> None:
    grant = trusting().verify(sign(claims(NOW, roles=None, oid="only-orders")), "orders", NOW)
    assert grant.opens("orders/$management")
    assert not grant.opens("orders/below")


def test_tokens_of_several_issuers_are_told_apart_by_who_signed_them() -> None:
    other = TrustedIssuer("https://other.test", "other.json", TRUSTED.grants)
    tokens = WebTokens([TRUSTED, other])
    assert tokens.issuers == [TRUSTED, other]
    tokens.set_keys(TRUSTED, read_key_set(key_set(jwk("same"))), NOW)
    tokens.set_keys(other, read_key_set(key_set(jwk("same", number=1))), NOW)
    assert tokens.verify(sign(claims(NOW), "same"), "", NOW).rights
    assert tokens.verify(sign(claims(NOW, iss="https://other.test"), "same", number=1), "", NOW).rights
    assert "not signed by" in refusal(sign(claims(NOW, iss="https://other.test"), "same"), tokens)


def test_a_token_without_a_key_id_is_that_of_an_issuer_with_one_key() -> None:
    token = sign(claims(NOW), kid=None)
    assert trusting(jwk(None)).verify(token, "", NOW).rights
    assert "not signed by" in refusal(token, trusting(jwk("one"), jwk("two", number=1)))


def test_a_token_that_is_too_long_is_refused_before_it_is_read() -> None:
    assert "characters" in refusal("x" * (TOKEN_LENGTH_MAX + 1))
    padded = sign(claims(NOW, filler="x" * 11_000))
    assert len(padded) <= TOKEN_LENGTH_MAX
    assert trusting().verify(padded, "", NOW).rights


@pytest.mark.parametrize("token", ["", "x", "a.b", "a.b.c.d.e", "..", "é.é.é", f"{'W' * 9_000}.e30.e30", "e30.e30.e30"])
def test_what_is_not_a_token_is_refused(token: str) -> None:
    refusal(token)


def test_a_header_of_many_brackets_is_refused() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 9_000).rstrip(b"=").decode()
    refusal(f"{deep}.e30.e30")


@given(st.text(max_size=60), st.text(alphabet='abc.-_=W1{}"', max_size=60))
def test_any_text_is_refused_without_another_error(text: str, other: str) -> None:
    tokens = trusting()
    for token in (text, other, f"{encoded({'alg': 'RS256'})}.{other}.{other}"):
        refusal(token, tokens)


# Key sets


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"keys": 5}', b'{"keys": [5]}', b'{"keys": []}', b"[" * 100_000, b"\xff", b'{"keys": [{}]}'],
)
def test_what_is_not_a_key_set_is_refused(text: bytes) -> None:
    with pytest.raises(ArgumentError):
        read_key_set(text)


def test_keys_that_cannot_have_signed_a_token_are_left_out() -> None:
    good = jwk("one")
    bad = [
        jwk("enc", number=1, use="enc"),
        jwk("short", "short"),
        {**jwk("broken", number=1), "n": "!"},
        {"kty": "EC", "crv": "P-256", "kid": "x"},
        {"kty": ["RSA"], "kid": "list"},
        {"kty": "RSA", "kid": "alg", "alg": "HS256", "n": good["n"], "e": good["e"]},
    ]
    assert [key.kid for key in read_key_set(key_set(*bad, good))] == ["one"]


def test_key_sets_have_limits() -> None:
    assert len(read_key_set(key_set(jwk("one")).ljust(KEY_SET_SIZE_MAX))) == 1
    with pytest.raises(ArgumentError, match="bytes"):
        read_key_set(b" " * (KEY_SET_SIZE_MAX + 1))
    with pytest.raises(ArgumentError, match="keys"):
        read_key_set(key_set(*(jwk(str(number)) for number in range(KEYS_MAX + 1))))


# Rotation


class Fetcher:
    def __init__(self) -> None:
        self.asked: list[Callable[[Millis], None]] = []

    def fetch(self, done: Callable[[Millis], None]) -> None:
        self.asked.append(done)


def rotating() -> tuple[WebTokens, Fetcher]:
    tokens = trusting(now=NOW)
    fetcher = tokens.fetcher = Fetcher()
    return tokens, fetcher


def test_a_token_of_a_new_key_waits_until_the_key_set_is_read_again() -> None:
    tokens, fetcher = rotating()
    token, heard, later = sign(claims(NOW), "two", number=1), list[Millis](), NOW + REREAD_AFTER
    assert tokens.when_key_is_known(token, later, heard.append)
    assert tokens.when_key_is_known(token, later, heard.append)  # joins the read that is under way
    assert (len(fetcher.asked), heard) == (1, [])
    tokens.set_keys(TRUSTED, read_key_set(key_set(jwk("two", number=1))), later)
    fetcher.asked[0](later)
    assert heard == [later, later]
    assert tokens.verify(token, "", later).rights
    assert "not signed by" in refusal(sign(claims(NOW)), tokens, now=later)  # by the key that is gone


def test_unknown_keys_do_not_make_us_read_the_key_set_all_the_time() -> None:
    tokens, fetcher = rotating()
    token = sign(claims(NOW), "two", number=1)
    assert not tokens.when_key_is_known(token, NOW + REREAD_AFTER - 1, lambda _: None)
    assert tokens.when_key_is_known(token, NOW + REREAD_AFTER, lambda _: None)
    tokens.set_keys(TRUSTED, None, NOW + REREAD_AFTER)
    fetcher.asked[0](NOW + REREAD_AFTER)
    assert not tokens.when_key_is_known(token, NOW + 2 * REREAD_AFTER - 1, lambda _: None)
    assert len(fetcher.asked) == 1
    assert tokens.verify(sign(claims(NOW)), "", NOW).rights  # what was known stays known


@pytest.mark.parametrize("by", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_the_key_set_is_read_again_after_the_same_while_when_the_clock_was_set(by: int) -> None:
    tokens, _ = rotating()
    token = sign(claims(NOW), "two", number=1)
    tokens.clock_stepped(by)
    assert not tokens.when_key_is_known(token, NOW + by + REREAD_AFTER - 1, lambda _: None)
    assert tokens.when_key_is_known(token, NOW + by + REREAD_AFTER, lambda _: None)


def test_nothing_waits_for_what_cannot_be_a_token() -> None:
    tokens, fetcher = rotating()
    for token in ("x", "a.b.c", f"{encoded({'alg': 'none', 'kid': 'two'})}.e30.e30"):
        assert not tokens.when_key_is_known(token, NOW + REREAD_AFTER, lambda _: None)
    assert fetcher.asked == []


def test_only_so_many_tokens_wait_for_a_key_set() -> None:
    tokens, _ = rotating()
    token = sign(claims(NOW), "two", number=1)
    waiting = [tokens.when_key_is_known(token, NOW + REREAD_AFTER, lambda _: None) for _ in range(WAITING_MAX + 1)]
    assert waiting == [True] * WAITING_MAX + [False]


def test_old_keys_are_read_again_and_nobody_waits_for_it() -> None:
    tokens, fetcher = rotating()
    token = sign(claims(NOW))
    assert not tokens.when_key_is_known(token, NOW + KEYS_AGE_MAX - 1, lambda _: None)
    assert fetcher.asked == []
    assert not tokens.when_key_is_known(token, NOW + KEYS_AGE_MAX, lambda _: None)
    assert not tokens.when_key_is_known(token, NOW + KEYS_AGE_MAX, lambda _: None)
    assert len(fetcher.asked) == 1
