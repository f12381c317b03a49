"""All rules of one topic: a message's view in, the copies that its subscriptions get out.

Contract A16: the rules of a subscription without action count as one, joined by OR, and give one
copy; each matching rule with an action gives a copy of its own. A filter that cannot be evaluated
is reported beside the copies, and the broker decides about dead-lettering.

    always     true filters: their copies are kept ready, a message costs one copy of a list
    lookup     filters with conditions: found by hash
    scanned    SQL filters without: evaluated on every message, each distinct text once
"""

from collections import Counter
from collections.abc import Hashable, Iterator, KeysView
from typing import Generic, NamedTuple, TypeVar
from uuid import uuid4

from twinbus.errors import ArgumentError, EntityAlreadyExists, EntityNotFound, FilterError, QuotaExceeded
from twinbus.model.descriptions import CorrelationFilter, RuleDescription, SqlFilter
from twinbus.model.paths import path_key
from twinbus.model.rules.actions import CompiledAction
from twinbus.model.rules.compiled import CompiledRule, Reach, compile_rule, faulty_rule
from twinbus.model.rules.compiler import NewIdSource
from twinbus.model.rules.evaluation import Test
from twinbus.model.rules.lookup import ConditionLookup
from twinbus.model.rules.view import FilterView

SQL_FILTER_COUNT_MAX = 2_000
CORRELATION_FILTER_COUNT_MAX = 100_000
UNFILED_TOGETHER = 1_000
"""Rules of a subscription that is gone, in one step: some milliseconds."""

S = TypeVar("S", bound=Hashable)


class Copy(NamedTuple, Generic[S]):
    """One copy of a message for one subscription; `action`, if there is one, makes its content."""

    subscription: S
    action: CompiledAction | None


class Failure(NamedTuple, Generic[S]):
    subscription: S
    rule_name: str
    error: FilterError


class Matches(NamedTuple, Generic[S]):
    copies: list[Copy[S]]
    failures: list[Failure[S]]  # at most one for a subscription


class _Entry(Generic[S]):
    """A rule at its subscription."""

    __slots__ = ("copy", "rule")

    def __init__(self, subscription: S, rule: CompiledRule) -> None:
        self.rule = rule
        self.copy = Copy(subscription, rule.action)


class _Scanned(Generic[S]):
    """A test and all rules whose filter has the same text and parameters, with their copies kept ready."""

    __slots__ = ("acting", "entries", "plain", "test")

    def __init__(self, test: Test) -> None:
        self.test = test
        self.entries: dict[_Entry[S], None] = {}
        self.plain: dict[S, Copy[S]] = {}
        self.acting: list[Copy[S]] = []

    def add(self, entry: _Entry[S]) -> None:
        self.entries[entry] = None
        if entry.copy.action is None:
            self.plain[entry.copy.subscription] = entry.copy
        else:
            self.acting.append(entry.copy)

    def remove(self, entry: _Entry[S]) -> None:
        del self.entries[entry]
        if entry.copy.action is not None:
            self.acting.remove(entry.copy)
        elif all(other.copy != entry.copy for other in self.entries):
            del self.plain[entry.copy.subscription]


