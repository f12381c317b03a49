"""The numbers of the AMQP specification, written down a second time: a test that encodes and decodes with a wrong one passes."""

from dataclasses import MISSING, fields

import pytest

from twinbus.amqp.codec import delivery_state, error_condition, frames, performatives, sasl, sections, terminus
from twinbus.amqp.codec.composites import Composite
from twinbus.amqp.codec.performatives import ReceiverSettleMode, SenderSettleMode
from twinbus.amqp.codec.sasl import SaslCode
from twinbus.amqp.serial_number import HALF, MASK

PERFORMATIVES: dict[type[Composite], int] = {
    performatives.Open: 0x10,
    performatives.Begin: 0x11,
    performatives.Attach: 0x12,
    performatives.Flow: 0x13,
    performatives.Transfer: 0x14,
    performatives.Disposition: 0x15,
    performatives.Detach: 0x16,
    performatives.End: 0x17,
    performatives.Close: 0x18,
}
OTHERS: dict[type[Composite], int] = {
    error_condition.ErrorCondition: 0x1D,
    delivery_state.Received: 0x23,
    delivery_state.Accepted: 0x24,
    delivery_state.Rejected: 0x25,
    delivery_state.Released: 0x26,
    delivery_state.Modified: 0x27,
    terminus.Source: 0x28,
    terminus.Target: 0x29,
    terminus.Coordinator: 0x30,
    terminus.Declare: 0x31,
    terminus.Discharge: 0x32,
    delivery_state.Declared: 0x33,
    delivery_state.TransactionalState: 0x34,
    sasl.Mechanisms: 0x40,
    sasl.Init: 0x41,
    sasl.Challenge: 0x42,
    sasl.Response: 0x43,
    sasl.Outcome: 0x44,
}
SECTIONS = {
    "HEADER": 0x70,
    "DELIVERY_ANNOTATIONS": 0x71,
    "MESSAGE_ANNOTATIONS": 0x72,
    "PROPERTIES": 0x73,
    "APPLICATION_PROPERTIES": 0x74,
    "DATA": 0x75,
    "SEQUENCE": 0x76,
    "VALUE": 0x77,
    "FOOTER": 0x78,
}


@pytest.mark.parametrize(("kind", "code"), [*PERFORMATIVES.items(), *OTHERS.items()])
def test_a_composite_has_the_code_of_the_specification(kind: type[Composite], code: int) -> None:
    assert code == kind.CODE


def test_a_section_has_the_code_of_the_specification() -> None:
    assert {name: getattr(sections, name) for name in SECTIONS} == SECTIONS


def test_frames_roles_modes_and_outcomes_have_the_numbers_of_the_specification() -> None:
    assert (frames.AMQP_FRAME, frames.SASL_FRAME, frames.FRAME_SIZE_MIN) == (0, 1, 512)
    assert (performatives.SENDER, performatives.RECEIVER) == (False, True)
    assert [(each.name, int(each)) for each in SenderSettleMode] == [("UNSETTLED", 0), ("SETTLED", 1), ("MIXED", 2)]
    assert [(each.name, int(each)) for each in ReceiverSettleMode] == [("FIRST", 0), ("SECOND", 1)]
    assert [int(SaslCode[name]) for name in ("OK", "AUTH", "SYS", "SYS_PERM", "SYS_TEMP")] == [0, 1, 2, 3, 4]
    assert (MASK, HALF, performatives.UINT_MAX) == (2**32 - 1, 2**31, 2**32 - 1)


def test_fields_that_are_left_out_have_the_defaults_of_the_specification() -> None:
    """Nothing, zero or false, but for these."""
    defaults = {
        (kind.__name__, field.name): field.default
        for kind in (*PERFORMATIVES, *OTHERS)
        for field in fields(kind)
        if field.default is not MISSING
    }
    assert {name: value for name, value in defaults.items() if value} == {
        ("Open", "channel_max"): 0xFFFF,
        ("Open", "max_frame_size"): 0xFFFFFFFF,
        ("Begin", "handle_max"): 0xFFFFFFFF,
        ("Attach", "snd_settle_mode"): SenderSettleMode.MIXED,
    }
    assert len(defaults) > 50
