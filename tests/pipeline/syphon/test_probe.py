import pytest

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import until
from twinbus.pipeline.syphon.probe import probe


def test_a_destination_that_takes_messages_answers_and_nobody_receives_the_probe(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    assert probe(spaces.primary.connection_string, path) is None
    assert spaces.primary.take_all(path) == []


@pytest.mark.parametrize("description", [{"requires_session": True}, {"status": "Disabled"}])
def test_whoever_refuses_a_probe_is_there(spaces: Spaces, description: dict[str, object]) -> None:
    assert probe(spaces.primary.connection_string, spaces.primary.create_queue(**description)) is None
    assert probe(spaces.primary.connection_string, "no-such-queue") is None


def test_a_namespace_that_is_down_does_not_answer(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    spaces.primary.kill()
    assert probe(spaces.primary.connection_string, path) is not None


def test_a_namespace_whose_messaging_stores_are_down_is_not_there(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with spaces.primary.stores_down():
        assert probe(spaces.primary.connection_string, path) is not None
    until(lambda: probe(spaces.primary.connection_string, path) is None)
