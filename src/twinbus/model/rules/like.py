"""LIKE patterns: `%` is any text, `_` any one character, everything else itself.

A pattern is cut at its `%` into pieces. The first has to start the text and the last has to end
it; of those between, each is looked for after the one before it. Taking the leftmost place is
always right, because it leaves the most text for the rest. Nothing is tried twice, where backtracking
would be exponential, and patterns come from clients.

A piece is looked for without the `_` at its ends, which only have to have room. If it has some inside,
a number has a bit for each beginning of the piece that ends at the current character (Shift-And): a step
of the text costs a few operations on that number, and not one comparison for each character of the piece.
"""

import re
from collections.abc import Callable

from twinbus.errors import ArgumentError

Matcher = Callable[[str], bool]

STEPS_FEW = 50_000
"""Comparisons that a regular expression may need at worst: so few are faster than anything else."""


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

    __slots__ = ("_core", "_expression", "_left", "_masks", "_open", "_right", "length", "literal")

    def __init__(self, characters: _Characters) -> None:
        self.length = len(characters)
        self.literal = None if None in characters else "".join(character or "" for character in characters)
        left = next((index for index, character in enumerate(characters) if character is not None), self.length)
        right = next((index for index, character in enumerate(reversed(characters)) if character is not None), 0)
        self._left, self._right = left, right
        self._core = characters[left : self.length - right]
        # Made when they are needed: a pattern that comes with a message may have thousands of pieces.
        self._expression: re.Pattern[str] | None = None
        self._masks: dict[str, int] | None = None
        self._open = 0

    def is_at(self, text: str, start: int) -> bool:
        """There have to be as many characters as it has."""
        if self.literal is not None:
            return text.startswith(self.literal, start)
        start += self._left
        return all(character is None or text[start + index] == character for index, character in enumerate(self._core))

    def end_after(self, text: str, start: int, end: int) -> int:
        """Where the leftmost occurrence between start and end stops; -1 if there is none."""
        start, end = start + self._left, end - self._right
        if self.literal is not None or None not in self._core:
            literal = self.literal if self.literal is not None else "".join(map(str, self._core))
            found = text.find(literal, start, end) if start <= end else -1
            return found if found < 0 else found + len(literal) + self._right
        if (end - start) * len(self._core) <= STEPS_FEW:
            if self._expression is None:
                self._expression = re.compile(
                    "".join("." if character is None else re.escape(character) for character in self._core), re.DOTALL
                )
            matched = self._expression.search(text, start, end)
            found_end = -1 if matched is None else matched.end()
        else:
            found_end = self._searched(text, start, end)
        return found_end if found_end < 0 else found_end + self._right

    def _searched(self, text: str, start: int, end: int) -> int:
        if self._masks is None:
            self._masks = {}
            for index, character in enumerate(self._core):
                if character is None:
                    self._open |= 1 << index
                else:
                    self._masks[character] = self._masks.get(character, 0) | 1 << index
        masks, is_open, last = self._masks, self._open, 1 << len(self._core) - 1
        state = 0
        for position in range(start, end):
            state = (state << 1 | 1) & (masks.get(text[position], 0) | is_open)
            if state & last:
                return position + 1
        return -1


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
