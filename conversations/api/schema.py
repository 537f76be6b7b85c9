"""What drf-spectacular cannot see: the routes that are plain Django views, and how to come in."""

from typing import Any

from django.conf import settings
from pydantic import BaseModel

from conversations.api.openai import CompletionRequest
from conversations.api.responses import ResponseRequest

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
TO_SIGN_IN: Schema = {"description": "Sign in first: to /login/"}
CITATIONS: Schema = {"type": "array", "items": {"$ref": "#/components/schemas/Citation"}}
EMPTY: Schema = {"application/json": {"schema": {"type": "object", "maxProperties": 0}}}
SESSION_HEADER: Schema = {
    "name": "X-Session-ID",
    "in": "header",
    "schema": {"type": "string"},
    "description": "A UUID of version 4. Left out: a new session, whose id comes back in the same header.",
}
NEW_SESSION_HEADER: Schema = {
    "name": "X-EVI-New-Session",
    "in": "header",
    "schema": {"type": "string", "enum": ["true"]},
    "description": "The id in X-Session-ID is one that the client made up: a session of that id is made if there is "
    "none. A client that hangs up before it heard anything then knows the id all the same.",
}
CLIENT_HEADER: Schema = {
    "name": "X-EVI-Client",
    "in": "header",
    "schema": {"type": "string", "enum": ["cli"]},
    "description": "`cli` for EVI's own terminal: a session that it begins is of that channel, and a stream also tells "
    'what EVI is doing: `data: {"event": {"type": "status", "data": {"description": "…", "done": false}}}`.',
}
ASKING_HEADERS = [SESSION_HEADER, NEW_SESSION_HEADER, CLIENT_HEADER]


def describe_plain_views(result: Schema, generator: Any, request: Any, public: bool) -> Schema:
    """Add the routes of `/v1`, the health checks and the pages, and the key that opens all the others."""
    components = result.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.update(_completion_schemas() | _response_schemas())
    components.setdefault("securitySchemes", {})["bearer"] = {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key: manage.py create_api_key NAME. In development, this machine needs none.",
    }
    components["securitySchemes"]["telegram"] = {
        "type": "apiKey",
        "in": "header",
        "name": "X-Telegram-Bot-Api-Secret-Token",
        "description": "What Telegram was given with the webhook.",
    }
    components["securitySchemes"]["cookie"] = {
        "type": "apiKey",
        "in": "cookie",
        "name": settings.SESSION_COOKIE_NAME,
        "description": "Of who signed in at /login/. Changes want the cookie csrftoken in the header X-CSRFToken too.",
    }
    result["security"] = [{"bearer": []}, {"cookie": []}]
    result["paths"] = dict(sorted({**result["paths"], **_plain_paths()}.items()))
    _tell_of_forgery(result["paths"])
    components["schemas"] = dict(sorted(schemas.items()))
    return result


def _tell_of_forgery(paths: Schema) -> None:
    """Every change can be refused to a browser that was made to ask for it."""
    for path, operations in paths.items():
        refused = _json("Not from a page of EVI's", "OpenAIError" if path.startswith("/v1") else "Error")
        for method, operation in operations.items():
            if method in ("post", "put", "patch", "delete") and "401" in operation["responses"]:
                operation["responses"]["403"] = refused


