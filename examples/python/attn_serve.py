"""python3 attn_serve.py MODEL.attn [PORT]: OpenAI's /v1/completions, as far as GPT-2 has it. An example, not a product."""
import http.server
import json
import sys
import threading
import time
import attn

FIELDS = {"model": (None,), "prompt": ("",), "stop": ([],), "stream": (False, False, True), "echo": (False, False, True),
          "max_tokens": (16, 1, 1024), "temperature": (1, 0, 2), "top_p": (1, 0, 1), "n": (1, 1, 1), "seed": (None, 0, 2**63),
          "logprobs": (None, 0, 0)}  # the default, the least and the most of each; logprobs 0: of the text's own tokens
MOST_BYTES, places = 1 << 20, threading.BoundedSemaphore(8)  # of a request; requests at a time, others wait
model = attn.Model(sys.argv[1], threads=1)  # each request has one thread, and a session of its own

class Handler(http.server.BaseHTTPRequestHandler):
    timeout = 30  # seconds for a client that sends nothing
    def reply(self, code, body, kind="application/json"):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        try:
            with places:
                self.answer(int(self.headers["Content-Length"]))
        except (attn.Error, AttributeError, RecursionError, TypeError, ValueError) as error:
            self.reply(400, json.dumps({"error": {"message": str(error), "type": "invalid_request_error"}}).encode())

    def answer(self, size):
        if self.path != "/v1/completions" or not 0 < size <= MOST_BYTES:
            self.rfile.read(max(0, min(size, 16 * MOST_BYTES)))  # a client that is cut off while it sends does not read why
            raise ValueError(f"there is only /v1/completions, for at most {MOST_BYTES} bytes")
        given = {key: value for key, value in json.loads(self.rfile.read(size)).items() if value is not None}
        for key, value in given.items():
            if key not in FIELDS or (FIELDS[key][1:] and not FIELDS[key][1] <= value <= FIELDS[key][2]):
                raise ValueError(f"{key}={value!r} is not supported. Fields, with default, least and most: {FIELDS}")
        asked = {**{key: field[0] for key, field in FIELDS.items()}, "seed": time.time_ns(), **given}
        ids, most, k = model.to_tokens(asked["prompt"]), asked["max_tokens"], asked["logprobs"]
        head = {"id": f"cmpl-{time.time_ns()}", "object": "text_completion", "created": int(time.time()), "model": asked["model"]}
        def part(text, reason=None, scores=None):
            return json.dumps({**head, "choices": [{"index": 0, "text": text, "finish_reason": reason, "logprobs": scores}]}).encode()
        with model.session(len(ids) + most) as session:
            sampling = attn.Sampling(asked["temperature"], top_p=asked["top_p"], seed=asked["seed"])
            text = session.generate(ids, max_tokens=most, sampling=sampling, stop=asked["stop"])
            echo, first = (model.to_string(ids), 0) if asked["echo"] else ("", len(ids))
            if asked["stream"]:
                self.reply(200, b"data: %s\n\n" % part(echo), "text/event-stream")
                for piece in text:
                    self.wfile.write(b"data: %s\n\n" % part(piece))
            whole = echo + text.read()
        told, reason = model.score([*ids, *text.ids]), "length" if text.reason == "token count" else "stop"
        scores = {"tokens": told.tokens[first:], "token_logprobs": [None, *(-told.nll).tolist()][first:]} if k == 0 else None
        end = b"data: %s\n\ndata: [DONE]\n\n" % part("", reason, scores)
        self.wfile.write(end) if asked["stream"] else self.reply(200, part(whole, reason, scores))

http.server.ThreadingHTTPServer.request_queue_size = 128  # connections that wait to be taken
server = http.server.ThreadingHTTPServer(("127.0.0.1", int([*sys.argv, 8000][2])), Handler)
print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
server.serve_forever()
