"""Whatever a caller sends, the answer is one of ours: never a 500, never a traceback."""

from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.http.administration.conftest import token
from tests.http.administration.test_administration import entry
from twinbus.http.administration.administration_api import AdministrationApi

NAMES = st.sampled_from(
    [
        "q",
        "t",
        "t/subscriptions/s",
        "t/subscriptions/s/rules/r",
        "$Resources/queues",
        "$namespaceinfo",
        "$resources",
        "",
    ]
) | st.text(max_size=20)
ELEMENTS = st.sampled_from(
    [
        "LockDuration",
        "MaxSizeInMegabytes",
        "RequiresSession",
        "EnablePartitioning",
        "ForwardTo",
        "Status",
        "AuthorizationRules",
        "DefaultRuleDescription",
        "UserMetadata",
        "MaxMessageSizeInKilobytes",
        "MaxDeliveryCount",
    ]
)
WORDS = st.sampled_from(
    ["", "true", "1024", "PT1M", "-1", "P", "Active", "sb://h/q", "<Filter/>", "99999999999999999999"]
)
KINDS = st.sampled_from(["QueueDescription", "TopicDescription", "SubscriptionDescription", "RuleDescription", "Other"])
FILTERS = st.sampled_from(["SqlFilter", "CorrelationFilter", "TrueFilter", "", "x:y:z"]).map(
    lambda kind: (
        f'<Filter i:type="{kind}"><SqlExpression>a=</SqlExpression><Properties><K><Key>k</Key></K></Properties></Filter>'
    )
)
FIELDS = st.lists(
    st.tuples(ELEMENTS, WORDS).map(lambda pair: f"<{pair[0]}>{pair[1]}</{pair[0]}>") | FILTERS, max_size=4
)
BODIES = (
    st.binary(max_size=100)
    | st.text(max_size=100).map(lambda text: text.encode(errors="replace"))
    | st.builds(lambda kind, fields: entry(kind, "".join(fields)).encode(), KINDS, FIELDS)
)
QUERIES = st.sampled_from(["", "api-version=2024-05", "api-version=x", "$skip=x", "$skip=-5&$top=0", "%ff=%00"])
HEADERS = st.fixed_dictionaries(
    {"authorization": st.sampled_from([token(), token("q"), "x", ""])},
    optional={"if-match": st.sampled_from(["*", '"1"', "junk", ""]), "content-type": st.just("application/json")},
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    method=st.sampled_from(["GET", "PUT", "PUT", "DELETE", "POST", "HEAD"]),
    path=NAMES,
    query=QUERIES,
    body=BODIES,
    headers=HEADERS,
)
def test_no_request_ends_in_a_server_error(
    api: AdministrationApi, method: str, path: str, query: str, body: bytes, headers: dict[str, Any]
) -> None:
    client = TestClient(api)
    target = "/" + quote(path, safe="/$", errors="replace") + ("?" + query if query else "")
    answer = client.request(method, target, content=body, headers=headers)
    assert answer.status_code < 500, answer.text
