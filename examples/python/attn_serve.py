"""python3 attn_serve.py MODEL.attn [PORT]: OpenAI's /v1/completions, as far as GPT-2 has it. An example, not a product."""
import contextlib
import http.server
import json
import sys
import threading
import time
import attn

FIELDS = {"model": ("str", None), "user": ("str", None), "prompt": ("str or list", ""), "stop": ("str or list", []), "stream": ("bool", False),
          "echo": ("bool", False), "max_tokens": ("int", 16, 1, 1024), "temperature": ("int or float", 1, 0, 2), "n": ("int", 1, 1, 1),
          "top_p": ("int or float", 1, 0, 1), "seed": ("int", None, 0, 2**63), "logprobs": ("int", None, 0, 0)}  # 0: of the text's tokens
NEUTRAL = {"frequency_penalty": 0, "presence_penalty": 0, "best_of": 1, "logit_bias": {}, "suffix": ""}  # as good as left out
MOST_BYTES, places = 1 << 20, threading.BoundedSemaphore(8)  # of a request; requests at a time, others wait
model = attn.Model(sys.argv[1], threads=1)  # each request has one thread, and a session of its own

class Handler(http.server.BaseHTTPRequestHandler):
    timeout = 30  # seconds for a client that sends nothing
    def reply(self, code, parts, kind="application/json"):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.writelines(parts)
    def do_GET(self):
        only = {"id": model.meta.get("name", "attn"), "object": "model", "created": 0, "owned_by": "attn"}
        self.reply(200 if self.path == "/v1/models" else 404, [json.dumps({"object": "list", "data": [only]}).encode()])
    def do_POST(self):
        try:
            with places, contextlib.suppress(ConnectionError): self.answer(int(self.headers.get("Content-Length") or 0))
        except (attn.Error, RecursionError, TypeError, ValueError) as error:
            self.reply(400, [json.dumps({"error": {"message": str(error), "type": "invalid_request_error"}}).encode()])
    def answer(self, size):
        if self.path != "/v1/completions" or not 0 < size <= MOST_BYTES:
            self.rfile.read(max(0, min(size, 16 * MOST_BYTES)))  # a client that is cut off while it sends does not read why
            raise ValueError(f"there is only /v1/completions, for 1 to {MOST_BYTES} bytes of JSON")
        given = json.loads(self.rfile.read(size), object_hook=lambda of: {
            key: value for key, value in of.items() if value is not None and value != NEUTRAL.get(key)})
        for key, value in given.items() if isinstance(given, dict) else [("the body", given)]:
            kinds, _, *ends = FIELDS.get(key, ("", None))
            if type(value).__name__ not in kinds.split() or (ends and not ends[0] <= value <= ends[1]):
                raise ValueError(f"{key}={value!r} is not supported; the fields with type, default, least and most are {FIELDS}")
        asked = {**{key: field[1] for key, field in FIELDS.items()}, "seed": time.time_ns(), **given}
        prompt, most = asked["prompt"], asked["max_tokens"]
        ids = model.to_tokens(prompt[0] if [type(one) for one in prompt] == [str] else prompt)  # LangChain's have a list
        head = {"id": f"cmpl-{time.time_ns()}", "object": "text_completion", "created": int(time.time()), "model": asked["model"]}
        def part(text, reason=None, scores=None):
            return json.dumps({**head, "choices": [{"index": 0, "text": text, "finish_reason": reason, "logprobs": scores}]}).encode()
        with model.session(len(ids) + most) as session:
            text = session.generate(ids, max_tokens=most, stop=asked["stop"], sampling=attn.Sampling(
                asked["temperature"], top_p=asked["top_p"], seed=asked["seed"]))
            echo, first = (model.to_string(ids), 0) if asked["echo"] else ("", len(ids))
            if asked["stream"]:
                self.reply(200, (b"data: %s\n\n" % part(piece) for texts in ([echo], text) for piece in texts), "text/event-stream")
            whole, reason = text.read(), "length" if text.reason == "token count" else "stop"
        n = len(text.ids) if reason == "length" else next(
            n for n in range(most + 1) if model.to_string(text.ids[:n]).startswith(whole))  # tokens before the stop string
        told = model.score([*ids, *text.ids[:n]]) if asked["logprobs"] == 0 else None
        scores = told and {"tokens": told.tokens[first:], "token_logprobs": [None, *(-told.nll).tolist()][first:]}
        end = b"data: %s\n\ndata: [DONE]\n\n" % part("", reason, scores)
        self.wfile.write(end) if asked["stream"] else self.reply(200, [part(echo + whole, reason, scores)])

http.server.ThreadingHTTPServer.request_queue_size = 128  # connections that wait to be taken
server = http.server.ThreadingHTTPServer(("127.0.0.1", int([*sys.argv, 8000][2])), Handler)
print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
server.serve_forever()
