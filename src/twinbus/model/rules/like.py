"""LIKE patterns: `%` is any text, `_` any one character, everything else itself.

A pattern is cut at its `%` into pieces. The first has to start the text and the last has to end
it; of those between, each is looked for after the one before it. Taking the leftmost place is
always right, because it leaves the most text for the rest. So the cost is length of text times
length of pattern at worst, where backtracking would be exponential, and patterns come from clients.
"""

import re
from collections.abc import Callable

from twinbus.errors import ArgumentError

Matcher = Callable[[str], bool]


def like_matcher(pattern: str, escape: str | None) -> Matcher:
    """ArgumentError if the escape is not one character, or the pattern ends with it."""
    pieces = [_Piece(characters) for characters in _cut(pattern, escape)]
    if len(pieces) == 1:
        return _whole(pieces[0])
    return _spread(pieces[0], pieces[1:-1], pieces[-1])


# A piece as its characters; None stands for `_`.
_Characters = list[str | None]


def _cut(pattern: str, escape: str | None) -> list[_Characters]:
    if escape is not None and len(escape) != 1:
        raise ArgumentError(f"ESCAPE needs one character, and '{escape[:20]}' has {len(escape)}.")
    pieces: list[_Characters] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ArgumentError(
                    f"The LIKE pattern ends with its escape character '{escape}'; double it or omit it."
                )
            pieces[-1].append(escaped)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    return pieces


class _Piece:
    """Consecutive characters of a pattern, some of which may be open."""

    __slots__ = ("expression", "length", "literal")

    def __init__(self, characters: _Characters) -> None:
        self.length = len(characters)
        self.literal = None if None in characters else "".join(character or "" for character in characters)
        source = "".join("." if character is None else re.escape(character) for character in characters)
        self.expression = re.compile(source, re.DOTALL)

    def is_at(self, text: str, start: int) -> bool:
        if self.literal is not None:
            return text.startswith(self.literal, start)
        return self.expression.match(text, start) is not None

    def end_after(self, text: str, start: int, end: int) -> int:
        """Where the leftmost occurrence between start and end stops; -1 if there is none."""
        if self.literal is not None:
            found = text.find(self.literal, start, end)
            return found if found < 0 else found + self.length
        matched = self.expression.search(text, start, end)
        return -1 if matched is None else matched.end()


def _whole(piece: _Piece) -> Matcher:
    literal = piece.literal
    if literal is not None:
        return lambda text: text == literal
    return lambda text: len(text) == piece.length and piece.is_at(text, 0)


def _spread(first: _Piece, middle: list[_Piece], last: _Piece) -> Matcher:
    length_min = first.length + last.length
    searched = [piece for piece in middle if piece.length]

    def matches(text: str) -> bool:
        end = len(text) - last.length
        if len(text) < length_min or not first.is_at(text, 0) or not last.is_at(text, end):
            return False
        position = first.length
        for piece in searched:
            position = piece.end_after(text, position, end)
            if position < 0:
                return False
        return True

    return matches
