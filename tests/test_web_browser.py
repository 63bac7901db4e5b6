"""The page in a real Chromium.

BLACKOUT_SCREENSHOT=docs/pictures/web.png writes the screenshot of the documentation.
"""

import base64
import io
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

import blackout as bo
from browser import Log, chromium, require_chromium
from pages import IDLE, LocalServer, image_model, until

require_chromium()

expect.set_options(timeout=30_000)
Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    base = tmp_path_factory.mktemp("runs")
    classes, slow = image_model(num_classes=3), image_model(steps=1000)
    named = image_model(num_classes=3, seed=1).with_record(class_names=("cat", "10", "automobile & lorry"))
    made = {"classes": classes, "slow": slow, "named": named}
    return tuple(str(model.save(base / name)) for name, model in made.items())


@pytest.fixture(scope="module")
def server(folders: tuple[str, ...]) -> Iterator[LocalServer]:
    with LocalServer(folders) as server:
        server.slow_down(folders[1], 0.02)
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visit(browser: Browser, server: LocalServer) -> Iterator[Visit]:
    """Open the page in a browser context of its own; afterwards check that nothing went wrong."""
    contexts, log = [], Log()

    def open_page(model: str = "mnist-binary", width: int = 1280, height: int = 900) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height})
        contexts.append(context)
        context.on("page", log.watch)
        page = context.new_page()
        page.goto(server.url)
        choose_model(page, model)
        return page

    yield open_page
    for context in contexts:
        context.close()
    log.check(f"127.0.0.1:{server.port}")
    assert until(lambda: server.queue() == IDLE)


def choose_model(page: Page, model: str) -> None:
    page.get_by_label("Model", exact=True).select_option(model)
    size = {"mnist-binary": "28 × 28", "cifar10": "32 × 32"}.get(model, "4 × 4")
    expect(page.locator("#about")).to_contain_text(f"{size} ")
    expect(page.locator("#about")).to_contain_text("parameters")


def tab(page: Page, name: str) -> Locator:
    page.get_by_role("tab", name=name).click()
    return page.get_by_role("tabpanel", name=name)


def fill(place: Locator, **values: Any) -> None:
    for label, value in values.items():
        place.get_by_label(label, exact=True).first.fill(str(value))


def press(place: Locator, name: str) -> None:
    place.get_by_role("button", name=name, exact=True).click()


def generate(place: Locator, **values: Any) -> None:
    fill(place, **values)
    press(place, "Generate")


def done(place: Locator, steps: int) -> None:
    expect(place.get_by_text(f"Done: {steps} step{'s' if steps > 1 else ''}.")).to_be_visible()


def pixels(canvas: Locator) -> "numpy.typing.NDArray[numpy.uint8]":
    """What a canvas shows, (height, width, 3)."""
    data = base64.b64decode(canvas.evaluate("canvas => canvas.toDataURL()").partition(",")[2])
    with Image.open(io.BytesIO(data)) as image:
        return numpy.asarray(image.convert("RGB"))


def download(page: Page, place: Locator, name: str) -> io.BytesIO:
    with page.expect_download() as event:
        place.get_by_text(name, exact=True).click()
    return io.BytesIO(Path(event.value.path()).read_bytes())


