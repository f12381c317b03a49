"""What a peer may have, before and after it has proved who it is."""

import pytest

from twinbus.amqp.connection_context import ConnectionContext
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
