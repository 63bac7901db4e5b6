"""The theory room in a real browser, served by a server as small as can be, under the page's own policy."""

import csv
import io
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy
import pytest

import blackout.web
from blackout.web.theory import theory
from browser import ARGS, chromium_path

if chromium_path() is None and os.environ.get("BLACKOUT_BROWSER") != "required":
    pytest.skip("no Chromium: set BLACKOUT_CHROMIUM or put one on the PATH", allow_module_level=True)

import uvicorn
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

STATIC = Path(blackout.web.__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Theory</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/theory.css"><body><main></main><script type="module" src="/page.js"></script>"""
SCRIPT = """import { mount } from "/static/theory.js";
async function ask(values) {
  const answer = await fetch("/api/theory", { method: "POST", body: JSON.stringify(values) });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  return content;
}
const main = document.querySelector("main");
main.hidden = location.hash === "#hidden";
mount(main, ask);"""


async def _index(request: Request) -> Response:
    return Response(PAGE, media_type="text/html", headers={"Content-Security-Policy": POLICY})


async def _script(request: Request) -> Response:
    return Response(SCRIPT, media_type="text/javascript")


async def _answer(request: Request) -> Response:
    try:
        return JSONResponse(theory(await request.json()))
    except ValueError as error:
        return JSONResponse({"error": str(error)}, 400)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    routes = [Route("/", _index), Route("/page.js", _script), Route("/api/theory", _answer, methods=["POST"])]
    app = Starlette(routes=[*routes, Mount("/static", StaticFiles(directory=STATIC))])
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=ARGS)
        yield browser
        browser.close()


