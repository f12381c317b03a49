"""Which node is to own which store, and who does."""

from collections import Counter
from itertools import combinations

import pytest

from twinbus.server.machines.claims import NOBODY, Claims
from twinbus.server.machines.share_out import Candidate, share_out

NODES = [Candidate(number, name) for number, name in enumerate(["ada", "bob", "cy", "dora"])]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("stores", [1, 3, 16, 64])
def test_every_store_has_an_owner_and_all_nodes_have_as_many_give_or_take_one(count: int, stores: int) -> None:
    for nodes in combinations(NODES, count):
        wanted = share_out(stores, 1, nodes, {})
        loads = Counter(wanted)
        assert None not in wanted
        assert max(loads.values()) <= -(-stores // count)


def test_the_order_in_which_nodes_are_known_makes_no_difference() -> None:
    assert share_out(16, 1, NODES, {}) == share_out(16, 1, NODES[::-1], {})


def test_most_stores_stay_where_they_are_when_a_node_goes() -> None:
    before = share_out(16, 1, NODES, {})
    after = share_out(16, 1, NODES[:-1], {})
    moved = [store for store in range(16) if before[store] != after[store] and before[store] != NODES[-1].number]
    assert len(moved) <= 4


def test_a_node_gets_no_store_whose_database_it_does_not_reach() -> None:
    nodes = [Candidate(0, "ada", (1,)), Candidate(1, "bob", ())]
    wanted = share_out(8, 2, nodes, {})
    assert {wanted[store] for store in (1, 3, 5, 7)} == {1}
    assert share_out(8, 2, [nodes[0]], {})[1::2] == [None] * 4


def test_a_pinned_store_goes_to_its_node_while_that_one_can_have_it() -> None:
    for name in ("ada", "dora"):
        assert share_out(16, 1, NODES, {5: name})[5] == next(node.number for node in NODES if node.name == name)
    assert share_out(16, 1, NODES[:1], {5: "dora"})[5] == 0
    assert share_out(16, 1, [NODES[0], Candidate(3, "dora", (0,))], {5: "dora"})[5] == 0


def test_of_two_claims_the_higher_epoch_is_right() -> None:
    claims = Claims(3)
    assert claims.tell(4, {0: 7, 1: 2})
    assert claims.owners() == [4, 4, NOBODY]
    assert claims.tell(2, {0: 8, 2: 1})
    assert claims.owners() == [2, 4, 2]
    assert not claims.tell(2, {0: 8, 2: 1})
    assert claims.tell(2, {})
    assert claims.owners() == [4, 4, NOBODY]


def test_what_a_node_claimed_before_it_was_out_of_sight_is_nobodys_until_it_says_what_it_serves() -> None:
    claims = Claims(3)
    claims.tell(4, {0: 7, 1: 2})
    claims.tell(2, {0: 8, 2: 1})
    assert claims.doubt(2)
    assert not claims.doubt(2)
    assert claims.owners() == [NOBODY, 4, NOBODY], "and not of who had it before"
    assert claims.epoch_of(0) == 8
    assert claims.tell(2, {0: 8, 2: 1})
    assert claims.owners() == [2, 4, 2]
    claims.doubt(2)
    claims.tell(2, {})
    assert claims.owners() == [4, 4, NOBODY]
    assert not claims.doubt(2), "it claimed nothing"
    assert not claims.tell(2, {})


def test_a_claim_to_a_store_that_there_is_not_is_left_out() -> None:
    claims = Claims(2)
    claims.tell(1, {5: 3, -1: 3})
    assert claims.owners() == [NOBODY, NOBODY]
