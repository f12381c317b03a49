"""The administration API over a real catalog and entities that run nowhere."""

import itertools

import pytest

from tests.management.conftest import catalog, control, runtime
from twinbus.client.connecting.token_sources import sign
from twinbus.http.access import HttpAccess
from twinbus.http.administration.administration_api import AdministrationApi, AdministrationSettings
from twinbus.http.request_body import Bodies
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.testing.sim_clock import SimClock

__all__ = ["catalog", "control", "runtime"]

MANAGES = AuthorizationRule("manages", "the key of the namespace", "", frozenset(Right))
FAR = 4_000_000_000


def token(path: str = "") -> str:
    """That opens everything at and below the path."""
    return sign(f"sb://localhost/{path}", MANAGES.name, MANAGES.primary_key, FAR)


@pytest.fixture
def api(catalog: Catalog, control: ControlPlane) -> AdministrationApi:
    catalog.set_namespace_rule(MANAGES)
    numbers = itertools.count(1)
    settings = AdministrationSettings(
        amqp_authority="localhost:5672",
        new_id=lambda: f"tracking-{next(numbers)}",
        new_key=lambda: f"drawn-key-{next(numbers)}",
    )
    return AdministrationApi(control, HttpAccess(catalog, SimClock()), settings, Bodies())
