#!/usr/bin/env python3
"""The page in browsers, beside the native library: test_page.py BUILD [SHOTS]

BUILD holds attn.html, attn.o, attn-convert, lens, surprisal and tests/web-native. Needs Playwright from PyPI, and Debian's
chromium or firefox-esr, or the browsers that Playwright installs; what is missing is skipped. (Firefox ESR 153
runs with Playwright 1.57; Playwright 1.65 asks it for a command that it does not have.) Screenshots
at three sizes, light and dark, go to the folder SHOTS. BROWSERS=chromium leaves the other out."""

import array
import csv
import functools
import http.server
import io
import json
import math
import os
import pathlib
import random
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import urllib.parse
import xml.dom.minidom

sys.path.append(os.path.join(os.path.dirname(__file__), "../platforms/faces"))
from faces import write_lens

counts = {"passed": 0, "failed": 0, "skipped": 0}
build = os.path.abspath(sys.argv[1])
root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
shots = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
where = ""
downloads = tempfile.mkdtemp()  # of Firefox


def check(what, good, got=""):
    counts["passed" if good else "failed"] += 1
    if not good:
        print(f"FAILED: {where}: {what} {got}")


def skip(what, why):
    counts["skipped"] += 1
    print(f"skipped: {what}: {why}")


def finish():
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    sys.exit(counts["failed"] > 0)


try:
    from playwright.sync_api import sync_playwright
except ImportError:
    skip("the page in browsers", "there is no Playwright (pip install playwright)")
    finish()

try:
    import axe_playwright_python

    AXE = os.path.join(os.path.dirname(axe_playwright_python.__file__), "axe.min.js")
    AXE_SOURCE = open(AXE, encoding="utf-8").read()
except (ImportError, OSError):
    AXE_SOURCE = None

try:
    from safetensors.numpy import load as read_safetensors
except ImportError:
    read_safetensors = None

try:
    import numpy  # noqa: F401

    os.environ["ATTN_LIB"] = f"{build}/libattn.so"
    sys.path.insert(0, f"{root}/examples/python")
    import attn
    import stations
except ImportError:
    attn = None

# FNV-1a of the numbers' bytes, as web-native's.
DIGEST = """() => { let h = 2166136261;
    for (const b of new Uint8Array(logits.buffer, logits.byteOffset, logits.byteLength)) h = Math.imul(h ^ b, 16777619);
    return h >>> 0; }"""
IDLE = "() => config && !isFulfilling && !typing && !keeping && !isDue && !measuring && !putting"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves BUILD, with the policy that the page's head has as a header too."""

    def log_message(self, *words):
        pass

    def end_headers(self):
        if self.path.startswith("/attn.html"):
            page = open(os.path.join(build, "attn.html"), encoding="utf-8").read(4000)
            self.send_header("Content-Security-Policy", re.search('Policy" content="([^"]*)"', page).group(1))
        super().end_headers()


# Waits until the page has stopped to scroll: smooth scrolling takes longer where the processor is busy.
AT_REST = """async () => { for (let last = NaN, same = 0; same < 12; ) {
    await new Promise(requestAnimationFrame);
    same = scrollY === last ? same + 1 : 0, last = scrollY; } }"""


def settle(page):
    page.wait_for_timeout(160)  # typing is waited for that long
    page.wait_for_function(IDLE, timeout=60000)
    page.evaluate("() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")


def write(page, text):
    page.get_by_label("Prompt", exact=True).fill(text)
    settle(page)


def press(page, name, **how):
    page.get_by_role("button", name=name, **how).click()
    settle(page)


def evaluate(page, script, *given):
    page.evaluate(script, *given)
    settle(page)


def pick(page, token):
    page.get_by_role("log").get_by_role("button").nth(token).click()
    settle(page)


def text_of(page):
    return page.get_by_role("log").evaluate("(log) => [...log.children].map((t) => t.textContent).join('')")


def check_generation(page, native):
    page.get_by_label("Prompt", exact=True).fill(native["prompt"])
    page.get_by_role("slider", name="Length").fill("40")
    settle(page)
    check("the logits of the prompt", page.evaluate(DIGEST) == native["plain"]["digests"][0])
    press(page, "Generate")
    check("the greedy ids", page.evaluate("() => tokens.slice(-40).map((t) => t.id)") == native["plain"]["ids"])
    check("the text begins with the prompt", text_of(page).startswith(native["prompt"]), text_of(page)[:80])
    return text_of(page)


def check_changes_while_writing(page):
    """Undo may be pressed too often; what is changed shows at once; the lens stays where it was scrolled to."""
    page.get_by_label("Prompt", exact=True).fill("Once upon a time there was a little girl named Lily. She loved to play outside in the park with")
    page.get_by_role("slider", name="Length").fill("100")
    press(page, "Layer 0 head 1")
    page.locator("#lens").evaluate("(table) => { table.parentElement.scrollLeft = 150; }")
    press(page, "Layer 1 head 1")
    scrolled = page.locator("#lens").evaluate("(table) => table.parentElement.scrollLeft")
    check("a change leaves the lens where it was", abs(scrolled - 150) < 2, scrolled)
    page.evaluate("""() => new Promise((go) => {
        document.getElementById("generate").click();
        const press = (times) => {
            document.getElementById("undo").click();
            times > 1 ? setTimeout(press, 20, times - 1) : go();
        };
        setTimeout(press, 100, 4);
    })""")
    settle(page)
    check("undone as often as there was something", page.evaluate("() => state.changes.length") == 0 and page.locator("#undo").is_disabled())
    check("and the text is that without changes", page.evaluate("() => tokens.length") > 20 and page.locator("#problem").inner_text() == "")


def check_interruptions(page):
    """What is changed while the model writes changes what it goes on with; the keyboard's focus goes along."""
    write(page, "Once upon a time there was a little girl named Lily. She loved to")
    page.get_by_role("button", name="Generate").focus()
    page.keyboard.press("Enter")
    focus = page.evaluate("() => document.activeElement.id")
    settle(page)
    check("the focus goes to Stop and back", [focus, page.evaluate("() => document.activeElement.id")] in (["stop", "generate"], ["generate", "generate"]), focus)
    plain, n = text_of(page), page.evaluate("() => tokens.length")
    at_once = """() => new Promise((go) => {
        document.getElementById("generate").click();
        const wait = () => {
            if (!isBusy || tokens.length < 30) return setTimeout(wait, 1);
            WHAT;
            go(isBusy);
        };
        setTimeout(wait, 1);
    })"""
    was_busy = page.evaluate(at_once.replace("WHAT", "for (let h = 0; h < 6; h++) change({ kind: 'zero', layer: 2, head: h })"))
    settle(page)
    check("heads switched off while it writes change the story", was_busy and text_of(page) != plain and page.evaluate("() => tokens.length") == n, text_of(page))
    check("and the numbers are those of the whole text without them", page.evaluate("() => [state.changes.length, tokens.at(-1).lens.length, isBusy].join()") == "6,5,false")
    press(page, "Clear all")
    evaluate(page, at_once.replace("WHAT", "chosen = 20, drawChoice(), document.querySelectorAll('#alternatives button')[1].click()"))
    check("another choice while it writes", text_of(page) != plain and page.get_by_label("Prompt", exact=True).input_value() == page.evaluate("() => tokens.slice(0, 21).map((t) => t.text).join('')"), text_of(page))


AT_ONCE = """([text, pauses, then]) => new Promise((go) => {
    const prompt = $("prompt"), does = { click: () => $("generate").click(), keys: () => prompt.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true, bubbles: true })),
        head: () => heads.buttons[3].click(), stop: () => $("stop").click(), token: () => $("text").children[2]?.click() };
    const next = () => {
        if (!then.length) return go();
        does[then.shift()]();
        setTimeout(next, pauses);
    };
    prompt.value = text;
    prompt.dispatchEvent(new Event("input", { bubbles: true }));
    setTimeout(next, pauses);
})"""


def check_wishes(page, native):
    """The newest wish wins, whenever it comes, and what is shown was computed."""
    text = "Tom had a red ball. Sue had a blue hat. Tom had a"
    length = page.evaluate("() => state.length")
    for pause in 0, 30, 100, 118, 120, 122, 400:
        for way in "click", "keys":
            evaluate(page, AT_ONCE, [text, pause, [way]])
            written = page.evaluate("() => tokens.length - wanted.made")
            check(f"a story, {way} {pause} ms after typing", text_of(page).startswith(text) and written == length, (written, text_of(page)))
        write(page, "One")
        evaluate(page, AT_ONCE, [text, pause, ["head"]])
        check(f"a head {pause} ms after typing leaves the text", text_of(page) == text == page.get_by_label("Prompt", exact=True).input_value() and page.locator("#changes li").count() == 1, text_of(page))
        evaluate(page, AT_ONCE, ["One", pause, ["head", "token", "click"]])
        check("a head, a token, Generate", text_of(page).startswith("One") and len(text_of(page)) > 40 and page.locator("#changes li").count() == 0, text_of(page))
    write(page, native["prompt"])
    page.evaluate("() => { heads.buttons[15].click(); $('generate').click(); $('stop').click(); }")  # layer 2 head 3
    settle(page)
    check("a change, Generate, Stop at once: the text with the change", [page.evaluate(DIGEST), page.evaluate("() => tokens.length"), page.evaluate("() => shown.changes")] == [native["ablated"]["digests"][0], 4, [{"kind": "zero", "layer": 2, "head": 3}]])
    page.get_by_role("button", name="Clear all").click()
    page.evaluate("() => $('generate').click()")
    page.wait_for_function("() => tokens.length > 8", polling=1)
    evaluate(page, AT_ONCE, [text, 40, ["keys"]])
    check("text typed while it writes, Ctrl+Enter: a story of it", text_of(page).startswith(text) and page.evaluate("() => tokens.length - wanted.made") == length, text_of(page))
    saved_at_once = page.evaluate("() => { heads.buttons[3].click(); return new TextDecoder().decode(tensorsOf('next')); }")
    check("what is saved before a change is computed is without it", '"changes":"[]"' in saved_at_once, saved_at_once[:300])
    press(page, "Clear all")
    for event in "scroll", "pointermove", "pointerleave":
        page.get_by_label("Prompt", exact=True).evaluate("(box) => { box.value = 'Once upon a time there was a cat. '.repeat(20); box.dispatchEvent(new Event('input')); }")
        settle(page)
        page.evaluate("""(event) => new Promise((go) => {
            const box = $("large"), canvas = box.querySelector("canvas"), place = canvas.getBoundingClientRect(), end = performance.now() + 700;
            const timer = setInterval(() => {
                if (event === "scroll") box.scrollTop = box.scrollTop > 300 ? 0 : box.scrollTop + 40;
                else canvas.dispatchEvent(new PointerEvent(event, { bubbles: true, clientX: place.right - 20, clientY: place.bottom - 20 })), large.tell && large.over && large.tell();
                if (performance.now() > end) clearInterval(timer), go();
            }, 3);
            $("prompt").value = "A cat";
            $("prompt").dispatchEvent(new Event("input"));
            $("generate").click();
        })""", event)
        settle(page)
        check(f"{event} over the large picture while the text becomes shorter", page.locator("#problem").inner_text() == "", page.locator("#problem").inner_text())
    page.get_by_role("link", name="Skip to the prompt").evaluate("(link) => link.click()")
    check("the link to the prompt leaves the page as it is", page.evaluate("() => document.activeElement.id + location.hash.slice(0, 6)") == "prompt#text=")