def test_images_are_generated_and_downloaded(visit: Visit) -> None:
    """The images are those of the library, bit for bit."""
    page = visit()
    place = tab(page, "Generate")
    generate(place, Steps=6, Images=4, Seed=5)
    done(place, 6)
    x = bo.load("mnist-binary").sample(4, 6, seed=5).numpy()
    with numpy.load(download(page, place, "Arrays (.npz)"), allow_pickle=False) as arrays:
        assert numpy.array_equal(arrays["x"], x)
    seen = pixels(place.locator("canvas").first)
    factor = (seen.shape[0] - 2) // 56
    for k in range(4):
        top, left = (k // 2) * (28 * factor + 2), (k % 2) * (28 * factor + 2)
        image = seen[top : top + 28 * factor : factor, left : left + 28 * factor : factor]
        assert numpy.array_equal(image[..., 0], 255 * x[k, 0])
    with Image.open(download(page, place, "Image grid (.png)")) as image:
        assert image.size[0] > 500
    with Image.open(download(page, place, "Current frame (.png)")) as image:
        assert numpy.array_equal(numpy.asarray(image.convert("RGB")), seen)
    with Image.open(download(page, place, "Animation (.gif)")) as image:
        assert (image.format, getattr(image, "is_animated", False)) == ("GIF", True)
    assert download(page, place, "Curves (.csv)").read().decode().startswith("step,time,mean,births,deaths")
    with zipfile.ZipFile(download(page, place, "All files (.zip)")) as archive:
        assert set(archive.namelist()) == {"samples.png", "samples.npz", "steps.csv", "reproduce.py"}
    for line in place.locator(".line:not(.second)").all():
        assert (line.get_attribute("d") or "").count("L") == 5  # between six steps
    expect(place.locator(".chart output").first).to_contain_text(f"{x.mean():.2f}")


def test_steps_are_replayed_and_code_is_copied(visit: Visit, folders: tuple[str, ...]) -> None:
    page = visit(folders[0])
    place = tab(page, "Generate")
    generate(place, Steps=20, Images=1)
    done(place, 20)
    canvas, slider = place.locator("canvas").first, place.get_by_label("Step", exact=True)
    last = pixels(canvas)
    slider.fill("0")
    assert not pixels(canvas).any()
    expect(place.get_by_text("Step 0 of 20, t = 15.00")).to_be_visible()
    slider.fill("12")
    assert pixels(canvas).max() == 255  # a dark step is scaled, and the page says so
    expect(place.get_by_text(re.compile(r"Step 12 of 20, t = .*; shown \d+\.\d times as bright"))).to_be_visible()
    place.get_by_label("Brightness").select_option("As sampled")
    assert 0 < pixels(canvas).max() < 255
    place.get_by_label("Brightness").select_option("Each image scaled")
    assert pixels(canvas).max() == 255
    place.get_by_label("Brightness").select_option("Dark steps scaled")
    press(place, "Replay")
    expect(place.get_by_text("Step 20 of 20, t = 0.00")).to_be_visible()
    assert numpy.array_equal(pixels(canvas), last)

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for label, start in (("Command line", "blackout sample "), ("Python", "import blackout as bo")):
        press(place, f"Copy: {label}")
        expect(place.get_by_text("Copied.").first).to_be_visible()
        assert page.evaluate("() => navigator.clipboard.readText()").startswith(start)
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed')); }")
    press(place, "Copy: Command line")
    expect(place.get_by_text("Selected: copy it with the keyboard.")).to_be_visible()
    assert page.evaluate("() => String(getSelection())").startswith("blackout sample ")


def test_controls(visit: Visit, server: LocalServer, folders: tuple[str, ...]) -> None:
    """What a model does not allow is disabled, every value is sent, and invalid ones are explained."""
    page, offered = visit(), server.get("/api/models")
    place = tab(page, "Generate")
    expect(place.get_by_label("Class")).to_be_disabled()
    expect(place.get_by_text("this model is unconditional")).to_be_visible()
    expect(place.get_by_label("Sampler").locator("option[value=student]")).to_be_disabled()
    assert place.get_by_label("Sampler").locator("option").all_text_contents() == list(offered["samplers"])
    assert place.get_by_label("Time grid").locator("option").all_text_contents() == ["default", *offered["times"]]
    for label, value, message in (
        ("Steps", 5000, "Steps must be an integer from 1 to 1000."),
        ("Steps", "", "Steps must be an integer from 1 to 1000."),
        ("Images", 65, "Images must be an integer from 1 to 64."),
        ("Correctors", 1.5, "Correctors must be an integer from 0 to 10."),
        ("Seed", -1, "Seed must be an integer from 0 to 9007199254740991."),
    ):
        control = place.get_by_label(label, exact=True).first
        before = control.input_value()
        control.fill(str(value))
        press(place, "Generate")
        expect(place.get_by_role("alert").first).to_have_text(message)
        expect(control).to_be_focused()
        control.fill(before)
    generate(place, Steps=1000, Images=64)
    expect(place.get_by_text("`blackout sample` has no limit")).to_be_visible()
    assert server.queue() == IDLE

    choose_model(page, folders[0])
    expect(place.get_by_text("3 classes")).to_be_visible()
    expect(place.get_by_label("Guidance")).to_be_disabled()
    place.get_by_label("Class").select_option("2")
    place.get_by_label("Sampler").select_option("binomial")
    expect(place.get_by_text(offered["samplers"]["binomial"])).to_be_visible()
    place.get_by_label("Time grid").select_option("kl")
    expect(place.get_by_text(offered["times"]["kl"])).to_be_visible()
    sent: list[Request] = []
    page.on("request", lambda request: sent.append(request) if request.url.endswith("/api/sample") else None)
    generate(place, Steps=3, Images=2, Seed=7, Correctors=1, **{"Guidance scale": 1.5})
    done(place, 3)
    values = sent[0].post_data_json
    assert values == {
        "model": folders[0], "sampler": "binomial", "times": "kl", "steps": 3, "correctors": 1, "label": 2,
        "guidance": 1.5, "num": 2, "seed": 7,
    }  # fmt: skip
    expect(place.locator("pre").first).to_contain_text("--times kl --class 2 --guidance 1.5")
    press(place, "New seed")
    expect(place.get_by_label("Seed", exact=True)).not_to_have_value("7")


def test_classes_by_name(visit: Visit, folders: tuple[str, ...]) -> None:
    """The names are offered after none, beside the guidance scale; the command and the images are those of the name."""
    page = visit(folders[2], width=390, height=844)
    for name, button in (("Generate", "Generate"), ("Compare", "Compare"), ("Inpaint", "Inpaint")):
        place = tab(page, name)
        classes, guidance = place.get_by_label("Class"), place.get_by_label("Guidance scale")
        assert classes.locator("option").all_text_contents() == ["none", "cat", "10", "automobile & lorry"]
        expect(classes).to_have_value("")
        expect(guidance).to_be_disabled()
        classes.select_option("automobile & lorry")
        expect(guidance).to_be_enabled()
        boxes = classes.bounding_box(), guidance.bounding_box()
        assert boxes[0] is not None
        assert boxes[1] is not None
        assert boxes[0]["y"] == boxes[1]["y"]  # side by side
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        expect(place.get_by_role("button", name=button, exact=True)).to_be_visible()

    model, place = bo.load(folders[2]), tab(page, "Generate")
    place.get_by_label("Class").select_option("10")
    generate(place, Steps=3, Images=2, Seed=4, **{"Guidance scale": 2})
    done(place, 3)
    expect(place.locator("pre").first).to_contain_text("--class 10 --guidance 2")
    expect(place.locator("pre").last).to_contain_text('label="10", guidance=2')
    with numpy.load(download(page, place, "Arrays (.npz)"), allow_pickle=False) as arrays:
        assert numpy.array_equal(arrays["x"], model.sample(2, 3, label=1, guidance=2.0, seed=4).numpy())
    place.get_by_label("Class").select_option("none")
    press(place, "Generate")
    expect(place.locator("pre").first).not_to_contain_text("--class")
    with numpy.load(download(page, place, "Arrays (.npz)"), allow_pickle=False) as arrays:
        assert numpy.array_equal(arrays["x"], model.sample(2, 3, seed=4).numpy())

    place = tab(page, "Inpaint")
    place.get_by_label("Erase region").select_option("Left half")
    fill(place, Steps=3, Resampling=1, Samples=2, Seed=4)
    press(place, "Inpaint")
    done(place, 3)
    expect(place.locator("pre").first).to_contain_text("--class 'automobile & lorry'")


def test_choosing_models(visit: Visit, folders: tuple[str, ...]) -> None:
    """Only the last choice counts, and a model that cannot be read leaves the previous one."""
    page, held = visit(), []
    page.route("**/api/model?*", lambda route: held.append(route))
    for name in (folders[0], "mnist-binary", folders[0]):
        page.get_by_label("Model", exact=True).select_option(name)
    assert until(lambda: page.evaluate("1") == 1 and len(held) == 3)
    with page.expect_response("**/api/model?*"):
        held[0].continue_()
    held[2].fulfill(status=400, json={"error": "cannot be read"})
    expect(page.locator("#about.alert")).to_have_text("cannot be read")
    expect(page.get_by_label("Model", exact=True)).to_have_value("mnist-binary")
    held[1].continue_()
    page.unroute("**/api/model?*")

    (weights,) = Path(folders[0]).glob("*.safetensors")
    data = weights.read_bytes()
    weights.write_bytes(b"")
    try:
        page.get_by_label("Model", exact=True).select_option(folders[0])
        expect(page.locator("#about.alert")).to_contain_text("safetensors")
        expect(page.get_by_label("Model", exact=True)).to_have_value("mnist-binary")
    finally:
        weights.write_bytes(data)
    place = tab(page, "Generate")
    generate(place, Steps=1, Images=1)
    done(place, 1)


def test_stopping_a_job_and_losing_the_server(visit: Visit, server: LocalServer, folders: tuple[str, ...]) -> None:
    page = visit(folders[1])
    place = tab(page, "Generate")
    generate(place, Steps=1000, Images=2)
    expect(place.get_by_text(re.compile(r"of 1000, t = .*about \d+ (s|min) left"))).to_be_visible()
    press(place, "Stop")
    expect(place.get_by_text("Stopped.")).to_be_visible()
    assert until(lambda: server.queue() == IDLE, 5)
    generate(place, Steps=2)  # is not affected
    done(place, 2)
    generate(place, Steps=1000)
    expect(place.get_by_text("of 1000, t =")).to_be_visible()
    for connection in list(server.server.server_state.connections):
        connection.loop.call_soon_threadsafe(connection.transport.abort)
    expect(place.get_by_text("The connection to the server was lost.")).to_be_visible()
    expect(place.get_by_role("button", name="Stop")).to_be_disabled()


def test_two_samplers_are_compared(visit: Visit, folders: tuple[str, ...]) -> None:
    page = visit(folders[0])
    place = tab(page, "Compare")
    fill(place, Images=2, Seed=3)
    a, b = place.get_by_role("group").all()
    fill(a, Steps=4)
    b.get_by_label("Sampler").select_option("binomial")
    fill(b, Steps=8, Correctors=1)
    press(place, "Compare")
    expect(place.locator(".export")).to_have_count(2)
    model = bo.load(folders[0])
    expected = [
        model.sample(2, 4, bo.BinomialBridge(), seed=3),
        model.sample(2, 8, bo.TauLeaping(events="binomial", corrector_steps=1), seed=3),
    ]
    for side, x in zip(place.locator(".side").all(), expected, strict=True):
        with numpy.load(download(page, side, "Arrays (.npz)"), allow_pickle=False) as arrays:
            assert numpy.array_equal(arrays["x"], x.numpy())
    tops = [side.locator(".axes text").nth(1).text_content() for side in place.locator(".side").all()]
    assert tops[0] == tops[1]  # a common scale


def test_inpainting(visit: Visit) -> None:
    page = visit()
    place = tab(page, "Inpaint")
    fill(place, Steps=3, Resampling=1, Samples=3, Seed=2)
    press(place, "Inpaint")
    expect(place.get_by_role("alert").first).to_have_text("Erase a part of the image first.")
    editor = place.locator("canvas.editor")

    def drag(*places: tuple[float, float]) -> None:
        box = editor.bounding_box()
        assert box is not None
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in places]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point, steps=3)
        page.mouse.up()

    place.get_by_label("Draw", exact=True).check()
    drag((0.5, 0.1), (0.5, 0.9))
    expect(place.get_by_text("0 of 784 pixels erased.")).to_be_visible()
    place.get_by_label("Erase", exact=True).check()
    place.get_by_label("Brush size").fill("6")
    drag((0.2, 0.7), (0.8, 0.7))
    expect(place.get_by_text("0 of 784 pixels erased.")).not_to_be_visible()
    press(place, "Inpaint")
    done(place, 3)
    expect(place.get_by_role("img", name="Standard deviation over samples")).to_be_visible()
    with zipfile.ZipFile(download(page, place, "All files (.zip)")) as archive:
        observed, mask = (numpy.load(io.BytesIO(archive.read(f"{name}.npy"))) for name in ("observed", "mask"))
        x = numpy.load(io.BytesIO(archive.read("samples.npz")))["x"]
    assert x.shape == (3, 1, 28, 28)
    assert (observed[0, 8, 14], observed[0, 8, 3]) == (1, 0)
    assert (mask[0, 19, 14], mask[0, 8, 14]) == (False, True)
    assert (x[:, 0][:, mask[0]] == observed[0][mask[0]]).all()
    command = place.locator("pre").first
    for option in ("--observed observed.npy", "--mask mask.npy", "--resample 1"):
        expect(command).to_contain_text(option)


