"""A file server for tests/programs/test_download.sh: python3 tests/programs/file_server.py DIRECTORY LOG

Serves DIRECTORY on a free port of 127.0.0.1 and prints the port. Like the Hugging Face hub, it
answers /ORG/MODEL/resolve/main/FILE with a redirection that names size and sha256, to a second
address which understands ranges. Each MODEL misbehaves in its own way:
    gpt2          does not
    gpt2-medium   breaks the connection off after a third of what was asked for, always
    gpt2-large    names a wrong sha256
    gpt2-xl       knows no ranges and names neither size nor sha256 in its redirection
    distilgpt2    has no model.safetensors
LOG gets one line for each file sent: the path and the first byte.
"""

import hashlib
import http.server
import os
import re
import sys

DIRECTORY, LOG = sys.argv[1:]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        match = re.fullmatch(r"/[\w-]+/([\w-]+)/resolve/main/([\w.]+)|/cdn/([\w-]+)/([\w.]+)", self.path)
        model, name = (match[1] or match[3], match[2] or match[4]) if match else ("", "")
        path = os.path.join(DIRECTORY, name)
        if not name or not os.path.exists(path) or (model, name) == ("distilgpt2", "model.safetensors"):
            self.answer(404, b"no such file")
            return
        with open(path, "rb") as file:
            data = file.read()
        if match[1]:
            self.redirect(model, name, data)
        else:
            self.send(model, name, data)

    def redirect(self, model, name, data):
        sha256 = hashlib.sha256(b"something else" if model == "gpt2-large" else data).hexdigest()
        headers = {"Location": f"/cdn/{model}/{name}"}
        if model != "gpt2-xl":
            headers.update({"X-Linked-Size": len(data), "X-Linked-ETag": f'"{sha256}"'})
        self.answer(302, b"see there", headers)

    def send(self, model, name, data):
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(asked[1]) if asked and model != "gpt2-xl" else 0
        with open(LOG, "a") as log:
            log.write(f"{model}/{name} {first}\n")
        if asked and first >= len(data):
            self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        elif asked and model != "gpt2-xl":
            self.answer(206, data[first:], {"Content-Range": f"bytes {first}-{len(data) - 1}/{len(data)}"}, model)
        else:
            self.answer(200, data, {}, model)

    def answer(self, code, body, headers={}, model=""):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key, str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 3] if model == "gpt2-medium" else body)
        if model == "gpt2-medium":
            self.close_connection = True

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # a client that hangs up is part of some cases


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