def check_odd_texts(page):
    text = "caf\u00e9 \U0001f600 na\u00efve"
    write(page, text)
    check("letters of several tokens", text_of(page) == text, text_of(page))
    page.get_by_label("Prompt", exact=True).evaluate("(box) => { box.value = 'word '.repeat(600); box.dispatchEvent(new Event('input')); }")
    settle(page)
    press(page, "Layer 1 head 1")
    check("too long a text stays refused", "make it shorter" in page.locator("#problem").inner_text() and text_of(page) == text, page.locator("#problem").inner_text())
    page.get_by_role("button", name="Clear all").click()
    write(page, "Once upon a time")
    evaluate(page, "() => { state.second = 'Lily'; setChanges([{ kind: 'zero', layer: 0, head: 0 }, { kind: 'patch-stream', layer: 2, position: 3 }]); }")
    check("a change that cannot be applied is taken away, with a sentence", "was taken away" in page.locator("#problem").inner_text() and page.locator("#changes li").count() == 1 and text_of(page) != "", page.locator("#problem").inner_text())
    press(page, "Clear all")


def check_choice_of_texts(page):
    choose = page.get_by_label("Choose a text")
    text = "Tom had a red ball. Sue had a blue hat. Tom had a"
    choose.select_option(text)
    settle(page)
    check("a chosen text is the prompt, and runs", page.get_by_label("Prompt", exact=True).input_value() == text == text_of(page), text_of(page))
    check("it says what was said before", page.evaluate("() => shownNext[0].text") == " red")
    write(page, text + "n")
    check("another text is no longer the chosen one", choose.input_value() == "")


def check_stop(page):
    page.get_by_role("slider", name="Length").fill("200")
    page.get_by_role("button", name="Generate").click()
    page.wait_for_function(  # at once: a click from outside may come after the last token
        """() => { const here = isBusy && tokens.length > 9 && tokens.length < 150;
                   if (here) document.getElementById("stop").click();
                   return here; }""", polling=1)
    settle(page)
    check("stop stops", page.evaluate("() => tokens.length") < 200)
    page.get_by_role("slider", name="Length").fill("40")


def check_ablation(page, native, plain_text):
    write(page, native["prompt"])
    head = page.get_by_role("button", name="Layer 2 head 3")
    head.click()
    settle(page)
    check("a head is pressed", head.get_attribute("aria-pressed") == "true")
    check("the logits without a head", page.evaluate(DIGEST) == native["ablated"]["digests"][0])
    press(page, "Generate")
    check("the greedy ids without a head", page.evaluate("() => tokens.slice(-40).map((t) => t.id)") == native["ablated"]["ids"])
    check("the change is listed", "Layer 2 head 3: off" in page.locator("#changes").inner_text())
    check("the change is in the address", "changes=z2.3" in urllib.parse.unquote(page.url), page.url)
    changed_text = text_of(page)
    page.get_by_role("button", name="Copy C program").click()
    check_program(page.locator("#code").input_value(), changed_text)
    press(page, "Undo")
    check("undone", page.locator("#changes li").count() == 0)
    press(page, "Generate")
    check("the text as before", text_of(page) == plain_text)
    press(page, "Redo")
    page.reload()
    settle(page)
    check("the link brings the change back", page.evaluate(DIGEST) == native["ablated"]["digests"][0])
    press(page, "Clear all")
    check("cleared", page.evaluate(DIGEST) == native["plain"]["digests"][0])


def check_program(source, text):
    """The C program that the page hands out prints the text that the page shows."""
    if not os.path.exists(f"{build}/attn.o"):
        return skip("the C program", "there is no attn.o")
    with tempfile.TemporaryDirectory() as tmp:
        with open(f"{tmp}/page.c", "w", encoding="utf-8") as file:
            file.write(source)
        command = ["cc", "-Wall", "-Wextra", "-Werror", "-DATTN__IMPLEMENTED", "-I", root, f"{tmp}/page.c", f"{build}/attn.o", "-fopenmp", "-lm", "-o", f"{tmp}/page"]
        made = subprocess.run(command, capture_output=True, text=True)
        check("the C program compiles", made.returncode == 0, made.stderr[:400])
        if made.returncode == 0:
            out = subprocess.run([f"{tmp}/page", f"{build}/tiny-stories.attn"], capture_output=True)
            got = out.stdout.decode("utf-8", "replace")
            check("the C program prints the page's text", got == text + "\n", f"{got!r} {text!r} {out.stderr!r}")


def check_seeds(page):
    """Every seed of 64 bits, and nothing else."""
    page.get_by_label("Prompt", exact=True).fill("Once upon a time")
    seed = page.get_by_label("Seed")
    page.get_by_role("slider", name="Temperature").fill("1")
    stories = []
    for digits in "18446744073709551615", "9007199254740993", "9007199254740992":
        seed.fill(digits)
        press(page, "Generate")
        stories.append(text_of(page))
        check("the address has the seed", f"seed={digits}" in page.evaluate("() => location.hash") and page.evaluate("() => String(fromHash(location.hash).seed)") == digits)
    check("seeds that one double cannot hold are different", len(set(stories)) == 3, stories)
    seed.fill("18446744073709551615")
    check_program(page.evaluate("() => toC(state, modelFile)"), stories[0])
    for digits in "18446744073709551616", "-1", "", "1e3", "1.5":
        seed.evaluate("(box, digits) => { box.value = digits; box.dispatchEvent(new Event('input')); box.dispatchEvent(new Event('change')); }", digits)  # at once: Firefox fills in letter by letter
        check(f"{digits!r} is told", "The seed is a whole number from 0" in page.locator("#problem").inner_text(), page.locator("#problem").inner_text())
        check(f"{digits!r} is no seed", page.evaluate("() => String(state.seed)") == "18446744073709551615" and not seed.evaluate("(box) => box.checkValidity()"))
    seed.fill("1")
    page.get_by_role("slider", name="Temperature").fill("0")
    settle(page)


def check_other_changes(page):
    """A change of each kind changes the logits, and its C program prints what the page writes."""
    page.get_by_text("A second text, and steering").click()
    plain = page.evaluate(DIGEST)
    scale = page.get_by_role("button", name="Layer 1 head 0")
    scale.focus()
    for _ in range(5):
        page.keyboard.press("-")
    settle(page)
    check("a scaled head", page.evaluate("() => state.changes[0].factor") == 0.5)
    page.get_by_role("button", name="Layer 0 head 0").focus()
    page.keyboard.press("ArrowDown")
    check("arrows move among heads", page.evaluate("() => document.activeElement.getAttribute('aria-label')") == "Layer 1 head 0")
    page.get_by_label("its mean").check()
    page.get_by_role("button", name="Layer 0 head 1").click()
    page.get_by_label("the second text’s").check()
    press(page, "Layer 3 head 2")
    press(page, "Steer")
    page.locator('#lens button[data-layer="1"][data-position="2"]').click()
    press(page, "Zero")
    check("five changes", page.locator("#changes li").count() == 5, page.locator("#changes").inner_text())
    check("they change the logits", page.evaluate(DIGEST) != plain)
    press(page, "Generate")
    page.get_by_role("button", name="Copy C program").click()
    check_program(page.locator("#code").input_value(), text_of(page))
    page.get_by_label("nothing").check()
    press(page, "Clear all")
    check("and back", page.evaluate("() => state.changes.length") == 0)
    page.get_by_role("button", name="Layer 0 head 2").scroll_into_view_if_needed()
    box = page.get_by_role("button", name="Layer 0 head 2").bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 30, box["y"] + 10, steps=4)
    page.mouse.move(box["x"] + 50, box["y"] + 10, steps=4)
    page.mouse.up()
    settle(page)
    cancelled = page.evaluate("""() => {
        heads.buttons[9].classList.add("changed"), heads.buttons[9].dataset.mark = "×0.3"; // as a drag does
        $("heads").dispatchEvent(new Event("pointercancel"));
        return heads.buttons[9].dataset.mark + heads.buttons[9].className;
    }""")
    check("a drag that the browser takes over leaves no mark", cancelled == "head", cancelled)
    check("a drag scales", page.evaluate("() => state.changes[0]?.kind") == "scale" and page.evaluate("() => state.changes[0].factor") == 1.5, page.evaluate("() => JSON.stringify(state.changes)"))
    press(page, "Clear all")


CHANGES = """[{kind: "zero", layer: 2, head: 3}, {kind: "mean", layer: 0, head: 1}, {kind: "scale", layer: 1, head: 0, factor: 0.5},
    {kind: "patch", layer: 3, head: 2}, {kind: "patch-stream", layer: 1, position: 3}, {kind: "stream", layer: 2, position: 1, factor: 0},
    {kind: "steer", layer: 2, factor: 1.5}]"""


def check_group(page, tmp):
    """Features of an attribution graph that are chosen with Shift, by pointer and by key, are a group for --group."""
    graph = [f"{build}/lens", f"{build}/tiny-stories.attn", "graph", "Once upon a time there was a", "--transcoders", "examples/sae/transcoders", "-q"]
    subprocess.run([*graph, "-o", f"{tmp}/graph.html"], check=True, stdout=subprocess.DEVNULL)
    picture = page.context.new_page()
    picture.goto(f"file://{tmp}/graph.html")
    features = picture.locator(".part:has(circle)")
    features.nth(0).click(modifiers=["Shift"])
    features.nth(1).focus()
    picture.keyboard.press("Shift+Enter")
    picture.locator(".part:has(rect)").first.click(modifiers=["Shift"])
    text = picture.locator("#group").text_content()
    pathlib.Path(tmp, "group.json").write_text(text)
    run = subprocess.run([*graph, "--check", "--group", f"{tmp}/group.json", "--json"], capture_output=True, text=True)
    check("two features are a group that lens reads", run.returncode == 0 and text.count("feature ") == 2, (text, run.stderr[:300]))
    for i in range(2):
        features.nth(i).click(modifiers=["Shift"])
    check("and none are no group", picture.locator("#group").is_hidden() and picture.locator(".grouped").count() == 0)
    features.nth(0).click()
    check("without Shift a feature is looked at", picture.locator(".part[aria-pressed=true]").count() == 1)
    picture.close()


