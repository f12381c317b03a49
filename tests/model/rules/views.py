"""Views of messages for tests of filters: with the parts given, or of a real message."""

from twinbus.amqp.codec.sections import DataBody, MessageProperties, Sections, encode_sections
from twinbus.model.message import read_message
from twinbus.model.rules.view import FilterView


def view_of(user: dict[str, object] | None = None, **properties: object) -> FilterView:
    view = FilterView(b"", sequence_number=7, enqueued_at=1_000)
    view.user = {name.lower(): value for name, value in (user or {}).items()}
    view.properties = MessageProperties(**properties)  # type: ignore[arg-type]
    return view


def content_of(user: dict[str, object] | None = None, **properties: object) -> bytes:
    sections = Sections(
        properties=MessageProperties(**properties),  # type: ignore[arg-type]
        application_properties=user,
        body=DataBody((b"body",)),
    )
    return read_message(encode_sections(sections), lambda: "made-up-id").content
