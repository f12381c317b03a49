"""XML from strangers: bytes in, a tree out, or ArgumentError.

Document type declarations are refused, and with them everything that makes parsing cost more than the text is long.
Only local names are kept, since every SDK has its own namespace prefixes.
"""

from dataclasses import dataclass, field
from xml.parsers import expat

from twinbus.errors import ArgumentError

DEPTH_MAX = 32
ELEMENT_COUNT_MAX = 10_000
SEPARATOR = " "  # cannot be part of a name or of a namespace URI


@dataclass(slots=True)
class Element:
    name: str
    attributes: dict[str, str]
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    def child(self, name: str) -> "Element | None":
        return next((child for child in self.children if child.name == name), None)

    def text_of(self, name: str) -> str | None:
        """The text of a child; None if it is absent or empty, which mean the same (unset)."""
        found = self.child(name)
        return (found.text.strip() or None) if found is not None else None

    def whole_text_of(self, name: str) -> str | None:
        """As `text_of`, with the spaces around it: they matter where texts are compared."""
        found = self.child(name)
        return found.text if found is not None and found.text.strip() else None

    @property
    def type_name(self) -> str:
        """The value of `i:type` without its prefix."""
        return self.attributes.get("type", "").rpartition(":")[2]


class _Refused(Exception):
    """Ends the parser from within a handler; the text is for the caller."""


@dataclass(slots=True)
class _Builder:
    root: Element | None = None
    open: list[Element] = field(default_factory=list)
    element_count: int = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.element_count += 1
        if len(self.open) >= DEPTH_MAX or self.element_count > ELEMENT_COUNT_MAX:
            raise _Refused("it is nested too deeply or has too many elements")
        element = Element(_local(name), {_local(key): value for key, value in attributes.items()})
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def end(self, _: str) -> None:
        self.open.pop()

    def data(self, text: str) -> None:
        self.open[-1].text += text

    def refuse_doctype(self, *_: object) -> None:
        raise _Refused("it declares a document type; omit that")


def parse_xml(body: bytes) -> Element:
    builder = _Builder()
    parser = expat.ParserCreate(namespace_separator=SEPARATOR)
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = builder.refuse_doctype
    try:
        parser.Parse(body, True)
    except _Refused as reason:
        raise ArgumentError(f"The body of the request is refused: {reason}.") from None
    except (expat.ExpatError, ValueError, LookupError) as fault:
        raise ArgumentError(f"The body of the request is not well-formed XML: {fault}. Send an Atom entry.") from None
    assert builder.root is not None
    return builder.root


def _local(name: str) -> str:
    return name.rpartition(SEPARATOR)[2]
