#!/usr/bin/env python3
"""examples/python/attn_serve.py, asked by the official client of the API that it has: test_attn_serve.py, or make python-test."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

from here import BUILD, PACKAGES, ROOT
os.environ["PYTHONPATH"] = os.pathsep.join([PACKAGES, os.environ.get("PYTHONPATH", "")])
STORIES = str(BUILD / "tiny-stories.attn")
PROMPT = "Once upon a time"
try:
    import openai
except ImportError:
    openai = None


def printed(*arguments):
    """What gpt2 --json says of a prompt."""
    lines = subprocess.run([BUILD / "gpt2", STORIES, "--json", "-q", *arguments], check=True, capture_output=True, text=True)
    return json.loads(lines.stdout)


class Server(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.log = tempfile.TemporaryFile("w+")
        cls.server = subprocess.Popen([sys.executable, ROOT / "examples/python/attn_serve.py", STORIES, "0"],
                                      stdout=subprocess.PIPE, stderr=cls.log, text=True)
        cls.url = cls.server.stdout.readline().strip()

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.server.wait()
        cls.server.stdout.close()
        cls.log.close()

    def post(self, body, path="/completions"):
        """The status and the answer to bytes, or to an object."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data)) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def test_it_is_short(self):
        self.assertLessEqual(len((ROOT / "examples/python/attn_serve.py").read_text().splitlines()), 65)

    def test_what_it_does_not_have_is_refused_by_a_sentence(self):
        for body, sentence in (
                ({"best_of": 3}, "best_of=3 is not supported"), ({"suffix": "x"}, "suffix='x' is not supported"),
                ({"logit_bias": {"5": 1}}, "logit_bias="), ({"frequency_penalty": 1}, "frequency_penalty=1"),
                ({"stream_options": {}}, "stream_options="), ({"n": 2}, "n=2 is not supported"),
                ({"logprobs": 5}, "logprobs=5 is not supported"), ({"temperature": 3}, "temperature=3 is not supported"),
                ({"temperature": float("nan")}, "temperature=nan"), ({"temperature": "1"}, "temperature='1' is not supported"),
                ({"max_tokens": 0}, "max_tokens=0"), ({"max_tokens": 10**6}, "max_tokens=1000000"), ({"top_p": -1}, "top_p=-1"),
                ({"seed": -1}, "seed=-1"), ({"stream": "yes"}, "stream='yes' is not supported"),
                ({"stream": 1}, "stream=1 is"), ({"echo": 0}, "echo=0 is"), ({"temperature": True}, "temperature=True is"),
                ({"logprobs": False}, "logprobs=False is"), ({"n": "1"}, "n='1' is"), ({"max_tokens": 1.5}, "max_tokens=1.5 is"),
                ({"seed": 0.5}, "seed=0.5 is"), ({"top_p": [1]}, "top_p=[1] is"), ({"stop": 5}, "stop=5 is"), ({"model": 5}, "model=5 is"),
                ({"prompt": {"a": 1}}, "prompt={'a': 1} is"), (b"5", "the body=5 is"), (b"null", "the body=None is"), ({"stop": ""}, "stop string is empty"),
                ({"stop": [""]}, "stop string is empty"), ({"prompt": ""}, "there is nothing to continue"),
                ({"prompt": ["a", "b"]}, "got 2 texts"), ({"prompt": [99999]}, "99999"), ({"prompt": [0.5]}, "ids are integers"),
                ({"prompt": "the " * 250}, "a session of 267 tokens was asked for"), (b"{", "Expecting"),
                (b"[]", "the body=[] is"), (b"\xff", "utf-8")):
            if isinstance(body, dict):
                body = {"prompt": PROMPT, **body}
            code, answer = self.post(body)
            self.assertEqual(code, 400, body)
            self.assertIn(sentence, answer["error"]["message"])
        self.assertEqual(self.post({"prompt": PROMPT}, "/chat/completions")[0], 400)
        for size in (1 << 20, 12 << 20):  # more than a socket keeps: the answer comes although nobody wanted the body
            self.assertEqual(self.post(b" " * size + b"{}")[0], 400)

    def test_what_clients_always_send(self):
        neutral = {"frequency_penalty": 0, "presence_penalty": 0.0, "best_of": 1, "logit_bias": {}, "suffix": "", "user": "me"}
        one, other = (self.post({"prompt": PROMPT, "seed": 1, **more})[1] for more in ({}, neutral))
        self.assertEqual(one["choices"], other["choices"])
        with urllib.request.urlopen(self.url + "/models") as answer:
            self.assertEqual([of["object"] for of in json.load(answer)["data"]], ["model"])

    def test_fields_are_those_of_gpt2(self):
        for fields, arguments in (({"temperature": 0}, ["-n", "16"]), ({"temperature": 0, "max_tokens": 5, "stop": " a"}, ["-n", "5", "--stop", " a"]),
                                  ({"seed": 7}, ["-n", "16", "--temperature", "1", "-s", "7"]),
                                  ({"seed": 8, "top_p": 0.5, "temperature": 1.5}, ["-n", "16", "--temperature", "1.5", "--top-p", "0.5", "-s", "8"])):
            _, answer = self.post({"prompt": PROMPT, **fields})
            wanted = printed(PROMPT, *arguments)
            self.assertEqual(answer["choices"][0]["text"], wanted["text"])
            self.assertEqual(answer["choices"][0]["finish_reason"], "length" if wanted["reason"] == "token count" else "stop")
        one, other = (self.post({"prompt": prompt, "seed": 1})[1]["choices"] for prompt in ([PROMPT], PROMPT))
        self.assertEqual(one, other, "a list of one text")
        texts = {self.post({"prompt": PROMPT})[1]["choices"][0]["text"] for _ in range(6)}
        self.assertGreater(len(texts), 1, "without a seed each request has another text")

    def test_logprobs_are_of_the_text_alone(self):
        """The tokens of a stop string are not among them. One that begins within a token leaves that token there."""
        for stop, text, tokens in ((" little girl", ", there was a", [",", " there", " was", " a"]), (",", "", []),
                                   ("re was a li", ", the", [",", " there"])):
            for echo in (False, True):
                _, answer = self.post({"prompt": PROMPT, "temperature": 0, "stop": stop, "logprobs": 0, "echo": echo})
                choice = answer["choices"][0]
                before = ["Once", " upon", " a", " time"] if echo else []
                self.assertEqual((choice["text"], choice["logprobs"]["tokens"]), (PROMPT * echo + text, before + tokens))
                self.assertEqual(len(choice["logprobs"]["token_logprobs"]), len(before + tokens))
        self.assertEqual(self.post({"prompt": PROMPT, "seed": None, "stop": None, "temperature": 0})[0], 200, "null counts as absent")

    def test_a_client_that_goes_away_leaves_no_traceback(self):
        body = json.dumps({"prompt": PROMPT, "max_tokens": 200, "stream": True}).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + "/completions", body)) as answer:
            answer.readline()
        for _ in range(8):  # all places are free again
            self.post({"prompt": PROMPT})
        self.log.seek(0)
        self.assertNotIn("Traceback", self.log.read())

    def test_requests_share_nothing(self):
        """Many at a time, more than there are places, each of them as by itself."""
        wanted = [printed(PROMPT, "-n", "12", "--temperature", "1", "-s", str(seed))["text"] for seed in range(20)]
        found = [None] * 20

        def ask(seed):
            found[seed] = self.post({"prompt": PROMPT, "max_tokens": 12, "seed": seed})[1]["choices"][0]["text"]
        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, wanted)

    @unittest.skipUnless(openai, "there is no openai (pip install openai)")
    def test_the_official_client(self):
        wanted = printed(PROMPT, "-n", "12", "--temperature", "1", "-s", "3", "--logprobs")
        with openai.OpenAI(base_url=self.url, api_key="none", max_retries=0) as client:
            def ask(**fields):
                return client.completions.create(model="tiny-stories", prompt=PROMPT, max_tokens=12, seed=3, **fields)
            answer = ask()
            self.assertEqual((answer.choices[0].text, answer.choices[0].finish_reason, answer.object, answer.model),
                             (wanted["text"], "length", "text_completion", "tiny-stories"))
            parts = list(ask(stream=True))
            self.assertEqual("".join(part.choices[0].text for part in parts), wanted["text"])
            self.assertGreater(len(parts), 6)
            self.assertEqual([part.choices[0].finish_reason for part in parts], [None] * (len(parts) - 1) + ["length"])
            told = ask(logprobs=0).choices[0].logprobs
            self.assertEqual(told.tokens, [token["token"] for token in wanted["tokens"]])
            for one, other in zip(told.token_logprobs, wanted["tokens"]):
                self.assertAlmostEqual(one, other["logprob"], 5)
            echoed = ask(echo=True, logprobs=0).choices[0]
            self.assertEqual(echoed.text, PROMPT + wanted["text"])
            self.assertEqual(echoed.logprobs.token_logprobs[:1] + echoed.logprobs.token_logprobs[4:], [None] + told.token_logprobs)
            self.assertEqual("".join(part.choices[0].text for part in ask(echo=True, stream=True)), echoed.text)
            ids = client.completions.create(model="m", prompt=[506, 511, 258, 433], max_tokens=12, seed=3)
            self.assertEqual(ids.choices[0].text, wanted["text"])
            self.assertRaisesRegex(openai.BadRequestError, "best_of=2 is not supported", ask, best_of=2)
            stream = ask(stream=True)  # a client that goes away ends its text, and the server goes on
            next(iter(stream))
            stream.close()
            self.assertEqual(ask().choices[0].text, wanted["text"])


if __name__ == "__main__":
    unittest.main()