def _plain_paths() -> Schema:
    session_header = {"X-Session-ID": {"schema": STRING, "description": "The session that the answer is in."}}
    chunks = "Lines `data: {ChatCompletionChunk}`, then `data: [DONE]`. An error comes as OpenAIError."
    events = (
        "Each event as OpenAI has it: a line `event: response.…`, a line `data: {…}`. The last is `response.completed` "
        "or `response.failed`."
    )
    health = {"200": _json("Yes", "Health"), "503": _json("No, and why", "Health")}
    model_id = {"name": "model_id", "in": "path", "required": True, "schema": STRING}
    response_id = {"name": "response_id", "in": "path", "required": True, "schema": STRING}
    user = {
        "name": "user",
        "in": "query",
        "schema": STRING,
        "description": "The person behind the client, as in the request's `user`.",
    }
    return {
        "/v1/chat/completions": {
            "post": {
                "operationId": "create_chat_completion",
                "summary": "Ask a question, as OpenAI's clients do",
                "tags": ["v1"],
                "parameters": ASKING_HEADERS,
                "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(CompletionRequest)}}},
                "responses": {
                    "200": {**_streamable("ChatCompletion", chunks), "headers": session_header},
                    **_openai_errors(400, 401, 404, 413, 415, 429, 500, 502, 503, 504),
                },
            }
        },
        "/v1/responses": {
            "post": {
                "operationId": "create_response",
                "summary": "Ask a question, as clients of OpenAI's Responses API do",
                "description": "It goes on from `previous_response_id`, from any answer and not just the last, or at "
                "the end of `conversation` (a session: `conv_…`, or its id). `store: false` stores and reads nothing.",
                "tags": ["v1"],
                "parameters": ASKING_HEADERS,
                "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(ResponseRequest)}}},
                "responses": {
                    "200": {**_streamable("Response", events), "headers": session_header},
                    **_openai_errors(400, 401, 404, 413, 415, 429, 500, 502, 503, 504),
                },
            }
        },
        "/v1/responses/{response_id}": {
            "get": {
                "operationId": "read_response",
                "summary": "An answer of before",
                "tags": ["v1"],
                "parameters": [response_id, user],
                "responses": {"200": _json("The answer", "Response"), **_openai_errors(400, 401, 404, 429, 503)},
            },
            "delete": {
                "operationId": "delete_response",
                "summary": "Delete an answer; its question stays",
                "tags": ["v1"],
                "parameters": [response_id, user],
                "responses": {
                    "200": _json("It is gone", "ResponseDeleted"),
                    **_openai_errors(400, 401, 404, 429, 503),
                },
            },
        },
        "/v1/models": {
            "get": {
                "operationId": "list_models",
                "summary": "The models there are: EVI",
                "tags": ["v1"],
                "responses": {"200": _json("The models", "ModelList"), **_openai_errors(401, 429, 503)},
            }
        },
        "/v1/models/{model_id}": {
            "get": {
                "operationId": "read_model",
                "summary": "One model",
                "tags": ["v1"],
                "parameters": [model_id],
                "responses": {"200": _json("The model", "Model"), **_openai_errors(401, 404, 429, 503)},
            }
        },
        "/telegram/webhook": {
            "post": {
                "operationId": "telegram_webhook",
                "summary": "Where Telegram brings messages; nobody else has anything to do here",
                "tags": ["site"],
                "security": [{"telegram": []}],
                "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
                "responses": {
                    "200": {"description": "It is kept, and will be answered", "content": EMPTY},
                    **{
                        status: _json(description, "Error")
                        for status, description in {
                            "400": "The body is no update",
                            "401": "The secret is not the one that was set with the webhook",
                            "404": "This EVI has no Telegram bot",
                            "413": "The body is too large",
                            "503": "EVI cannot keep it now; Telegram brings it again",
                        }.items()
                    },
                },
            }
        },
        "/healthz": _open("healthz", "Whether the process answers", {"200": health["200"]}),
        "/readyz": _open("readyz", "Whether EVI can serve: its database is there and up to date", health),
        "/": _page("home", "The chat page; in production for who has signed in", "text/html", **{"302": TO_SIGN_IN}),
        "/login/": {**_page("sign_in_page", "Where to sign in", "text/html"), **_sign_in()},
        "/logout/": _sign_out(),
        "/api/docs/": _page("api_docs", "This description, as a page", "text/html"),
        "/api/schema/": _page("api_schema", "This description", "application/vnd.oai.openapi"),
    }


def _open(name: str, summary: str, responses: Schema) -> Schema:
    return {
        "get": {"operationId": name, "summary": summary, "tags": ["site"], "security": [], "responses": responses},
    }


def _page(name: str, summary: str, media_type: str, **others: Schema) -> Schema:
    return _open(name, summary, {"200": _text(summary, media_type), **others})


def _text(description: str, media_type: str = "text/html") -> Schema:
    return {"description": description, "content": {media_type: {"schema": STRING}}}


def _sign_in() -> Schema:
    fields = _object(username=STRING, password=STRING, csrfmiddlewaretoken=STRING)
    fields["properties"]["next"] = STRING
    form = {"application/x-www-form-urlencoded": {"schema": fields}}
    refused = {"200": _text("Not known: the page once more"), "403": _text("Not from a page of EVI's")}
    signed_in = {"302": {"description": "Signed in: on to the page that was asked for"}}
    [(_, operation)] = _open("sign_in", "Sign in with a name and a password", {**signed_in, **refused}).items()
    return {"post": {**operation, "requestBody": {"required": True, "content": form}}}