def check_lens_commands(page, tmp):
    """What the copied commands of lens print is what the page shows, with a change of each kind."""
    write(page, "Lily's dog saw a \"cat\". It")
    plain = page.evaluate(DIGEST)
    evaluate(page, f"() => setChanges({CHANGES})")
    check("the changes of the command change the logits", page.evaluate(DIGEST) != plain)
    page.get_by_role("button", name="Copy lens command").click()
    source = page.locator("#code").input_value()
    seen = page.evaluate("() => ({ tokens: tokens.map((t) => ({ id: t.id, alternatives: t.alternatives })), logits: [...logits], parts: parts.shares, best: parts.token })")
    evaluate(page, "() => setChanges([])")
    if not os.path.exists(f"{build}/lens"):
        return skip("the commands of lens", "there is no lens")
    answers = {}
    check("the commands are one line", "\n" not in source and source.isprintable(), source)
    for line in source.split(" && "):
        words = shlex.split(line)
        check("a command begins with lens and its model", words[:2] == ["build/lens", "build/tiny-stories.attn"], line)
        drawn = "-o" in words
        run = subprocess.run([f"{build}/lens", f"{build}/tiny-stories.attn", *words[2:], *([] if drawn else ["--json"])], capture_output=True, text=True, cwd=tmp)
        check(f"{words[2]} runs", run.returncode == 0, run.stderr[:300])
        answers[words[2]] = None if drawn or run.returncode else json.loads(run.stdout)
    told, top = (answers["tokens"][table] if answers.get("tokens") else [] for table in ("tokens", "top"))
    check("the ids of the command", [t["token_id"] for t in told] == [t["id"] for t in seen["tokens"]])
    single = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
    for i in range(len(told) - 1):
        want = [(a["id"], a["probability"]) for a in seen["tokens"][i + 1]["alternatives"][:5]]
        got = [(a["guess_id"], single(a["probability"])) for a in top if a["position"] == i]
        check(f"what comes after token {i}, to the bit", got == want, (got, want))
    same = [single(a["logit"]) == seen["logits"][a["guess_id"]] for a in top if a["position"] == len(told) - 1]
    check("the last logits, to the bit", same and all(same), same)
    shares = [row["contribution"] for row in answers["attribute"]["terms"]] if answers.get("attribute") else []
    check("the logit that attribute explains", answers["attribute"] and answers["attribute"]["facts"][0]["target_id"] == seen["best"])
    check_pasted(page, tmp)
    check("the shares sum to the page's", abs(sum(shares) - sum(seen["parts"])) < 1e-3, (sum(shares), sum(seen["parts"])))


def check_pasted(page, tmp):
    """Whatever a link's texts have in them, the command is one line, and sh gives lens the same texts."""
    for text in "Once\x03\ntouch pasted\n", "a\tb' %s \\ \"c\"\n\n", "\u202eabc \x1b[2J", "caf\u00e9 \U0001f600":
        page.evaluate("(text) => { $('prompt').value = state.text = state.second = state.plus = state.minus = text; want({ ids: null, left: 0 }); }", text)
        evaluate(page, "() => setChanges([{ kind: 'steer', layer: 2, factor: 1 }, { kind: 'patch-stream', layer: 1, position: 0 }])")
        page.get_by_role("button", name="Copy lens command").click()
        command = page.locator("#code").evaluate("(box) => box.value")
        check("one line without control characters", command.isprintable(), repr(command))
        logits, ids = page.evaluate("() => [[...logits], tokens.map((t) => t.id)]")
        only = command.split(" && ")[0].replace("build/lens build/tiny-stories.attn", f"{build}/lens {build}/tiny-stories.attn") + " --json"
        for shell in "dash", "bash":
            if not shutil.which(shell):
                continue
            run = subprocess.run([shell, "-c", only], capture_output=True, text=True, cwd=tmp)
            told = json.loads(run.stdout) if run.returncode == 0 else {"tokens": []}
            check(f"{shell} gives lens these texts", [t["token_id"] for t in told["tokens"]] == ids and all(abs(a["logit"] - logits[a["guess_id"]]) < 1e-5 for a in told["top"] if a["position"] == len(ids) - 1), (run.stderr[:300], only))
    check("nothing else ran", not os.path.exists(f"{tmp}/pasted"))
    page.evaluate("() => { state.text = 'a\\0b'; }")
    page.get_by_role("button", name="Copy lens command").click()
    check("a NUL is no argument", "NUL" in page.locator("#copied").inner_text())
    evaluate(page, "() => { setChanges([]); Object.assign(state, newState(), { length: state.length }); for (const key of ['second', 'plus', 'minus']) $(key).value = state[key]; $('prompt').value = state.text; want({ ids: null }); }")


def saved(page, picture, kind):
    """The bytes of the file that a click saves."""
    name = f"{picture}.{'safetensors' if kind == 'numbers' else kind}"
    return saved_file(page, page.locator(f'[data-{kind}="{picture}"]'), name)


def saved_file(page, link, name):
    if not where.startswith("firefox"):
        with page.expect_download() as download:
            link.click()
        check("the name of the file", download.value.suggested_filename == name, download.value.suggested_filename)
        with open(download.value.path(), "rb") as file:
            return file.read()
    path = os.path.join(downloads, name)  # WebDriver BiDi tells Playwright nothing of downloads: Firefox has a folder
    link.click()
    for _ in range(200):
        if os.path.exists(path) and os.path.getsize(path) and not os.path.exists(path + ".part"):
            break
        page.wait_for_timeout(50)
    with open(path, "rb") as file:
        content = file.read()
    os.remove(path)
    return content


def tensors_of(content):
    """A .safetensors file by hand: names to shapes and numbers, and the metadata."""
    size = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8 : 8 + size])
    texts, end, all_tensors = header.pop("__metadata__"), 0, {}
    check("the header ends at a multiple of 8", size % 8 == 0)
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        count = functools.reduce(lambda a, b: a * b, entry["shape"], 1)
        check(f"{name} lies where it should", entry["dtype"] == "F32" and first == end and last - first == 4 * count, entry)
        all_tensors[name] = entry["shape"], struct.unpack_from(f"<{count}f", content, 8 + size + first)
        end = last
    check("the file ends with its numbers", len(content) == 8 + size + end)
    if read_safetensors:
        read = read_safetensors(content)
        check("the safetensors package reads the same", {name: (list(x.shape), x.ravel().tolist()) for name, x in read.items()} == {name: (shape, list(values)) for name, (shape, values) in all_tensors.items()})
    return all_tensors, texts


def check_saving(page):
    n = page.evaluate("() => tokens.length")
    numbers, texts = tensors_of(saved(page, "attention", "numbers"))
    check("patterns of four layers", list(numbers) == [f"blocks.{i}.attn.hook_pattern" for i in range(4)])
    check("the ids of the file", json.loads(texts["ids"]) == page.evaluate("() => tokens.map((t) => t.id)"))
    shape, values = numbers["blocks.1.attn.hook_pattern"]
    check("the shape of a pattern", shape == [1, 6, n, n], shape)
    rows = page.evaluate("() => rowsOfHead(1, 2).map((r) => [...r])")
    check("the weights of a head", all(list(values[(2 * n + q) * n : (2 * n + q) * n + q + 1]) == row for q, row in enumerate(rows)))
    numbers, _ = tensors_of(saved(page, "next", "numbers"))
    check("the logits of the file", list(numbers["logits"][1]) == page.evaluate("() => [...logits]"))
    numbers, texts = tensors_of(saved(page, "lens", "numbers"))
    check("the lens of the file", list(numbers["probability"][1][-n:]) == page.evaluate("() => tokens.map((t) => Math.fround(t.lens.at(-1).probability))") and len(json.loads(texts["rows"])) == 5)
    numbers, texts = tensors_of(saved(page, "parts", "numbers"))
    check("the shares of the file", abs(sum(numbers["share"][1]) - page.evaluate("() => logits[parts.token]")) < 0.02 and len(json.loads(texts["parts"])) == len(numbers["share"][1]))
    check("a saved SVG", saved(page, "attention", "svg").startswith(b"<svg"))
    check("a saved CSV", saved(page, "attention", "csv").startswith(b"query,key,"))


# How long frames and tasks of the page's thread take while it writes.
WATCH = """() => {
    window.seen = { frames: [], tasks: [] };
    const frame = (t) => { seen.frames.push([t, isBusy]); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    if (PerformanceObserver.supportedEntryTypes.includes("longtask"))
        new PerformanceObserver((list) => seen.tasks.push(...list.getEntries().map((e) => e.duration))).observe({ type: "longtask" });
    const size = (nodes) => [...nodes].reduce((n, node) => n + 1 + (node.querySelectorAll?.("*").length ?? 0), 0), from = tokens.length;
    window.touched = 0; // nodes made, removed or changed while it writes
    new MutationObserver((list) => {
        if (isBusy && tokens.length > from) for (const { addedNodes, removedNodes } of list) touched += Math.max(1, size(addedNodes) + size(removedNodes));
    }).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
}"""


def check_smoothness(page):
    """While it writes, the page draws frames, and what a token or a frame changes does not grow with the text."""
    page.get_by_label("Prompt", exact=True).fill("Once upon a time")
    page.get_by_role("slider", name="Length").fill("240")
    settle(page)
    page.evaluate(WATCH)
    press(page, "Generate")
    frames = page.evaluate("() => seen.frames.filter(([, busy]) => busy).map(([t]) => t)")
    gaps = sorted(b - a for a, b in zip(frames, frames[1:]))
    tasks = page.evaluate("() => seen.tasks")
    if gaps:
        print(f"{where}: {len(frames)} frames while writing, {1000 * len(gaps) / sum(gaps):.0f} a second, half below {gaps[len(gaps) // 2]:.1f} ms, the longest {gaps[-1]:.0f} ms; tasks above 50 ms: {[round(t) for t in tasks]}")
    check("frames while writing", len(frames) > 10, len(frames))
    # Each token adds a span, at least; at most a span and a column of the lens. Each frame changes the bars.
    touched, n = page.evaluate("() => [touched, tokens.length]")
    check("nodes that are touched", n < touched < 40 * n + 60 * len(frames), (touched, n, len(frames)))
    page.get_by_role("slider", name="Length").fill("40")


# A text of 700 tokens: pixels of a small picture, each for several weights, and the large picture's ends.
LONG = """() => {
    const weight = (q, k) => ((7 * q + 13 * k) % 97) / 97, n = 700, small = new Small(weight), { canvas } = small;
    for (let rows = 0; rows < n;) small.paint((rows = Math.min(n, rows + 64)));
    const step = small.step, pixels = canvas.getContext("2d").getImageData(0, 0, 256, 256).data, alpha = (x, y) => pixels[4 * (256 * y + x) + 3];
    let wrong = 0;
    for (const y of [150, 170, 174]) // rows since the pixels have had so many weights
        for (const x of [0, 31, 149]) {
            let most = 0;
            for (let q = y * step; q < Math.min(n, (y + 1) * step); q++)
                for (let k = x * step; k < (x + 1) * step && k <= q; k++) most = Math.max(most, Math.floor(10 + 245 * Math.sqrt(weight(q, k)) + 0.5));
            wrong += Math.abs(most - alpha(x, y)) > 1;
        }
    const last = [large.labels, large.weight, large.query];
    large.weight = weight;
    large.setLabels(Array.from({ length: n }, (_, i) => `·token${i}`));
    large.draw();
    large.reveal(n - 1, n - 1);
    const end = [large.x + large.width, large.y + large.height, large.all, large.cell];
    large.setLabels(last[0]), (large.weight = last[1]), large.draw();
    return { step, size: canvas.width, wrong, end };
}"""


# The pixels in the middle of each weight of each small picture, beside what draws a weight; how many canvases hold them.
PICTURES = """() => {
    const { canvas, canvas: { width, height }, pale, places, small } = heads, n = tokens.length, copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const pixels = copy.getImageData(0, 0, width, height).data;
    let wrong = 0, seen = 0;
    places.forEach(([x, y, side], i) => {
        for (let q = 0; q < n; q++)
            for (let k = 0; k < n; k++, seen++) {
                const at = (j) => Math.floor(((j + 0.5) * side) / n), alpha = pixels[4 * ((y + at(q)) * width + x + at(k)) + 3];
                wrong += Math.abs(alpha - (k > q ? 0 : (pale[i] ? 0.25 : 1) * (10 + 245 * Math.sqrt(small[i].weight(q, k))))) > 1;
            }
    });
    return [wrong, seen, document.querySelectorAll("#heads canvas").length];
}"""


