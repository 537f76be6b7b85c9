"""A stand-in for a paid model: an OpenAI-compatible server over real HTTP that does what the question says.

"say three words"        answers with what it was given, word by word
"wait then say …"        holds the answer until the test lets it go
"break after two words"  closes the connection in mid-answer
"fail with 500"          answers with that status
"fail with 500 at first" does so until the test lets it go, and then answers
"look up ladders"        uses EVI's search_guidelines for "ladders", then answers with markers, some of them made up
"look up ladders and break"  closes the connection after the first marker
"look up ladders for ever"  never stops looking it up
"pour out 100000"        answers with that many characters
"""

import json
import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StubModel(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.calls: Counter[str] = Counter()
        self.go_on = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def reset(self) -> None:
        self.requests.clear()
        self.calls.clear()
        self.go_on.clear()


class _Handler(BaseHTTPRequestHandler):
    server: StubModel
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        spoken = [message["content"] for message in body["messages"] if message["role"] == "user"]
        question = _text(spoken[-1]) if spoken else ""
        has_looked_up = body["messages"][-1]["role"] == "tool"
        self.server.requests.append(body)
        self.server.calls[question] += 1
        failing = re.search(r"fail with (\d+)( at first)?", question)
        if failing and not (failing[2] and self.server.go_on.is_set()):
            return self._fail(int(failing[1]))
        if not body.get("stream"):
            message = {"role": "assistant", "content": f"You said: {question}"}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            answer = {"id": "stub", "object": "chat.completion", "created": 1, "model": "stub", "choices": choices}
            return self._answer(200, answer)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        # In chunks, so that a client can tell an answer that broke off from one that ended.
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        wanted = re.search(r"look up (\w+)( for ever)?", question)
        if wanted and (wanted[2] or not has_looked_up):
            call = {"name": "search_guidelines", "arguments": json.dumps({"query": wanted[1]})}
            calls = [{"index": 0, "id": f"call{len(self.server.requests)}", "type": "function", "function": call}]
            self._send({"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": calls}}]})
            return self._end("tool_calls")
        words = (f"You said: {question}" if not wanted else "Found it [1] and made it up [9] .").split()
        if much := re.search(r"pour out (\d+)", question):
            words = ["x" * 999] * (int(much[1]) // 1000)
        for number, word in enumerate(words):
            if number == 2 and "wait" in question:
                self.server.go_on.wait(30)
            if number == (3 if wanted else 2) and "break" in question:
                return None
            self._send({"choices": [{"index": 0, "delta": {"role": "assistant", "content": f"{word} "}}]})
        return self._end("stop")

    def _end(self, reason: str) -> None:
        self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        self._send({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}})
        self._write(b"data: [DONE]\n\n")
        self._write(b"")

    def _send(self, fields: dict[str, Any]) -> None:
        chunk = {"id": "stub", "object": "chat.completion.chunk", "created": 1, "model": "stub", **fields}
        self._write(f"data: {json.dumps(chunk)}\n\n".encode())

    def _write(self, data: bytes) -> None:
        try:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        except OSError:
            # EVI has hung up, as it does when its own client does.
            pass

    def _fail(self, status: int) -> None:
        self._answer(status, {"error": {"message": "no", "type": "server_error"}})

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _text(content: str | list[dict[str, Any]]) -> str:
    """What was typed, also where an image stands beside it."""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content).strip()
