"""Text of a filter or action in, tokens out.

    name        letter, then letters, digits, underscores      delimited   [any ]] text]  "any "" text"
    string      'any '' text'                                   parameter   @name
    integer     digits, at most 2**63                           number      1.5  .5  1e5

Every token carries its position, counted from 0; error texts count from 1. Keywords are reserved
in any case of letters, so a property of such a name has to be delimited.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

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