def check_long_text(page):
    long = page.evaluate(LONG)
    check("a pixel for several weights of a long text", long["step"] == 4 and long["size"] == 256 and long["wrong"] == 0, long)
    right, bottom, whole, cell = long["end"]
    check("the last weight of a long text comes into sight", abs(right - whole) < 5 and abs(bottom - whole) < 5 and cell >= 16, long)


def check_pictures(page, what):
    got, n = page.evaluate(PICTURES), page.evaluate("() => tokens.length")
    check(f"a pixel for each weight of each head, on one canvas, {what}", got == [0, 24 * n * n, 1], got)


def next_tokens(logits, temperature, top_k, top_p):
    """The eight likeliest ids with their probabilities, cut by top-k, then by top-p."""
    most = max(logits)
    ranked = sorted(((math.exp((x - most) / (temperature or 1)), -i) for i, x in enumerate(logits)), reverse=True)
    if temperature and top_k:
        ranked = ranked[:top_k]
    if temperature and top_p < 1:
        total, reached, n = sum(w for w, _ in ranked), 0, 0
        while n < len(ranked) and reached < top_p * total:
            reached += ranked[n][0]
            n += 1
        ranked = ranked[:n]
    total = sum(w for w, _ in ranked)
    return [(-i, w / total) for w, i in ranked[:8]]


def check_views(page):
    write(page, "Once upon a time there was")
    n = page.evaluate("() => tokens.length")
    check_pictures(page, "of a text")
    write(page, "Once upon a time there is")
    check_pictures(page, "of another text of as many tokens")
    press(page, "Layer 0 head 2")
    check_pictures(page, "with a head switched off")
    page.get_by_role("button", name="Clear all").click()
    write(page, "Once upon a time there was")
    rows = page.evaluate("() => rowsOfHead(1, 2).map((r) => r.reduce((a, b) => a + b, 0))")
    check("rows of a pattern sum to 1", len(rows) == n and all(abs(x - 1) < 1e-4 for x in rows), rows)
    check("the last row of the lens is the model's answer", page.evaluate("() => tokens.at(-1).lens.at(-1).text === words[largest(logits, 1)[0]]"))
    sums = page.evaluate("() => [parts.shares.reduce((a, b) => a + b, 0), logits[parts.token]]")
    check("the parts sum to the logit", abs(sums[0] - sums[1]) < 0.02, sums)
    pick(page, 3)
    other = page.locator("#alternatives button").nth(1)
    words = page.evaluate("() => tokens[3].alternatives[1].text")
    other.click()
    settle(page)
    check("another choice goes on", page.evaluate("() => tokens[3].text") == words)
    page.get_by_role("slider", name="Temperature").fill("1")
    page.get_by_role("slider", name="Top-k").fill("5")
    settle(page)
    check("top-k leaves so many", page.evaluate("() => shownNext.length") == 5)
    check("the bars sum to 1", abs(page.evaluate("() => shownNext.reduce((s, b) => s + b.value, 0)") - 1) < 1e-6)
    for temperature, top_k, top_p in (1, 5, 1), (0.7, 0, 0.9), (1.5, 40, 0.5), (2, 0, 1), (0, 9, 0.2):
        for name, value in ("Temperature", temperature), ("Top-k", top_k), ("Top-p", top_p):
            page.get_by_role("slider", name=name).fill(str(value))
        settle(page)
        want = next_tokens(page.evaluate("() => [...logits]"), temperature, top_k, top_p)
        got = page.evaluate("() => shownNext.map((b) => [b.id, b.value])")
        check(f"the bars at {temperature}, {top_k}, {top_p}", [b[0] for b in got] == [b[0] for b in want] and all(abs(g[1] - w[1]) < 1e-9 for g, w in zip(got, want)), (got, want))
    for name, value in ("Temperature", 0), ("Top-k", 0), ("Top-p", 1):
        page.get_by_role("slider", name=name).fill(str(value))
    check("layers from 0 on in both tables", page.evaluate("() => [...document.querySelectorAll('#parts tbody th')].slice(0, 4).map((th) => th.textContent).join()") == "0,1,2,3"
          and page.evaluate("() => [...document.querySelectorAll('#heads .head')].slice(0, 8).map((b) => b.ariaLabel).join()").startswith("Layer 0 head 0,Layer 0 head 1,"))
    # The pointer rests on a head whose picture goes meanwhile, as when another model is opened.
    page.evaluate("() => { const all = heads; all.buttons[9].dispatchEvent(new PointerEvent('pointerover', { bubbles: true })); heads = { buttons: [] }; setTimeout(() => (heads = all), 300); }")
    page.wait_for_function("() => heads.buttons.length > 0")
    check_saving(page)
    check_long_text(page)
    for name in "next", "attention", "lens", "parts":
        svg = page.evaluate(f"() => PICTURES.{name}()")
        check(f"{name}.svg is XML", xml.dom.minidom.parseString(svg.encode()).documentElement.tagName == "svg")
        check(f"{name}.csv has lines", page.evaluate(f"() => csv(TABLES.{name}())").count("\n") > 3)


def check_files(page, tmp):
    model = open(f"{build}/tiny-stories.attn", "rb").read()
    huge = bytearray(model)
    huge[16:24] = struct.pack("<Q", 1 << 60)
    for name, content in ("cut.attn", model[:3000]), ("changed.attn", model[:200000] + b"?" + model[200001:]), ("huge.attn", bytes(huge)), ("empty.attn", b""):
        page.locator("#file").set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": content})
        page.wait_for_function(f"() => document.getElementById('problem').textContent.startsWith('{name}: ')", timeout=20000)
        check(f"{name} gets a sentence", len(page.locator("#problem").inner_text()) > 25)
    page.locator("#file").set_input_files({"name": "notes.txt", "mimeType": "text/plain", "buffer": b"hello"})
    page.wait_for_function("() => $('sentences-name').textContent.includes('notes.txt') && $('problem').textContent === ''")
    page.locator("#sentences-close").click()
    page.locator("#file").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": b"\x89PNG"})
    page.wait_for_function("() => document.getElementById('problem').textContent.includes('this is no model')")
    folder = os.path.join(root, "examples", "tiny-stories")
    checkpoint = [f"{folder}/{name}" for name in ("config.json", "merges.txt", "vocab.json", "model.safetensors")]
    page.locator("#file").set_input_files(checkpoint)
    page.wait_for_function("() => document.getElementById('about-model').textContent.includes('the checkpoint')", timeout=60000)
    native = json.loads(subprocess.run([f"{build}/tests/web-native", f"{build}/tiny-stories.attn"], check=True, capture_output=True).stdout)
    write(page, native["prompt"])
    check("a converted checkpoint's logits", page.evaluate(DIGEST) == native["plain"]["digests"][0])
    other = f"{tmp}/q8.attn"
    subprocess.run([f"{build}/attn-convert", folder, other, "--dtype", "q8", "--quiet"], check=True, capture_output=True)
    native = json.loads(subprocess.run([f"{build}/tests/web-native", other], check=True, capture_output=True).stdout)
    page.locator("#file").set_input_files(other)
    page.wait_for_function("() => document.getElementById('about-model').textContent.includes('q8.attn')", timeout=20000)
    write(page, native["prompt"])
    check("the parts are those of the other model", page.evaluate("() => Math.abs(parts.shares.reduce((a, b) => a + b, 0) - logits[parts.token]) < 0.1"))
    check("another model's logits", page.evaluate(DIGEST) == native["plain"]["digests"][0])


def check_access(page):
    if AXE_SOURCE is None:
        return skip("accessibility", "there is no axe-core (pip install axe-playwright-python)")
    page.get_by_role("button", name="Tour", exact=True).click()
    page.get_by_text("A second text, and steering").click()
    page.get_by_text("What is measured, and how").click()
    page.locator("#measure").click()
    page.locator("[data-station=query]").click()
    page.get_by_role("log").get_by_role("button").nth(2).click()
    page.locator('#lens button[data-layer="1"][data-position="1"]').click()
    for scheme in "light", "dark", "about":
        if scheme == "about":
            page.get_by_role("button", name="About").click()
            page.get_by_text("How fast it is").click()
        else:
            page.emulate_media(color_scheme=scheme)
            page.get_by_role("button", name="Layer 1 head 1").click()
        settle(page)
        page.evaluate("(source) => { (0, eval)(source); }", AXE_SOURCE)
        found = page.evaluate("() => axe.run().then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target.join(' ') + ' ' + n.failureSummary).slice(0, 3).join(' | ')))")
        check(f"axe-core, {scheme}", found == [], found)
        if scheme != "about":
            press(page, "Clear all")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="End the tour").click()


def check_tour(page):
    page.get_by_role("button", name="Tour", exact=True).click()
    stories = []
    for i in range(8):
        check("a step of the tour", page.locator("#tour-count").inner_text() == f"Step {i + 1} of 8")
        if page.locator("#tour-act").is_visible():
            page.locator("#tour-act").click()
            settle(page)
            stories.append(text_of(page))
        if i == 0:
            check("the tour begins with tokens, and shows their ids", page.locator("#part-text.pointed").count() == 1 and page.locator("#ids").is_checked())
        if i == 5:
            check("the way of a token sums it up, and opens its numbers", page.locator("#part-flow.pointed").count() == 1 and "Softmax" in page.locator("#flow-numbers").inner_text())
        if i < 7:
            page.get_by_role("button", name="Next", exact=True).click()
    check("the tour ends with a head switched off", page.locator("#changes li").count() == 1)
    check("and with another story", stories[-1] != stories[1] and stories[-1].startswith(stories[0]), stories)
    page.get_by_role("button", name="End the tour").click()
    press(page, "Clear all")


def check_first_hour(page, tmp):
    """What people stumbled over in their first hour."""
    page.get_by_label("Choose a text").select_option("The toy broke. He")
    settle(page)
    press(page, "Generate")
    sad = text_of(page)
    check("nothing is said of an old text", page.locator("#old").inner_text() == "")
    page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
    press(page, "Steer", exact=True)
    check("after a change the page says that the text is the former one", "Generate" in page.locator("#old").inner_text() and text_of(page) == sad)
    press(page, "Generate")
    check("to steer with the defaults makes the text happier", "sad" in sad and "sad" not in text_of(page) and "happy" in text_of(page), (sad, text_of(page)))
    check("and the text is the new one", page.locator("#old").inner_text() == "")
    page.get_by_role("button", name="Clear all").click()
    for text, most in ("Once upon", 20), ("Once upon a time there was a little girl named Lily. She loved to play outside in the park with", 45):
        write(page, text)
        white = page.evaluate("() => large.box.getBoundingClientRect().bottom - large.canvas.getBoundingClientRect().bottom")
        check(f"little white below a large head of {text!r}", -1 < white < most, white)
    check("tints have a legend", page.locator("#part-attention .legend, #part-lens .legend, #part-parts .legend").count() == 3)
    cells = page.evaluate("() => csv([['=1+1', ' =1', '+x', '-x', '@x', '\\t=', '\\r', '\uff1d1', 'a', '-', -1.5, '\"']])")
    check("no cell is a formula", cells == "'=1+1,' =1,'+x,'-x,'@x,'\t=,\"'\r\",'\uff1d1,a,'-,-1.5,\"\"\"\"\n", cells)
    subprocess.run([f"{build}/attn-convert", f"{build}/tiny-stories.attn", f"{tmp}/tiny.gguf", "--quiet"], check=True, capture_output=True)
    before = page.evaluate(DIGEST)
    page.locator("#file").set_input_files(f"{tmp}/tiny.gguf")
    page.wait_for_function("() => $('about-model').textContent.includes('tiny.gguf')", timeout=60000)
    settle(page)
    check("a GGUF file is converted", page.evaluate(DIGEST) == before)
    page.locator("#file").set_input_files({"name": "broken.gguf", "mimeType": "application/octet-stream", "buffer": b"GGUF...."})
    page.wait_for_function("() => $('problem').textContent.startsWith('broken.gguf: ')", timeout=20000)


