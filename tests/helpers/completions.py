"""A server of completions in a thread, which samples a real model by each request's seed.

It starts with the weights of its folder, loads others when told, and answers as vLLM does, unless
a fault stands in its list: then the next request for a completion meets that.
"""

import contextlib
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer


class Completions:
    """`url` is where it listens. faults: what happens to the next requests, a status, a text that
    is the answer, or a function of the handler. at_once: the most requests under way so far."""

    def __init__(self, folder, port=0):
        self.folder, self.port = folder, port
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.faults, self.asked, self.paths, self.headers = [], [], [], []
        self.under_way = self.at_once = 0
        self.room = 10**6  # requests at a time; what is beyond gets 429
        self.lock = threading.Lock()
        self.start()

    def start(self):
        """Anew: with the weights that it began with."""
        self.model = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32).eval()
        self.server = self._bound()
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def _bound(self):
        """At its port; a client of another process may hold that for a moment."""
        for wait in (0.1, 0.5, 2.0, 8.0):
            with contextlib.suppress(OSError):
                return _Server(("127.0.0.1", self.port), _handler(self))
            time.sleep(wait)
        return _Server(("127.0.0.1", self.port), _handler(self))

    def die(self):
        """No more answers: connections that are open break, new ones are refused."""
        self.server.dead = True
        self.server.server_close()
        for connection in list(self.server.connections):
            with contextlib.suppress(OSError):  # it has gone already
                connection.shutdown(socket.SHUT_RDWR)
        threading.Thread(target=self.server.shutdown, daemon=True).start()

    def reload(self, place):
        weights = load_file(Path(place) / "model.safetensors")
        _, unknown = self.model.load_state_dict(weights, strict=False)
        assert not unknown, unknown
        self.model.tie_weights()

    def complete(self, ask):
        generator = torch.Generator().manual_seed(ask["seed"])
        tokens, log_probs, ended = [], [], "length"
        while len(tokens) < ask["max_tokens"]:
            with self.lock, torch.no_grad():
                logits = self.model(torch.tensor([ask["prompt"] + tokens])).logits[0, -1]
            log_pi = (logits / ask["temperature"]).log_softmax(-1)
            if ask["top_k"] > 0:
                low = log_pi.topk(ask["top_k"]).values[-1]
                log_pi = log_pi.masked_fill(log_pi < low, -torch.inf).log_softmax(-1)
            token = int(torch.multinomial(log_pi.exp(), 1, generator=generator))
            tokens.append(token)
            log_probs.append(log_pi[token].item())
            text = self.tokenizer.decode(tokens)
            if token in ask["stop_token_ids"] or any(s in text for s in ask["stop"] or ()):
                ended = "stop"
                break
        said = {"token_logprobs": log_probs}
        return {"choices": [{"token_ids": tokens, "logprobs": said, "finish_reason": ended}]}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, *given):
        self.connections, self.dead = set(), False
        super().__init__(*given)

    def get_request(self):
        connection, address = super().get_request()
        if self.dead:
            connection.close()
            raise OSError("dead")
        self.connections.add(connection)
        return connection, address

    def handle_error(self, *_):
        """A client that has gone is no news."""


def _handler(served):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            """Nothing is printed."""

        def say(self, body, status=200, headers=()):
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in (("Content-Length", str(len(data))), *headers):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def drop(self):
            """The connection breaks without an answer."""
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

        def do_GET(self):
            served.paths.append(self.path)
            self.say({"data": [{"id": "policy"}]})

        def do_POST(self):
            ask = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"null")
            served.paths.append(self.path)
            served.headers.append(dict(self.headers))
            if self.path == "/collective_rpc":
                assert ask["method"] == "reload_weights"
                served.reload(ask["kwargs"]["weights_path"])
                return self.say(b"")
            if self.path == "/reset_prefix_cache":
                return self.say({})
            if self.path != "/v1/completions":
                return self.say({"detail": "Not Found"}, 404)
            with served.lock:
                fault = served.faults.pop(0) if served.faults else None
                served.under_way += 1
                served.at_once = max(served.at_once, served.under_way)
                full = served.under_way > served.room
            try:
                if callable(fault):
                    return fault(self)
                if isinstance(fault, int):
                    return self.say({"error": {"message": "busy\nnow"}}, fault)
                if fault is not None:
                    return self.say(fault)
                if full:
                    return self.say({}, 429)
                served.asked.append(ask)
                return self.say(served.complete(ask))
            finally:
                with served.lock:
                    served.under_way -= 1

    return Handler


def hang(seconds):
    """A fault: no answer for so long."""
    return lambda handler: (time.sleep(seconds), handler.drop())
