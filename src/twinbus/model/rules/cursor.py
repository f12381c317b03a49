"""A place in a list of tokens: what comes next, and the complaint when it is something else."""

from typing import NoReturn

from twinbus.model.rules.lexer import Token, TokenKind, syntax_error, tokens


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
