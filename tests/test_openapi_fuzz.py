"""Requests made up from the OpenAPI schema, against a real server: what comes back is what the schema promises."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID
from zlib import crc32

import httpx
import pytest
import schemathesis
from django.contrib.auth.models import User
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
    use_after_free,
)

from conversations.accounts import create_api_key
from conversations.models import Message, Session
from tests.stub_model import StubModel
from tests.test_turns import Site

pytestmark = pytest.mark.django_db(transaction=True)

SESSION = UUID("6f0c1f0e-3b52-4b8e-9a55-0d6c5e1b7a10")
# Not those that want every refusal foretold: EVI forgives a parameter that it does not know, and no schema says "not
# blank", "oldest first" or "before or after, not both".
PROMISES = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    ignored_auth,
    use_after_free,
]
generator: Any = SchemaGenerator
described = json.loads(OpenApiJsonRenderer().render(generator().get_schema(request=None, public=True)))
schema = schemathesis.openapi.from_dict(described)


def bounded(examples: int) -> settings:
    """The same requests in every run, and not too many of them."""
    every_check = list(HealthCheck)
    return settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=every_check
    )


@pytest.fixture(scope="module")
def site(database_url: str) -> Iterator[Site]:
    """EVI as in production, where this machine needs a key too."""
    stub = StubModel()
    site = Site(
        database_url,
        stub,
        EVI_ENV="production",
        EVI_HTTPS="false",
        EVI_SECRET_KEY="made up for the tests alone, and long enough: 0123456789 abcdefghij",
        EVI_ALLOWED_HOSTS="127.0.0.1,evi.example",
        EVI_LOG_LEVEL="ERROR",
    )
    yield site
    site.stop()
    stub.shutdown()
    stub.server_close()


@pytest.fixture
def key() -> str:
    return create_api_key(name="fuzz", client="fuzz")


def make_sense(case: Any) -> None:
    """Chance finds no session's id and puts no question last; so about half of the requests are helped with that."""
    path, body = case.path_parameters or {}, case.body
    if is_odd(path.get("session_id")):
        make_answer()
        path["session_id"] = str(SESSION)
    elif "session_id" in path:
        with suppress(ValueError):
            # The schema has no word for the version.
            path["session_id"] = str(UUID(bytes=UUID(str(path["session_id"])).bytes, version=4))
    if is_odd(path.get("response_id")):
        answer = make_answer()
        path["response_id"] = f"resp_{answer.id.hex}"
    for name in ("messages", "input"):
        if isinstance(body, dict) and isinstance(body.get(name), list) and is_odd(body):
            case.body = {**body, name: [*body[name], {"role": "user", "content": "Wat is valbeveiliging?"}]}


def make_answer() -> Message:
    session, _ = Session.objects.get_or_create(id=SESSION, owner=User.objects.get(username="fuzz"))
    if answer := session.messages.filter(role="assistant").first():
        return answer
    session.messages.create(role="user", content="Wat is valbeveiliging?")
    return session.messages.create(role="assistant", content="Dat wat een val voorkomt.")


def is_odd(made_up: object) -> bool:
    return bool(made_up) and crc32(repr(made_up).encode(errors="replace")) % 2 == 1


def test_the_schema_that_is_served_is_the_one_that_is_tried(site: Site) -> None:
    served = httpx.get(f"{site.url}/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"})
    assert served.json() == described


@schema.parametrize()
@bounded(15)
def test_with_a_key_every_answer_is_one_that_the_schema_describes(case: Any, site: Site, key: str) -> None:
    make_sense(case)
    how: dict[str, Any] = {"base_url": site.url, "headers": {"Authorization": f"Bearer {key}"}, "timeout": 20}
    response = case.call(**how)
    promises = list(PROMISES)
    if "site" not in (case.operation.tags or []):
        # A form for people may be refused for the lack of a token before anyone looks at the method.
        promises.append(unsupported_method)
    if "text/event-stream" in response.headers.get("content-type", [""])[0]:
        # What the schema describes is the text; schemathesis compares it with each event.
        promises.remove(response_schema_conformance)
    case.validate_response(response, checks=promises, headers=how["headers"], transport_kwargs=how)


@schema.exclude(tag="site").parametrize()
@bounded(5)
def test_without_a_key_nothing_is_told_or_changed(case: Any, site: Site) -> None:
    if case.method.upper() != case.operation.method.upper():
        return
    response = case.call(base_url=site.url, headers={"Authorization": ""}, timeout=20)
    # What is no request at all may be refused before anyone asks for a key.
    assert response.status_code in (400, 401, 413, 415)
    case.validate_response(response, checks=[status_code_conformance, content_type_conformance])
    assert not Session.objects.exists()
