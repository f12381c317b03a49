from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.clock import NEVER
from twinbus.errors import ArgumentError, Unauthorized
from twinbus.gateway.authorization import (
    AUDIENCES_MAX,
    AUDIENCES_SIZE_MAX,
    CLOCK_SKEW,
    SCOPE_LENGTH_MAX,
    TOKEN_LENGTH_MAX,
    Grant,
    Grants,
    TokenGate,
    covers,
    signature,
    verify_key,
    verify_token,
)
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.testing.sim_clock import SimClock

NOW = 1_800_000_000_000
LATER = str(NOW // 1_000 + 3_600)
AUDIENCE = "sb://localhost:5672/orders"
PATH = "orders"


class OneNamespace:
    """The rules of a namespace and of its queue `orders`."""

    namespace = AuthorizationRule("Root", "first-key", "second-key", frozenset(Right))
    one_key = AuthorizationRule("OneKey", "only-key", "", frozenset({Right.LISTEN}))
    orders = AuthorizationRule("OrdersOnly", "orders-key", "", frozenset({Right.SEND}))

    def rules_named(self, name: str, path: str) -> list[AuthorizationRule]:
        rules = [self.namespace, self.one_key, *([self.orders] if covers("orders", path) else [])]
        return [rule for rule in rules if rule.name == name]


RULES = OneNamespace()


def signed(resource: str, key: str = "first-key", name: str = "Root", expiry: str = LATER) -> str:
    return (
        f"SharedAccessSignature sr={resource}&sig={quote_plus(signature(resource, expiry, key))}&se={expiry}&skn={name}"
    )


@pytest.mark.parametrize(
    "resource",
    [
        quote_plus(AUDIENCE),
        quote(AUDIENCE, safe=""),
        AUDIENCE,
        quote_plus("https://localhost/Orders"),
        quote_plus("sb://localhost:5672/"),
        quote_plus("http://localhost:5300"),
        quote("https://localhost/orders?api-version=2021-05", safe="").lower(),
    ],
)
def test_a_token_is_verified_over_the_resource_as_it_stands(resource: str) -> None:
    grant = verify_token(signed(resource), PATH, RULES, NOW)
    assert grant == Grant("orders", frozenset(Right), int(LATER) * 1_000, "Root")


def test_the_fields_of_a_token_come_in_any_order() -> None:
    fields = signed(quote_plus(AUDIENCE)).removeprefix("SharedAccessSignature ").split("&")
    token = "SharedAccessSignature " + "&".join(reversed(fields))
    assert verify_token(token, PATH, RULES, NOW).rights == frozenset(Right)


def test_the_secondary_key_signs_as_well_as_the_primary() -> None:
    assert verify_token(signed(AUDIENCE, "second-key"), PATH, RULES, NOW).rights


@pytest.mark.rule("A17.3")
def test_an_entity_rule_opens_its_entity_and_no_other() -> None:
    token = signed(quote_plus("sb://localhost:5672/"), "orders-key", "OrdersOnly")
    assert verify_token(token, PATH + "/$management", RULES, NOW).rights == {Right.SEND}
    with pytest.raises(Unauthorized, match="no such key"):
        verify_token(token, "ordersandmore", RULES, NOW)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (signed(AUDIENCE, "wrong"), "does not match"),
        (signed(AUDIENCE, "", "OrdersOnly"), "does not match"),
        (signed(AUDIENCE, name="Nobody"), "no such key"),
        (signed("sb://localhost:5672/invoices"), "does not cover"),
        (signed("sb://localhost:5672/order"), "does not cover"),
        (signed(AUDIENCE, expiry=str(NOW // 1_000 - 60)), "expired"),
        (signed(AUDIENCE, expiry="soon"), "has to be a number"),
        (signed(AUDIENCE).replace("&se=", "&xx="), "no field 'se'"),
        ("eyJhbGciOiJIUzI1NiJ9.e30.x", "JSON web tokens"),
        ("SharedAccessSignature " + "x" * 9_000, "limit"),
    ],
)
def test_a_token_that_proves_nothing_is_refused_with_the_reason(token: str, reason: str) -> None:
    with pytest.raises(Unauthorized, match=reason):
        verify_token(token, PATH, RULES, NOW)


def test_a_token_may_be_as_long_as_the_limit() -> None:
    token = signed(AUDIENCE) + "&note="
    padding = "x" * (TOKEN_LENGTH_MAX - len(token))
    assert verify_token(token + padding, PATH, RULES, NOW).rights
    with pytest.raises(Unauthorized, match="limit"):
        verify_token(token + padding + "x", PATH, RULES, NOW)


def test_a_token_counts_for_the_clock_skew_beyond_its_end_and_no_longer() -> None:
    token = signed(AUDIENCE, expiry=str(NOW // 1_000))
    assert verify_token(token, PATH, RULES, NOW + CLOCK_SKEW - 1)
    with pytest.raises(Unauthorized):
        verify_token(token, PATH, RULES, NOW + CLOCK_SKEW)


def test_a_bare_key_opens_the_namespace() -> None:
    grants = Grants()
    grants.add(verify_key("Root", "second-key", RULES))
    grants.require(Right.LISTEN, "any/thing", NOW)
    with pytest.raises(Unauthorized):
        verify_key("Root", "third-key", RULES)


def test_an_empty_key_opens_nothing_even_where_a_rule_has_only_one_key() -> None:
    assert verify_key("OneKey", "only-key", RULES).rights == {Right.LISTEN}
    with pytest.raises(Unauthorized):
        verify_key("OneKey", "", RULES)


@pytest.mark.parametrize("expiry", ["9" * 16, "-1", "1.5", "", "\N{ARABIC-INDIC DIGIT NINE}" * 10])
def test_the_end_of_a_token_is_a_number_of_at_most_15_digits(expiry: str) -> None:
    assert verify_token(signed(AUDIENCE, expiry="9" * 15), PATH, RULES, NOW).rights
    with pytest.raises(Unauthorized, match="has to be a number"):
        verify_token(signed(AUDIENCE, expiry=expiry), PATH, RULES, NOW)


def test_a_grant_opens_what_lies_below_its_scope_and_nothing_beside_it() -> None:
    grants = Grants()
    grants.add(Grant("topic", frozenset({Right.LISTEN}), NOW + 1_000, "Root"))
    grants.require(Right.LISTEN, "Topic/Subscriptions/one", NOW)
    for right, path in [(Right.SEND, "topic"), (Right.LISTEN, "topical"), (Right.LISTEN, "queue")]:
        with pytest.raises(Unauthorized):
            grants.require(right, path, NOW)


def test_the_rule_of_an_entity_opens_nothing_of_one_whose_path_lies_below() -> None:
    grants = Grants()
    grants.add(verify_token(signed(AUDIENCE, "orders-key", "OrdersOnly"), "Orders", RULES, NOW))
    for path in ("orders", "ORDERS/$management", "orders/Subscriptions/one"):
        grants.require(Right.SEND, path, NOW)
    with pytest.raises(Unauthorized):
        grants.require(Right.SEND, "orders/secret", NOW)
    grants.add(verify_token(signed(AUDIENCE), "orders", RULES, NOW))
    grants.require(Right.SEND, "orders/secret", NOW)


SCOPES = st.lists(st.sampled_from(["a", "b", "A", "$management"]), max_size=4).map("/".join)


@given(st.lists(SCOPES), SCOPES)
def test_every_grant_that_covers_a_path_counts_for_it(scopes: list[str], path: str) -> None:
    grants, given_grants = Grants(), {}
    for number, scope in enumerate(scopes):
        grant = Grant(scope, frozenset({list(Right)[number % len(Right)]}), NOW + 1_000, "Root")
        grants.add(grant)
        given_grants[scope.casefold()] = grant
    opening = [grant.rights for grant in given_grants.values() if grant.opens(path)]
    assert grants.rights_on(path, NOW) == frozenset().union(*opening)


class NotAsked(Grant):
    """For a path that is far from the one in question."""

    def opens(self, path: str) -> bool:
        raise AssertionError(f"{self.scope} was looked at for {path}")


def test_tokens_for_thousands_of_entities_cost_nothing_for_another() -> None:
    grants = Grants()
    for number in range(AUDIENCES_MAX - 1):
        grants.add(NotAsked(f"team/queue-{number}", frozenset(Right), NOW + 1_000, "Root"))
    grants.add(Grant("team/orders", frozenset({Right.SEND}), NOW + 1_000, "Root"))
    assert grants.rights_on("team/orders/$management", NOW) == {Right.SEND}
    assert grants.rights_on("a/" * 30_000, NOW) == frozenset()
    with pytest.raises(ArgumentError, match="at most"):
        grants.add(Grant("one/more", frozenset(Right), NOW + 1_000, "Root"))


def test_tokens_for_very_long_audiences_fill_no_memory() -> None:
    grants = Grants()
    with pytest.raises(ArgumentError, match="1024"):
        grants.add(Grant("orders/" + "x" * SCOPE_LENGTH_MAX, frozenset(Right), NOW + 1_000, "Root"))
    for number in range(AUDIENCES_SIZE_MAX // SCOPE_LENGTH_MAX):
        grants.add(Grant(f"{number:0{SCOPE_LENGTH_MAX}}", frozenset(Right), NOW + 1_000, "Root"))
    with pytest.raises(ArgumentError, match="together"):
        grants.add(Grant("orders", frozenset(Right), NOW + 1_000, "Root"))
    assert grants.rights_on(f"{0:0{SCOPE_LENGTH_MAX}}/$management", NOW) == frozenset(Right)
    # One for an audience that it has a token for is no more of them.
    grants.add(Grant(f"{0:0{SCOPE_LENGTH_MAX}}", frozenset({Right.SEND}), NOW + 9_000, "Root"))


def test_a_new_token_for_an_audience_replaces_the_old_one() -> None:
    grants = Grants()
    grants.add(Grant("orders", frozenset(Right), NOW + 1_000, "Root"))
    grants.add(Grant("Orders", frozenset({Right.SEND}), NOW + 9_000, "OrdersOnly"))
    assert grants.rights_on("orders", NOW) == {Right.SEND}
    assert grants.next_expiry(NOW) == NOW + 9_000 + CLOCK_SKEW


def test_a_grant_that_ran_out_opens_nothing() -> None:
    grants = Grants()
    grants.add(Grant("orders", frozenset(Right), NOW, "Root"))
    assert grants.is_any_valid(NOW)
    assert not grants.is_any_valid(NOW + CLOCK_SKEW)
    with pytest.raises(Unauthorized, match="No valid token"):
        grants.require(Right.SEND, "orders", NOW + CLOCK_SKEW)


def test_a_request_with_a_token_of_its_own_needs_the_right_on_the_path_it_names() -> None:
    gate = TokenGate(RULES, SimClock(NOW))
    sending = signed(AUDIENCE, "orders-key", "OrdersOnly")
    gate.require(sending, "orders", Right.SEND)
    gate.require(signed(AUDIENCE), "orders", Right.LISTEN)
    with pytest.raises(Unauthorized, match="'Listen' claim is required"):
        gate.require(sending, "orders", Right.LISTEN)
    with pytest.raises(Unauthorized, match="does not cover"):
        gate.require(sending, "orders-of-others", Right.SEND)
    with pytest.raises(Unauthorized, match="does not cover"):
        gate.require(signed(AUDIENCE), "", Right.MANAGE)
    with pytest.raises(Unauthorized, match="has no token"):
        gate.require("", "orders", Right.SEND)


def test_a_token_of_a_request_that_ran_out_opens_nothing() -> None:
    gate = TokenGate(RULES, SimClock(int(LATER) * 1_000 + CLOCK_SKEW))
    with pytest.raises(Unauthorized, match="expired"):
        gate.require(signed(AUDIENCE), "orders", Right.SEND)


def test_the_next_end_is_that_of_a_grant_that_ends_and_is_still_valid() -> None:
    grants = Grants()
    grants.add(verify_key("Root", "second-key", RULES))
    assert grants.next_expiry(NOW) == NEVER
    for scope, ends_at in (("a", NOW + 2_000), ("b", NOW + 1_000), ("c", NOW - 2 * CLOCK_SKEW)):
        grants.add(Grant(scope, frozenset({Right.LISTEN}), ends_at, "Root"))
    assert grants.next_expiry(NOW) == NOW + 1_000 + CLOCK_SKEW
    assert grants.next_expiry(NOW + 1_000 + CLOCK_SKEW) == NOW + 2_000 + CLOCK_SKEW
