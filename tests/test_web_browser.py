"""The page in a real Chromium. Skipped where there is none, unless BLACKOUT_BROWSER=required.

BLACKOUT_SCREENSHOT=docs/pictures/web.png draws the picture of the README on the way.
"""

import base64
import io
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy
import pytest
from PIL import Image

import blackout as bo
from browser import ARGS, chromium_path
from pages import Page, class_model, until

if chromium_path() is None and os.environ.get("BLACKOUT_BROWSER") != "required":
    pytest.skip("no Chromium: put one on the PATH, or its path into BLACKOUT_CHROMIUM", allow_module_level=True)

from playwright.sync_api import Browser, Download, Locator, Request, Route, expect, sync_playwright
from playwright.sync_api import Page as Tab

expect.set_options(timeout=30_000)
Visit = Callable[..., Tab]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(class_model().save(tmp_path_factory.mktemp("runs") / "classes"))


@pytest.fixture(scope="module")
def server(folder: str) -> Iterator[Page]:
    with Page((folder,)) as page:
        yield page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium_path()
    assert path is not None, "BLACKOUT_BROWSER=required, but there is no Chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser, server: Page) -> Iterator[Visit]:
    """A visitor of its own; afterwards no request has gone elsewhere, and nothing has gone wrong in the page."""
    contexts, requests, troubles = [], [], []

    def come(model: str = "mnist-binary", width: int = 1280, height: int = 900) -> Tab:
        context = browser.new_context(viewport={"width": width, "height": height})
        contexts.append(context)
        context.on("request", lambda request: requests.append(request.url))
        tab = context.new_page()
        tab.on("pageerror", lambda error: troubles.append(str(error)))
        tab.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        tab.goto(server.url)
        tab.get_by_label("Model").select_option(model)
        expect(tab.locator("#about")).to_contain_text("weights")
        expect(tab.locator("#about")).to_contain_text("28 × 28" if model == "mnist-binary" else "×")
        return tab

    yield come
    for context in contexts:
        context.close()
    assert {urlsplit(url).netloc for url in requests if not url.startswith(("blob:", "data:"))} == {
        f"127.0.0.1:{server.port}"
    }
    # Chromium itself reports every answer with status 400 or more; what the page makes of those is tested below.
    assert [trouble for trouble in troubles if "Failed to load resource" not in trouble] == []
    assert until(lambda: server.line() == {"running": 0, "waiting": 0})


def room(tab: Tab, name: str) -> Locator:
    tab.get_by_role("tab", name=name).click()
    return tab.get_by_role("tabpanel", name=name)


def settle(place: Locator, **values: Any) -> None:
    for label, value in values.items():
        place.get_by_label(label, exact=True).first.fill(str(value))


def press(place: Locator, name: str) -> None:
    place.get_by_role("button", name=name, exact=True).click()


def pixels(canvas: Locator) -> "numpy.typing.NDArray[numpy.uint8]":
    """What is seen, (height, width, 3)."""
    data = base64.b64decode(canvas.evaluate("canvas => canvas.toDataURL()").partition(",")[2])
    with Image.open(io.BytesIO(data)) as picture:
        return numpy.asarray(picture.convert("RGB"))


def contents(download: Download) -> bytes:
    return Path(download.path()).read_bytes()


def taken(tab: Tab, place: Locator, name: str) -> bytes:
    with tab.expect_download() as download:
        place.get_by_text(name, exact=True).click()
    return contents(download.value)