def test_brushes_and_uploads(visit: Visit, folders: tuple[str, ...], tmp_path: Path) -> None:
    page = visit()
    place = tab(page, "Inpaint")
    for region, count in (("Left half", 392), ("Bottom half", 392), ("Centre", 196), ("None", 0)):
        place.get_by_label("Erase region").select_option(region)
        expect(place.get_by_text(f"{count} of 784 pixels erased.")).to_be_visible()
    # With the keyboard: a brush of one pixel, three places.
    place.get_by_label("Brush size").fill("1")
    editor = place.locator("canvas.editor")
    editor.focus()
    for key in (" ", "ArrowRight", " ", "ArrowDown", " ", " "):
        editor.press(key)
    expect(place.get_by_text("3 of 784 pixels erased.")).to_be_visible()
    place.get_by_label("Restore").check()
    editor.focus()
    editor.press("Enter")
    expect(place.get_by_text("2 of 784 pixels erased.")).to_be_visible()
    place.get_by_label("Erase region").select_option("Top half")
    press(place, "Blank")
    expect(place.get_by_text("0 of 784 pixels erased.")).to_be_visible()
    assert not pixels(editor).any()
    press(place, "Invert")
    assert (pixels(editor) == 255).all()

    upload = place.get_by_label("Upload an image", exact=True)
    half = Image.new("L", (60, 60))
    half.paste(255, (0, 0, 30, 60))
    half.save(tmp_path / "half.png")
    upload.set_input_files(tmp_path / "half.png")
    assert until(lambda: not pixels(editor).all())
    expect(place.get_by_role("alert").first).to_be_hidden()
    assert (pixels(editor)[200, 100, 0], pixels(editor)[200, 400, 0]) == (255, 0)
    place.get_by_label("Erase region").select_option("Centre")
    before = pixels(editor)
    (tmp_path / "text.png").write_bytes(b"this is not an image")
    (tmp_path / "cut.png").write_bytes((tmp_path / "half.png").read_bytes()[:50])
    (tmp_path / "large.png").write_bytes(bytes(9 << 20))
    for name, message in (
        ("text.png", "text.png: the file is not an image in a supported format: PNG, JPEG or WebP"),
        ("cut.png", "cut.png: the image cannot be read"),
        ("large.png", "large.png: the file has 9,437,184 bytes, the limit is 8,388,608"),
    ):
        upload.set_input_files(tmp_path / name)
        expect(place.get_by_role("alert").first).to_contain_text(message)
        assert numpy.array_equal(pixels(editor), before)
    expect(place.get_by_text("196 of 784 pixels erased.")).to_be_visible()

    choose_model(page, folders[0])
    expect(place.get_by_text("0 of 16 pixels erased.")).to_be_visible()
    press(place, "New sample")
    expect(place.get_by_role("button", name="New sample")).to_be_enabled()
    assert until(lambda: bool(pixels(editor).any()))


