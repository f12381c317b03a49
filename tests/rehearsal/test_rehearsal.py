"""Whole rehearsals: the ledger balances over seeds, and does not where a message is stolen."""

import pytest

from tests.rehearsal.runs import check_survived, rehearse
from twinbus.client.blocking import BlockingNamespace
from twinbus.pairing.backlog.queues import backlog_queue_path
from twinbus.rehearsal.drain import Drained, ProcessDrain
from twinbus.rehearsal.rehearsal import BACKLOG_QUEUE_COUNT
from twinbus.rehearsal.script import Fault, FaultKind, Script, default_script
from twinbus.rehearsal.stage import Stage

pytestmark = pytest.mark.skipif("sys.platform == 'win32'", reason="processes are killed by signals")


PATIENCE_S = 20.0


class ThievingDrain(ProcessDrain):
    """Takes one message out of the backlog before the others are brought home."""

    stolen = 0

    def drain(self, stage: Stage) -> Drained:
        queues = [backlog_queue_path(stage.name, index) for index in range(BACKLOG_QUEUE_COUNT)]
        with stage.secondary.administration() as administration:
            counts = {
                queue: administration.get_queue_runtime_properties(queue).active_message_count or 0 for queue in queues
            }
        with BlockingNamespace.connect(stage.secondary.connection_string) as secondary:
            receiver = secondary.receiver(max(queues, key=lambda queue: counts[queue]), deletes=True, credit=1)
            self.stolen = len(receiver.receive(1, PATIENCE_S))
            receiver.close()
        return super().drain(stage)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.rule("B2", "B3", "B5", "B7", "B8", "D4")
@pytest.mark.parametrize("seed", [1, 2])
def test_an_outage_is_survived_and_every_message_accounted_for(seed: int) -> None:
    check_survived(rehearse(seed, ProcessDrain()))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_message_that_is_stolen_from_the_backlog_is_missed_by_the_ledger() -> None:
    thief = ThievingDrain()
    script = Script(3.0, (Fault(FaultKind.KILL, 0.5, 1.5),), jitter_s=0.0)
    report = rehearse(3, thief, script=script, has_bill=False)
    assert thief.stolen == 1
    assert not report.is_balanced
    assert report.balance.lost >= 1
    assert "lost" in report.verdict


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(100, 120))
def test_the_ledger_balances_over_twenty_seeds(seed: int) -> None:
    check_survived(rehearse(seed, ProcessDrain(), script=default_script(20.0)))
