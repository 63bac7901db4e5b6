"""The theory tab in a real Chromium."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from browser import Log, chromium, require_chromium
from pages import LocalServer

require_chromium()

INITIAL = ((-0.6, 20.6), (0.0, 1.02))
BARS = ((-0.6, 20.6), (0.0, 1.0))
MAP = ((-0.5, 80.5), (-0.5, 20.5))


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


class Tab:
    """The tab, the requests it sent, and the responses to them."""

    def __init__(self, page: Page, server: LocalServer) -> None:
        self.page, self.url, self.log = page, f"{server.url}#theory", Log()
        self.sent: list[dict[str, Any]] = []
        self.responses: list[Any] = []
        self.log.watch(page)
        page.on("request", lambda request: self.sent.append(request.post_data_json) if request.post_data else None)
        page.on("response", lambda response: self.responses.append(response) if "theory" in response.url else None)

    def settle(self) -> dict[str, Any]:
        """The last response, once it has come."""
        self.page.wait_for_selector(".theory[aria-busy=false]")
        return dict([r for r in self.responses if r.url.endswith("/api/theory")][-1].json())

    def panel(self, name: str) -> Locator:
        return self.page.locator(f"[data-panel={name}] svg")

    def note(self, name: str) -> str:
        return self.page.locator(f"[data-panel={name}] .note").inner_text()

    def message(self) -> str:
        return self.page.locator(".message").inner_text()

    def time(self) -> Locator:
        return self.page.get_by_role("slider", name="Time", exact=True)

    def heights(self, panel: str, kind: str, size: int = 21) -> numpy.ndarray:
        """The heights of the bars of a plot, by state."""
        bars = self.panel(panel).locator(f".{kind}")
        drawn = bars.evaluate_all("bars => bars.map(b => [Number(b.dataset.state), b.height.baseVal.value])")
        assert drawn, f"{panel} has no {kind}"
        heights = numpy.zeros(size)
        for state, height in drawn:
            heights[state] = height
        return heights

    def at(self, panel: str, x: float, y: float, span: tuple[float, float], range_: tuple[float, float]) -> Any:
        """Where a point of a plot is on the page; `span` and `range_` are its axes."""
        box = self.panel(panel).bounding_box()
        assert box is not None
        right = {"bridge": 76}.get(panel, 8)
        across = 52 + (x - span[0]) / (span[1] - span[0]) * (box["width"] - 52 - right)
        down = box["height"] - 36 - (y - range_[0]) / (range_[1] - range_[0]) * (box["height"] - 46)
        return box["x"] + across, box["y"] + down

    def click(self, *place: Any) -> dict[str, Any]:
        self.page.mouse.click(*self.at(*place))
        return self.settle()

    def press(self, name: str) -> dict[str, Any]:
        self.page.get_by_role("button", name=name).click()
        return self.settle()

    def enter(self, label: str, value: str) -> dict[str, Any]:
        self.page.get_by_label(label).fill(value)
        self.page.get_by_label(label).press("Enter")
        return self.settle()


@pytest.fixture(scope="module")
def opened(browser: Browser, server: LocalServer) -> Iterator[Tab]:
    context = browser.new_context(
        viewport={"width": 1280, "height": 2200}, permissions=["clipboard-read", "clipboard-write"]
    )
    tab = Tab(context.new_page(), server)
    tab.page.goto(tab.url)
    yield tab
    tab.log.check(f"127.0.0.1:{server.port}")
    context.close()


@pytest.fixture
def tab(opened: Tab) -> Tab:
    """The tab in its initial state."""
    opened.page.reload()
    opened.settle()
    return opened


def proportional(heights: numpy.ndarray, values: Any) -> None:
    """Heights are proportional to values, up to the rounding of pixels."""
    expected = numpy.array([0.0 if v is None else v for v in values])
    numpy.testing.assert_allclose(heights / heights.max(), expected / expected.max(), atol=1e-3)


def test_drawing_with_the_mouse_and_the_keyboard(tab: Tab) -> None:
    mouse, keyboard = tab.page.mouse, tab.page.keyboard
    before = tab.press("Uniform")
    mouse.move(*tab.at("initial", 2, 0.2, *INITIAL))
    mouse.down()
    mouse.move(*tab.at("initial", 8, 0.8, *INITIAL), steps=3)
    tab.settle()
    assert tab.sent[-1]["trajectories"] == 0  # fast while the user draws
    mouse.up()
    data = tab.settle()
    numpy.testing.assert_allclose(data["weights"][2:9], numpy.linspace(0.2, 0.8, 7), atol=0.03)
    assert data["weights"][:2] + data["weights"][9:] == [0.5] * 14
    assert len(data["trajectories"]) == 6
    assert data["forward"] != before["forward"]
    proportional(tab.heights("marginal", "forward"), data["forward"][28])
    assert tab.panel("forward").locator(".trajectory").count() == 6

    tab.press("Two peaks")
    tab.page.get_by_role("slider", name="weight of state 0").focus()
    for _ in range(2):
        keyboard.press("ArrowUp")
    tab.settle()
    assert tab.page.evaluate("document.activeElement.dataset.state") == "0"  # the focus is kept
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "End"):
        keyboard.press(key)
    data = tab.settle()
    assert (data["weights"][0], data["weights"][3]) == (0.1, 1.0)
    focused = tab.page.get_by_role("slider", name="weight of state 3")
    assert focused.get_attribute("aria-valuenow") == "1"
    assert tab.page.locator("[role=slider][tabindex='0']").count() == 1
    tab.time().focus()
    keyboard.press("ArrowRight")
    proportional(tab.heights("marginal", "forward"), data["forward"][29])

    tab.press("Two peaks")
    before_bars = tab.heights("marginal", "forward")
    x, y = tab.at("initial", 0, 0.0, *INITIAL)
    mouse.move(x, y + 2)
    mouse.down()
    x, y = tab.at("initial", 20, 0.0, *INITIAL)
    mouse.move(x, y + 2, steps=2)
    mouse.up()
    tab.settle()
    assert tab.message() == "weights must have a positive and finite sum, got 0.0"
    tab.press("Two peaks")
    assert tab.message() == ""
    numpy.testing.assert_allclose(tab.heights("marginal", "forward"), before_bars)


def test_time_moves_without_requests(tab: Tab) -> None:
    data, requests = tab.settle(), len(tab.sent)
    cursors = []
    for k in (10, 28, 60):
        tab.time().fill(str(k))
        proportional(tab.heights("marginal", "forward"), data["forward"][k])
        proportional(tab.heights("posterior", "posterior"), data["posterior"][k])
        widths = tab.panel("bridge").locator(".slice").evaluate_all("bars => bars.map(b => b.width.baseVal.value)")
        proportional(numpy.array(widths), data["bridge"][k])
        rings = tab.panel("marginal").locator(".reverse").evaluate_all("all => all.map(c => c.cy.baseVal.value)")
        assert max(rings) - min(rings) == pytest.approx(tab.heights("marginal", "forward").max(), abs=0.3)
        cursors.append(tab.panel("forward").locator(".now").get_attribute("x1"))
        y = data["difference"][k][data["xt"]]
        assert f"= {float(f'{y:.3g}'):g}" in tab.note("posterior")
    assert len({float(x or 0) for x in cursors}) == 3
    assert tab.page.locator(".clock").inner_text().startswith("t = 1.")
    usual = [rate if p >= 1e-3 else 0 for rate, p in zip(data["rates"]["up"][60], data["forward"][60], strict=True)]
    drawn = tab.heights("rates", "up")
    proportional(numpy.where(numpy.array(usual) > 0, drawn, 0), usual)

    tab.time().fill("6")
    play = tab.page.locator(".play")
    play.click()
    assert play.inner_text() == "Pause"
    expect(play).to_have_text("Play")
    assert tab.time().input_value() == "0"
    proportional(tab.heights("marginal", "forward"), data["initial"])
    play.click()  # from zero it starts at the last time
    play.click()
    assert int(tab.time().input_value()) > 60
    assert len(tab.sent) == requests


def test_states_are_chosen(tab: Tab) -> None:
    data = tab.click("marginal", 5, 0.5, *BARS)
    assert (data["xt"], data["k"]) == (5, 40)
    assert tab.page.get_by_label("observed xt").input_value() == "5"
    proportional(tab.heights("posterior", "posterior"), data["posterior"][28])
    data = tab.click("posterior", 13, 0.5, *BARS)
    assert (data["xt"], data["x0"]) == (5, 13)
    data = tab.click("forward", 55, 2, *MAP)
    assert (data["k"], data["xt"]) == (55, 2)
    assert "observed in xt = 2" in tab.note("bridge")
    data = tab.enter("initial x0", "9")
    assert (data["k"], data["xt"], data["x0"]) == (55, 2, 9)


def test_states_that_cannot_be_reached_are_replaced(tab: Tab) -> None:
    tab.click("marginal", 8, 0.5, *BARS)
    data = tab.enter("initial x0", "3")
    assert tab.message() == "xt=8 cannot be reached from x0=3: replaced by the most probable state"
    assert data["xt"] == 8
    assert tab.page.get_by_label("initial x0").input_value() == str(data["x0"]) != "3"
    tab.click("marginal", 15, 0.5, *BARS)
    data = tab.press("One point")
    assert "xt=15 cannot be reached" in tab.message()
    assert data["xt"] == 6
    proportional(tab.heights("marginal", "forward"), data["forward"][28])


def test_processes_and_trajectories(tab: Tab) -> None:
    offered = tab.settle()["processes"]
    choice = tab.page.get_by_label("Process")
    assert choice.locator("option").all_text_contents() == list(offered)
    for name in ("birth-death", "uniform", "absorbing"):
        choice.select_option(name)
        data = tab.settle()
        assert data["process"] == name
        assert offered[name] in tab.note("forward")
        moves_down = any(any(row) for row in data["rates"]["down"])
        assert (tab.panel("rates").locator(".down").count() > 0) is moves_down
        proportional(tab.heights("marginal", "forward", len(data["initial"])), data["forward"][28])
    before = tab.settle()["trajectories"]
    assert tab.press("New trajectories")["trajectories"] != before


def test_downloads(tab: Tab, tmp_path: Path) -> None:
    data = tab.settle()
    saved = {}
    for button, name in (
        ("Figure (SVG)", "theory.svg"),
        ("Data (CSV)", "theory.csv"),
        ("Data (JSON)", "theory.json"),
        ("Script (Python)", "theory.py"),
    ):
        with tab.page.expect_download() as download:
            tab.page.get_by_role("button", name=button).click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
        saved[name] = (tmp_path / name).read_text()
    figure = ElementTree.fromstring(saved["theory.svg"])
    space = "{http://www.w3.org/2000/svg}"
    assert len(figure.findall(f"{space}svg")) == 6
    assert len(figure.findall(f".//{space}rect[@class='forward']")) == 21
    assert json.loads(saved["theory.json"]) == data
    code = tab.page.get_by_role("tabpanel").locator("pre code")
    assert saved["theory.py"] == data["code"] == code.inner_text()
    rows = list(csv.DictReader(io.StringIO(saved["theory.csv"])))
    assert len(rows) == 81 * 21
    row = rows[40 * 21 + 7]
    assert float(row["t"]) == data["times"][40]
    assert float(row["forward"]) == data["forward"][40][7]
    assert float(row["score_up"]) == data["score"]["up"][40][7]
    assert float(row["bridge"]) == data["bridge"][40][7]
    assert rows[7]["rate_up"] == ""
    tab.page.get_by_role("button", name="Copy").click()
    tab.page.get_by_text("Copied.").wait_for()
    assert tab.page.evaluate("navigator.clipboard.readText()") == data["code"]


def test_a_narrow_screen_and_touch(browser: Browser, server: LocalServer) -> None:
    """The tab is opened after its data has come, and draws itself then."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    tab = Tab(context.new_page(), server)
    tab.page.goto(server.url)
    tab.page.wait_for_selector(".theory[aria-busy=false]", state="attached")
    assert tab.panel("forward").locator(".cells").count() == 0
    tab.page.get_by_role("tab", name="Theory").tap()
    tab.panel("forward").locator(".cells").wait_for()
    proportional(tab.heights("marginal", "forward"), tab.settle()["forward"][28])
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("initial", "forward", "marginal", "rates", "posterior", "bridge"):
        box = tab.panel(name).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    tab.panel("initial").scroll_into_view_if_needed()
    tab.page.touchscreen.tap(*tab.at("initial", 9, 0.7, *INITIAL))
    assert tab.settle()["weights"][9] == pytest.approx(0.7, abs=0.02)
    tab.log.check(f"127.0.0.1:{server.port}")
    context.close()
