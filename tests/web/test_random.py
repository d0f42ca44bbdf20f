#!/usr/bin/env python3
"""The page under random clicks and keys, beside the native library: test_random.py BUILD [SECONDS] [SEED]

For so many seconds in each browser (20), or with SEED so many rounds, the same each time: bursts of what a
reader may do, some by the page's own events within a few milliseconds, some by mouse and keyboard. After
each burst the page comes to rest, and what
it shows has to be what the library computes: ids, logits, patterns, the way of a token, stories and
surprisal, to the bit, with the changes that are listed and no others. Errors in the console count too.
BUILD holds attn.html, libattn.so, surprisal, and models in web-models/. Needs Playwright, NumPy and a
browser; what is missing is skipped. BROWSERS=chromium leaves the other out."""

import csv
import ctypes
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

build = os.path.abspath(sys.argv[1])
seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20
root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
counts = {"passed": 0, "failed": 0, "skipped": 0}


def skip(what, why):
    counts["skipped"] += 1
    print(f"skipped: {what}: {why}")


def finish():
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    sys.exit(counts["failed"] > 0)


try:
    import numpy as np
    from playwright.sync_api import sync_playwright
except ImportError as error:
    skip("random clicks and keys", f"there is no {error.name}")
    finish()
os.environ["ATTN_LIB"] = f"{build}/libattn.so"
sys.path.insert(0, f"{root}/examples/python")
import attn  # noqa: E402
import stations  # noqa: E402