def test_an_image_comes_out_of_the_dark(visit: Visit) -> None:
    """From the controls to the picture, and the picture is that of the library, bit for bit."""
    tab = visit()
    generate = room(tab, "Generate")
    settle(generate, Steps=6, Images=4, Seed=5)
    press(generate, "Generate")
    expect(generate.get_by_text("Done: 6 steps.")).to_be_visible()
    x = bo.load("mnist-binary").sample(4, 6, seed=5).numpy()

    with numpy.load(io.BytesIO(taken(tab, generate, "Integers (.npz)")), allow_pickle=False) as arrays:
        assert numpy.array_equal(arrays["x"], x)
    canvas = generate.locator("canvas").first
    seen = pixels(canvas)
    factor = (seen.shape[0] - 2) // 56
    for k in range(4):  # one pixel of each square of a pixel
        top, left = (k // 2) * (28 * factor + 2), (k % 2) * (28 * factor + 2)
        image = seen[top : top + 28 * factor : factor, left : left + 28 * factor : factor]
        assert numpy.array_equal(image[..., 0], 255 * x[k, 0])
    with Image.open(io.BytesIO(taken(tab, generate, "Picture (.png)"))) as picture:
        assert picture.size[0] > 500

    with Image.open(io.BytesIO(taken(tab, generate, "This frame (.png)"))) as picture:
        assert numpy.array_equal(numpy.asarray(picture.convert("RGB")), seen)
    assert taken(tab, generate, "Curves (.csv)").decode().startswith("step,time,mean,births,deaths")
    with zipfile.ZipFile(io.BytesIO(taken(tab, generate, "Everything (.zip)"))) as archive:
        assert set(archive.namelist()) == {"samples.png", "samples.npz", "walk.csv", "again.txt"}

    mean, births = generate.locator(".line:not(.second)").all()
    for line in (mean, births):
        assert (line.get_attribute("d") or "").count("L") == 5  # six steps, five pieces
    expect(generate.locator(".chart output").first).to_contain_text(f"{x.mean():.2f}")


def test_one_can_go_back_and_forth_in_time(visit: Visit, folder: str) -> None:
    tab = visit(folder)
    generate = room(tab, "Generate")
    settle(generate, Steps=20, Images=1)
    press(generate, "Generate")
    expect(generate.get_by_text("Done: 20 steps.")).to_be_visible()
    canvas, slider = generate.locator("canvas").first, generate.get_by_label("Step", exact=True)
    last = pixels(canvas)
    slider.fill("0")
    assert not pixels(canvas).any()
    expect(generate.get_by_text("Step 0 of 20, t = 15.00")).to_be_visible()
    slider.fill("12")
    middle = pixels(canvas)
    assert 0 < middle.max() < 255
    generate.get_by_label("Scale each image to its own brightness").check()
    assert pixels(canvas).max() == 255
    generate.get_by_label("Scale each image to its own brightness").uncheck()
    assert numpy.array_equal(pixels(canvas), middle)
    press(generate, "Replay")
    expect(generate.get_by_text("Step 20 of 20, t = 0.00")).to_be_visible()
    assert numpy.array_equal(pixels(canvas), last)


def test_every_control_is_heard(visit: Visit, folder: str) -> None:
    tab = visit()
    generate = room(tab, "Generate")
    expect(generate.get_by_label("Class")).to_be_disabled()
    expect(generate.get_by_text("this model knows no classes")).to_be_visible()
    expect(generate.get_by_label("Sampler").locator("option[value=posterior]")).to_be_disabled()
    tab.get_by_label("Model").select_option(folder)
    expect(generate.get_by_text("3 classes")).to_be_visible()
    expect(generate.get_by_label("Guidance")).to_be_disabled()
    generate.get_by_label("Class").select_option("2")
    generate.get_by_label("Sampler").select_option("binomial")
    expect(generate.get_by_text("never past the largest level")).to_be_visible()
    settle(generate, Steps=3, Correctors=1, Images=2, Seed=7, Guidance=1.5)
    asked: list[Request] = []
    tab.on("request", lambda request: asked.append(request) if request.url.endswith("/api/walk") else None)
    press(generate, "Generate")
    expect(generate.get_by_text("Done: 3 steps.")).to_be_visible()
    order = asked[0].post_data_json
    assert len(order.pop("visitor")) == 36
    assert order == {
        "model": folder, "sampler": "binomial", "steps": 3, "correctors": 1, "label": 2, "guidance": 1.5, "num": 2,
        "seed": 7,
    }  # fmt: skip
    expect(generate.locator("pre").first).to_contain_text("--class 2 --guidance 1.5")
    press(generate, "New seed")
    expect(generate.get_by_label("Seed", exact=True)).not_to_have_value("7")


def test_only_the_last_choice_of_a_model_counts(visit: Visit, folder: str) -> None:
    tab, held = visit(), []
    tab.route("**/api/model?*", lambda route: held.append(route))
    for name in (folder, "mnist-binary", folder):
        tab.get_by_label("Model").select_option(name)
    assert until(lambda: tab.evaluate("1") == 1 and len(held) == 3)
    with tab.expect_response("**/api/model?*"):
        held[0].continue_()
    held[2].fulfill(status=400, json={"error": "no such luck"})
    expect(tab.locator("#about.alert")).to_have_text("no such luck")
    expect(tab.get_by_label("Model")).to_have_value("mnist-binary")
    held[1].continue_()


def test_a_model_that_cannot_be_read_leaves_the_one_before(visit: Visit, folder: str) -> None:
    tab = visit()
    (weights,) = Path(folder).glob("*.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(b"")
    try:
        tab.get_by_label("Model").select_option(folder)
        expect(tab.locator("#about.alert")).to_contain_text("safetensors")
        expect(tab.get_by_label("Model")).to_have_value("mnist-binary")
    finally:
        weights.write_bytes(whole)
    generate = room(tab, "Generate")
    settle(generate, Steps=1, Images=1)
    press(generate, "Generate")
    expect(generate.get_by_text("Done: 1 step.")).to_be_visible()


def test_words_can_be_copied(visit: Visit, folder: str) -> None:
    tab = visit(folder)
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    generate = room(tab, "Generate")
    settle(generate, Steps=2, Images=1)
    press(generate, "Generate")
    for label, start in (("Command line", "blackout sample "), ("Python", "import blackout as bo")):
        press(generate, f"Copy: {label}")
        expect(generate.get_by_text("Copied.").first).to_be_visible()
        text = tab.evaluate("() => navigator.clipboard.readText()")
        assert text.startswith(start)


def test_words_are_selected_where_there_is_no_clipboard(visit: Visit, folder: str) -> None:
    tab = visit(folder)
    generate = room(tab, "Generate")
    settle(generate, Steps=2, Images=1)
    press(generate, "Generate")
    expect(generate.get_by_text("Done: 2 steps.")).to_be_visible()
    tab.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed')); }")
    press(generate, "Copy: Command line")
    expect(generate.get_by_text("Selected: copy it with your keyboard.")).to_be_visible()
    assert tab.evaluate("() => String(getSelection())").startswith("blackout sample ")


def test_limits_are_told(visit: Visit, server: Page) -> None:
    tab = visit()
    generate = room(tab, "Generate")
    for label, value, message in (
        ("Steps", 5000, "Steps must be a whole number from 1 to 1000."),
        ("Steps", "", "Steps must be a whole number from 1 to 1000."),
        ("Images", 65, "Images must be a whole number from 1 to 64."),
        ("Correctors", 1.5, "Correctors must be a whole number from 0 to 10."),
        ("Seed", -1, "Seed must be a whole number from 0 to 9007199254740991."),
    ):
        field = generate.get_by_label(label, exact=True).first
        before = field.input_value()
        field.fill(str(value))
        press(generate, "Generate")
        expect(generate.get_by_role("alert").first).to_have_text(message)
        expect(field).to_be_focused()
        field.fill(before)
    settle(generate, Steps=1000, Images=64)
    press(generate, "Generate")
    expect(generate.get_by_text("`blackout sample` has no limit")).to_be_visible()
    assert server.line() == {"running": 0, "waiting": 0}


def test_a_walk_can_be_stopped(visit: Visit, server: Page) -> None:
    tab = visit()
    generate = room(tab, "Generate")
    settle(generate, Steps=1000, Images=2)
    press(generate, "Generate")
    expect(generate.get_by_text("of 1000, t =")).to_be_visible()
    press(generate, "Stop")
    expect(generate.get_by_text("Stopped.")).to_be_visible()
    assert until(lambda: server.line() == {"running": 0, "waiting": 0}, 5)
    settle(generate, Steps=2)
    press(generate, "Generate")  # and what comes next is not disturbed
    expect(generate.get_by_text("Done: 2 steps.")).to_be_visible()


def test_a_server_that_dies_is_told_of(visit: Visit, server: Page) -> None:
    tab = visit()
    generate = room(tab, "Generate")
    settle(generate, Steps=1000, Images=1)
    press(generate, "Generate")
    expect(generate.get_by_text("of 1000, t =")).to_be_visible()
    for connection in list(server.server.server_state.connections):
        connection.loop.call_soon_threadsafe(connection.transport.abort)
    expect(generate.get_by_text("The server stopped answering.")).to_be_visible()
    expect(generate.get_by_role("button", name="Stop")).to_be_disabled()


def test_two_samplers_from_one_seed(visit: Visit, folder: str) -> None:
    tab = visit(folder)
    compare = room(tab, "Compare")
    settle(compare, Images=2, Seed=3)
    a, b = compare.get_by_role("group").all()
    settle(a, Steps=4)
    b.get_by_label("Sampler").select_option("binomial")
    settle(b, Steps=8, Correctors=1)
    press(compare, "Compare")
    expect(compare.locator(".takeaway")).to_have_count(2)
    model = bo.load(folder)
    expected = [
        model.sample(2, 4, bo.BinomialBridge(), seed=3),
        model.sample(2, 8, bo.TauLeaping(law="binomial", corrector_steps=1), seed=3),
    ]
    for side, x in zip(compare.locator(".side").all(), expected, strict=True):
        with numpy.load(io.BytesIO(taken(tab, side, "Integers (.npz)")), allow_pickle=False) as arrays:
            assert numpy.array_equal(arrays["x"], x.numpy())
    tops = [side.locator(".axes text").nth(1).text_content() for side in compare.locator(".side").all()]
    assert tops[0] == tops[1]  # one scale


def test_a_part_is_erased_and_filled_in(visit: Visit) -> None:
    tab = visit()
    fill = room(tab, "Fill in")
    settle(fill, Steps=3, Resampling=1, Draws=3, Seed=2)
    press(fill, "Fill in")
    expect(fill.get_by_role("alert").first).to_have_text("Erase a part of the picture first: all of it is known.")
    editor = fill.locator("canvas.editor")

    def drag(*places: tuple[float, float]) -> None:
        box = editor.bounding_box()
        assert box is not None
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in places]
        tab.mouse.move(*points[0])
        tab.mouse.down()
        for point in points[1:]:
            tab.mouse.move(*point, steps=3)
        tab.mouse.up()

    fill.get_by_label("Draw", exact=True).check()
    drag((0.5, 0.1), (0.5, 0.9))
    expect(fill.get_by_text("0 of 784 pixels are erased.")).to_be_visible()
    fill.get_by_label("Erase", exact=True).check()
    fill.get_by_label("Brush size").fill("6")
    drag((0.2, 0.7), (0.8, 0.7))
    expect(fill.get_by_text("0 of 784 pixels are erased.")).not_to_be_visible()
    press(fill, "Fill in")
    expect(fill.get_by_text("Done: 3 steps.")).to_be_visible()
    expect(fill.get_by_role("img", name="Standard deviation over the draws")).to_be_visible()
    with zipfile.ZipFile(io.BytesIO(taken(tab, fill, "Everything (.zip)"))) as archive:
        known, mask = (numpy.load(io.BytesIO(archive.read(f"{name}.npy"))) for name in ("known", "mask"))
        x = numpy.load(io.BytesIO(archive.read("samples.npz")))["x"]
    assert x.shape == (3, 1, 28, 28)
    assert known[0, 8, 14] == 1
    assert known[0, 8, 3] == 0
    assert not mask[0, 19, 14]
    assert mask[0, 8, 14]
    where = mask[0]
    assert (x[:, 0][:, where] == known[0][where]).all()
    expect(fill.locator("pre").first).to_contain_text("--known known.npy --mask mask.npy --resample 1")


def test_brushes_and_masks(visit: Visit, folder: str) -> None:
    tab = visit()
    fill = room(tab, "Fill in")
    for part, count in (("Left half", 392), ("Lower half", 392), ("Middle", 196), ("Nothing", 0)):
        fill.get_by_label("Erase at once").select_option(part)
        expect(fill.get_by_text(f"{count} of 784 pixels are erased.")).to_be_visible()
    # With the keys alone: a brush of one pixel, three places.
    fill.get_by_label("Brush size").fill("1")
    editor = fill.locator("canvas.editor")
    editor.focus()
    for key in (" ", "ArrowRight", " ", "ArrowDown", " ", " "):
        editor.press(key)
    expect(fill.get_by_text("3 of 784 pixels are erased.")).to_be_visible()
    fill.get_by_label("Bring back").check()
    editor.focus()
    editor.press("Enter")
    expect(fill.get_by_text("784 pixels are erased.")).to_have_count(1)
    fill.get_by_label("Erase at once").select_option("Upper half")
    press(fill, "An empty sheet")
    expect(fill.get_by_text("0 of 784 pixels are erased.")).to_be_visible()
    black = pixels(editor)
    assert not black.any()
    press(fill, "Invert")
    assert (pixels(editor) == 255).all()
    tab.get_by_label("Model").select_option(folder)
    expect(fill.get_by_text("0 of 16 pixels are erased.")).to_be_visible()
    press(fill, "A fresh sample")
    expect(fill.get_by_role("button", name="A fresh sample")).to_be_enabled()
    assert until(lambda: bool(pixels(editor).any()))


def test_uploads_good_and_bad(visit: Visit, tmp_path: Path) -> None:
    tab = visit()
    fill = room(tab, "Fill in")
    editor, upload = fill.locator("canvas.editor"), fill.get_by_label("A picture of yours")
    half = Image.new("L", (60, 60))
    half.paste(255, (0, 0, 30, 60))
    half.save(tmp_path / "half.png")
    upload.set_input_files(tmp_path / "half.png")
    expect(fill.get_by_role("alert").first).to_be_hidden()
    assert until(lambda: bool(pixels(editor).any()))
    good = pixels(editor)
    assert good[200, 100, 0] == 255
    assert good[200, 400, 0] == 0
    fill.get_by_label("Erase at once").select_option("Middle")
    good = pixels(editor)
    (tmp_path / "text.png").write_bytes(b"this is no picture")
    (tmp_path / "cut.png").write_bytes((tmp_path / "half.png").read_bytes()[:50])
    (tmp_path / "large.png").write_bytes(bytes(9 << 20))
    for name, message in (
        ("text.png", "text.png: the file is no picture that is read here: PNG, JPEG or WebP"),
        ("cut.png", "cut.png: the picture cannot be read"),
        ("large.png", "large.png: The file has 9,437,184 bytes; at most 8,388,608 are read."),
    ):
        upload.set_input_files(tmp_path / name)
        expect(fill.get_by_role("alert").first).to_contain_text(message)
        assert numpy.array_equal(pixels(editor), good)  # nothing is lost
    expect(fill.get_by_text("196 of 784 pixels are erased.")).to_be_visible()


def test_another_model_is_chosen_while_the_server_works(visit: Visit, folder: str, tmp_path: Path) -> None:
    """What was asked for one model is never put where another one's is."""
    tab = visit()
    fill, model = room(tab, "Fill in"), tab.get_by_label("Model")
    fill.get_by_label("Erase at once").select_option("Left half")
    settle(fill, Steps=20, Resampling=1, Draws=2)
    press(fill, "Fill in")
    expect(fill.get_by_text("of 20, t =")).to_be_visible()
    model.select_option(folder)
    expect(tab.locator("#about")).to_contain_text("4 × 4")
    expect(fill.get_by_text("Where the draws differ")).to_be_visible()
    assert pixels(fill.locator(".spread canvas")).shape == (28, 28, 3)

    def late(route: Route) -> None:
        model.select_option("mnist-binary")
        expect(tab.locator("#about")).to_contain_text("28 × 28")
        route.continue_()

    Image.new("L", (9, 9), 255).save(tmp_path / "white.png")
    tab.route("**/api/picture*", late)
    fill.get_by_label("A picture of yours").set_input_files(tmp_path / "white.png")
    expect(fill.get_by_role("alert").first).to_contain_text("another model was chosen meanwhile")
    assert not pixels(fill.locator("canvas.editor")).any()


def test_two_visitors_and_a_closed_tab(visit: Visit, server: Page) -> None:
    first, second = visit(), visit()
    long = room(first, "Generate")
    settle(long, Steps=1000, Images=2)
    press(long, "Generate")
    expect(long.get_by_text("of 1000, t =")).to_be_visible()
    short = room(second, "Generate")
    settle(short, Steps=3, Images=1)
    press(short, "Generate")
    expect(short.get_by_text("One walk is ahead of yours.")).to_be_visible()
    assert server.line() == {"running": 1, "waiting": 1}
    first.close()
    expect(short.get_by_text("Done: 3 steps.")).to_be_visible(timeout=15_000)
    assert until(lambda: server.line() == {"running": 0, "waiting": 0}, 5)


def test_many_tabs_of_one_browser(visit: Visit, server: Page) -> None:
    """A browser has six connections to one server. Walks leave some of them: the seventh tab is there too."""
    tabs = [visit()]
    for _ in range(6):
        tab = tabs[0].context.new_page()
        tab.goto(server.url)
        tabs.append(tab)
    rooms = [room(tab, "Generate") for tab in tabs]
    for tab, place in zip(tabs, rooms, strict=True):
        tab.get_by_label("Model").select_option("mnist-binary")
        expect(tab.locator("#about")).to_contain_text("28 × 28")
        settle(place, Steps=300, Images=1)
        press(place, "Generate")
        expect(place.get_by_text(re.compile("of 300, t =|ahead of yours|Other tabs"))).to_be_visible()
    assert server.line() == {"running": 1, "waiting": 3}
    expect(rooms[-1].get_by_text("Other tabs of this browser walk or wait; this one follows.")).to_be_visible()
    press(rooms[-2], "Stop")  # while it waits in the browser
    expect(rooms[-2].get_by_text("Stopped.")).to_be_visible()
    for tab in tabs[:-1]:
        tab.close()
    expect(rooms[-1].get_by_text("of 300, t =")).to_be_visible()
    tabs[-1].close()


def test_the_theory_room_is_in_the_page(visit: Visit) -> None:
    """The room itself is tested in test_web_theory_browser.py; here, that it works behind the guard of the real one."""
    tab = visit()
    asked: list[Request] = []
    tab.on("request", lambda request: asked.append(request) if request.url.endswith("/api/theory") else None)
    theory = room(tab, "Theory")
    before = theory.locator("pre").text_content()
    theory.get_by_role("button", name="Poisson").click()
    expect(theory.locator("pre")).not_to_have_text(str(before))
    assert asked[-1].response().status == 200


def test_rooms_by_keyboard_and_by_address(visit: Visit, server: Page) -> None:
    tab = visit()
    names = [item.text_content() for item in tab.get_by_role("tab").all()]
    assert names == ["Generate", "Compare", "Fill in", "Theory"]
    tab.get_by_role("tab", name="Generate").focus()
    for name in (*names[1:], names[0]):
        tab.keyboard.press("ArrowRight")
        expect(tab.get_by_role("tabpanel")).to_have_count(1)
        expect(tab.get_by_role("tabpanel", name=str(name))).to_be_visible()
    tab.goto(f"{server.url}#compare")
    tab.reload()
    expect(tab.get_by_role("tabpanel", name="Compare")).to_be_visible()


@pytest.mark.parametrize("width", [390, 800, 1280])
def test_nothing_sticks_out_and_everything_has_a_name(visit: Visit, width: int) -> None:
    tab = visit(width=width, height=844)
    for item in tab.get_by_role("tab").all():
        item.click()
        assert tab.evaluate("() => document.documentElement.scrollWidth") <= width
        nameless = tab.evaluate(
            """() => [...document.querySelectorAll('input, select, button')]
                .filter((e) => !e.labels?.length && !e.textContent.trim() && !e.getAttribute('aria-label'))
                .map((e) => e.outerHTML)"""
        )
        assert nameless == []
        ids = tab.evaluate("() => [...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))


@pytest.mark.skipif("BLACKOUT_SCREENSHOT" not in os.environ, reason="BLACKOUT_SCREENSHOT is not set: no picture wanted")
def test_the_picture_of_the_readme(visit: Visit) -> None:
    tab = visit("cifar10", height=880)
    generate = room(tab, "Generate")
    settle(generate, Steps=100, Images=9, Seed=0)
    press(generate, "Generate")
    expect(generate.get_by_text("Done: 100 steps.")).to_be_visible(timeout=1_000_000)
    generate.get_by_label("Step", exact=True).fill("75")
    tab.screenshot(path=os.environ["BLACKOUT_SCREENSHOT"])
    assert Path(os.environ["BLACKOUT_SCREENSHOT"]).stat().st_size < 400_000
