"""The rules of one subscription, of which it may have a hundred thousand: one by its name, a page of them by name, and how many
filters of which kind there are, all without a look at the others.

A value: a change makes another one, which costs a copy of two tables of pointers. So whoever reads it, in any thread, sees a change
whole.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from twinbus.model.descriptions import CorrelationFilter, RuleDescription
from twinbus.model.paths import path_key


class RuleSet:
    __slots__ = ("_by_key", "_sorted_keys", "correlation_count")

    def __init__(self, rules: Iterable[RuleDescription] = ()) -> None:
        """In the order they were created. Names are told apart as paths are, without their case."""
        self._by_key = {path_key(rule.name): rule for rule in rules}
        self._sorted_keys = sorted(self._by_key)
        self.correlation_count = sum(map(_is_correlation, self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[RuleDescription]:
        """In the order they were created."""
        return iter(self._by_key.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleSet) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self._sorted_keys))

    def find(self, name: str) -> RuleDescription | None:
        return self._by_key.get(path_key(name))

    def page(self, skip: int, top: int) -> list[RuleDescription]:
        """By name."""
        return [self._by_key[key] for key in self._sorted_keys[skip : skip + top]]

    def with_rule(self, rule: RuleDescription) -> "RuleSet":
        """At the place of the one that has its name, or as the last one."""
        key, before, changed = path_key(rule.name), self.find(rule.name), self._copy()
        if before is None:
            insort(changed._sorted_keys, key)
        else:
            changed.correlation_count -= _is_correlation(before)
        changed._by_key[key] = rule
        changed.correlation_count += _is_correlation(rule)
        return changed

    def without(self, name: str) -> "RuleSet":
        """KeyError if there is none of this name."""
        key, changed = path_key(name), self._copy()
        changed.correlation_count -= _is_correlation(changed._by_key.pop(key))
        del changed._sorted_keys[bisect_left(changed._sorted_keys, key)]
        return changed

    def _copy(self) -> "RuleSet":
        copy = RuleSet()
        copy._by_key, copy._sorted_keys = self._by_key.copy(), self._sorted_keys.copy()
        copy.correlation_count = self.correlation_count
        return copy


def is_same_rule(one: RuleDescription | None, other: RuleDescription | None) -> bool:
    # Not by equality alone: 1 equals True, and filters tell them apart.
    return one is other or (one == other and repr(one) == repr(other))


def _is_correlation(rule: RuleDescription) -> bool:
    return isinstance(rule.filter, CorrelationFilter)


NO_RULES = RuleSet()
