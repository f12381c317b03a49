"""OpenTelemetry spans of what a namespace does: messages and requests in, spans to an exporter out.

    send orders      from the arrival of a message to its acknowledgement, which is after the sync
    deliver orders   from its enqueued time until it was handed to a receiver
    POST             a request over HTTP

A message continues the trace of its sender: its application property `traceparent` (with `tracestate`), or else
`Diagnostic-Id`, as the SDKs write them. Messages of one burst that have neither share one span. A request continues the trace of
its header `traceparent`.

There are spans if the extra `otel` is installed and the environment names an exporter, by the variables that OpenTelemetry
defines for all programs (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME, ...).
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twinbus.broker.consumer import TakenMessage
from twinbus.errors import ArgumentError, MessagingError
from twinbus.model.content import application_properties
from twinbus.model.message import Message

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from starlette.types import ASGIApp, Receive, Scope, Send
    from starlette.types import Message as AsgiMessage

EXPORTER_VARIABLE = "OTEL_TRACES_EXPORTER"
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PARENT, STATE, DIAGNOSTIC_ID = "traceparent", "tracestate", "Diagnostic-Id"
_MARKS = (PARENT.encode(), DIAGNOSTIC_ID.encode())
_NS = 1_000_000_000
_NS_OF_MS = 1_000_000
SERVER_ERROR = 500


class OpenTelemetrySpans:
    """Implements `twinbus.gateway.spans.Spans`."""

    def __init__(self, provider: "TracerProvider", namespace: str) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("twinbus")
        self._extract = TraceContextTextMapPropagator().extract
        self._server, self._internal = SpanKind.SERVER, SpanKind.INTERNAL
        self._status, self._failed = Status, StatusCode.ERROR
        self._facts = {"messaging.system": "servicebus", "twinbus.namespace": namespace}

    def sent(self, path: str, messages: Sequence[Message], seconds: float) -> None:
        self._answered(path, messages, seconds, None)

    def refused(self, path: str, messages: Sequence[Message], seconds: float, error: MessagingError) -> None:
        self._answered(path, messages, seconds, error)

    def _answered(self, path: str, messages: Sequence[Message], seconds: float, error: MessagingError | None) -> None:
        end = time.time_ns()
        start = end - int(seconds * _NS)
        others = 0
        for message in messages:
            context = self._context_of(message.content)
            if context is None:
                others += 1
            else:
                more = {"messaging.message.id": message.message_id}
                self._span("send", path, context, start, end, more, error)
        if others:
            self._span("send", path, None, start, end, {"messaging.batch.message_count": others}, error)

    def delivered(self, path: str, deliveries: Sequence[TakenMessage]) -> None:
        end = time.time_ns()
        others, oldest = 0, end
        for row, _, _ in deliveries:
            # Clocks may have been set back since.
            start = min(row.enqueued_at * _NS_OF_MS, end)
            context = self._context_of(row.content)
            if context is None:
                others, oldest = others + 1, min(oldest, start)
            else:
                more = {
                    "messaging.servicebus.message.delivery_count": row.delivery_count,
                    "messaging.servicebus.message.enqueued_time": row.enqueued_at // 1_000,
                    "twinbus.sequence_number": row.sequence_number,
                }
                self._span("deliver", path, context, start, end, more, None)
        if others:
            self._span("deliver", path, None, oldest, end, {"messaging.batch.message_count": others}, None)

    def traced(self, application: "ASGIApp") -> "ASGIApp":
        """The same application, with a span for each request."""

        async def respond(scope: "Scope", receive: "Receive", send: "Send") -> None:
            if scope["type"] != "http":
                await application(scope, receive, send)
                return
            names = (PARENT.encode(), STATE.encode())
            headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in names}
            facts = {"http.request.method": scope["method"], "url.path": scope["path"], "url.scheme": scope["scheme"]}
            span = self._tracer.start_span(
                scope["method"], self._extract(headers), self._server, attributes={**self._facts, **facts}
            )

            async def watched(message: "AsgiMessage") -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= SERVER_ERROR:
                        span.set_status(self._status(self._failed))
                await send(message)

            try:
                await application(scope, receive, watched)
            finally:
                span.end()

        return respond

    def close(self) -> None:
        """Exports what is left; blocks while the exporter tries."""
        self._provider.shutdown()

    def _span(
        self,
        operation: str,
        path: str,
        context: "Context | None",
        start: int,
        end: int,
        more: Mapping[str, Any],
        error: MessagingError | None,
    ) -> None:
        facts = {"messaging.destination.name": path, "messaging.operation.name": operation}
        span = self._tracer.start_span(
            f"{operation} {path}",
            context,
            self._server if operation == "send" else self._internal,
            attributes={**self._facts, **facts, **more},
            start_time=start,
        )
        if error is not None:
            span.set_attribute("error.type", error.condition)
            span.set_status(self._status(self._failed, str(error)))
        span.end(end)

    def _context_of(self, content: bytes) -> "Context | None":
        """Of the sender. None if it gave none, or none that can be read."""
        # Most messages have none, and to look for the bytes costs less than to decode.
        if not any(mark in content for mark in _MARKS):
            return None
        given = application_properties(content)
        parent = given.get(PARENT) or given.get(DIAGNOSTIC_ID)
        if not isinstance(parent, str):
            return None
        carrier = {PARENT: str(parent)}
        if isinstance(state := given.get(STATE), str):
            carrier[STATE] = str(state)
        context = self._extract(carrier)
        return context or None


def spans_of(namespace: str, environment: Mapping[str, str]) -> OpenTelemetrySpans | None:
    """None if nobody asks for spans. Raises ArgumentError if somebody does and they cannot be had."""
    wanted = environment.get(EXPORTER_VARIABLE, "").strip()
    is_given = any(environment.get(name) for name in ENDPOINT_VARIABLES)
    is_off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or wanted == "none"
    if is_off or not (wanted or is_given):
        return None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        if not wanted:
            return None  # the variable is for other programs of the machine
        raise ArgumentError(
            f"{EXPORTER_VARIABLE} asks for spans, which need OpenTelemetry: pip install 'twinbus[otel]'."
        ) from None
    exporter = _exporter(wanted or "otlp")
    named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": "twinbus"}
    provider = TracerProvider(
        resource=Resource.create({**named, "service.instance.id": namespace}), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetrySpans(provider, namespace)


def _exporter(name: str) -> Any:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        # Standard output says where the namespace is.
        return ConsoleSpanExporter(out=sys.stderr, formatter=lambda span: span.to_json(indent=None) + "\n")
    if name == "otlp":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter()
    raise ArgumentError(f"{EXPORTER_VARIABLE}: there is no exporter '{name}' here. Use otlp, console or none.")