# What a reader may do. Each takes a source of random numbers, r(n), from 0 to n - 1.
ACTIONS = """
const all = (selector) => [...document.querySelectorAll(selector)];
const pick = (list, r) => list[r(list.length)];
const press = (element) => element?.getClientRects().length && element.click(); // what is hidden nobody presses
const fire = (element, type) => element.dispatchEvent(new Event(type, { bubbles: true }));
const put = (element, value, ...types) => { element.value = value; for (const type of types) fire(element, type); };
const key = (element, key, more = {}) => element?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
const slide = (id, r) => { const e = $(id), steps = Math.round((e.max - e.min) / e.step); put(e, +e.min + r(steps + 1) * e.step, "input", ...(r(4) ? ["change"] : [])); };
const TEXTS = ["", "One", " ", "Lily was", "Tom had a red ball. Sue had a blue hat. Tom had a", "caf\\u00e9 \\ud83d\\ude00", "\\ufeffOnce", "<b>\\u0000\\"'", "Once upon a time there was a cat. ".repeat(9), "word ".repeat(400), "The sun was hot, so the ice began to\\nmelt"];
const SENTENCES = ["", "Lily was happy.", "\\n", "The cat\\n\\nran  away", "sentence,n\\nThe dog ran.,1\\n\\"So, he said\\",2\\n", "n;sentence\\n1;\\"a \\"\\"b\\"\\"\\"\\n", "caf\\u00e9 \\ud83d\\ude00 \\u00a0x", "\\u0000", "a\\tb\\r\\nc", "Once upon a time there was a cat.\\n".repeat(60), "word ".repeat(500), "x".repeat(700)];
const mouse = navigator.userAgent.includes("Firefox") ? 0 : 1; // the number of that pointer
const point = (element, type, r) => {
    const box = element?.getBoundingClientRect();
    element?.dispatchEvent(new PointerEvent(type, { bubbles: true, pointerId: mouse, clientX: box.left + r(1000) * box.width / 1000, clientY: box.top + r(1000) * box.height / 1000 }));
};
window.actions = {
    type: (r) => put($("prompt"), pick(TEXTS, r), "input"),
    typeMore: (r) => put($("prompt"), $("prompt").value + pick([" and", " the cat", "!", "x"], r), "input"),
    typeLess: (r) => put($("prompt"), $("prompt").value.slice(0, -1 - r(9)), "input"),
    generate: () => press($("generate")),
    ctrlEnter: () => key($("prompt"), "Enter", { ctrlKey: true }),
    stop: () => press($("stop")),
    head: (r) => press(pick(all(".head"), r)),
    headKey: (r) => key(pick(all(".head"), r), pick(["+", "-", "ArrowRight", "ArrowDown"], r)),
    headPointer: (r) => point(pick(all(".head"), r), pick(["pointerover", "pointerdown", "pointermove", "pointerup", "pointercancel"], r), r),
    headFocus: (r) => pick(all(".head"), r)?.focus(),
    scale: (r) => slide("scale", r),
    mode: (r) => press(pick(all("[name=mode]"), r)),
    token: (r) => press(pick(all("#text .token"), r)),
    tokenKey: (r) => key(pick(all("#text .token"), r), pick(["Enter", "ArrowRight", "End", " "], r)),
    alternative: (r) => press(pick(all("#alternatives button"), r)),
    cell: (r) => press(pick(all("#lens button"), r)),
    cellChange: (r) => press(pick([$("cell-zero"), $("cell-patch"), $("cell-clear")], r)),
    cellFactor: (r) => slide("cell-factor", r),
    way: (r) => press(pick(all(".stations button, #flow-numbers button"), r)),
    undoKey: (r) => key(document.activeElement, pick(["z", "Z", "y"], r), { ctrlKey: true, shiftKey: !r(3) }),
    matrix: (r) => point(document.querySelector(".matrix"), pick(["pointermove", "pointerleave"], r), r),
    undo: () => press($("undo")),
    redo: () => press($("redo")),
    clear: () => press($("clear")),
    remove: (r) => press(pick(all("#changes button"), r)),
    steer: (r) => { slide("steer-factor", r); put($("steer-layer"), r(4), "change"); press($("steer")); },
    second: (r) => put($(pick(["second", "plus", "minus"], r)), pick(TEXTS, r), "input", "change"),
    sampling: (r) => slide(pick(["temperature", "topK", "topP", "length"], r), r),
    seed: (r) => put($("seed"), pick(["0", "7", "4294967296", "9007199254740993", "18446744073709551615", "18446744073709551616", "-1", "", "1e3"], r), "input", "change"),
    choose: (r) => put($("choose"), pick([...$("choose").options], r).value, "change"),
    scroll: (r) => { const e = pick([$("large"), $("text"), $("lens").parentElement, document.scrollingElement], r); e.scrollTop = r(2000); e.scrollLeft = r(2000); },
    large: (r) => point(document.querySelector("#large canvas"), pick(["pointermove", "pointerleave", "pointermove"], r), r),
    largeKey: (r) => key($("large"), pick(["ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight"], r)),
    tour: (r) => press(pick([$("tour-start"), $("tour-next"), $("tour-next"), $("tour-act"), $("tour-act"), $("tour-back"), $("tour-end")].filter((b) => !b.hidden), r)),
    copy: (r) => press(pick([$("copy-c"), $("copy-lens"), $("copy-link")], r)),
    sentences: (r) => put($("sentences"), pick(SENTENCES, r), "input"),
    measure: () => press($("measure")),
    measureStop: () => press($("measure-stop")),
    measureBy: (r) => { put($("measure-by"), pick(["word", "token", "region"], r), "change"); put($("measure-unit"), pick(["bits", "nats"], r), "change"); },
    measureMore: (r) => { $("measure-regions").value = pick(["", "_", "a", "e"], r); $("measure-top").value = pick(["0", "2"], r); $("measure-stride").value = pick(["", "100"], r); $("measure-layers").value = pick(["", "all", "0"], r); $("measure-renyi").value = pick(["", "0.5"], r); $("measure-spillover").value = pick(["0", "2"], r); },
    measureHow: (r) => { const box = $(pick(["measure-apart", "measure-continues", "measure-bos", "measure-rank", "measure-reduction"], r)); box.checked = !box.checked; },
    sentencesFile: (r) => takeSentences(new File([pick(SENTENCES, r)], pick(["a.txt", "b.csv", "c.tsv"], r))),
    sentencesClose: () => press($("sentences-close")),
    column: (r) => { const list = [...$("column").options]; if (list.length) $("column").value = pick(list, r).value; },
    said: (r) => press(pick(all(".said"), r)),
    saidKey: (r) => key(pick(all(".said"), r), pick(["Enter", "ArrowRight", "End", " "], r)),
    question: (r) => { $("questions").open = true; if (commands) put($("question"), pick([...$("question").options], r).value, "change"); },
    ask: () => press($("put")),
    askStop: () => press($("put-stop")),
    skip: () => press(document.querySelector(".skip")),
    about: () => press($("about-open")),
    close: () => $("about").close(),
    paper: () => { fire(window, "beforeprint"); fire(window, "afterprint"); },
    file: (r) => { // the numbers of a picture, and what the file says that they are
        const picture = pick(["next", "attention", "lens", "parts"], r);
        if (tokens.length && (picture !== "parts" || parts)) { PICTURES[picture](); csv(TABLES[picture]()); tensorsOf(picture); }
    },
};
window.often = ["type", "typeMore", "typeMore", "typeLess", "generate", "generate", "ctrlEnter", "stop", "head", "head", "token", "alternative", "undo", "measure", "sentences"];
window.did = [];
window.burst = async (seed, n) => {
    const r = (below) => { // xorshift, 32 bits
        seed ^= seed << 13; seed ^= seed >>> 17; seed ^= seed << 5;
        return below ? (seed >>> 0) % below : 0;
    };
    const names = [...Object.keys(actions), ...often, ...often];
    for (let i = 0; i < n; i++) {
        const name = names[r(names.length)], pause = [0, 0, 5, 30, 110, 125, 300][r(7)];
        did.push(`${name} ${pause}`);
        if (did.length > 60) did.shift();
        actions[name](r);
        if (pause) await new Promise((go) => setTimeout(go, pause));
    }
};
0
"""

