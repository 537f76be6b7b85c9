"""A stand-in for the Bot API of Telegram, over real HTTP: it takes what Telegram takes, and refuses what it refuses."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

TOKEN = "4242:a-token-for-tests_0123456789"
ME = {"id": 4242, "is_bot": True, "first_name": "EVI", "username": "evi_test_bot"}
ENTITIES = {
    "bold",
    "italic",
    "strikethrough",
    "code",
    "pre",
    "blockquote",
    "text_link",
}
MOST_UNITS = 4096


class RefusedError(Exception):
    """What Telegram says no to, and how."""

    def __init__(self, status: int, description: str, **parameters: int) -> None:
        self.status = status
        self.body = {"ok": False, "error_code": status, "description": description}
        if parameters:
            self.body["parameters"] = parameters


class BotAPI(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reset()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def reset(self) -> None:
        # The messages that arrived, and all calls by name.
        self.sent: list[dict[str, Any]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        # What only a bug would send: every test expects none of it.
        self.problems: list[str] = []
        # What the next calls of sendMessage are answered instead.
        self.refusals: list[RefusedError] = []
        self.chats = {7, 8, 9, -100}
        # What waits to be fetched, and where it is brought instead.
        self.updates: list[dict[str, Any]] = []
        self.webhook = ""
        self.files = {"photo": b"\xff\xd8\xff a photo"}
        # How many messages arrive before the next one is held up.
        self.most = 1_000_000
        self.go_on = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def texts(self, chat_id: int = 7) -> list[str]:
        return [message["text"] for message in list(self.sent) if message["chat_id"] == chat_id]

    def called(self, method: str) -> list[dict[str, Any]]:
        return [fields for name, fields in list(self.calls) if name == method]


class _Handler(BaseHTTPRequestHandler):
    server: BotAPI
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        content = self.server.files.get(self.path.rpartition("/")[2])
        known = content is not None and self.path.startswith(f"/file/bot{TOKEN}/")
        self._answer(200 if known else 404, content or b"", "application/octet-stream")

    def do_POST(self) -> None:
        fields = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        _, bot, method = self.path.split("/")
        try:
            if bot != f"bot{TOKEN}":
                raise RefusedError(401, "Unauthorized")
            perform = getattr(self, f"_{method}", None)
            if perform is None:
                self.server.problems.append(f"there is no method {method}")
                raise RefusedError(404, "Not Found: method not found")
            arguments = {name: _read(value) for name, value in fields.items()}
            self.server.calls.append((method, arguments))
            body, status = {"ok": True, "result": perform(arguments)}, 200
        except RefusedError as refused:
            body, status = refused.body, refused.status
        self._answer(status, json.dumps(body).encode(), "application/json")

    def _getMe(self, fields: dict[str, Any]) -> Any:  # noqa: N802
        return ME

    def _setMyCommands(self, fields: dict[str, Any]) -> bool:  # noqa: N802
        for command in fields["commands"]:
            if not (command["command"].islower() and 3 <= len(command["description"]) <= 256):
                self._refuse("BOT_COMMAND_INVALID")
        return True

    def _setWebhook(self, fields: dict[str, Any]) -> bool:  # noqa: N802
        if not fields["url"].startswith("https://"):
            self._refuse("bad webhook: An HTTPS URL must be provided for webhook")
        self.server.webhook = fields["url"]
        return True

    def _deleteWebhook(self, fields: dict[str, Any]) -> bool:  # noqa: N802
        self.server.webhook = ""
        return True

    def _getUpdates(self, fields: dict[str, Any]) -> Any:  # noqa: N802
        if self.server.webhook:
            raise RefusedError(409, "Conflict: can't use getUpdates method while webhook is active")
        updates = self.server.updates
        updates[:] = [update for update in updates if update["update_id"] >= int(fields.get("offset", 0))]
        deadline = time.monotonic() + min(int(fields.get("timeout", 0)), 2)
        while not updates and time.monotonic() < deadline:
            time.sleep(0.05)
        return updates

    def _sendChatAction(self, fields: dict[str, Any]) -> bool:  # noqa: N802
        self._check_chat(fields)
        return True

    def _answerCallbackQuery(self, fields: dict[str, Any]) -> bool:  # noqa: N802
        return True

    def _getFile(self, fields: dict[str, Any]) -> Any:  # noqa: N802
        return {"file_id": fields["file_id"], "file_unique_id": "u", "file_path": fields["file_id"]}

    def _sendMessage(self, fields: dict[str, Any]) -> Any:  # noqa: N802
        if len(self.server.sent) >= self.server.most:
            self.server.go_on.wait(30)
        self._check_chat(fields)
        # As it was written: a text may look like JSON.
        text = fields["text"] = str(fields["text"])
        if not text.strip():
            self._refuse("message text is empty")
        if text != text.strip():
            self.server.problems.append("white space at the ends moves the entities")
        if _units(text) > MOST_UNITS:
            self._refuse("message is too long")
        if "parse_mode" in fields:
            self.server.problems.append("entities and parse_mode do not go together")
        self._check_entities(text, fields.get("entities", []))
        for row in fields.get("reply_markup", {}).get("inline_keyboard", []):
            for button in row:
                if not button["text"] or not 1 <= len(button["callback_data"].encode()) <= 64:
                    self._refuse("BUTTON_DATA_INVALID")
        if self.server.refusals:
            raise self.server.refusals.pop(0)
        self.server.sent.append(fields)
        chat = {"id": fields["chat_id"], "type": "private"}
        return {"message_id": 100_000 + len(self.server.sent), "date": 1, "chat": chat, "text": text, "from": ME}

    def _check_chat(self, fields: dict[str, Any]) -> None:
        if fields["chat_id"] not in self.server.chats:
            self._refuse("chat not found")

    def _check_entities(self, text: str, entities: list[dict[str, Any]]) -> None:
        encoded = text.encode("utf-16-le")
        if len(entities) > 100:
            self.server.problems.append("more entities than Telegram looks at")
        for entity in entities:
            if entity["type"] not in ENTITIES:
                self._refuse(f"unsupported entity {entity['type']}")
            begin, end = entity["offset"], entity["offset"] + entity["length"]
            if not 0 <= begin < end <= len(encoded) // 2:
                self._refuse("entity is outside of the text")
            try:
                encoded[2 * begin : 2 * end].decode("utf-16-le")
            except UnicodeDecodeError:
                self._refuse("entity cuts a character in two")
            if entity["type"] == "text_link" and not entity["url"].startswith(("http://", "https://")):
                self._refuse("entity has no valid URL")

    def _refuse(self, description: str) -> None:
        self.server.problems.append(description)
        raise RefusedError(400, f"Bad Request: {description}")

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _read(value: str) -> Any:
    """A field as it was meant: numbers and structures come as JSON."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