def check_classroom(page):
    """What a class needs: tokens with their edges and ids, and in quotes."""
    page.get_by_label("Show ids").uncheck()  # the tour shows them
    write(page, "Unbelievable was")
    token = page.get_by_role("log").get_by_role("button")
    look = lambda what: token.evaluate_all(f"(all) => all.map((one) => {{ const style = getComputedStyle(one), id = getComputedStyle(one, '::after').content; return {what}; }})")
    check("each token has an edge", token.count() == 8 and set(look("style.borderInlineStartWidth + style.borderInlineStartStyle")) == {"1pxsolid"}, look("style.border"))
    unasked, _ = look("id"), page.get_by_label("Show ids").check()
    ids = page.evaluate("() => tokens.map((t) => String(t.id))")
    check("ids are shown where they are asked for", set(unasked) == {"none"} and "none" not in look("id") and look("one.dataset.id") == ids, look("id"))
    token.nth(7).click()
    settle(page)
    check("a chosen token's id", page.locator("#choice-title").inner_text().startswith(f"Token 7: “·was”, id {ids[7]}, "), page.locator("#choice-title").inner_text())
    said = page.locator(".stations .small").all_inner_texts() + page.locator("#large-note, [data-station=softmax]").all_inner_texts() + look("one.dataset.tip.replace(/^id [0-9]+, (the first token)?/, '')")
    check("stations and tips quote tokens", len(said) > 24 and not any(re.search(r"[^”<] \d+(\.\d)? %", one) for one in said), said)
    for text, strange in ("Die Kinder essen Äpfel.", "4 of 4 words"), ("Siobhan", ""), ("The horse raced past the barn fell.", ""), ("从前有一个小女孩", "1 of 1 words"):
        page.get_by_label("Prompt", exact=True).fill(text)
        page.locator("#sentences").fill(text)
        page.locator("#measure").click()
        settle(page)
        said = page.locator("#strange").inner_text(), page.locator("#measured-note").inner_text()
        check(f"{text!r}: whether its words are known", all((f"{strange} are not in the model’s vocabulary" in one) if strange else "vocabulary" not in one for one in said), said)
    for way in page.get_by_role("button", name="Surprisal").all():
        page.evaluate("() => scrollTo({ top: 0, behavior: 'instant' })")
        way.click()
        page.evaluate(AT_REST)
        seen = page.evaluate("() => [document.activeElement.id, scrollY > 900, location.hash.slice(0, 6)]")
        check("ways lead to Surprisal, and leave the address alone", seen == ["surprisal-title", True, "#text="], seen)
    check("spillover comes first of what is added", page.locator("#part-surprisal details label").nth(2).text_content().startswith("Spillover: "))


def check_lesson(page):
    """The sheet's answers are the page's, and it prints alone, on one page."""
    answers = page.locator("#part-lesson details li").all_text_contents()
    page.get_by_label("Prompt", exact=True).fill("Once upon a time there was a little girl named Lily. She loved to")
    for stammers in False, True:
        press(page, "Generate")
        check("answer 4", ("red ball, red ball, a ball" in text_of(page)) == stammers and "“red ball, red ball, a ball”" in answers[3], text_of(page))
        page.get_by_role("button", name="Layer 1 head 4").click()  # the second time it is switched on again
    for name, place in ("Tom", "75 %"), ("Sue", "78 %"):
        write(page, f"Tom had a red ball. Sue had a blue hat. {name} had a")
        check("answer 2", page.locator("#next").inner_text().split()[:2] == ["·red", place.split()[0]] and place in answers[1], page.locator("#next").inner_text())
    page.locator("#sentences").fill("The boy was happy.\nThe boy were happy.\nThe children was happy.\nThe children were happy.")
    page.locator("#measure").click()
    settle(page)
    check("answer 5", re.findall(r"\d\.\d", answers[4]) == page.evaluate("() => Array.from(measured.rows.surprisal, (x) => x.toFixed(1)).filter((_, i) => i % 4 === 2)"), answers[4])
    check("answer 1", len(answers) == 5 and page.evaluate("() => [words[506], words[511], words[258], words[433]].join('')") == "Once upon a time" and "506, 511, 258, 433; and 7" in answers[0], answers[0])
    page.evaluate("() => { window.print = () => {}; $('lesson-print').click(); }")
    check("the sheet has one page", not where.startswith("chromium") or len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) == 1)  # Firefox writes no PDF here
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")


def check_way(page):
    """The way of a token: its stations have the numbers of the text, and follow the head and the token."""
    write(page, "Once upon a time there was a little girl named Lily. She")
    for h, chosen in (1, None), (4, 3):
        page.get_by_role("button", name=f"Layer 2 head {h}").focus()
        if chosen is not None:
            page.get_by_role("log").get_by_role("button").nth(chosen).click()
        settle(page)
        got = page.evaluate("() => ({ layer: flow.layer, head: flow.head, position: flow.position, pattern: [...flow.pattern], row: [...rowsOfHead(...head)[flow.position]], scores: [...flow.scores], sizes: [flow.embedding, flow.query, flow.value, flow.mlp[2], flow.neurons].map((x) => x.length) })")
        check("the way is that of the head and the token", [got["layer"], got["head"], got["position"]] == [2, h, chosen if chosen is not None else page.evaluate("() => tokens.length - 1")], got)
        check("its weights are the picture's, to the bit", got["pattern"] == got["row"], got)
        most = max(got["scores"])
        total = sum(math.exp(x - most) for x in got["scores"])
        check("softmax of its scores", all(abs(math.exp(x - most) / total - w) < 1e-5 for x, w in zip(got["scores"], got["pattern"])), got)
        check("the sizes of its vectors", got["sizes"] == [192, 32, 32, 192, 768], got["sizes"])
    page.locator("[name=mode][value=patch]").click()  # from a second text that is longer than what was read up to the token
    page.get_by_role("button", name="Layer 1 head 3").click()
    pick(page, 1)
    check("the way of an early token under a patch", page.evaluate("() => flow?.position") == 1 and page.locator("#problem").inner_text() == "", page.locator("#problem").inner_text())
    page.locator("[name=mode][value=zero]").click()
    page.get_by_role("button", name="Clear all").click()
    pick(page, 3)
    buttons = page.locator(".stations button")
    check("a station for each layer, for what is before and after, and for each step", buttons.count() == 4 + 3 + 9, buttons.count())
    for i in range(16):
        buttons.nth(i).click()
        settle(page)
        check("a click opens the numbers", page.locator("#flow-numbers").is_visible() and page.locator("#flow-numbers .numbers > span").count() > 3 and buttons.nth(i).get_attribute("aria-expanded") == "true", i)
    check("a layer of the way is that of the steps", page.evaluate("() => [flow.layer, head[0]].join()") == "3,3")
    buttons.nth(15).click()
    check("and another closes them", page.locator("#flow-numbers").is_hidden())
    pick(page, 3)


def check_sums(page):
    """What the stations show is what the library computes, and adds up: LayerNorm, matrices, biases, the stream."""
    if attn is None:
        return skip("the sums of the stations", "there is no NumPy")
    model = attn.Model(f"{build}/tiny-stories.attn", threads=1)
    changes = [{"kind": "scale", "layer": 2, "head": 3, "factor": 1.5}, {"kind": "stream", "layer": 1, "position": 2, "factor": 0.5}]
    for text, layer, head, chosen, changed in ("Once upon a time", 0, 1, None, False), ("Tom had a red ball. Sue had a blue hat. Tom had a", 3, 5, None, False), ("Lily and Ben went to the park. Lily", 1, 4, 6, False), ("One", 2, 0, None, False), ("The sun was hot, so", 2, 3, 2, True):
        write(page, text)
        evaluate(page, "([changes, layer, head]) => { setChanges(changes); pickHead(layer, head); }", [changes if changed else [], layer, head])
        if chosen is not None:
            pick(page, chosen)
        ids, session = page.evaluate("() => tokens.map((t) => t.id)"), model.session()
        for change in changes if changed else []:
            where_in = {"heads": [3]} if "head" in change else {"positions": [2]}
            session.edit(f"blocks.{change['layer']}." + ("attn.hook_z" if "head" in change else "hook_resid_pre"), "scale", numpy.float32([change["factor"]]), **where_in)
        want = stations.stations(model, session, ids[: len(ids) if chosen is None else chosen + 1], layer, head, changes if changed else [])
        check("the stations", page.evaluate("() => [...document.querySelectorAll('.stations button')].map((b) => b.dataset.station)") == list(want))
        for key, lines in want.items():
            for _ in range(20):  # a picture that is drawn late closes what was opened before
                page.evaluate("(key) => { opened = ''; document.querySelector(`[data-station='${key}']`).click(); }", key)
                _, shown = page.evaluate(stations.SHOWN)
                if shown:
                    break
                settle(page)
            n = len(lines[-1])
            check(f"{key}: the first numbers, or all", len(shown) == min(n, 24) and not stations.faults(shown, lines), (text, stations.faults(shown, lines)))
            if n > 24:
                page.get_by_role("button", name=f"All {n} numbers").click()
                _, shown = page.evaluate(stations.SHOWN)
                hidden = page.evaluate("() => [$('flow-numbers'), ...$('flow-numbers').children].some((e) => e.scrollHeight > e.clientHeight + 1 && getComputedStyle(e).overflowY !== 'visible')")
                check(f"{key}: all {n} numbers in sight, and their sums", len(shown) == n and not hidden and not stations.faults(shown, lines), (text, stations.faults(shown, lines)))
                page.get_by_role("button", name="The first 24 alone").click()
            if key.startswith("layer"):  # the steps are now those of that layer
                evaluate(page, "([layer, head]) => pickHead(layer, head)", [layer, head])
        names = page.evaluate("() => { openStation('query'); const said = $('flow-numbers').innerText; openStation(''); return said; }")
        check("a query is of LayerNorm, a matrix and a bias", all(word in names for word in ("LayerNorm", "W_Q", "b_Q")), names)
    page.get_by_role("button", name="Clear all").click()
    page.locator("[data-station=heads]").click()
    settle(page)
    box = page.locator(".matrix").bounding_box()
    page.locator(".matrix").hover(position={"x": box["width"] * 5.5 / 192, "y": box["height"] * 7.5 / 32})
    weight = float(model.tensor("blocks.2.attn.W_O")[3, 7, 5])
    check("the pointer tells a weight of the matrix", f"times the weight {weight:.3f}".replace("-", "\u2212") in page.locator("#tip").inner_text(), (weight, page.locator("#tip").inner_text()))
    page.evaluate("() => openStation('')")


