"""What drf-spectacular cannot see: the routes that are plain Django views, and how to come in."""

from typing import Any

from conversations.api.openai import CompletionRequest

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
SESSION_HEADER: Schema = {
    "name": "X-Session-ID",
    "in": "header",
    "schema": {"type": "string"},
    "description": "A UUID of version 4. Left out: a new session, whose id comes back in the same header.",
}


def describe_plain_views(result: Schema, generator: Any, request: Any, public: bool) -> Schema:
    """Add the routes of `/v1`, the health checks and the pages, and the key that opens all the others."""
    components = result.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.update(_completion_schemas())
    components.setdefault("securitySchemes", {})["bearer"] = {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key: manage.py create_api_key NAME. In development, this machine needs none.",
    }
    result["security"] = [{"bearer": []}]
    result["paths"] = dict(sorted({**result["paths"], **_plain_paths()}.items()))
    components["schemas"] = dict(sorted(schemas.items()))
    return result


def _plain_paths() -> Schema:
    session_header = {"X-Session-ID": {"schema": STRING, "description": "The session that the answer is in."}}
    answered = _json("The answer; as events when `stream` is true", "ChatCompletion")
    answered["content"]["text/event-stream"] = {
        "schema": {
            "type": "string",
            "description": "Lines `data: {ChatCompletionChunk}`, then `data: [DONE]`. An error comes as OpenAIError.",
        }
    }
    health = {"200": _json("Yes", "Health"), "503": _json("No, and why", "Health")}
    model_id = {"name": "model_id", "in": "path", "required": True, "schema": STRING}
    return {
        "/v1/chat/completions": {
            "post": {
                "operationId": "create_chat_completion",
                "summary": "Ask a question, as OpenAI's clients do",
                "tags": ["v1"],
                "parameters": [SESSION_HEADER],
                "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(CompletionRequest)}}},
                "responses": {
                    "200": {**answered, "headers": session_header},
                    **_openai_errors(400, 401, 404, 413, 415, 429, 500, 502, 503, 504),
                },
            }
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
        "/healthz": _open("healthz", "Whether the process answers", {"200": health["200"]}),
        "/readyz": _open("readyz", "Whether EVI can serve: its database is there and up to date", health),
        "/": _page("home", "The first page", "text/html"),
        "/api/docs/": _page("api_docs", "This description, as a page", "text/html"),
        "/api/schema/": _page("api_schema", "This description", "application/vnd.oai.openapi"),
    }


def _open(name: str, summary: str, responses: Schema) -> Schema:
    return {
        "get": {"operationId": name, "summary": summary, "tags": ["site"], "security": [], "responses": responses},
    }


def _page(name: str, summary: str, media_type: str) -> Schema:
    return _open(name, summary, {"200": {"description": summary, "content": {media_type: {"schema": STRING}}}})


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


def _ref(model: type) -> Schema:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _completion_schemas() -> Schema:
    body = CompletionRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = body.pop("$defs", {})
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
    citations = {"type": "array", "items": {"$ref": "#/components/schemas/Citation"}}
    chunk["properties"] |= {"usage": usage, "citations": citations}
    return {
        **parts,
        CompletionRequest.__name__: body,
        "ChatCompletion": _object(
            **answer,
            object={"const": "chat.completion"},
            choices={"type": "array", "items": choice},
            usage=usage,
            citations=citations,
        ),
        "ChatCompletionChunk": chunk,
        "Model": model,
        "ModelList": _object(
            object={"const": "list"}, data={"type": "array", "items": {"$ref": "#/components/schemas/Model"}}
        ),
        "OpenAIError": _object(error=error),
        "Health": {"type": "object", "properties": {"status": STRING, "detail": STRING}, "required": ["status"]},
    }
