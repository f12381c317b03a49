"""Spans of a namespace, with OpenTelemetry's own SDK: traces of clients go on, by message and by request."""

import gzip
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Condition, Thread
from typing import Any
from urllib.request import Request, urlopen

import pytest
from azure.core.settings import settings as azure_settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan
from azure.servicebus import ServiceBusMessage
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.interop.running_server import RunningServer
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.errors import ArgumentError
from twinbus.server.tracing import OpenTelemetrySpans, spans_of

TRACE, PARENT_SPAN = 0xAF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
PARENT = f"00-{TRACE:032x}-{PARENT_SPAN:016x}-01"
WAIT_S = 60.0


class FinishedSpans(InMemorySpanExporter):
    """What was exported, and a wait for more: a client is answered before the span of its request ends."""

    def __init__(self) -> None:
        super().__init__()
        self._has_more = Condition()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._has_more:
            result = super().export(spans)
            self._has_more.notify_all()
        return result

    def named(self, name: str, is_all: Callable[[list[ReadableSpan]], object] = bool) -> list[ReadableSpan]:
        """The finished spans of this name, as soon as they are all there."""

        def found() -> list[ReadableSpan]:
            return [span for span in self.get_finished_spans() if span.name == name]

        with self._has_more:
            self._has_more.wait_for(lambda: is_all(found()), WAIT_S)
            return found()


@pytest.fixture(scope="module")
def exporter() -> FinishedSpans:
    return FinishedSpans()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, exporter: FinishedSpans) -> Iterator[RunningServer]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = OpenTelemetrySpans(provider, "interop")
    running = RunningServer(tmp_path_factory.mktemp("data"), store_count=1, spans=spans)
    running.create_queue("orders")
    yield running
    running.stop()


@pytest.fixture
def namespace(server: RunningServer, exporter: FinishedSpans) -> Iterator[BlockingNamespace]:
    with BlockingNamespace.connect(server.connection_string) as namespace:
        exporter.clear()
        yield namespace


def send_and_take(namespace: BlockingNamespace, payloads: Sequence[bytes]) -> None:
    assert not any(namespace.sender("orders").send(list(payloads)))
    receiver, count = namespace.receiver("orders"), 0
    while count < len(payloads):
        found = receiver.receive(len(payloads), 5)
        count += len(found)
        receiver.complete(found)
    receiver.close()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("name", ["traceparent", "Diagnostic-Id"])
def test_the_trace_of_a_sender_goes_on(namespace: BlockingNamespace, exporter: FinishedSpans, name: str) -> None:
    given = {name: PARENT, "tracestate": "vendor=1"}
    send_and_take(namespace, [encode_message("hello", message_id="42", application_properties=given)])
    (sent,), (delivered,) = exporter.named("send orders"), exporter.named("deliver orders")
    for span in (sent, delivered):
        assert span.context is not None
        assert span.parent is not None
        assert (span.context.trace_id, span.parent.span_id) == (TRACE, PARENT_SPAN)
        assert span.context.trace_state.get("vendor") == "1"
        assert attributes(span)["messaging.destination.name"] == "orders"
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
    assert (sent.kind, attributes(sent)["messaging.message.id"]) == (SpanKind.SERVER, "42")
    assert attributes(delivered)["messaging.servicebus.message.delivery_count"] == 0


def test_the_python_sdk_traces_a_message_through_the_namespace(server: RunningServer, exporter: FinishedSpans) -> None:
    """With its own tracing on: the span in which it sends is an ancestor of ours."""
    provider = TracerProvider(shutdown_on_exit=False)
    own = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(own))
    trace.set_tracer_provider(provider)
    azure_settings.tracing_implementation = OpenTelemetrySpan
    exporter.clear()
    try:
        with (
            server.client() as client,
            provider.get_tracer("shop").start_as_current_span("checkout") as checkout,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("hello"))
    finally:
        azure_settings.tracing_implementation = None
    (sent,) = exporter.named("send orders")
    assert sent.parent is not None
    assert sent.parent.trace_id == checkout.get_span_context().trace_id
    assert sent.parent.span_id in {each.context.span_id for each in own.get_finished_spans() if each.context}
    with server.client() as client, client.get_queue_receiver("orders", max_wait_time=5) as receiver:
        for message in receiver.receive_messages():
            receiver.complete_message(message)


