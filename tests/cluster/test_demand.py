"""How credit is shared out among the parts of a queue."""

from hypothesis import given
from hypothesis import strategies as st

from twinbus.cluster.fronts.demand import DemandPlan, plan_demand

PARTS = st.integers(1, 8).flatmap(
    lambda count: st.tuples(
        st.integers(0, 2000),
        st.lists(st.booleans(), min_size=count, max_size=count),
        st.lists(st.integers(0, 300), min_size=count, max_size=count),
    )
)


def plan(credit: int, ready: list[bool], outstanding: list[int]) -> DemandPlan:
    return plan_demand(credit, len(ready), ready, outstanding)


@given(PARTS)
def test_all_credit_is_given_and_no_more(case: tuple[int, list[bool], list[int]]) -> None:
    credit, ready, outstanding = case
    given_, _ = plan(credit, ready, outstanding)
    assert sum(given_) == credit
    assert min(given_) >= 0


@given(PARTS)
def test_each_part_has_some_if_there_is_enough(case: tuple[int, list[bool], list[int]]) -> None:
    credit, ready, outstanding = case
    given_, _ = plan(credit, ready, outstanding)
    if credit >= len(ready):
        assert all(more + had > 0 for more, had in zip(given_, outstanding, strict=True))


@given(PARTS)
def test_who_is_ready_is_never_asked_to_give_back(case: tuple[int, list[bool], list[int]]) -> None:
    credit, ready, outstanding = case
    _, recalled = plan(credit, ready, outstanding)
    assert not any(ready[part] or not outstanding[part] for part in recalled)
    assert any(ready) or not recalled


@given(PARTS)
def test_nobody_who_is_ready_starves_while_credit_lies_idle(case: tuple[int, list[bool], list[int]]) -> None:
    credit, ready, outstanding = case
    given_, recalled = plan(credit, ready, outstanding)
    levels = [more + had for more, had in zip(given_, outstanding, strict=True)]
    starving = [part for part, level in enumerate(levels) if ready[part] and not level]
    idle = [part for part, had in enumerate(outstanding) if not ready[part] and had > 1]
    if starving and idle:
        assert set(idle) <= set(recalled)


@given(PARTS, st.integers(0, 7))
def test_what_is_recalled_reaches_whoever_is_ready(case: tuple[int, list[bool], list[int]], chosen: int) -> None:
    """Follow the plan until it rests: a single part with messages ends up with all credit but one for each of the others."""
    credit, ready, outstanding = case
    count, busy = len(ready), chosen % len(ready)
    ready = [part == busy for part in range(count)]
    total = credit + sum(outstanding)
    for _ in range(5):
        given_, recalled = plan(credit, ready, outstanding)
        outstanding = [more + had for more, had in zip(given_, outstanding, strict=True)]
        credit = 0
        for part in recalled:
            credit += outstanding[part]
            outstanding[part] = 0
        if not credit:
            break
    assert credit == 0
    assert total == sum(outstanding)
    if total < count:
        assert not total or outstanding[busy] >= 1
    else:
        assert outstanding[busy] >= max(outstanding)


def test_credit_is_shared_evenly_where_nothing_is_known() -> None:
    assert plan(100, [False] * 4, [0] * 4) == DemandPlan([25] * 4, [])
    assert plan(10, [False] * 4, [0] * 4).given == [3, 3, 2, 2]
    assert plan(6, [False, False], [10, 0]).given == [0, 6]


def test_one_credit_goes_to_who_has_something() -> None:
    assert plan(1, [False, True], [0, 0]) == DemandPlan([0, 1], [])
    assert plan(0, [False, True], [1, 0]) == DemandPlan([0, 0], [0])