IDLE = "() => !!config && !isFulfilling && !typing && !keeping && !isDue && !measuring && !putting"
SEEN = """() => ({
    atRest: !isFulfilling && !typing && !keeping && !isDue && !measuring && !putting, // a pointer that rests over a head may pick it just now
    prompt: $("prompt").value, text: state.text, state, changes: shown.changes, listed: $("changes").innerText, described: state.changes.map((c) => describe(c, tokens.map((t) => t.text))),
    awaited: document.querySelectorAll("#changes .awaited").length, ids: tokens.map((t) => t.id), spans: [...$("text").children].map((t) => t.textContent), texts: tokens.map((t) => t.text),
    logits: logits && bits(logits), plain: plain && bits(plain), made: Math.min(wanted.made, tokens.length), left: wanted.left, writing: document.body.classList.contains("writing"),
    disabled: [$("generate").disabled, $("stop").disabled], problem: $("problem").textContent, pattern: tokens.length && bits(tokens.at(-1).attention),
    probabilities: tokens.map((t) => t.probability), sum: parts && parts.shares.reduce((a, b) => a + b, 0), best: parts && tokens.length && chosen === null ? logits[parts.token] : null,
    model: modelFile, capacity: +$("length").max, bars: shownNext.map((b) => b.id), marks: [...document.querySelectorAll(".head")].map((b) => b.dataset.mark ?? ""), address: location.hash,
    large: large.labels.length, painted: heads.small.map((s) => s.painted), lens: tokens.map((t) => t.lens?.at(-1).id),
    way: flow && { at: [flow.position, flow.layer, flow.head], names: [...document.querySelectorAll(".stations button")].map((b) => b.dataset.station), shown: (%s)(),
        bits: Object.fromEntries([["embedding", flow.embedding], ["query", flow.query], ["scores", flow.scores], ["pattern", flow.pattern], ["z", flow.value], ["neurons", flow.neurons], ["mlp", flow.mlp[flow.layer]], ["post", flow.post[flow.layer]]].map(([key, x]) => [key, bits(x)])) },
    wants: tokens.length && isFlowCheap() ? [chosen ?? tokens.length - 1, ...head] : null,
    surprisal: measured && { ...measured.question, csv: measured.csv, isWhole: measured.isWhole, n: measured.n, files: null, text: [...measured.text], said: [...document.querySelectorAll(".said")].map((x) => x.textContent) },
    measuring: [$("measure-stop").disabled, $("measure-progress").hidden, isMeasuring()], unmeasured: $("measure-problem").textContent,
    run: shown.text, refused: !!refused,
})""" % stations.SHOWN
BITS = """window.bits = (x) => { let text = ""; for (const b of new Uint8Array(x.buffer, x.byteOffset, x.byteLength)) text += b.toString(16).padStart(2, "0"); return text; }; 0"""


