"""Whether a rule of a subscription may be: ArgumentError says what to write instead.

A rule is compiled here as the brokers will compile it, so that one which exists also works: the catalog keeps it for good,
and brokers meet it again at every start.
"""

from twinbus.errors import ArgumentError
from twinbus.model.descriptions import CorrelationFilter, RuleDescription, SqlAction, SqlFilter
from twinbus.model.paths import check_subscription_name
from twinbus.model.rules.compiled import compile_rule

DEFAULT_RULE_NAME = "$Default"
TEXT_LENGTH_MAX = 1_024
PAIRS_MAX = 64
PAIR_NAME_LENGTH_MAX = 128


def check_rule(rule: RuleDescription) -> None:
    if rule.name != DEFAULT_RULE_NAME:
        check_subscription_name(rule.name, "rule")
    if isinstance(rule.filter, SqlFilter):
        _check_pairs(rule.filter.parameters, "parameters")
    if isinstance(rule.filter, CorrelationFilter):
        _check_correlation(rule.filter)
    if isinstance(rule.action, SqlAction):
        _check_pairs(rule.action.parameters, "parameters")
    compile_rule(rule)


def _check_correlation(chosen: CorrelationFilter) -> None:
    texts = (
        chosen.correlation_id,
        chosen.message_id,
        chosen.to,
        chosen.reply_to,
        chosen.label,
        chosen.session_id,
        chosen.reply_to_session_id,
        chosen.content_type,
    )
    if not chosen.properties and all(text is None for text in texts):
        raise ArgumentError("The correlation filter compares nothing. Set a field or a property, or use a true filter.")
    if any(len(text or "") > TEXT_LENGTH_MAX for text in texts):
        raise ArgumentError(
            f"A field of the correlation filter is longer than {TEXT_LENGTH_MAX} characters. Shorten it."
        )
    _check_pairs(chosen.properties, "properties")


def _check_pairs(pairs: tuple[tuple[str, object], ...], what: str) -> None:
    if len(pairs) > PAIRS_MAX:
        raise ArgumentError(f"The rule has {len(pairs)} {what}; at most {PAIRS_MAX} are allowed.")
    if any(not 1 <= len(name) <= PAIR_NAME_LENGTH_MAX for name, _ in pairs):
        raise ArgumentError(f"The names of {what} have 1 to {PAIR_NAME_LENGTH_MAX} characters.")
    if any(len(value) > TEXT_LENGTH_MAX for _, value in pairs if isinstance(value, str)):
        raise ArgumentError(f"A value among the {what} is longer than {TEXT_LENGTH_MAX} characters. Shorten it.")