def _sign_out() -> Schema:
    signed_out = {"302": {"description": "Signed out"}, "403": _text("Not from a page of EVI's")}
    [(_, operation)] = _open("sign_out", "Sign out", signed_out).items()
    return {"post": operation}


def _openai_errors(*statuses: int) -> Schema:
    meanings = {
        400: "The request is not right",
        401: "There is no key, or not a valid one",
        404: "There is no such thing, or not for you",
        413: "The body is too large",
        415: "The body is not JSON",
        429: "Too many requests; Retry-After says when to come back",
        500: "Something went wrong on EVI's side",
        502: "The model failed",
        503: "The model or the database cannot be reached",
        504: "The model took too long",
    }
    return {str(status): _json(meanings[status], "OpenAIError") for status in statuses}


def _json(description: str, schema: str) -> Schema:
    return {
        "description": description,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }


def _streamable(schema: str, events: str) -> Schema:
    answered = _json("The answer; as events when `stream` is true", schema)
    answered["content"]["text/event-stream"] = {"schema": {"type": "string", "description": events}}
    return answered


def _ref(model: type) -> Schema:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _request_schemas(model: type[BaseModel]) -> Schema:
    """A request's body, and what it is made of."""
    body = model.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**body.pop("$defs", {}), model.__name__: body}


def _response_schemas() -> Schema:
    part = _object(
        type={"const": "output_text"}, text=STRING, annotations={"type": "array", "items": {"type": "object"}}
    )
    item = _object(
        id=STRING,
        type={"const": "message"},
        role={"const": "assistant"},
        status={"enum": ["in_progress", "completed", "incomplete"]},
        content={"type": "array", "items": part},
    )
    usage = _object(input_tokens=INTEGER, output_tokens=INTEGER, total_tokens=INTEGER)
    error = _object(code=STRING, message=STRING)
    response = _object(
        id=STRING,
        object={"const": "response"},
        created_at=INTEGER,
        status={"enum": ["in_progress", "completed", "incomplete", "failed"]},
        model=STRING,
        output={"type": "array", "items": item},
        conversation=_nullable(_object(id=STRING)),
        previous_response_id={"type": ["string", "null"]},
        store={"type": "boolean"},
        error=_nullable(error),
        usage=_nullable(usage),
        metadata={"type": "object"},
    )
    response["properties"]["citations"] = CITATIONS
    return {
        **_request_schemas(ResponseRequest),
        "Response": response,
        "ResponseDeleted": _object(id=STRING, object={"const": "response"}, deleted={"const": True}),
    }


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _completion_schemas() -> Schema:
    usage = _object(prompt_tokens=INTEGER, completion_tokens=INTEGER, total_tokens=INTEGER)
    model = _object(id=STRING, object={"const": "model"}, created=INTEGER, owned_by=STRING)
    said = _object(role={"const": "assistant"}, content=STRING)
    finished = {"enum": ["stop", None]}
    answer = {"id": STRING, "created": INTEGER, "model": STRING, "system_fingerprint": STRING}
    choice = _object(index=INTEGER, message=said, finish_reason=finished)
    delta = {"type": "object", "properties": {"role": STRING, "content": STRING}}
    piece = _object(index=INTEGER, delta=delta, finish_reason=finished)
    nothing_or_text = {"type": ["string", "null"]}
    error = _object(message=STRING, type=STRING, param=nothing_or_text, code=nothing_or_text)
    chunk = _object(**answer, object={"const": "chat.completion.chunk"}, choices={"type": "array", "items": piece})
    chunk["properties"] |= {"usage": usage, "citations": CITATIONS}
    return {
        **_request_schemas(CompletionRequest),
        "ChatCompletion": _object(
            **answer,
            object={"const": "chat.completion"},
            choices={"type": "array", "items": choice},
            usage=usage,
            citations=CITATIONS,
        ),
        "ChatCompletionChunk": chunk,
        "Model": model,
        "ModelList": _object(
            object={"const": "list"}, data={"type": "array", "items": {"$ref": "#/components/schemas/Model"}}
        ),
        "OpenAIError": _object(error=error),
        "Health": {"type": "object", "properties": {"status": STRING, "detail": STRING}, "required": ["status"]},
    }