class Text(ctypes.Structure):  # lens_tokens
    _fields_ = [("ids", ctypes.c_void_p), ("n", ctypes.c_size_t)]


class Native:
    """The library beside the page."""

    def __init__(self, path):
        self.model = attn.Model(path, threads=1)

    def activation(self, name, text, capacity):
        _, record = self.model.run_with_cache(self.model.tokenizer.encode(text)[:capacity], [name])
        return np.array(record[name])

    def steering(self, name, plus, minus):
        out = np.empty((1, self.model.config.d_model), np.float32)
        texts = [Text(ids.ctypes.data, len(ids)) for ids in (plus, minus)]
        self.model._context().run(attn._lib.lens_steering_vector, ctypes.byref(attn._library.attn_tensor.of(out)), self.model._handle, name.encode(), *map(ctypes.byref, texts))
        return out

    def edit(self, session, change, state, capacity):
        layer, head, position = change["layer"], change.get("head"), change.get("position")
        kind, name = change["kind"], f"blocks.{layer}." + ("hook_resid_pre" if head is None else "attn.hook_z")
        heads = None if head is None else slice(head, head + 1)
        at = None if position is None else slice(position, position + 1)
        of = lambda text: self.activation(name, text, capacity)
        if kind == "zero":
            session.edit(name, "zero", heads=heads)
        elif kind in ("scale", "stream"):
            session.edit(name, "scale", np.float32(change["factor"]).reshape(1), heads=heads, positions=at)
        elif kind == "mean":
            session.edit(name, "mean", of(state["text"])[:, head].copy(), heads=heads)
        elif kind == "patch":
            rows = of(state["second"])[:, head].copy()
            session.edit(name, "set", rows, heads=heads, positions=range(len(rows)))
        elif kind == "patch-stream":
            session.edit(name, "set", of(state["second"])[position : position + 1].copy(), positions=at)
        else:
            session.edit(name, "add", np.float32(change["factor"]) * self.steering(name, *(self.model.tokenizer.encode(state[key])[:capacity] for key in ("plus", "minus"))))

    def session(self, seen, changes):
        session = self.model.session(seen["capacity"])
        for change in changes:
            self.edit(session, change, seen["state"], seen["capacity"])
        return session


def hexed(x):
    return np.ascontiguousarray(x, np.float32).tobytes().hex()


