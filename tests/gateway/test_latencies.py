"""Durations in, a histogram out."""

import pytest

from twinbus.gateway.latencies import BOUNDS_S, Latencies, Stopwatch


@pytest.mark.parametrize(
    ("seconds", "first"),
    [(0.0, "0.001"), (0.001, "0.001"), (0.0011, "0.0025"), (60.0, "60.0"), (86_400.0, "86400.0"), (86_401.0, "+Inf")],
)
def test_a_burst_counts_in_every_bucket_whose_bound_it_does_not_exceed(seconds: float, first: str) -> None:
    latencies = Latencies()
    latencies.observe(seconds, 3)
    buckets = dict(latencies.buckets())
    names = list(buckets)
    assert names == [*map(str, BOUNDS_S), "+Inf"]
    assert [name for name in names if buckets[name] == 3.0] == names[names.index(first) :]
    assert set(buckets.values()) <= {0.0, 3.0}


def test_bursts_add_up() -> None:
    latencies = Latencies()
    assert (latencies.total_s, sum(latencies.counts)) == (0.0, 0)
    latencies.observe(0.5, 2)
    latencies.observe(2.0, 3)
    assert latencies.total_s == 7.0
    buckets = dict(latencies.buckets())
    assert (buckets["0.25"], buckets["0.5"], buckets["1.0"], buckets["2.5"], buckets["+Inf"]) == (0, 2, 2, 5, 5)


def test_without_clocks_nothing_takes_any_time_and_nobody_traces() -> None:
    stopwatch = Stopwatch()
    assert (stopwatch.steady(), stopwatch.wall(), stopwatch.spans) == (0.0, 0, None)
    assert stopwatch.acknowledged is not stopwatch.waited
