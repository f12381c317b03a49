"""Authorization rules of an entity as XML, both ways. A key that is left out is drawn by the caller's `new_key`."""

from collections.abc import Callable

from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.http.atom.xml_reader import Element
from twinbus.http.atom.xml_writer import attribute, leaf, node
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.model.iso8601 import write_time

RIGHTS_ORDER = (Right.MANAGE, Right.SEND, Right.LISTEN)


def write_access_rules(rules: tuple[AuthorizationRule, ...]) -> str:
    return node("AuthorizationRules", "".join(_write_access_rule(rule) for rule in rules))


def read_access_rules(element: Element, now: Millis, new_key: Callable[[], str]) -> tuple[AuthorizationRule, ...]:
    return tuple(_read_access_rule(child, now, new_key) for child in element.children)


def _write_access_rule(rule: AuthorizationRule) -> str:
    rights = "".join(leaf("AccessRights", right.value) for right in RIGHTS_ORDER if right in rule.rights)
    content = [
        leaf("ClaimType", "SharedAccessKey"),
        leaf("ClaimValue", "None"),
        node("Rights", rights),
        leaf("CreatedTime", write_time(rule.created_at)),
        leaf("ModifiedTime", write_time(rule.modified_at)),
        leaf("KeyName", rule.name),
        leaf("PrimaryKey", rule.primary_key),
        leaf("SecondaryKey", rule.secondary_key),
    ]
    return node("AuthorizationRule", "".join(content), attribute("i:type", "SharedAccessAuthorizationRule"))


def _read_access_rule(element: Element, now: Millis, new_key: Callable[[], str]) -> AuthorizationRule:
    rights = element.child("Rights")
    return AuthorizationRule(
        name=element.text_of("KeyName") or "",
        primary_key=element.text_of("PrimaryKey") or new_key(),
        secondary_key=element.text_of("SecondaryKey") or new_key(),
        rights=frozenset(_read_right(child.text.strip()) for child in (rights.children if rights else ())),
        created_at=now,
        modified_at=now,
    )


def _read_right(text: str) -> Right:
    try:
        return Right(text)
    except ValueError:
        raise ArgumentError(f"'{text[:64]}' is no right. Use Send, Listen or Manage.") from None
