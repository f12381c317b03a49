"""An id of its own for a copy whose original is then removed: where the original is and what it is called in, an id out.

An entity that detects duplicates acknowledges a message whose id it has seen, and drops it. The sender cannot tell: a copy
with the id of its original would be gone, and with the original removed the message would be lost. So the copy gets another
id, and the property `COPY_OF` has the original one, in the type that its sender gave it.

The id is made of what does not change while the original is there. A job that was killed after the copy was acknowledged
makes the same id again, and the entity drops the second copy instead of keeping both. The enqueued time is part of it
because an entity that is deleted and created again gives the same numbers again.
"""

from hashlib import sha256

from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.sections import MessageProperties, Sections
from twinbus.amqp.codec.types import Value
from twinbus.model import wire_names
from twinbus.model.paths import path_key

COPY_OF = "CopyOfMessageId"
"""An application property; named like those of dead letters. A copy of a copy keeps the id of the first original."""
PREFIX = "copy-"
DIGEST_LENGTH = 32
"""Of 64 hexadecimal digits. With the prefix it is far below the 128 characters that an id may have, whatever the
original had, and 128 bits do not meet by chance."""


def copy_id(path: str, number: int, enqueued_at: int, original: Value) -> str:
    """Always a string. The original may also be a UUID, bytes or a number: the types are told apart."""
    facts = [path_key(path).encode(), str(number).encode(), str(enqueued_at).encode(), encode_value(original)]
    # Each with its length, so that no two lists make the same bytes.
    whole = b"".join(b"%d:%s" % (len(fact), fact) for fact in facts)
    return PREFIX + sha256(whole).hexdigest()[:DIGEST_LENGTH]


def rename(front: Sections, path: str) -> None:
    """Change the sections of a message that was received from `path`: before the broker's annotations are taken away.

    One without an id gets one too: it would not be dropped, but a second copy of it would be kept.
    """
    annotations = front.message_annotations or {}
    number = int(annotations.get(wire_names.SEQUENCE_NUMBER) or 0)
    enqueued_at = int(annotations.get(wire_names.ENQUEUED_TIME) or 0)
    properties = front.properties or MessageProperties()
    original = properties.message_id
    if original is not None:
        front.application_properties = {COPY_OF: original, **(front.application_properties or {})}
    properties.message_id = copy_id(path, number, enqueued_at, original)
    front.properties = properties