def test_messages_without_a_trace_share_a_span_and_a_broken_one_is_as_none(
    namespace: BlockingNamespace, exporter: FinishedSpans
) -> None:
    broken: list[dict[str, Any]] = [
        {"traceparent": "nonsense"},
        {"Diagnostic-Id": "|legacy.1."},
        {"traceparent": 7},
        {},
    ]
    send_and_take(namespace, [encode_message("x", application_properties=each) for each in broken])

    def message_count(spans: list[ReadableSpan]) -> int:
        return sum(attributes(span)["messaging.batch.message_count"] for span in spans)

    for name in ("send orders", "deliver orders"):
        found = exporter.named(name, lambda spans: message_count(spans) == len(broken))
        assert message_count(found) == len(broken)
        assert all(span.parent is None for span in found)


def test_a_refused_message_is_a_failed_span(
    server: RunningServer, namespace: BlockingNamespace, exporter: FinishedSpans
) -> None:
    server.create_queue("with-sessions", requires_session=True)
    payload = encode_message("x", application_properties={"traceparent": PARENT})
    (refusal,) = namespace.sender("with-sessions").send([payload])
    assert refusal is not None
    (sent,) = exporter.named("send with-sessions")
    assert sent.status.status_code is StatusCode.ERROR
    assert sent.status.description == str(refusal)


def test_a_request_over_http_continues_the_trace_of_its_header(
    server: RunningServer, namespace: BlockingNamespace, exporter: FinishedSpans
) -> None:
    address = f"http://127.0.0.1:{server.server.http_port}/health"
    with urlopen(Request(address, headers={"traceparent": PARENT})) as answer:
        assert answer.status == 200
    (span,) = exporter.named("GET")
    assert span.parent is not None
    assert (span.parent.trace_id, span.kind) == (TRACE, SpanKind.SERVER)
    facts = attributes(span)
    assert (facts["url.path"], facts["http.response.status_code"]) == ("/health", 200)


def test_there_are_no_spans_unless_the_environment_asks() -> None:
    asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    for environment in ({}, {"OTEL_TRACES_EXPORTER": "none"}, {**asked, "OTEL_SDK_DISABLED": "true"}):
        assert spans_of("primary", environment) is None
    with pytest.raises(ArgumentError, match="no exporter 'zipkin'"):
        spans_of("primary", {"OTEL_TRACES_EXPORTER": "zipkin"})


class Collector(BaseHTTPRequestHandler):
    """Takes spans as a collector does."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.received.append(ExportTraceServiceRequest.FromString(body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


def test_a_served_namespace_exports_to_the_collector_that_the_environment_names(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        received: list[Any] = []
        collector.received = received  # type: ignore[attr-defined]
        Thread(target=collector.serve_forever, daemon=True).start()
        environment = {
            "PATH": "",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
        }
        options = ["--amqp-port", "0", "--http-port", "0", "--stores", "1", "--no-meter", "--queue", "orders", "--json"]
        with subprocess.Popen(
            [sys.executable, "-m", "twinbus", "serve", "primary", *options],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            with BlockingNamespace.connect(json.loads(process.stdout.readline())["connection_string"]) as namespace:
                payload = encode_message("x", application_properties={"traceparent": PARENT})
                assert namespace.sender("orders").send([payload]) == [None]
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        collector.shutdown()
    scopes = [each for request in received for each in request.resource_spans]
    resource = {item.key: item.value.string_value for each in scopes for item in each.resource.attributes}
    assert resource["service.name"] == "twinbus"
    assert resource["service.instance.id"] == "primary"
    assert resource["deployment.environment"] == "test"
    spans = [span for each in scopes for scope in each.scope_spans for span in scope.spans]
    assert [span.trace_id.hex() for span in spans if span.name == "send orders"] == [f"{TRACE:032x}"]
