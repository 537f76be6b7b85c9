"""What EVI adds to a model's own time: whole turns and first words, beside the same calls to the model itself.

Once more while the worker makes findable what was said before, as fast as it can.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from rich.table import Table

from bench import Latency, Promise, console, fill, make_tables, settle, throwaway_cluster, verdict
from evi_site.environment import BASE_DIR
from evi_site.postgres.base import embedded_cluster

USERS = 20
TURNS = 4
# As long as a quick model takes.
MODEL_SECONDS = 1
WORDS = 20
BUSY = "EVI, while the worker embeds"
# One clock for the model and its reader, which are on one machine.
clock = time.monotonic


class Model(BaseHTTPRequestHandler):
    """An OpenAI-compatible model that thinks for a moment, and says when it spoke its first word."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(MODEL_SECONDS)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self._say({"choices": [{"index": 0, "delta": {"content": f"{clock()} "}}]})
        for number in range(WORDS):
            self._say({"choices": [{"index": 0, "delta": {"content": f"woord{number} "}}]})
        self._say({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.wfile.write(b"data: [DONE]\n\n")

    def _say(self, fields: dict[str, object]) -> None:
        chunk = {"id": "m", "object": "chat.completion.chunk", "created": 1, "model": "m", **fields}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


class Crowd(ThreadingHTTPServer):
    """Takes a knock from everybody at once."""

    daemon_threads = True
    request_queue_size = 128


def main() -> int:
    parser = ArgumentParser(description=__doc__, prog="python -m bench.turns")
    parser.add_argument("--rounds", type=int, default=6, help="how often everybody talks (default: %(default)s)")
    parser.add_argument("--backlog", type=int, default=100_000, help="how many messages are to be embedded meanwhile")
    options = parser.parse_args()
    with throwaway_cluster(), model() as model_url:
        make_tables()
        fill(messages=options.backlog, description="A backlog")
        settle()
        with evi(model_url) as url, worker() as embedding:
            ways = {"the model itself": model_url, "EVI": f"{url}/v1", BUSY: f"{url}/v1"}
            measured: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ways}
            # Each in its turn, so that a busy moment of the machine falls on all alike; the first round is to warm up.
            for number in range(options.rounds + 1):
                for name, base in ways.items():
                    embedding.send_signal(signal.SIGCONT if name == BUSY else signal.SIGSTOP)
                    times = asyncio.run(talk(base, turns=TURNS))
                    for kept, more in zip(measured[name], times, strict=True):
                        kept += more if number else []
    table = Table("at " + str(USERS) + " people", "turn median", "turn p95", "first word median", "first word p95")
    latencies = {name: (Latency.of(whole), Latency.of(first)) for name, (whole, first) in measured.items()}
    for name, (whole, first) in latencies.items():
        table.add_row(name, *(f"{one:.1f} ms" for one in (whole.median, whole.p95, first.median, first.p95)))
    console.print(table)
    alone, through, busy = latencies["the model itself"], latencies["EVI"], latencies[BUSY]
    return verdict(
        [
            Promise("a turn through EVI beside the model alone", through[0].median / alone[0].median, 1.25),
            Promise("what EVI adds to a turn", through[0].median - alone[0].median, 50, " ms"),
            Promise("what EVI adds to the first word", through[1].median - alone[1].median, 20, " ms"),
            Promise(
                "a turn while the worker embeds beside one while it rests", busy[0].median / through[0].median, 1.05
            ),
        ]
    )


async def talk(base: str, *, turns: int) -> tuple[list[float], list[float]]:
    """Everybody talks at once; how long each turn took, and each first word from the model's lips to the ear."""
    whole: list[float] = []
    first: list[float] = []

    async def person(client: httpx.AsyncClient) -> None:
        headers: dict[str, str] = {}
        for _ in range(turns):
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Wat moet ik meenemen?"}]}
            began = clock()
            async with client.stream("POST", f"{base}/chat/completions", json=body, headers=headers) as response:
                response.raise_for_status()
                heard = [(text, clock()) async for line in response.aiter_lines() if (text := _text(line))]
                spoken, at = heard[0]
                first.append(at - float(spoken))
                headers = {"X-Session-ID": response.headers.get("X-Session-ID", "")}
            whole.append(clock() - began)

    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        await asyncio.gather(*(person(client) for _ in range(USERS)))
    return whole, first


def _text(line: str) -> str:
    if not line.startswith("data: {"):
        return ""
    choices = json.loads(line.removeprefix("data: "))["choices"]
    return str(choices[0]["delta"].get("content") or "") if choices else ""


@contextmanager
def model() -> Iterator[str]:
    server = Crowd(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


@contextmanager
def evi(model_url: str) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as probe:
        port = probe.server_port
    variables = {"EVI_MODEL": "m", "EVI_MODEL_BASE_URL": model_url, "EVI_RATE_LIMIT": "1000000"}
    process = start("-m", "daphne", "-v", "0", "-p", str(port), "evi_site.asgi:application", **variables)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                httpx.get(f"{url}/healthz", trust_env=False)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


@contextmanager
def worker() -> Iterator[subprocess.Popen[bytes]]:
    process = start("-m", "django", "shell", "-v0", "-c", "from conversations import tasks; tasks.embed_messages()")
    yield process
    if process.poll() is not None:
        raise SystemExit("All was embedded before the end: give it more with --backlog.")
    process.kill()
    process.wait()


def start(*arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    cluster = embedded_cluster()
    assert cluster
    at = {"DATABASE_URL": cluster.ensure_running().url("evi")}
    return subprocess.Popen([sys.executable, *arguments], cwd=BASE_DIR, env={**os.environ, **at, **variables})


if __name__ == "__main__":
    sys.exit(main())
