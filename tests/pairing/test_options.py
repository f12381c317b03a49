from datetime import timedelta

import pytest

from twinbus.errors import ArgumentError
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions


@pytest.mark.rule("B1.1")
def test_the_defaults_are_those_of_the_contract() -> None:
    options = SendAvailabilityPairedNamespaceOptions()
    assert options.backlog_queue_count == 10
    assert options.failover_interval == options.ping_primary_interval == timedelta(minutes=1)
    assert not options.enable_syphon


@pytest.mark.rule("B1.1")
@pytest.mark.parametrize(
    "wrong",
    [
        {"backlog_queue_count": 0},
        {"failover_interval": timedelta(seconds=-1)},
        {"failover_interval": timedelta(minutes=60, seconds=1)},
        {"ping_primary_interval": timedelta(milliseconds=999)},
        {"ping_primary_interval": timedelta(minutes=30, seconds=1)},
        {"ping_jitter": 1.0},
        {"syphon_messages_per_second_max": 0},
    ],
)
def test_values_outside_of_their_limits_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        SendAvailabilityPairedNamespaceOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.rule("B1.1")
@pytest.mark.parametrize(
    "right",
    [
        {"failover_interval": timedelta(0)},
        {"failover_interval": timedelta(minutes=60)},
        {"ping_primary_interval": timedelta(seconds=1)},
        {"ping_primary_interval": timedelta(minutes=30)},
    ],
)
def test_the_limits_themselves_are_allowed(right: dict[str, timedelta]) -> None:
    SendAvailabilityPairedNamespaceOptions(**right)  # type: ignore[arg-type]


@pytest.mark.rule("B1")
@pytest.mark.parametrize(
    "wrong",
    [
        {"failover_interval": 5},
        {"ping_primary_interval": "5"},
        {"operation_timeout": 5.0},
        {"readmission_interval": None},
        {"recovery_ramp": 1},
        {"backlog_queue_count": "3"},
        {"backlog_queue_count": 2.5},
        {"message_size_max": "256 KB"},
        {"ping_jitter": "0.1"},
        {"syphon_messages_per_second_max": "100"},
        {"enable_syphon": "no"},
        {"primary_name": 5},
        {"classifier": None},
        {"on_event": None},
    ],
)
def test_a_value_of_another_type_is_named_and_the_right_type_with_it(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(ArgumentError, match=f"{name} .*give (a|True)"):
        SendAvailabilityPairedNamespaceOptions(**wrong)  # type: ignore[arg-type]
