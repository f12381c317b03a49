"""How far a run reads that ends by itself: heads at its start in, numbers to end before out, and at its end one error if
there was something that it could not read.

A continuous query reads an unavailable fragment later. A run that ends claims that everything was read:
it reads what it can, and fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from twinbus.pipeline.source.entity_access import EntityAccess, Head
from twinbus.pipeline.source.live_entity import SourceUnavailable
from twinbus.pipeline.source.offsets import Positions
from twinbus.pipeline.source.options import SourceOptions
from twinbus.pipeline.source.starting_points import chosen_heads


@dataclass(frozen=True, slots=True)
class RunTarget:
    """`firsts` and `ends` are by fragment, and alike where one is empty; `unknown` are those that were unavailable when the run
    started."""

    path: str
    firsts: Positions
    ends: Positions
    unknown: frozenset[int]

    @classmethod
    async def of(cls, access: EntityAccess, options: SourceOptions) -> "RunTarget":
        heads = await chosen_heads(access, options)
        known = [head for head in heads if head.is_available]
        return cls(
            access.path,
            {head.fragment: head.first for head in known},
            {head.fragment: head.end for head in known},
            frozenset(head.fragment for head in heads if not head.is_available),
        )

    def require_read(self, heads: Sequence[Head], reached: Positions) -> None:
        """To be asked when nothing more is found. Raises SourceUnavailable."""
        lost = {head.fragment for head in heads if not head.is_available}
        left = self.unknown | {
            fragment
            for fragment, end in self.ends.items()
            if fragment in lost and reached.get(fragment, self.firsts[fragment]) < end
        }
        if left:
            raise SourceUnavailable(
                f"Fragments {', '.join(map(str, sorted(left)))} of '{self.path}' do not answer, or did not when the run"
                " started, so they were not read. Everything else was; start the query again later."
            )
