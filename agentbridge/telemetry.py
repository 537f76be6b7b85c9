"""Traces of what the agent does, for operators who collect them."""

from functools import cache

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai.models.instrumented import InstrumentationSettings


@cache
def instrumentation(url: str, *, include_content: bool) -> InstrumentationSettings | bool:
    """How an agent reports to the collector at `url`; not at all without one."""
    if not url:
        return False
    provider = TracerProvider(resource=Resource.create({"service.name": "evi"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces")))
    return InstrumentationSettings(
        tracer_provider=provider, include_content=include_content, include_binary_content=include_content
    )