def test_the_model_is_changed_while_the_server_works(visit: Visit, folders: tuple[str, ...], tmp_path: Path) -> None:
    """The result of one model is never shown as that of another."""
    page = visit(folders[1])
    place = tab(page, "Inpaint")
    place.get_by_label("Erase region").select_option("Left half")
    fill(place, Steps=15, Resampling=1, Samples=2)
    press(place, "Inpaint")
    expect(place.get_by_text("of 15, t =")).to_be_visible()
    choose_model(page, "mnist-binary")
    expect(place.get_by_text("Standard deviation over samples")).to_be_visible()
    assert pixels(place.locator(".std canvas")).shape == (4, 4, 3)

    def delay(route: Route) -> None:
        choose_model(page, folders[0])
        route.continue_()

    Image.new("L", (9, 9), 255).save(tmp_path / "white.png")
    page.route("**/api/upload*", delay)
    place.get_by_label("Upload an image", exact=True).set_input_files(tmp_path / "white.png")
    expect(place.get_by_role("alert").first).to_contain_text("the model was changed during the upload")
    assert not pixels(place.locator("canvas.editor")).any()


def test_several_browsers_and_tabs(visit: Visit, server: LocalServer, folders: tuple[str, ...]) -> None:
    """A browser opens six connections to one server: jobs leave some of them, so that a seventh tab works."""
    other, pages, places = visit(folders[0]), [visit(folders[1])], []
    for k in range(6):
        if k:  # each tab is used while it is in front: Chromium slows down the others
            pages.append(pages[0].context.new_page())
            pages[k].goto(server.url)
            choose_model(pages[k], folders[1])
        places.append(tab(pages[k], "Generate"))
        generate(places[k], Steps=1000, Images=1)
        expect(places[k].get_by_text(re.compile("of 1000, t =|jobs? ahead|other tabs"))).to_be_visible()
    assert server.queue() == {"running": 1, "waiting": 3}
    expect(places[-1].get_by_text("Waiting for jobs in other tabs of this browser.")).to_be_visible()
    place = tab(other, "Generate")
    generate(place, Steps=3, Images=1)
    expect(place.get_by_text("Queued: 1 job ahead.")).to_be_visible()  # browsers are served in turns
    press(places[-2], "Stop")  # while it waits in the browser
    expect(places[-2].get_by_text("Stopped.")).to_be_visible()
    for page in pages[:-1]:
        page.close()
    done(place, 3)
    expect(places[-1].get_by_text("of 1000, t =")).to_be_visible()
    pages[-1].close()
    assert until(lambda: server.queue() == IDLE, 5)