class RuleIndex(Generic[S]):
    """The rules of a topic by subscription, kept for matching. Rule names are case-insensitive."""

    def __init__(self, new_id: NewIdSource = uuid4) -> None:
        self._new_id = new_id
        self._rules: dict[S, dict[str, _Entry[S]]] = {}
        self._always: dict[_Entry[S], None] = {}
        self._always_copies: list[Copy[S]] | None = []  # None: has to be made again from `_always`
        self._always_plain: KeysView[S] = {}.keys()
        self._lookup: ConditionLookup[_Entry[S]] = ConditionLookup()
        self._scanned: dict[tuple[str, str], _Scanned[S]] = {}
        self.acting_count = 0  # rules with an action
        self.sql_filter_count = 0
        self.correlation_filter_count = 0

    @property
    def scanned_count(self) -> int:
        """Filters that are evaluated on every message."""
        return len(self._scanned)

    # Rules

    def rules(self, subscription: S) -> list[RuleDescription]:
        """In the order of adding."""
        return [entry.rule.description for entry in self._rules.get(subscription, {}).values()]

    def add_rule(self, subscription: S, description: RuleDescription) -> None:
        """All or nothing. ArgumentError as `compile_rule`; EntityAlreadyExists; QuotaExceeded at a topic's limits."""
        self._add(subscription, compile_rule(description, self._new_id))

    def restore_rule(self, subscription: S, description: RuleDescription) -> ArgumentError | None:
        """As `add_rule`, for a rule that exists already: one that does not compile matches nothing, and why is returned."""
        try:
            self._add(subscription, compile_rule(description, self._new_id))
        except ArgumentError as error:
            self._add(subscription, faulty_rule(description, str(error)))
            return error
        return None

    def _add(self, subscription: S, rule: CompiledRule) -> None:
        description = rule.description
        rules = self._rules.get(subscription, {})
        if path_key(description.name) in rules:
            raise EntityAlreadyExists(
                f"The subscription has a rule '{description.name}'. Remove it first, or choose another name."
            )
        self._count(description, +1)
        entry = _Entry(subscription, rule)
        self._rules.setdefault(subscription, rules)[path_key(description.name)] = entry
        self._file(entry)

    def remove_rule(self, subscription: S, name: str) -> None:
        """EntityNotFound if the subscription has no such rule."""
        rules = self._rules.get(subscription, {})
        entry = rules.pop(path_key(name), None)
        if entry is None:
            raise EntityNotFound(f"The subscription has no rule '{name}'. Check the spelling of its name.")
        if not rules:
            del self._rules[subscription]
        self._count(entry.rule.description, -1)
        self._unfile(entry)

    def remove_subscription(self, subscription: S) -> Iterator[None]:
        """With all its rules; nothing if it has none. At once they are no longer listed and count no longer, and to take them out
        of the tables for matching is the iteration's, which may be interrupted at each step: until then they match."""
        entries = list(self._rules.pop(subscription, {}).values())
        by_kind = {type(entry.rule.description.filter): entry.rule.description for entry in entries}
        counts = Counter([type(entry.rule.description.filter) for entry in entries])
        for kind, description in by_kind.items():
            self._count(description, -counts[kind])
        return self._unfile_in_steps(entries)

    def _unfile_in_steps(self, entries: list[_Entry[S]]) -> Iterator[None]:
        for place, entry in enumerate(entries, 1):
            self._unfile(entry)
            if place % UNFILED_TOGETHER == 0:
                yield

    def _count(self, description: RuleDescription, change: int) -> None:
        if isinstance(description.filter, SqlFilter):
            _check_limit("SQL", self.sql_filter_count + change, SQL_FILTER_COUNT_MAX)
            self.sql_filter_count += change
        elif isinstance(description.filter, CorrelationFilter):
            _check_limit("correlation", self.correlation_filter_count + change, CORRELATION_FILTER_COUNT_MAX)
            self.correlation_filter_count += change

    def _file(self, entry: _Entry[S]) -> None:
        rule = entry.rule
        self.acting_count += rule.action is not None
        if rule.reach is Reach.ALL:
            self._always[entry] = None
            self._always_copies = None
        elif rule.conditions:
            self._lookup.add(rule.conditions, entry)
        elif rule.test is not None:
            self._scanned.setdefault(_scan_key(rule), _Scanned(rule.test)).add(entry)

    def _unfile(self, entry: _Entry[S]) -> None:
        rule = entry.rule
        self.acting_count -= rule.action is not None
        if rule.reach is Reach.ALL:
            del self._always[entry]
            self._always_copies = None
        elif rule.conditions:
            self._lookup.remove(rule.conditions, entry)
        elif rule.test is not None:
            scanned = self._scanned[_scan_key(rule)]
            scanned.remove(entry)
            if not scanned.entries:
                del self._scanned[_scan_key(rule)]

    # Matching

    def match(self, view: FilterView) -> Matches[S]:
        """The copies in no particular order of subscriptions."""
        if self._always_copies is None:
            self._collect_always()
        assert self._always_copies is not None
        copies = self._always_copies.copy()
        plain: dict[S, Copy[S]] = {}
        failures: list[Failure[S]] = []
        if self._lookup:
            self._look_up(view, plain, copies)
        if self._scanned:
            self._scan(view, plain, copies, failures)
        if plain:
            for subscription in plain.keys() & self._always_plain:
                del plain[subscription]
            copies += plain.values()
        return Matches(copies, failures)

    def _look_up(self, view: FilterView, plain: dict[S, Copy[S]], copies: list[Copy[S]]) -> None:
        for entry in self._lookup.found(view):
            # A test behind conditions cannot fail, or it would not be behind conditions.
            if entry.rule.test is None or entry.rule.test(view):
                copy = entry.copy
                if copy.action is None:
                    plain[copy.subscription] = copy
                else:
                    copies.append(copy)

    def _scan(
        self, view: FilterView, plain: dict[S, Copy[S]], copies: list[Copy[S]], failures: list[Failure[S]]
    ) -> None:
        failed: set[S] = set()
        for scanned in self._scanned.values():
            try:
                if scanned.test(view):
                    plain.update(scanned.plain)
                    copies += scanned.acting
            except FilterError as error:
                for entry in scanned.entries:
                    subscription = entry.copy.subscription
                    if subscription not in failed:
                        failed.add(subscription)
                        failures.append(Failure(subscription, entry.rule.name, error))

    def _collect_always(self) -> None:
        plain = {entry.copy.subscription: entry.copy for entry in self._always if entry.rule.action is None}
        acting = [entry.copy for entry in self._always if entry.rule.action is not None]
        self._always_plain = plain.keys()
        self._always_copies = [*plain.values(), *acting]


def _scan_key(rule: CompiledRule) -> tuple[str, str]:
    if rule.fault:
        # Apart from all others, also where its filter alone is good.
        return "", f"{rule.name}: {rule.fault}"
    described = rule.description.filter
    assert isinstance(described, SqlFilter)
    # By repr: 1, 1.0 and True are equal to Python and not to a filter.
    return described.expression, repr(described.parameters)


def _check_limit(kind: str, count: int, count_max: int) -> None:
    if count > count_max:
        raise QuotaExceeded(
            f"The topic has {count_max} {kind} filters, which is the limit. Remove rules, or use another topic."
        )