class Visit:
    """A page, what it asked, and what went wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[dict[str, Any]] = []
        self.urls: list[str] = []
        self.errors: list[str] = []
        self.answers: list[Any] = []
        page.on("request", self._request)
        page.on("response", lambda response: self.answers.append(response) if "/api/" in response.url else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)

    def _request(self, request: Any) -> None:
        self.urls.append(request.url)
        if request.post_data:
            self.asked.append(json.loads(request.post_data))

    def settle(self) -> dict[str, Any]:
        """The last answer, once it has come."""
        self.page.wait_for_selector(".theory[aria-busy=false]")
        return self.answers[-1].json()

    def panel(self, name: str) -> Locator:
        return self.page.locator(f"[data-panel={name}] svg")

    def heights(self, panel: str, kind: str) -> numpy.ndarray:
        """The heights of the bars of a picture, by state."""
        bars = self.panel(panel).locator(f".{kind}")
        drawn = bars.evaluate_all("bars => bars.map(b => [Number(b.dataset.state), b.height.baseVal.value])")
        assert drawn, f"{panel} has no {kind}"
        heights = numpy.zeros(21)
        for state, height in drawn:
            heights[state] = height
        return heights

    def at(
        self, panel: str, x: float, y: float, span: tuple[float, float], range_: tuple[float, float]
    ) -> dict[str, float]:
        """Where a point of a picture lies on the page; `span` and `range_` are its axes."""
        box = self.panel(panel).bounding_box()
        assert box is not None
        right = {"bridge": 76}.get(panel, 8)
        across = 52 + (x - span[0]) / (span[1] - span[0]) * (box["width"] - 52 - right)
        down = box["height"] - 36 - (y - range_[0]) / (range_[1] - range_[0]) * (box["height"] - 46)
        return {"x": box["x"] + across, "y": box["y"] + down}

    def click(self, *place: Any) -> None:
        point = self.at(*place)
        self.page.mouse.click(point["x"], point["y"])

    def slide(self, k: int) -> None:
        self.page.get_by_role("slider", name="time", exact=True).fill(str(k))


LAW = ((-0.6, 20.6), (0.0, 1.02))
BARS = ((-0.6, 20.6), (0.0, 1.0))
MAP = ((-0.5, 80.5), (-0.5, 20.5))


@pytest.fixture
def visit(chromium: Browser, address: str) -> Iterator[Visit]:
    context = chromium.new_context(
        viewport={"width": 1280, "height": 2200}, permissions=["clipboard-read", "clipboard-write"]
    )
    visit = Visit(context.new_page())
    visit.page.goto(address)
    visit.page.wait_for_selector(".theory[aria-busy=false]")
    yield visit
    assert visit.errors == []
    assert {url.split("/")[2] for url in visit.urls if not url.startswith(("blob:", "data:"))} == {
        address.split("/")[2]
    }
    context.close()


def _alike(heights: numpy.ndarray, numbers: Any) -> None:
    """Heights in proportion to numbers, but for the rounding of pixels."""
    values = numpy.array([0.0 if v is None else v for v in numbers])
    numpy.testing.assert_allclose(heights / heights.max(), values / values.max(), atol=1e-3)


def test_a_law_is_drawn_with_the_mouse(visit: Visit) -> None:
    visit.page.get_by_role("button", name="Uniform").click()
    before = visit.settle()
    start, end = visit.at("law", 2, 0.2, *LAW), visit.at("law", 8, 0.8, *LAW)
    visit.page.mouse.move(start["x"], start["y"])
    visit.page.mouse.down()
    visit.page.mouse.move(end["x"], end["y"], steps=3)
    visit.settle()
    assert visit.asked[-1]["paths"] == 0  # quick while the law is being drawn
    visit.page.mouse.up()
    answer = visit.settle()
    numpy.testing.assert_allclose(answer["weights"][2:9], numpy.linspace(0.2, 0.8, 7), atol=0.03)
    assert answer["weights"][:2] + answer["weights"][9:] == [0.5] * 14
    assert len(answer["paths"]) == 6
    assert answer["forward"] != before["forward"]
    _alike(visit.heights("lawNow", "forward"), answer["forward"][28])
    assert visit.panel("forward").locator(".walk").count() == 6


def test_time_moves_without_a_question_and_the_pictures_follow(visit: Visit) -> None:
    answer, questions = visit.settle(), len(visit.asked)
    seen = []
    for k in (10, 28, 60):
        visit.slide(k)
        _alike(visit.heights("lawNow", "forward"), answer["forward"][k])
        _alike(visit.heights("posterior", "posterior"), answer["posterior"][k])
        widths = visit.panel("bridge").locator(".slice").evaluate_all("bars => bars.map(b => b.width.baseVal.value)")
        _alike(numpy.array(widths), answer["bridge"][k])
        rings = visit.panel("lawNow").locator(".reverse").evaluate_all("all => all.map(c => c.cy.baseVal.value)")
        base = max(rings)
        assert base - min(rings) == pytest.approx(visit.heights("lawNow", "forward").max(), abs=0.3)
        seen.append(visit.panel("forward").locator(".now").get_attribute("x1"))
        y = answer["difference"][k][answer["xt"]]
        assert f"= {float(f'{y:.3g}'):g}" in visit.page.locator("[data-panel=posterior] .note").inner_text()
    assert len({float(x or 0) for x in seen}) == 3
    assert visit.page.locator(".clock").inner_text().startswith("t = 1.")
    usual = [rate if p >= 1e-3 else 0 for rate, p in zip(answer["rates"]["up"][60], answer["forward"][60], strict=True)]
    drawn = visit.heights("moves", "up")
    _alike(numpy.where(numpy.array(usual) > 0, drawn, 0), usual)
    assert len(visit.asked) == questions


def test_a_state_is_chosen_by_clicking(visit: Visit) -> None:
    visit.click("lawNow", 5, 0.5, *BARS)
    answer = visit.settle()
    assert (answer["xt"], answer["k"]) == (5, 40)
    assert visit.page.get_by_label("seen xt").input_value() == "5"
    _alike(visit.heights("posterior", "posterior"), answer["posterior"][28])
    visit.click("posterior", 13, 0.5, *BARS)
    answer = visit.settle()
    assert (answer["xt"], answer["x0"]) == (5, 13)
    visit.click("forward", 55, 2, *MAP)
    answer = visit.settle()
    assert (answer["k"], answer["xt"]) == (55, 2)
    assert "seen in xt = 2" in visit.page.locator("[data-panel=bridge] .note").inner_text()
    visit.page.get_by_label("start x0").fill("9")
    visit.page.get_by_label("start x0").press("Enter")
    answer = visit.settle()
    assert (answer["k"], answer["xt"], answer["x0"]) == (55, 2, 9)


def test_a_start_that_cannot_be_is_given_up_but_not_the_sight(visit: Visit) -> None:
    visit.click("lawNow", 8, 0.5, *BARS)
    visit.settle()
    visit.page.get_by_label("start x0").fill("3")
    visit.page.get_by_label("start x0").press("Enter")
    answer = visit.settle()
    message = "xt=8 cannot be reached from x0=3: the most probable one is taken instead"
    assert visit.page.locator(".message").inner_text() == message
    assert answer["xt"] == 8
    assert visit.page.get_by_label("start x0").input_value() == str(answer["x0"]) != "3"
    visit.errors.clear()  # Chromium logs the refusal


def test_a_sight_that_cannot_be_is_given_up_and_said_so(visit: Visit) -> None:
    visit.click("lawNow", 15, 0.5, *BARS)
    visit.settle()
    visit.page.get_by_role("button", name="One point").click()
    answer = visit.settle()
    message = visit.page.locator(".message").inner_text()
    assert "xt=15 cannot be reached" in message
    assert answer["xt"] == 6
    _alike(visit.heights("lawNow", "forward"), answer["forward"][28])
    visit.errors.clear()  # Chromium logs the refusal


def test_a_law_without_weight_is_refused_and_the_pictures_stay(visit: Visit) -> None:
    before = visit.heights("lawNow", "forward")
    start, end = visit.at("law", 0, 0.0, *LAW), visit.at("law", 20, 0.0, *LAW)
    visit.page.mouse.move(start["x"], start["y"] + 2)
    visit.page.mouse.down()
    visit.page.mouse.move(end["x"], end["y"] + 2, steps=2)
    visit.page.mouse.up()
    visit.page.wait_for_selector(".theory[aria-busy=false]")
    message = visit.page.locator(".message")
    assert message.inner_text() == "weights must have a sum that is positive and finite, got 0.0"
    visit.page.get_by_role("button", name="Two peaks").click()
    visit.settle()
    assert message.inner_text() == ""
    numpy.testing.assert_allclose(visit.heights("lawNow", "forward"), before)
    visit.errors.clear()  # Chromium logs the refusal


def test_the_keyboard_draws_too(visit: Visit) -> None:
    bars = visit.page.get_by_role("slider", name="weight of state 0")
    bars.focus()
    for _ in range(2):
        visit.page.keyboard.press("ArrowUp")
    visit.settle()
    assert visit.page.evaluate("document.activeElement.dataset.state") == "0"  # the answer takes no focus away
    for _ in range(3):
        visit.page.keyboard.press("ArrowRight")
    visit.page.keyboard.press("End")
    answer = visit.settle()
    assert answer["weights"][0] == 0.1
    assert answer["weights"][3] == 1.0
    now = visit.page.get_by_role("slider", name="weight of state 3")
    assert now.get_attribute("aria-valuenow") == "1"
    assert visit.page.locator("[role=slider][tabindex='0']").count() == 1
    visit.page.get_by_role("slider", name="time", exact=True).focus()
    visit.page.keyboard.press("ArrowRight")
    _alike(visit.heights("lawNow", "forward"), answer["forward"][29])


def test_time_runs_back_to_zero_and_rests(visit: Visit) -> None:
    answer = visit.settle()
    visit.slide(6)
    play = visit.page.locator(".play")
    play.click()
    assert play.inner_text() == "Pause"
    expect(play).to_have_text("Run back")
    assert visit.page.get_by_role("slider", name="time", exact=True).input_value() == "0"
    _alike(visit.heights("lawNow", "forward"), answer["law"])
    play.click()  # from zero it begins at the end again
    play.click()
    assert int(visit.page.get_by_role("slider", name="time", exact=True).input_value()) > 60


def test_other_processes_and_other_walks(visit: Visit) -> None:
    for name, down in (("birth-death", True), ("uniform", True), ("absorbing", False)):
        visit.page.get_by_label("Process").select_option(name)
        answer = visit.settle()
        assert answer["process"] == name
        assert (visit.panel("moves").locator(".down").count() > 0) is down
        _alike(visit.heights("lawNow", "forward"), answer["forward"][28])
    before = visit.settle()["paths"]
    visit.page.get_by_role("button", name="Other walks").click()
    assert visit.settle()["paths"] != before


def test_what_is_seen_can_be_taken_away(visit: Visit, tmp_path: Path) -> None:
    answer = visit.settle()
    saved = {}
    for button, name in (
        ("Picture (SVG)", "theory.svg"),
        ("Numbers (CSV)", "theory.csv"),
        ("Numbers (JSON)", "theory.json"),
        ("Program (Python)", "theory.py"),
    ):
        with visit.page.expect_download() as download:
            visit.page.get_by_role("button", name=button).click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
        saved[name] = (tmp_path / name).read_text()
    picture = ElementTree.fromstring(saved["theory.svg"])
    space = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{space}svg")) == 6
    assert len(picture.findall(f".//{space}rect[@class='forward']")) == 21
    assert json.loads(saved["theory.json"]) == answer
    assert saved["theory.py"] == answer["code"] == visit.page.locator("pre code").inner_text()
    rows = list(csv.DictReader(io.StringIO(saved["theory.csv"])))
    assert len(rows) == 81 * 21
    row = rows[40 * 21 + 7]
    assert float(row["t"]) == answer["times"][40]
    assert float(row["forward"]) == answer["forward"][40][7]
    assert float(row["score_up"]) == answer["score"]["up"][40][7]
    assert float(row["bridge"]) == answer["bridge"][40][7]
    assert rows[7]["rate_up"] == ""
    visit.page.get_by_role("button", name="Copy").click()
    visit.page.get_by_text("Copied.").wait_for()
    assert visit.page.evaluate("navigator.clipboard.readText()") == answer["code"]


def test_a_room_that_is_opened_later_draws_itself_then(chromium: Browser, address: str) -> None:
    context = chromium.new_context()
    visit = Visit(context.new_page())
    visit.page.goto(f"{address}/#hidden")
    visit.page.wait_for_selector(".theory[aria-busy=false]", state="attached")
    assert visit.panel("forward").locator(".cells").count() == 0
    visit.page.evaluate("document.querySelector('main').hidden = false")
    visit.panel("forward").locator(".cells").wait_for()
    _alike(visit.heights("lawNow", "forward"), visit.settle()["forward"][28])
    assert visit.errors == []
    context.close()


def test_a_narrow_screen_and_a_finger(chromium: Browser, address: str) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    visit = Visit(context.new_page())
    visit.page.goto(address)
    visit.settle()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("law", "forward", "lawNow", "moves", "posterior", "bridge"):
        box = visit.panel(name).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    point = visit.at("law", 9, 0.7, *LAW)
    visit.page.touchscreen.tap(point["x"], point["y"])
    assert visit.settle()["weights"][9] == pytest.approx(0.7, abs=0.02)
    assert visit.errors == []
    context.close()