class Checks:
    def __init__(self, page, where):
        self.page, self.where, self.models, self.natives, self.problems = page, where, {}, {}, 0

    def fail(self, what, got):
        counts["failed"] += 1
        print(f"FAILED: {self.where}: {what}: {str(got)[:400]}\n  after {self.page.evaluate('() => did.slice(-30).join(`, `)')}")

    def check(self, what, good, got=""):
        if good:
            counts["passed"] += 1
        else:
            self.fail(what, got)

    def settle(self):
        self.page.evaluate("() => $('heads').dispatchEvent(new Event('pointercancel'))")  # no drag is under way
        try:
            self.page.wait_for_function(IDLE, timeout=60000, polling=50)
        except Exception as error:
            return self.fail("the page comes to rest", f"{error} {self.page.evaluate('() => [!!config, isFulfilling, typing, keeping, isDue, !!measuring, !!putting].join()')}")
        self.page.evaluate("() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")

    def compare(self):
        """Whether what the page shows at rest is what the library computes."""
        seen = self.page.evaluate(SEEN)
        while not seen["atRest"]:
            self.settle()
            seen = self.page.evaluate(SEEN)
        path = f"{build}/web-models/{seen['model']}" if "/" not in seen["model"] else f"{build}/tiny-stories.attn"
        native = self.models.setdefault(path, Native(path))
        ids, n, encode = seen["ids"], len(seen["ids"]), native.model.tokenizer.encode
        self.surprisal(seen, path)
        self.check("the prompt is the state's", seen["prompt"] == seen["text"], (seen["prompt"], seen["text"]))
        self.check("nothing is awaited", (seen["awaited"], seen["left"], seen["writing"], seen["disabled"]) == (0, 0, False, [False, True]), seen["disabled"])
        self.check("the changes are those computed", seen["changes"] == seen["state"]["changes"], (seen["changes"], seen["state"]["changes"]))
        self.check("the list has them", seen["listed"].replace("\n", "") == "".join(d + "remove" for d in seen["described"]).replace("\n", ""), (seen["listed"], seen["described"]))
        self.check("the text is that of the tokens", seen["spans"] == seen["texts"], (seen["spans"], seen["texts"]))
        run = seen["run"] if n else seen["prompt"]
        prompt = [int(i) for i in encode(run.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))]
        if not n:
            self.check("no text: it is empty or refused", not prompt or seen["problem"] != "", (seen["prompt"][:80], seen["problem"]))
            return seen
        self.check("the text is the prompt's, or the prompt is refused", run == seen["prompt"] or (seen["refused"] and "make it shorter" in seen["problem"]), (run[:80], seen["prompt"][:80], seen["problem"]))
        seen["state"]["text"] = run
        given = ids[: seen["made"]]
        self.check("the tokens begin with the prompt's, or with those of another choice", "".join(seen["texts"])[: len(run)] == run or "\ufffd" in run or given[: len(prompt) - 1] == prompt[: len(given[: len(prompt) - 1])], (run, seen["texts"][: len(prompt) + 2]))
        session = native.session(seen, seen["changes"])
        record = session.record(["*.hook_pattern", "*.hook_resid_post"])
        losses = native_score(session, ids)
        self.check("the logits, to the bit", hexed(session.logits) == seen["logits"], seen["changes"])
        rows = np.concatenate([np.array(record[f"blocks.{i}.attn.hook_pattern"])[h, n - 1, :n] for i in range(4) for h in range(6)])
        self.check("the last row of each pattern, to the bit", hexed(rows) == seen["pattern"])
        self.check("the probabilities", all(abs(np.exp(-float(a)) - b) < 1e-5 for a, b in zip(losses, seen["probabilities"][1:])))
        self.check("the bottom of the lens", seen["lens"][-1] == int(np.argmax(session.logits)) or np.sum(session.logits == session.logits.max()) > 1)
        if seen["changes"]:
            self.check("the logits without changes, to the bit", hexed(native.model(ids)[-1]) == seen["plain"])
        else:
            self.check("without changes there is one set of logits", seen["plain"] is None)
        self.check("the likeliest bar", seen["bars"][0] == int(np.argmax(session.logits)), seen["bars"])
        if seen["best"] is not None:
            self.check("the parts sum to the logit", abs(seen["sum"] - seen["best"]) < 0.05 * max(1, abs(seen["best"])), (seen["sum"], seen["best"]))
        self.check("pictures of all tokens", seen["large"] == n and all(p == n for p in seen["painted"]), (n, seen["large"], seen["painted"]))
        if seen["wants"]:
            self.way(seen, native)
        marked = sorted({(c["layer"], c["head"]) for c in seen["changes"] if "head" in c})
        self.check("marks on the heads that are changed", [divmod(i, 6) for i, m in enumerate(seen["marks"]) if m] == marked, (seen["marks"], marked))
        return seen

    def way(self, seen, native):
        """The numbers of the station that is open, and that they add up."""
        way = seen["way"]
        self.check("the way is that of the token and the head", (way and way["at"]) == seen["wants"], (way, seen["wants"]))
        if not way or way["at"] != seen["wants"]:
            return
        position, layer, h = way["at"]
        block, session = f"blocks.{layer}.", native.session(seen, seen["changes"])
        record = session.record(["hook_embed", "hook_pos_embed", *(block + name for name in ("attn.hook_q", "attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z", "mlp.hook_post", "hook_mlp_out", "hook_resid_post"))])
        session.feed(seen["ids"][: position + 1])
        row = lambda name: np.array(record[name])[position]
        of_head = lambda name: np.array(record[block + name])[h, position, : position + 1]
        bits = {"embedding": row("hook_embed") + row("hook_pos_embed"), "query": row(block + "attn.hook_q")[h], "scores": of_head("attn.hook_attn_scores"), "pattern": of_head("attn.hook_pattern"), "z": row(block + "attn.hook_z")[h], "neurons": row(block + "mlp.hook_post"), "mlp": row(block + "hook_mlp_out"), "post": row(block + "hook_resid_post")}
        for name, numbers in bits.items():
            self.check(f"the way: {name}, to the bit", hexed(numbers) == way["bits"][name])
        want = stations.stations(native.model, native.session(seen, seen["changes"]), seen["ids"][: position + 1], layer, h, seen["changes"])
        self.check("the stations", way["names"] == list(want), way["names"])
        key, shown = way["shown"]
        if key in want:
            fault = stations.faults(shown, want[key], 0.05 if "q8" in seen["model"] else 0.0006)
            self.check("the numbers that are shown", len(shown) in (24, len(want[key][-1])) and not fault, (way["at"], key, fault))

    def surprisal(self, seen, path):
        """The rows of surprisal are the program's."""
        got = seen["surprisal"]
        self.check("nothing is being measured", seen["measuring"] == [True, True, False], seen["measuring"])
        if not got:
            return
        text, rows, settings = bytes(got["text"]), got["csv"], {**got["settings"], "file": None, "bos": None, "no_bos": not got["settings"]["bos"], "suite": got["command"] == "suite"}
        words = [word for name, value in settings.items() if value not in (None, False)
                 for word in ["--" + name.replace("continues", "continue").replace("_", "-")] + ([] if value is True else [value])]
        key = (path, text, *words)
        if key not in self.natives:
            self.natives[key] = subprocess.run([f"{build}/surprisal", path, *words], input=text, capture_output=True).stdout.decode()
        want = self.natives[key]
        self.check("the rows of surprisal", rows == want if got["isWhole"] else want.startswith(rows), (words, text[:60], rows[:200], want[:200]))
        head, *table = csv.reader(io.StringIO(rows or "word,token"))
        spelled = [row[head.index("token" if settings["by"] == "token" else "word")] for row in table][:2000]
        self.check("the words that are shown", got["said"] == spelled, (got["said"][:8], spelled[:8]))

    def story(self):
        """A story from Generate is the library's, with the changes and settings of the page."""
        self.page.evaluate("() => $('generate').click()")
        self.settle()
        seen = self.compare()
        if not seen["ids"] or seen["refused"]:
            return
        state, native = seen["state"], next(m for p, m in self.models.items() if p.endswith(os.path.basename(seen["model"])))
        prompt = native.model.tokenizer.encode(state["text"])
        session = native.session(seen, seen["changes"])
        sampling = attn.Sampling(temperature=state["temperature"], top_k=state["topK"], top_p=state["topP"], seed=state["seed"])
        if len(prompt) < session.capacity:
            for _ in session.generate(prompt, max_tokens=state["length"], sampling=sampling):
                pass
            self.check("the story, id by id", [int(i) for i in session.tokens] == seen["ids"], ([int(i) for i in session.tokens][-8:], seen["ids"][-8:], state))


