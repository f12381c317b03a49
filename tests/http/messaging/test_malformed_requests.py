"""Whatever is sent to the messaging API, the answer is one of its own: never a 500."""

import json
from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.interop.running_server import RunningServer

WORDS = st.sampled_from(
    ["", "x", "i" * 129, "\ud800", "1e999", "Sun, 06 Nov 1994 08:49:37 GMT", "-1.00:00:00", "99:99:99"]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
BROKER_NAMES = st.sampled_from(
    ["MessageId", "SessionId", "PartitionKey", "TimeToLive", "TimeToLiveTimeSpan", "ScheduledEnqueueTimeUtc", "Label"]
)
BROKER = st.dictionaries(BROKER_NAMES, JSON_VALUES, max_size=3)
ELEMENTS = st.fixed_dictionaries(
    {},
    optional={
        "Body": JSON_VALUES,
        "BrokerProperties": BROKER | JSON_VALUES,
        "UserProperties": JSON_VALUES,
        "IsBodyBase64": st.booleans(),
        "ContentType": JSON_VALUES,
    },
)
BODIES = (
    st.binary(max_size=60)
    | st.builds(lambda value: json.dumps(value).encode(), st.lists(ELEMENTS, max_size=3) | JSON_VALUES)
    | st.just(b"[" * 5_000)
    | st.just(b"9" * 5_000)
)
RAW = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=20).map(
    lambda text: text.strip().encode("latin-1")
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "content-type": st.just(b"application/vnd.microsoft.servicebus.json") | RAW,
        "brokerproperties": BROKER.map(lambda value: json.dumps(value).encode()) | RAW,
        "custom": RAW | JSON_VALUES.map(lambda value: json.dumps(value).encode()),
    },
)
PLACES = st.sampled_from(
    [
        "messages",
        "messages/head",
        "messages/head?timeout=0",
        "messages/head?timeout=",
        "messages/x/00000000-0000-0000-0000-000000000000",
        "messages/x/ff000000-0000-0000-0000-000000000000",
        "messages/x/y",
        "$deadletterqueue/messages",
        "$management/messages",
        "subscriptions/s/messages",
        "messages/messages",
    ]
)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    method=st.sampled_from(["POST", "POST", "DELETE", "PUT"]),
    entity=st.sampled_from(["junk", "junk-topic", "$cbs", "none"]) | st.text(max_size=8),
    place=PLACES,
    headers=HEADERS,
    body=BODIES,
)
def test_no_request_ends_in_a_server_error(
    server: RunningServer,
    http: httpx.Client,
    method: str,
    entity: str,
    place: str,
    headers: dict[str, bytes],
    body: bytes,
) -> None:
    if server.server.catalog.find("junk") is None:
        server.create_queue("junk", enable_partitioning=True)
        server.create_topic("junk-topic", "s")
    # A queue that holds something answers at once, and no example waits.
    http.post("/junk/messages", content=b"x")
    target = "/" + quote(entity, safe="/$", errors="replace") + "/" + place
    if "head" in place and "timeout=0" not in place:
        target += "&timeout=0" if "?" in place else "?timeout=0"
    raw = [(name.encode(), value) for name, value in headers.items()]
    answer = http.request(method, target, content=body, headers=raw)
    assert answer.status_code < 500, answer.text