def test_messages_are_in_view_on_a_telephone(visit: Visit, server: LocalServer, folders: tuple[str, ...]) -> None:
    """An invalid value, a rejected request, the state of a job, and a lost token."""
    page = visit(folders[1], width=390, height=600)
    place = tab(page, "Generate")
    generate(place, Steps=5000)
    expect(place.get_by_text("Steps must be an integer from 1 to 1000.")).to_be_in_viewport()
    generate(place, Steps=1000, Images=1)
    expect(place.get_by_text(re.compile("of 1000, t = .* left"))).to_be_in_viewport()
    press(place, "Stop")
    choose_model(page, "cifar10")
    generate(place, Images=16, Steps=1000)
    expect(place.get_by_text("this job costs 2.6 times the limit")).to_be_in_viewport()
    page.context.clear_cookies()
    press(place, "Generate")
    expect(place.get_by_text("the token is missing or wrong: open the address")).to_be_in_viewport()
    assert page.url == f"http://127.0.0.1:{server.port}/#generate"  # without the token


def test_layout_names_and_keyboard(visit: Visit, server: LocalServer) -> None:
    page = visit()
    names = [item.text_content() for item in page.get_by_role("tab").all()]
    assert names == ["Generate", "Compare", "Inpaint", "Theory"]
    page.get_by_role("tab", name="Generate").focus()
    for name in (*names[1:], names[0]):
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tabpanel")).to_have_count(1)
        expect(page.get_by_role("tabpanel", name=str(name))).to_be_visible()
    for width in (390, 800, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        for item in page.get_by_role("tab").all():
            item.click()
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('input, select, button')]
            .filter((e) => !e.labels?.length && !e.textContent.trim() && !e.getAttribute('aria-label'))
            .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    ids = page.evaluate("() => [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    page.goto(f"{server.url}#compare")
    page.reload()
    expect(page.get_by_role("tabpanel", name="Compare")).to_be_visible()


@pytest.mark.skipif("BLACKOUT_SCREENSHOT" not in os.environ, reason="BLACKOUT_SCREENSHOT is not set")
def test_screenshot(visit: Visit) -> None:
    page = visit("cifar10", height=880)
    place = tab(page, "Generate")
    generate(place, Steps=32, Images=9, Seed=0)
    expect(place.get_by_text("Done: 32 steps.")).to_be_visible(timeout=1_000_000)
    place.get_by_label("Step", exact=True).fill("28")
    page.screenshot(path=os.environ["BLACKOUT_SCREENSHOT"])
    assert Path(os.environ["BLACKOUT_SCREENSHOT"]).stat().st_size < 400_000