def native_score(session, ids):
    scores = session.score(ids)
    return scores.losses if hasattr(scores, "losses") else scores[0]


def by_hand(page, rng):
    """Mouse and keyboard, at random places of the window."""
    size = page.viewport_size
    for _ in range(rng.randrange(1, 6)):
        what = rng.randrange(5)
        page.evaluate("(what) => did.push(`by hand ${what}`)", ["wheel", "key", "type", "move", "click"][what])
        if what == 0:
            page.mouse.wheel(0, rng.randrange(-900, 900))
        elif what == 1:
            page.keyboard.press(rng.choice(["Tab", "Tab", "Enter", "Escape", "ArrowDown", "ArrowRight", "Space", "Control+z", "PageDown", "Shift+Tab", "Delete"]))
        elif what == 2:
            page.locator("#prompt").focus()
            page.keyboard.type(rng.choice(["Lily", " and the dog", "A b c "]))
            if rng.randrange(2):
                page.keyboard.press("Control+Enter")
        elif what == 3:
            page.mouse.move(rng.randrange(size["width"]), rng.randrange(size["height"]), steps=3)
        else:
            x, y = rng.randrange(size["width"]), rng.randrange(size["height"])
            if page.evaluate("([x, y]) => !document.elementFromPoint(x, y)?.closest('label[for=file], [data-svg], [data-csv], [data-numbers]')", [x, y]):
                page.mouse.click(x, y)


