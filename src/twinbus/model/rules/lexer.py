"""Text of a filter or action in, tokens out, and a cursor that moves over them.

    name        letter, then letters, digits, underscores      delimited   [any ]] text]  "any "" text"
    string      'any '' text'                                   parameter   @name
    integer     digits, at most 2**63                           number      1.5  .5  1e5

Every token carries its position, counted from 0; error texts count from 1. Keywords are reserved
in any case of letters, so a property of such a name has to be delimited.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, NoReturn

from twinbus.errors import ArgumentError

KEYWORDS = frozenset(
    ("AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "ESCAPE", "EXISTS", "TRUE", "FALSE", "SET", "REMOVE")
)
EXCERPT_LENGTH = 20


class TokenKind(Enum):
    NAME = "a name"
    DELIMITED = "a delimited name"
    PARAMETER = "a parameter"
    STRING = "a string"
    INTEGER = "an integer"
    NUMBER = "a number"
    KEYWORD = "a keyword"
    SYMBOL = "a symbol"
    END = "the end"


class Token(NamedTuple):
    kind: TokenKind
    text: str  # keywords in capitals; names, strings and parameters without their delimiters
    position: int


# A letter is what Unicode calls one: a word character that is neither digit nor underscore.
_NAME = r"[^\W\d_]\w*"
_TOKEN = re.compile(
    rf"""(?P<SPACE>\s+)
    | (?P<NAME>{_NAME})
    | (?P<NUMBER>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    | (?P<INTEGER>[0-9]+)
    | '(?P<STRING>(?:[^']|'')*)'
    | \[(?P<BRACKETED>(?:[^\]]|\]\])*)\]
    | "(?P<QUOTED>(?:[^"]|"")*)"
    | @(?P<PARAMETER>(?:{_NAME}|_\w*))
    | (?P<SYMBOL><>|!=|<=|>=|[=<>+\-*/%(),.;])
    """,
    re.VERBOSE,
)
_UNCLOSED = {"'": "a closing '", "[": "a closing ]", '"': 'a closing "', "@": "the name of a parameter after @"}


def tokens(text: str) -> list[Token]:
    """All tokens of the text and an END token; ArgumentError where no token can start."""
    found: list[Token] = []
    position = 0
    while position < len(text):
        matched = _TOKEN.match(text, position)
        if matched is None:
            raise _no_token(text, position)
        group = matched.lastgroup
        assert group is not None
        if group != "SPACE":
            found.append(_token(group, matched[group], position))
        position = matched.end()
    found.append(Token(TokenKind.END, "", len(text)))
    return found


def _token(group: str, text: str, position: int) -> Token:
    if group == "NAME" and text.upper() in KEYWORDS:
        return Token(TokenKind.KEYWORD, text.upper(), position)
    kind, unwrap = _READINGS[group]
    return Token(kind, unwrap(text), position)


def _same(text: str) -> str:
    return text


_READINGS: dict[str, tuple[TokenKind, Callable[[str], str]]] = {
    "NAME": (TokenKind.NAME, _same),
    "NUMBER": (TokenKind.NUMBER, _same),
    "INTEGER": (TokenKind.INTEGER, _same),
    "STRING": (TokenKind.STRING, lambda text: text.replace("''", "'")),
    "BRACKETED": (TokenKind.DELIMITED, lambda text: text.replace("]]", "]")),
    "QUOTED": (TokenKind.DELIMITED, lambda text: text.replace('""', '"')),
    "PARAMETER": (TokenKind.PARAMETER, _same),
    "SYMBOL": (TokenKind.SYMBOL, _same),
}


def syntax_error(text: str, position: int, problem: str) -> ArgumentError:
    """The one form of every complaint about a text: where, what the text has there, what is wrong."""
    excerpt = text[position : position + EXCERPT_LENGTH]
    place = f"before '{excerpt}'" if excerpt else "at the end"
    return ArgumentError(f"The expression is not valid at position {position + 1}, {place}: {problem}.")


def _no_token(text: str, position: int) -> ArgumentError:
    character = text[position]
    if character in _UNCLOSED:
        return syntax_error(text, position, f"expected {_UNCLOSED[character]}")
    return syntax_error(
        text, position, f"'{character}' cannot start a name, value or operator; put names with it between [ and ]"
    )


class TokenCursor:
    """Moves over the tokens of one text, from the first to the END token and never past it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._index = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._index]

    @property
    def after_next(self) -> Token:
        """Only to be asked while `next` is not the END token."""
        return self._tokens[self._index + 1]

    def at_end(self) -> bool:
        return self.next.kind is TokenKind.END

    def advance(self) -> Token:
        token = self.next
        assert token.kind is not TokenKind.END
        self._index += 1
        return token

    def is_next(self, kind: TokenKind, *texts: str) -> bool:
        return self.next.kind is kind and self.next.text in texts

    def take(self, kind: TokenKind, *texts: str) -> Token | None:
        """The next token if it is one of these, and then it is consumed."""
        return self.advance() if self.is_next(kind, *texts) else None

    def expect(self, kind: TokenKind, text: str) -> Token:
        return self.take(kind, text) or self.expected(f"'{text}'")

    def expected(self, what: str) -> NoReturn:
        found = "nothing more" if self.at_end() else f"'{self.next.text}'"
        self.fail(f"expected {what}, found {found}")

    def fail(self, problem: str, position: int | None = None) -> NoReturn:
        """At the next token, where no other position is given."""
        raise syntax_error(self._text, self.next.position if position is None else position, problem)
