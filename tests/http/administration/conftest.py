"""The administration API over a real catalog and entities that run nowhere."""

import itertools

import pytest

from tests.management.conftest import catalog, control, runtime
from twinbus.errors import Unauthorized
from twinbus.http.administration.administration_api import AdministrationApi, RestSettings
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import Right

__all__ = ["catalog", "control", "runtime"]


def authorize_by_word(token: str, path: str, right: Right) -> None:
    """Tokens are words here: `manage` opens everything, `manage:PATH` one entity; signatures have their own tests."""
    word, _, scope = token.partition(":")
    if word != "manage" and not token.startswith("SharedAccessSignature "):
        raise Unauthorized("The token is wrong.")
    if scope and word == "manage" and scope != path:
        raise Unauthorized("The token is for another entity.")


@pytest.fixture
def api(control: ControlPlane) -> AdministrationApi:
    numbers = itertools.count(1)
    settings = RestSettings(
        amqp_authority="localhost:5672",
        message_size_kb=256,
        new_id=lambda: f"tracking-{next(numbers)}",
        new_key=lambda: f"drawn-key-{next(numbers)}",
    )
    return AdministrationApi(control, authorize_by_word, settings)