def run_in(browser, name, rng):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, complaints = context.new_page(), []
    page.on("console", lambda m: m.type in ("error", "warning") and complaints.append(m.text))
    page.on("pageerror", lambda e: complaints.append(e.stack or str(e)))

    def begin():
        page.wait_for_function(IDLE, timeout=60000)
        page.evaluate(BITS)
        page.evaluate(ACTIONS)

    page.goto(f"file://{build}/attn.html")
    begin()
    checks, end, rounds, before = Checks(page, name), time.time() + seconds, 0, counts["failed"]
    while (rounds < seconds if len(sys.argv) > 3 else time.time() < end) and counts["failed"] < before + 5:
        rounds += 1
        if rng.randrange(60) == 0:
            path = rng.choice([f"{build}/web-models/q8.attn", f"{build}/web-models/f16.attn"])
            page.locator("#file").set_input_files(path)
        page.evaluate("([seed, n]) => burst(seed, n)", [rng.randrange(1, 2**31), rng.randrange(1, 12)])
        if rng.randrange(4) == 0:
            by_hand(page, rng)
        checks.settle()
        seen = checks.compare()
        if rng.randrange(5) == 0:
            checks.story()
        if rng.randrange(80) == 0 and "/" in seen["model"]:  # the included model: its address has all
            checks.settle()
            left = page.evaluate("() => state")
            page.reload()
            begin()
            found = page.evaluate("() => state")
            checks.check("the address brings the state back", found == left, (found, left))
        if complaints:
            checks.fail("no complaint in the console", complaints[:2])
            complaints.clear()
        elif page.evaluate("() => /undefined|null|not a function|NaN/.test($('problem').textContent)"):
            checks.fail("a sentence for people", page.evaluate("() => $('problem').textContent"))
    print(f"{name}: {rounds} rounds of random clicks and keys")
    context.close()


def launch(kind, program, name):
    if not program:
        return kind.launch()
    if name == "firefox":
        return kind.launch(executable_path=program, channel="moz-firefox", firefox_user_prefs={"browser.download.folderList": 2, "browser.download.dir": tempfile.gettempdir()})
    return kind.launch(executable_path=program, args=["--no-sandbox"])


def main():
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    print(f"random clicks and keys: seed {seed}")
    with sync_playwright() as playwright:
        for name, kind, programs in ("chromium", playwright.chromium, ("chromium", "chromium-browser")), ("firefox", playwright.firefox, ("firefox-esr", "firefox")):
            if name not in os.environ.get("BROWSERS", "chromium firefox").split():
                continue
            try:
                browser = launch(kind, next((shutil.which(p) for p in programs if shutil.which(p)), None), name)
            except Exception as error:  # Playwright has an error of its own for each way to be missing
                skip(f"random clicks in {name}", str(error).strip().split("\n")[0][:160])
                continue
            try:
                run_in(browser, name, random.Random(seed))
            except Exception:
                counts["failed"] += 1
                print(f"FAILED: {name}: came to an end: {traceback.format_exc()[-900:]}")
            browser.close()
    finish()


main()
