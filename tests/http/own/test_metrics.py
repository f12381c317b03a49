"""What the HTTP side shows to whom."""

import httpx
import pytest

from twinbus.client.shared_access import sign
from twinbus.gateway.namespace_view import Traffic
from twinbus.http.own.metrics import NamespaceMetrics
from twinbus.http.side import HttpSide
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.testing.sim_clock import START, SimClock

HERE, ELSEWHERE = "127.0.0.1", "192.0.2.7"
MANAGES = AuthorizationRule("boss", "boss-key", "", frozenset(Right))
SENDS = AuthorizationRule("sends", "send-key", "", frozenset({Right.SEND}))


class Rules:
    def rules_named(self, name: str, path: str) -> list[AuthorizationRule]:
        return [rule for rule in (MANAGES, SENDS) if rule.name == name]


@pytest.mark.parametrize(
    ("address", "rule", "status"),
    [(HERE, None, 200), (ELSEWHERE, None, 401), (ELSEWHERE, SENDS, 401), (ELSEWHERE, MANAGES, 200)],
)
async def test_metrics_are_for_this_machine_and_for_who_manages(
    address: str, rule: AuthorizationRule | None, status: int
) -> None:
    metrics = NamespaceMetrics("test", Traffic(), [], list, lambda: 0, {})
    application = HttpSide("test", [], Rules(), SimClock(), metrics).application(None)
    headers = {"Authorization": sign("sb://h/", rule.name, rule.primary_key, START // 1000 + 60)} if rule else {}
    transport = httpx.ASGITransport(application, client=(address, 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://h", headers=headers) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == status
