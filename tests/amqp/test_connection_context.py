"""What a peer may have, before and after it has proved who it is."""

import pytest

from twinbus.amqp.connection_context import ConnectionContext, Inflow
from twinbus.amqp.connection_settings import ConnectionSettings


def limits(context: ConnectionContext) -> tuple[int, int, int]:
    return context.session_count_max, context.link_count_max, context.reassembly.size_max


@pytest.mark.parametrize(
    ("stranger", "restrained"),
    [((2, 20, 200), (2, 20, 200)), ((200, 2_000, 20_000), (10, 100, 1_000))],
    ids=["lower limits", "higher limits"],
)
def test_a_stranger_has_the_lower_ones_of_its_limits_and_those_of_everybody(
    stranger: tuple[int, int, int], restrained: tuple[int, int, int]
) -> None:
    context = ConnectionContext.of(
        ConnectionSettings(
            container_id="server",
            channel_max=9,
            link_count_max=100,
            reassembly_size_max=1_000,
            stranger_session_count_max=stranger[0],
            stranger_link_count_max=stranger[1],
            stranger_size_max=stranger[2],
        ),
        None,
    )
    assert limits(context) == (10, 100, 1_000)
    context.restrain()
    assert limits(context) == restrained
    context.trust()
    assert limits(context) == (10, 100, 1_000)


def test_reading_pauses_above_either_limit() -> None:
    for count, size in ((10, 100), (11, 100), (10, 101)):
        inflow = Inflow(count_max=10, size_max=100)
        inflow.received(count, size)
        assert inflow.is_flooded == ((count, size) != (10, 100))


@pytest.mark.parametrize(
    ("count", "size"), [(12, 60), (6, 120), (12, 120)], ids=["too many", "too large", "too many and too large"]
)
def test_reading_goes_on_at_half_of_both_limits(count: int, size: int) -> None:
    inflow = Inflow(count_max=10, size_max=100)
    inflow.received(count, size)
    while inflow.count > 5 or inflow.size > 50:
        assert inflow.is_flooded
        inflow.settled(1)
    assert not inflow.is_flooded
    # At the very half of the other one.
    inflow = Inflow(count_max=10, size_max=100, count=6, size=60, is_flooded=True)
    inflow.settled(1)
    assert (inflow.count, inflow.size, inflow.is_flooded) == (5, 50, False)