def made_up_model(folder, layers, heads):
    """A random GPT-2 of so many layers and heads, with the tokenizer of the included one. Returns its file."""
    source = os.path.join(root, "examples", "tiny-stories")
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("model.safetensors", "training", "reference.json"))
    config, width = json.load(open(f"{source}/config.json")), 8 * heads
    config.update(n_layer=layers, n_head=heads, n_embd=width)
    json.dump(config, open(f"{folder}/config.json", "w"))
    shapes = {"wte.weight": [config["vocab_size"], width], "wpe.weight": [config["n_ctx"], width], "ln_f.weight": [width], "ln_f.bias": [width]}
    for i in range(layers):
        for name, shape in ("ln_1", [width]), ("ln_2", [width]), ("attn.c_attn", [width, 3 * width]), ("attn.c_proj", [width, width]), ("mlp.c_fc", [width, 4 * width]), ("mlp.c_proj", [4 * width, width]):
            shapes |= {f"h.{i}.{name}.weight": shape, f"h.{i}.{name}.bias": shape[-1:]}
    header, data, rng = {}, bytearray(), random.Random(1)
    for name, shape in shapes.items():
        begin = len(data)
        data += array.array("f", [rng.uniform(-0.2, 0.2) for _ in range(math.prod(shape))]).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    words = json.dumps(header).encode()
    with open(f"{folder}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(words)) + words + data)
    subprocess.run([f"{build}/attn-convert", folder, f"{folder}/made-up-{layers}-{heads}.attn", "--quiet"], check=True, capture_output=True)
    return f"{folder}/made-up-{layers}-{heads}.attn"


def check_shapes(page, tmp):
    """Models of the shapes of GPT-2 124M and 355M: all heads, the MLP and the bias are in sight at 1280 px."""
    for layers, heads in (12, 12), (24, 16):
        made = made_up_model(tempfile.mkdtemp(dir=tmp) + "/model", layers, heads)
        page.locator("#file").set_input_files(made)
        page.wait_for_function(f"() => $('about-model').textContent.includes('{os.path.basename(made)}')", timeout=20000)
        write(page, "Once upon a time there was a cat")
        for width in 1280, 360:
            page.set_viewport_size({"width": width, "height": 900})
            settle(page)
            seen = page.evaluate("() => [$('parts').rows[0].cells.length, $('parts').getBoundingClientRect().right - $('parts').parentElement.getBoundingClientRect().right, document.documentElement.scrollWidth - innerWidth, $('writing').lastElementChild.getBoundingClientRect().bottom, $('inside').lastElementChild.getBoundingClientRect().bottom, $('part-lens').getBoundingClientRect().top]")
            check(f"{layers} layers of {heads} heads: a column for each, the MLP and the bias", seen[0] == heads + 3 and seen[2] <= 0 and (seen[1] <= 0 or width == 360), (width, seen))
            check(f"{layers} layers of {heads} heads: the columns end where the wide parts begin", width == 360 or 0 <= seen[5] - max(seen[3:5]) < 60, (width, seen))
        page.set_viewport_size({"width": 1280, "height": 900})
        check(f"{layers} layers of {heads} heads: the way goes through all layers", page.locator("#path button").count() == layers + 3, page.locator("#path button").count())


def check_refused(page):
    """A text that is too long leaves the last pictures, with a sentence; changes go on with these."""
    write(page, "Once upon a time")
    before, seen = page.evaluate(DIGEST), "() => [tokens.length, $('next').children.length > 3, $('lens').rows.length, $('parts').rows.length, $('path').children.length, large.n].join()"
    shown = page.evaluate(seen)
    for long in "word " * 300, "a b c d e f " * 3000:
        page.get_by_label("Prompt", exact=True).evaluate("(box, text) => { box.value = text; box.dispatchEvent(new Event('input')); }", long)
        settle(page)
        said = page.locator("#problem").inner_text()
        check("too long a text leaves the pictures", page.evaluate(seen) == shown and page.evaluate(DIGEST) == before and text_of(page) == "Once upon a time", page.evaluate(seen))
        check("and a sentence says so", "make it shorter" in said and "still those of “Once upon a time”" in said, said)
        press(page, "Generate")
        check("nothing is written", text_of(page) == "Once upon a time" and "make it shorter" in page.locator("#problem").inner_text())
    press(page, "Layer 2 head 3")
    changed = page.evaluate(DIGEST)
    check("a change is of the pictures that are shown", changed != before and page.locator("#changes .awaited").count() == 0 and page.locator("#problem").inner_text() == said, said)
    write(page, "Once upon a time")
    check("a shorter text is run again", page.evaluate(DIGEST) == changed and page.locator("#problem").inner_text() == "")
    press(page, "Clear all")


def check_undo_keys(page):
    """Ctrl+Z and its like undo and redo a change; in a text they are the text's own."""
    page.evaluate("() => { past = [], future = []; }")
    page.get_by_role("button", name="Layer 1 head 2").click()
    press(page, "Layer 3 head 0")
    heads_off = lambda: page.evaluate("() => state.changes.map((c) => `${c.layer}.${c.head}`).join()")
    for key, left in ("Control+z", "1.2"), ("Control+Shift+Z", "1.2,3.0"), ("Meta+z", "1.2"), ("Control+z", ""), ("Control+z", ""), ("Control+y", "1.2"), ("Control+y", "1.2,3.0"), ("Control+Alt+z", "1.2,3.0"), ("z", "1.2,3.0"):
        page.keyboard.press(key)
        settle(page)
        check(f"after {key}", heads_off() == left, heads_off())
    for place in "#scale", "#changes button", "body":
        page.evaluate("(place) => place === 'body' ? document.activeElement.blur() : document.querySelector(place).focus()", place)
        page.keyboard.press("Control+z")
        page.keyboard.press("Control+y")
        check(f"undone and done again with the focus on {place}", heads_off() == "1.2,3.0", heads_off())
    page.get_by_label("Prompt", exact=True).focus()
    page.get_by_label("Prompt", exact=True).fill("Once upon")
    page.keyboard.type(" a")
    page.keyboard.press("Control+z")
    settle(page)
    check("in a text Ctrl+Z is the text's", heads_off() == "1.2,3.0", heads_off())
    press(page, "Clear all")


# Where the letters of a line stand: those that read from left to right have to be in the order of the text.
ORDER = """(boxes) => {
    const rtl = /[\u0590-\u08ff]/, found = [];
    const look = (text, placeOf) => {
        let last = null;
        [...text].reduce((at, letter) => {
            const place = /[\p{L}\p{N}%“”]/u.test(letter) && !rtl.test(letter) && placeOf(at, letter.length);
            if (place && last && Math.abs(place.top - last.top) < 4 && place.left < last.left) found.push(text);
            if (place) last = place;
            return at + letter.length;
        }, 0);
    };
    let lines = 0;
    for (const box of boxes) {
        const walk = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
        for (let node; (node = walk.nextNode()); )
            if (rtl.test(node.data) && node.parentElement.getClientRects().length) lines++, look(node.data, (at, n) => {
                const svg = node.parentElement.tagName === "text" && node.parentElement;
                if (svg) { // Firefox does not count the characters that isolate
                    const unseen = svg.getNumberOfChars() < node.data.length ? [...node.data.slice(0, at)].filter((c) => c >= "\\u2066" && c <= "\\u2069").length : 0;
                    return { top: 0, left: svg.getStartPositionOfChar(at - unseen).x };
                }
                const range = document.createRange();
                range.setStart(node, at), range.setEnd(node, at + n);
                return range.getBoundingClientRect();
            });
    }
    return { lines, found: [...new Set(found)] };
}"""


def check_directions(page):
    """Tokens that read from right to left leave the order of what stands around them alone, in SVG too."""
    for text in "Lily said \u0627 \u0627 \u05d0 and", "\u0645\u0631\u062d\u0628\u0627 12 \u05d0\u05d1":
        write(page, text)
        check("the text as it is written", text_of(page) == text, text_of(page))
        page.evaluate("""() => { // a head that looks at such tokens, their tips, a change at one, a choice
            const at = tokens.findIndex((t) => /[\u0590-\u08ff]/.test(t.text));
            large.look(tokens.length - 1);
            say(at), pickHead(1, 0), openStation("values");
            setChanges([{ kind: "stream", layer: 1, position: at, factor: 0.5 }]);
            chosen = at, cell = [1, at];
            draw(), fulfil();
        }""")
        settle(page)
        page.evaluate("() => { say(tokens.findIndex((t) => /[\u0590-\u08ff]/.test(t.text))); placeTip(50, 50, 60, sayAttention(1, tokens.map((t) => visible(t.text)), () => 0.27)); }")
        got = page.evaluate("() => (%s)([...document.querySelectorAll('main *:not(#text, #text *, textarea)')].filter((e) => [...e.childNodes].some((n) => n.nodeType === 3)))" % ORDER)
        check(f"the order of the letters around {text!r}", got["lines"] > 8 and got["found"] == [], got)
        got = page.evaluate("""() => {
            parts.text = "\u0627";
            const box = document.querySelector("[data-paper=lens]");
            box.style.display = "block";
            box.innerHTML = "";
            for (const picture of Object.values(PICTURES)) box.append(document.importNode(new DOMParser().parseFromString(picture(), "image/svg+xml").documentElement, true));
            const got = (%s)([box]);
            box.replaceChildren(), (box.style.display = "");
            return got;
        }""" % ORDER)
        check(f"and in SVG", got["lines"] > 4 and got["found"] == [], got)
        evaluate(page, "() => { chosen = cell = null; openStation(''); setChanges([]); hideTip(); }")


def check_hosting(page):
    page.get_by_role("button", name="Copy link").click()
    page.wait_for_function("() => $('copied').textContent")
    said = page.locator("#copied").inner_text()
    check("a link to a file is said to open here alone, and what to do for a class", ("For a class" in said) == where.endswith("file://"), said)


def check_tour_in_sight(page):
    """At every step the tour is in sight, and the part that it speaks of begins below it; also in a window zoomed to 200 %."""
    for width, height in (640, 450), (360, 740), (1280, 800), (2560, 1300):
        places = set()
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate("() => scrollTo({ top: 0, behavior: `instant` })")
        page.get_by_role("button", name="Tour", exact=True).click()
        for i in range(8):
            for act in False, True:
                if act and page.locator("#tour-act").is_hidden():
                    continue
                if act:
                    page.locator("#tour-act").click()
                    settle(page)
                page.wait_for_timeout(100)
                page.evaluate(AT_REST)
                seen = page.evaluate("""() => { const box = (e) => e.getBoundingClientRect(), tour = box($("tour")), step = steps[+$("tour-count").textContent.split(" ")[1] - 1];
                    const shown = box(%s), end = document.documentElement.scrollHeight - innerHeight - scrollY;
                    const [count, next] = [box($("tour-count")), box($("tour-next"))];
                    return { next: [next.x, next.y], top: tour.top, bottom: tour.bottom, count: count.top >= tour.top && count.bottom <= tour.bottom && next.bottom <= tour.bottom, height: innerHeight, at: shown.top - tour.bottom, end }; }""" % ("step.see ? $(step.see) : $(`part-${step.at}`)" if act else "$(`part-${step.at}`)"))
                check(f"step {i + 1} in sight at {width}, act {act}", seen["top"] >= -1 and seen["count"] and seen["bottom"] < (0.47 if height < 500 else 0.62) * seen["height"] and (-2 <= seen["at"] <= 60 or (seen["at"] >= -2 and seen["end"] < 2 and seen["at"] + seen["bottom"] < seen["height"] - 80)), seen)
                places.add(tuple(map(round, seen["next"])))
                if act and i == 5:
                    box = page.locator("#flow li").nth(3).bounding_box()
                    check(f"the open station is in sight at {width}", box["x"] >= 0 and box["x"] + box["width"] <= width, box)
                if act and i in (2, 3):
                    check(f"the picture shows its beginning at {width}", page.evaluate("() => [large.x, large.y]") == [0, 0])
                if shots and where.startswith("chromium"):
                    page.screenshot(path=f"{shots}/tour-{width}-{i + 1}{'-act' if act else ''}.png")
            if i < 7:
                page.get_by_role("button", name="Next", exact=True).click()
        check(f"Next stays where it is at {width}", len(places) == 1, places)
        page.get_by_role("button", name="End the tour").click()
        press(page, "Clear all")
    page.set_viewport_size({"width": 1280, "height": 900})


def native_surprisal(text, *words):
    """What the program prints for a file of these bytes: CSV, and its sentences."""
    done = subprocess.run([f"{build}/surprisal", f"{build}/tiny-stories.attn", *words], input=text, capture_output=True)
    return done.stdout.decode(), [line.removeprefix("surprisal: ") for line in done.stderr.decode().splitlines()]


def drop_file(page, name, content):
    page.evaluate("""([name, bytes]) => { const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], name));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })); }""", [name, list(content)])
    page.wait_for_function("(name) => $('sentences-name').textContent.includes(name)", arg=name)
    # The page scrolls there smoothly. A click on a button that moves is lost.
    page.evaluate("() => new Promise((go) => { let at = -1; const look = () => (scrollY === at ? go() : ((at = scrollY), setTimeout(look, 100))); look(); })")


def short(cell):
    """A cell of the program's CSV as the page shows it: a number without zeros at its end."""
    return repr(float(cell)).removesuffix(".0") if re.fullmatch(r"-?[0-9.]+", cell) else cell


def check_surprisal(page, tmp):
    """The part Surprisal: the program's digits, tables, options, errors, cancelling, the keyboard."""
    measure, said = page.locator("#measure"), page.locator(".said")

    def save():
        return saved_file(page, page.locator("#measure-csv"), "words.csv").decode()

    typed = "Once upon a time there was a cat.\nThe  dog\twas happy.\n\ncaf\u00e9 \U0001f600 =1+1, \"so\""
    page.locator("#sentences").fill(typed)
    measure.click()
    settle(page)
    want, notes = native_surprisal(typed.encode())
    check("surprisal: the bytes of the program", save() == want)
    rows = list(csv.reader(io.StringIO(want)))[1:]
    check("the words, as they are spelled", said.all_inner_texts() == [row[2] for row in rows], said.all_inner_texts())
    check("its notes", all(note[1:] in page.locator("#measured-note").inner_text() for note in notes) and len(notes) == 2, notes)
    tints = said.evaluate_all("(all) => all.map((one) => +one.style.getPropertyValue('--amount'))")
    check("tints are shares of 20 bits", all(abs(tint - min(1, float(row[4]) / 20)) < 0.001 for tint, row in zip(tints, rows)), tints)
    check("a frame for what is beyond", said.evaluate_all("(all) => all.map((one) => one.classList.contains('beyond'))") == [float(row[4]) > 20 for row in rows])
    said.nth(2).hover()
    check("numbers on hover", short(rows[2][4]) in page.locator("#tip").inner_text(), page.locator("#tip").inner_text())
    said.nth(0).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    check("numbers on focus", short(rows[2][4]) in page.locator("#tip").inner_text() and page.evaluate("() => document.activeElement.getAttribute('aria-describedby')") == "tip")
    page.keyboard.press("Enter")
    check("a chosen word says its numbers", all(short(number) in page.locator("#measured-word").inner_text() for number in rows[2][4:7]) and said.nth(2).get_attribute("aria-pressed") == "true")
    page.keyboard.press(" ")
    check("and no longer", page.locator("#measured-word").inner_text() == "")
    page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
    page.locator("#measure-by").select_option("token")
    page.locator("#measure-unit").select_option("nats")
    for box in "apart", "continues", "bos":
        page.locator(f"#measure-{box}").click()
    measure.click()
    settle(page)
    want, _ = native_surprisal(typed.encode(), "--by", "token", "--unit", "nats", "--punctuation", "apart", "--continue", "--no-bos")
    check("surprisal: with every option", page.evaluate("() => measured.csv") == want)
    check("tokens in place of words", "".join(said.all_text_contents()).startswith("Once upon a time"), said.all_text_contents())
    check("a scale in nats", page.locator("#measured-most").inner_text() == "14 nats")
    page.locator("#measure-by").select_option("word")
    page.locator("#measure-unit").select_option("bits")
    for box in "apart", "continues", "bos":
        page.locator(f"#measure-{box}").click()

    page.locator("#sentences").fill("The old_man sat.\nthe | boats")
    page.locator("#measure-by").select_option("region")
    measure.click()
    settle(page)
    check("regions need a mark", "needs regions MARK or region_names COLUMN" in page.locator("#measure-problem").inner_text(), page.locator("#measure-problem").inner_text())
    for box, value in ("regions", "_"), ("top", "2"), ("stride", "100"):
        page.locator(f"#measure-{box}").fill(value)
    page.locator("#measure-rank").click()
    measure.click()
    settle(page)
    want, _ = native_surprisal(b"The old_man sat.\nthe | boats", "--by", "region", "--regions", "_", "--rank", "--top", "2", "--stride", "100")
    check("surprisal: regions, rank and top", page.evaluate("() => measured.csv") == want)
    said.nth(1).hover()
    check("a region's rank, and what was expected", all(words in page.locator("#tip").inner_text() for words in ("Region 2, \u201cold man\u201d", "\nrank ", "\nexpected \u201c")), page.locator("#tip").inner_text())
    page.locator("#measure-regions").fill("|")
    measure.click()
    settle(page)
    check("a mark that joins nothing is named", 'o text has words that "|" joins' in page.locator("#measured-note").inner_text(), page.locator("#measured-note").inner_text())
    page.locator("#measure-by").select_option("word")
    page.locator("#measure-rank").click()
    for box, value in ("regions", ""), ("top", "0"), ("stride", ""):
        page.locator(f"#measure-{box}").fill(value)
    for box in "renyi", "stride":
        page.locator(f"#measure-{box}").fill("0")
        measure.click()
        settle(page)
        check(f"{box} has no 0", page.locator("#measure-problem").inner_text().startswith(f'{box}: "0" is not a '), page.locator("#measure-problem").inner_text())
        page.locator(f"#measure-{box}").fill("")

    named = b'"",names,sentence\n1,np np vp,The cat sat.\n'
    drop_file(page, "named.csv", named)
    page.locator("#region-names").select_option("names")
    measure.click()
    settle(page)
    check("names of regions", page.evaluate("() => measured.csv") == native_surprisal(named, "--column", "sentence", "--region-names", "names")[0])
    page.locator("#region-names").select_option(index=0)
    page.locator("#column").select_option(index=0)
    measure.click()
    settle(page)
    check("a column without a name", page.evaluate("() => measured.csv") == native_surprisal(named, "--column", "")[0])
    drop_file(page, "BOOK.XLSX", b"PK\x03\x04" + bytes(40))
    measure.click()
    settle(page)
    check("a workbook is named", page.locator("#measure-problem").inner_text() == "BOOK.XLSX is an Excel workbook: save it as CSV UTF-8")

    table = '\ufeffitem;condition;sentence\r\n7;"garden; path";"The horse, raced past the ""barn"", fell."\r\n8;plain;The dog ran.\r\n'.encode()
    open(f"{tmp}/items.csv", "wb").write(table)
    drop_file(page, "items.csv", table)
    settle(page)
    check("the columns of a table", page.locator("#column option").all_inner_texts() == ["item", "condition", "sentence"] and page.locator("#column").input_value() == "sentence")
    measure.click()
    settle(page)
    check("surprisal: of a table", save() == native_surprisal(table, "--column", "sentence")[0])
    page.locator("#column").select_option("condition")
    measure.click()
    settle(page)
    check("of another column", page.evaluate("() => measured.csv") == native_surprisal(table, "--column", "condition")[0])
    swiss = "n;Satz\n1;K\u00e4se ist gut.\n".encode()
    drop_file(page, "swiss.csv", swiss)
    settle(page)
    check("without a name that says so, the longest text", page.locator("#column").input_value() == "Satz")
    drop_file(page, "excel.csv", b'sep=;\n"n, or ""so""";Satz\n1;K\xc3\xa4se ist gut.\n')
    settle(page)
    check("Excel's own line names the separator", page.locator("#column option").all_inner_texts() == ['n, or "so"', "Satz"] and page.locator("#column").input_value() == "Satz")
    drop_file(page, "wide.csv", "a,b\n1,The dog\n".encode("utf-16"))
    measure.click()
    settle(page)
    check("UTF-16 is named", "is UTF-16" in page.locator("#measure-problem").inner_text() and said.count() == 0, page.locator("#measure-problem").inner_text())
    broken = b'a,b\n1,"2\n'
    page.locator("#sentences-file").set_input_files({"name": "broken.tsv", "mimeType": "text/plain", "buffer": broken})
    page.wait_for_function("() => $('sentences-name').textContent.includes('broken')")
    page.locator("#column").select_option("b")
    measure.click()
    settle(page)
    said_by_program = native_surprisal(broken, "--column", "b")[1][-1].replace("standard input", "broken.tsv").replace("--column", "column")
    check("an error is the program's sentence", page.locator("#measure-problem").inner_text() == said_by_program, page.locator("#measure-problem").inner_text())
    for name, content in ("latin.txt", b"caf\xe9\n"), ("empty.txt", b""), ("windows.txt", "\ufeffA cat.\r\nA dog.\r\n".encode()):
        drop_file(page, name, content)
        measure.click()
        settle(page)
        want, words = native_surprisal(content)
        got = page.locator("#measure-problem").inner_text() if words else page.evaluate("() => measured.csv")
        check(f"{name}, as the program takes it", got == (words[-1].replace("standard input", name) if words else want), (got, words))
    reflexives = open("tests/fixtures/surprisal/reflexives.json", "rb").read()
    drop_file(page, "reflexives.json", reflexives)
    for by in "word", "region":
        page.locator("#measure-by").select_option(by)
        measure.click()
        settle(page)
        want = native_surprisal(reflexives, "--suite", *(["--by", "region"] if by == "region" else []))[0]
        cells = page.locator("#measured-suite tr").evaluate_all("(all) => all.map((row) => [...row.cells].map((cell) => cell.textContent))")
        check(f"a suite by {by}", save() == want and cells == [[short(cell) for cell in row] for row in csv.reader(io.StringIO(want))], cells)
    page.locator("#measure-by").select_option("word")
    worse = b"a,b,g\nThe dog was big.,The dog were big.,x\n"
    drop_file(page, "pairs.csv", worse)
    page.locator("#measure-suite").click()
    for box, value in ("pair", "a,b"), ("group", "g"):
        page.locator(f"#measure-{box}").fill(value)
    measure.click()
    settle(page)
    check("pairs of sentences", save() == native_surprisal(worse, "--suite", "--pair", "a,b", "--group", "g")[0])
    check("no rows of a suite are words", said.count() == 0 and page.locator("#measured-note").inner_text().startswith("2 rows."), page.locator("#measured-note").inner_text())
    page.locator("#sentences-close").click()
    write_lens(pathlib.Path(tmp) / "lens.safetensors")
    page.locator("#measure-layers").fill("all")
    page.locator("#measure-tuned").set_input_files(f"{tmp}/lens.safetensors")
    page.wait_for_function("() => tuned !== null")
    measure.click()
    settle(page)
    want, _ = native_surprisal(page.locator("#sentences").input_value().encode(), "--layers", "all", "--tuned", f"{tmp}/lens.safetensors")
    check("layers through a tuned lens", save() == want and len(want) > 100)
    page.locator("#measure-layers").fill("")
    page.locator("#measure-tuned").set_input_files([])
    page.wait_for_function("() => tuned === null")

    # A long text can be cancelled, and leaves the page free for other things.
    page.locator("#sentences").evaluate("(box) => { box.value = 'Lily and Ben went to the park. They saw a big red ball.\\n'.repeat(800); }")
    measure.click()
    page.wait_for_function("() => $('measure-progress').value > 0.03")
    check("progress with the time left", "s left" in page.locator("#measure-left").inner_text() and page.locator("#measure-progress").is_visible(), page.locator("#measure-left").inner_text())
    page.get_by_label("Prompt", exact=True).fill("Once upon a time")
    page.wait_for_function("() => tokens.map((t) => t.text).join('') === 'Once upon a time'", timeout=2000)
    check("the page goes on meanwhile", page.evaluate("() => isMeasuring() && !measuring.question.isLeft"))
    page.locator("#measure-stop").focus()
    page.keyboard.press("Enter")
    settle(page)
    check("cancelled", "Cancelled" in page.locator("#measured-note").inner_text() and page.locator("#measure-progress").is_hidden() and page.evaluate("() => document.activeElement.id") == "measure")
    part = page.evaluate("() => measured.csv")
    page.locator("#measure").click()
    settle(page)
    whole = page.evaluate("() => measured.csv")
    check("what there was is the beginning of the whole", len(part) < len(whole) and whole.startswith(part), (len(part), len(whole)))
    check("the first 2,000 words are shown", said.count() == 2000 and "2,000" in page.locator("#measured-note").inner_text())
    for width, scheme in (360, "light"), (360, "dark"), (1280, "dark"):
        page.locator("#sentences").fill("Once upon a time there was a cat.\nThe horse raced past the barn fell.")
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        measure.click()
        settle(page)
        check(f"no sideways scrolling at {width}", page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"))
        if shots and where.startswith("chromium"):
            page.locator("#part-surprisal").screenshot(path=f"{shots}/surprisal-{width}-{scheme}.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 900})


def check_questions(page, tmp):
    """The part Questions: any command, by what the module says of it."""
    problem = page.locator("#put-problem")

    def ask(command, **settings):
        page.locator("#question").select_option(command)
        for name, value in settings.items():
            box = page.locator(f"#setting-{name}")
            (box.select_option if box.evaluate("(box) => box.localName") == "select" else box.fill)(value)
        page.locator("#put").click()
        page.wait_for_function("() => !putting", timeout=60000)

    page.locator("#part-questions details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
    page.wait_for_function("() => commands && !isFulfilling", timeout=60000)
    check("commands are listed", {"patch", "heads", "surprisal", "score"} <= set(page.locator("#question option").all_inner_texts()))
    words = "Tom was a boy. He", "Tom was a girl. He"
    ask("patch", prompt=words[0], corrupted=words[1], by="heads")
    subprocess.run([f"{build}/lens", f"{build}/tiny-stories.attn", "patch", *words, "--by", "heads", "-o", f"{tmp}/want.csv", "--quiet"], check=True)
    check("a question: the program's numbers", saved_file(page, page.locator("#answer-csv"), "answer.csv").decode() == open(f"{tmp}/want.csv", encoding="utf-8").read(), problem.inner_text())
    check("its picture, which is seen", page.locator("#answer img").evaluate("async (img) => (await img.decode(), img.naturalWidth)") > 200)
    xml.dom.minidom.parseString(saved_file(page, page.locator("#answer-svg"), "answer.svg"))
    check("its sentences", "Each cell runs the corrupted text" in page.locator("#answer-notes").inner_text())
    if shots and where.startswith("chromium"):
        page.locator("#part-questions").screenshot(path=f"{shots}/questions.png")
    ask("patch", token="two words")
    check("a refusal is a sentence in the page's words", problem.inner_text().startswith("token: ") and page.locator("#answer").inner_text() == "", problem.inner_text())
    page.locator("#setting-token").fill("")
    ask("sae")
    check("what a page has no file for is a sentence", len(problem.inner_text()) > 10, problem.inner_text())
    page.locator("#setting-directory").set_input_files([f"{root}/examples/sae/cfg.json", f"{root}/examples/sae/sae_weights.safetensors"])
    page.locator("#put").click()
    page.wait_for_function("() => !putting", timeout=60000)
    check("several files are a folder", page.evaluate("() => Object.keys(answer.tables)") == ["facts", "features"], problem.inner_text())
    page.locator("#question").select_option("edges")
    for name, value in ("prompt", words[0] * 9), ("corrupted", words[1] * 9):
        page.locator(f"#setting-{name}").fill(value)
    page.locator("#setting-exact").check()
    page.locator("#put").click()
    page.wait_for_function("() => $('put-progress').value > 0", timeout=60000)
    page.get_by_label("Prompt", exact=True).fill("Once upon a time")
    page.wait_for_function("() => tokens.map((t) => t.text).join('') === 'Once upon a time'", timeout=5000)
    check("the page goes on meanwhile", page.evaluate("() => putting !== null"))
    page.locator("#put-stop").click()
    page.wait_for_function("() => !putting", timeout=5000)
    check("stopped", problem.inner_text() == "This was stopped." and page.evaluate("() => document.activeElement.id") == "put", problem.inner_text())
    ask("loss", prompt="Once upon a time")
    check("the next question has an answer", page.evaluate("() => answer.tables.tokens.token") == ["Once", " upon", " a", " time"], problem.inner_text())
    page.locator("#questions").evaluate("(details) => { details.open = false; }")


def take_shots(page, name):
    write(page, "Once upon a time there was a little girl named Lily. She loved to")
    press(page, "Generate")
    press(page, "Layer 2 head 3")
    for width, height in (360, 800), (1280, 900), (2560, 1440):
        for scheme in "light", "dark":
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=scheme)
            settle(page)
            page.wait_for_function("() => heads.small.every(({ painted }) => painted >= tokens.length)")
            page.evaluate("() => document.getElementById('about').showModal()")
            check(f"the dialog fits at {width}", page.evaluate("() => document.getElementById('about').getBoundingClientRect().right <= innerWidth"))
            page.evaluate("() => document.getElementById('about').close()")
            check(f"no sideways scrolling at {width}", page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"))
            if shots:
                page.screenshot(path=f"{shots}/{name}-{width}-{scheme}.png", full_page=True)
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")  # as the browser does before it prints
    check("paper has the light scheme's colours", page.evaluate("() => colours().accent") == "#0b6a72")
    shown = page.evaluate("""() => [document.querySelectorAll('[data-paper=attention] text').length - 1, 2 * tokens.length,
        document.querySelectorAll('[data-paper=lens] svg').length, Math.ceil(tokens.filter((t) => t.lens).length / 12),
        document.documentElement.scrollWidth <= innerWidth, getComputedStyle($("large")).display, matchMedia("print").matches]""")
    check("paper has all tokens of the pattern and of the lens", shown[0] == shown[1] and shown[2] == shown[3] and shown[4], shown)
    check("paper shows the whole pattern alone", shown[5] == "none" or not shown[6], shown)  # Firefox does not emulate print
    if shots:
        page.screenshot(path=f"{shots}/{name}-print.png", full_page=True)


def run_in(browser, name, address, native, tmp):
    global where
    where = f"{name}, {address[:7]}"
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    complaints, asked = [], []
    page.on("console", lambda m: m.type in ("error", "warning") and complaints.append(m.text))
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.on("request", lambda r: asked.append(r.url))
    page.goto(address)
    page.wait_for_function("() => tokens.length > 0", timeout=60000)
    ready = page.evaluate("() => performance.now()")
    print(f"{where}: first text after {ready:.0f} ms; {page.evaluate('() => $(`about-model`).textContent')}")
    settle(page)
    text = check_generation(page, native)
    check_choice_of_texts(page)
    looks = (True, check_changes_while_writing), (False, check_interruptions), (True, check_wishes, native), (True, check_odd_texts), \
        (False, check_stop), (True, check_ablation, native, text), (False, check_views), (True, check_other_changes), (True, check_seeds), \
        (True, check_lens_commands, tmp), (True, check_group, tmp), (False, check_smoothness), (True, check_tour), (True, check_first_hour, tmp), (False, check_classroom), (True, check_lesson), (True, check_way), \
        (True, check_sums), (True, check_refused), (True, check_undo_keys), (True, check_directions), (False, check_hosting), (True, check_tour_in_sight)
    for once, look, *more in looks:  # once: a server would change nothing of it
        if address.startswith("file:") or not once:
            look(page, *more)
    check_surprisal(page, tmp)
    check_questions(page, tmp)
    check_files(page, tmp)
    check_shapes(page, tmp)
    check("no complaint in the console", complaints == [], complaints[:3])
    outside = [url for url in asked if url.split("#")[0] != address and not url.startswith(("blob:", "data:"))]
    check("no request leaves the page", outside == [], outside)
    context.close()
    bypassed = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)  # axe-core comes by eval, screenshots with a style
    page = bypassed.new_page()
    page.goto(address)
    settle(page)
    check_access(page)
    take_shots(page, name)
    bypassed.close()


def launch(kind, program, name):
    if not program:
        return kind.launch()
    if name == "firefox":  # as it comes from Debian, driven by WebDriver BiDi
        folder = {"browser.download.folderList": 2, "browser.download.dir": downloads, "browser.download.alwaysOpenPanel": False}
        return kind.launch(executable_path=program, channel="moz-firefox", firefox_user_prefs=folder)
    return kind.launch(executable_path=program, args=["--no-sandbox"])


def main():
    global where
    if shots:
        os.makedirs(shots, exist_ok=True)
    native = json.loads(subprocess.run([f"{build}/tests/web-native", f"{build}/tiny-stories.attn"], check=True, capture_output=True).stdout)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=build))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    addresses = f"file://{build}/attn.html", f"http://127.0.0.1:{server.server_port}/attn.html"
    check("the page has at most 7 MB", os.path.getsize(f"{build}/attn.html") <= 7e6, os.path.getsize(f"{build}/attn.html"))
    with tempfile.TemporaryDirectory() as tmp, sync_playwright() as playwright:
        for name, kind, programs in ("chromium", playwright.chromium, ("chromium", "chromium-browser")), ("firefox", playwright.firefox, ("firefox-esr", "firefox")):
            if name not in os.environ.get("BROWSERS", "chromium firefox").split():
                continue
            program = next((shutil.which(p) for p in programs if shutil.which(p)), None)
            try:
                browser = launch(kind, program, name)
            except Exception as error:  # Playwright has an error of its own for each way to be missing
                skip(f"the page in {name}", str(error).strip().split("\n")[0][:160])
                continue
            for address in addresses:
                try:
                    run_in(browser, name, address, native, tmp)
                except Exception:
                    where = f"{name}, {address[:7]}"
                    check("came to an end", False, traceback.format_exc()[-900:])
            browser.close()
    server.shutdown()
    shutil.rmtree(downloads)
    finish()


main()
