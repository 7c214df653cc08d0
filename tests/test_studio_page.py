"""The studio's page in a real browser."""

import json
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pidm_nav import load_demos
from pidm_nav.demos.replay import check_demos

pytest.importorskip("starlette", reason="the studio needs the extra `studio`")
from studio_server import Server, opened, packaged, start, step_until, train_briefly, wait_for


def test_the_browser_records_with_keys_and_reloads_in_the_middle(page: Any, folder: Path) -> None:
    start(page, "maze", "keys.npz")
    page.keyboard.down("ArrowUp")
    step_until(page, 11)
    page.keyboard.up("ArrowUp")
    page.reload()
    page.wait_for_selector("#play-overlay:has-text('Paused')")
    assert int(page.inner_text("#steps")) > 10
    page.keyboard.press("p")
    page.keyboard.down("d")
    step_until(page, 26)
    page.keyboard.up("d")
    page.keyboard.press("Enter")
    page.wait_for_selector("#kept:has-text('1 now')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#play-form:not([hidden])")
    demos = load_demos(folder / "keys.npz")
    assert len(demos) == 1 and len(demos[0]) > 20 and not check_demos(demos).mismatches
    assert demos[0].actions[5, 1] == -1 and demos[0].actions[-3, 0] > 0.5


def test_the_browser_records_with_a_gamepad(page: Any, folder: Path) -> None:
    page.evaluate(
        """() => {
          const buttons = Array.from({ length: 17 }, () => ({ pressed: false }));
          window.pad = { id: "Test Pad", index: 0, connected: true, axes: [0, 0, 0, 0], buttons };
          navigator.getGamepads = () => [window.pad];
        }"""
    )
    start(page, "four-room", "pad.npz")
    page.evaluate("() => { pad.axes[0] = 0.1; }")  # a worn stick, within the dead zone
    page.wait_for_function("document.getElementById('steps').textContent === '0'")
    page.evaluate("() => { pad.axes[0] = 0.8; pad.axes[1] = -0.2; }")
    step_until(page, 9)
    assert page.inner_text("#device") == "Test Pad"
    gone = "Object.assign(new Event('gamepaddisconnected'), { gamepad: pad })"
    page.evaluate(f"() => {{ pad.connected = false; dispatchEvent({gone}); }}")
    page.wait_for_selector("#play-overlay:has-text('Test Pad was unplugged')")
    page.evaluate("() => { pad.connected = true; pad.buttons[9].pressed = true; }")  # plugged in again: Start goes on
    page.wait_for_selector("#play-overlay", state="hidden")
    page.evaluate("() => { pad.buttons[9].pressed = false; }")
    step_until(page, 15)
    page.evaluate("() => { pad.axes.fill(0); pad.buttons[3].pressed = true; }")
    page.wait_for_selector("#kept:has-text('1 now')")
    page.evaluate("() => { pad.buttons[3].pressed = false; pad.buttons[8].pressed = true; }")
    page.wait_for_selector("#play-form:not([hidden])")
    demos = load_demos(folder / "pad.npz")
    assert demos.source["settings"]["device"] == "Test Pad" and demos[0].actions[4, 0] > 0.5


PAUSE_AT_ONCE = """() => {
  const watching = document.getElementById("watching");
  const pause = (_, observer) => {
    if (watching.hidden) return;
    observer.disconnect();
    document.getElementById("toggle").click(); // before the first report arrives
  };
  new MutationObserver(pause).observe(watching, { attributes: true });
}"""


def test_the_browser_trains_watches_and_drags(page: Any, server: Server) -> None:
    name = train_briefly(server)
    page.click("#tab-train")
    page.evaluate(PAUSE_AT_ONCE)
    page.click(f".run[data-status=done]:has-text('{name}') button:has-text('Watch it')")
    page.wait_for_selector("#toggle:has-text('Play')")
    box = page.locator("#watch-canvas").bounding_box()
    at = [box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.85]
    page.click("#restart")
    page.wait_for_selector("#scores li:first-child:has-text('step 0')")
    start = json.loads(page.evaluate("() => JSON.stringify(studioWatched().players[0].state.slice(0, 2))"))
    page.mouse.move(box["x"] + start[0] / 800 * box["width"], box["y"] + start[1] / 800 * box["height"])
    page.mouse.down()
    page.mouse.move(*at, steps=5)
    page.mouse.up()
    page.wait_for_function("() => studioWatched().players[0].state[1] > 600")
    page.click("#step")
    page.wait_for_selector("#scores li:first-child:has-text('step 1')")


def test_the_page_offers_the_registered_agents(page: Any) -> None:
    page.click("#tab-train")
    page.wait_for_selector("#main-agents input[value=delta-pidm]")
    assert (
        page.is_checked("[value=bc]") and page.is_checked("[value=pidm]") and not page.is_checked("[value=delta-pidm]")
    )
    assert page.locator("#main-agents").inner_text().split() == ["BC", "PIDM", "delta-PIDM"]
    page.click("summary:has-text('Others')")
    assert page.is_visible("[value=retrieval-bc]")


def test_the_browser_records_with_a_finger(browser: Any, server: Server, folder: Path) -> None:
    phone = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
    with opened(browser, server, **phone) as page:
        start(page, "maze", "finger.npz")
        box = page.locator("#play-canvas").bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 800  # the map is in sight
        x, y = box["x"] + 100, box["y"] + 200
        touch = page.context.new_cdp_session(page)
        for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchMove", [{"x": x, "y": y - 50}])):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        step_until(page, 9)
        assert page.is_visible("#touch") and page.inner_text("#device") == "touch"
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        page.wait_for_selector("#touch", state="hidden")
        page.tap("#commands button:has-text('keep it')")
        page.wait_for_selector("#kept:has-text('1 now')")
        page.tap("#commands button:has-text('Finish')")
        page.wait_for_selector("#play-form:not([hidden])")
    assert load_demos(folder / "finger.npz")[0].actions[4, 1] == -1


@pytest.mark.thorough
def test_the_page_goes_on_after_a_lost_connection(browser: Any, tmp_path: Path) -> None:
    server = Server(tmp_path, token="stays-the-same")
    with ExitStack() as stack, opened(browser, server) as page:
        stack.callback(server.close)
        lines = "(Real) => { window.lines = []; window.WebSocket = class extends Real { "
        page.evaluate(f"() => ({lines} constructor(url) {{ super(url); lines.push(this); }} }}; }})(WebSocket)")
        start(page, "maze", "mine.npz")
        page.keyboard.down("ArrowUp")
        step_until(page, 6)
        page.keyboard.up("ArrowUp")
        step_until(page, 15)  # meanwhile the stick comes back, which the next episode waits for
        page.keyboard.press("Enter")
        page.wait_for_selector("#kept:has-text('1 now, 1 in mine.npz')")
        page.keyboard.down("ArrowUp")
        step_until(page, 6)
        page.evaluate("() => lines[0].close()")  # the network: the session waits
        page.wait_for_selector("#play-overlay:has-text('lost')")
        page.keyboard.up("ArrowUp")
        page.wait_for_selector("#play-overlay:has-text('Press P')")
        steps = int(page.inner_text("#steps"))
        assert steps >= 6 and page.inner_text("#kept") == "1 now, 1 in mine.npz"
        page.keyboard.press("p")
        page.keyboard.down("ArrowDown")
        step_until(page, steps + 3)
        server.process.kill()  # the server: what was kept is in the file
        server.process.wait(timeout=30)
        page.wait_for_selector("#play-overlay:has-text('lost')")
        page.wait_for_selector("#alert:has-text('does not answer')")
        page.keyboard.up("ArrowDown")
        stack.callback(Server(tmp_path, server.base.rpartition(":")[2], server.token).close)
        page.wait_for_selector("#kept:has-text('0 now, 1 in mine.npz')")
        page.wait_for_selector("#alert", state="hidden")
        page.keyboard.down("ArrowUp")
        step_until(page, 6)
        page.keyboard.up("ArrowUp")
        page.keyboard.press("Enter")
        page.wait_for_selector("#kept:has-text('1 now, 2 in mine.npz')")
    demos = load_demos(tmp_path / "mine.npz")
    assert len(demos) == 2 and not check_demos(demos).mismatches


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("vizdoom") is None, reason="vizdoom is not installed")
def test_the_browser_records_and_watches_in_3d(page: Any, folder: Path) -> None:
    colors = """(id) => {
      const canvas = document.getElementById(id), { width, height } = canvas;
      return [width, height, new Set(canvas.getContext("2d").getImageData(0, 0, width, height).data).size];
    }"""
    start(page, "tour-3d", "walk.npz")
    page.wait_for_selector("#milestone:has-text('turn round')")
    assert "turn with J and L" in page.inner_text("#device-hint")
    page.keyboard.down("l")
    page.wait_for_selector("#goals:has-text('1 of 11')")
    page.keyboard.up("l")
    assert page.inner_text("#milestone") != "turn round"
    width, height, shades = page.evaluate(colors, "play-canvas")
    assert width > height > 200 and shades > 50
    page.keyboard.press("Enter")
    page.wait_for_selector("#kept:has-text('1 now')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#play-form:not([hidden])")
    demos = load_demos(folder / "walk.npz")
    assert demos.task == "tour-3d" and not check_demos(demos).mismatches
    page.click("#tab-watch")
    page.select_option("#watch-form [name=task]", "tour-3d")
    for number in range(2):
        page.locator("#watch-form [name=player]").nth(number).select_option("scripted")
    page.click("#watch-form button")
    page.wait_for_selector("#scores li:nth-child(2):has-text('1 of 11')")
    assert page.is_hidden("#thoughts")
    wide, _, shades = page.evaluate(colors, "watch-canvas")
    assert wide == 2 * width and shades > 50
    page.click("#toggle")
    page.wait_for_selector("#toggle:has-text('Play')")


def test_a_map_of_ones_own_is_recorded_trained_on_and_watched(page: Any, server: Server) -> None:
    page.select_option("#play-form [name=task]", "custom")
    page.fill("[name=map]", "##########\n#........#\n#.A....1.#\n#........#\n##########")
    start(page, "custom", "own.npz")
    page.keyboard.down("ArrowRight")
    step_until(page, 9)
    page.keyboard.up("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#kept:has-text('1 now')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#play-form:not([hidden])")
    asked = {"agents": ["retrieval-bc"], "demos": "own.npz"}
    (name,) = server.ask("/api/trainings", asked)["started"]
    assert wait_for(server, name)["status"] == "done"
    page.click("#tab-train")
    page.click(f".run:has-text('{name}') button:has-text('Watch it')")
    page.wait_for_function("() => studioWatched()?.players[0].nearest?.length === 2")
    assert "of 1 goals" in page.inner_text("#scores")


def test_a_recording_is_dropped_onto_the_page(page: Any) -> None:
    page.evaluate(
        """(bytes) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([new Uint8Array(bytes)], "dropped.npz"));
          for (const name of ["dragover", "drop"]) document.body.dispatchEvent(
            new DragEvent(name, { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        list(packaged()),
    )
    page.wait_for_function("document.querySelector('#train-form [name=demos]').value === 'dropped.npz'")
    assert page.is_visible("#train-form")


def test_a_wrong_map_is_told_while_it_is_drawn(page: Any) -> None:
    page.select_option("#play-form [name=task]", "custom")
    page.wait_for_selector("#map-editor:not([hidden])")
    assert page.is_hidden("#alert")
    page.fill("[name=map]", "####\n#S #\n####")
    page.wait_for_selector("#alert:not([hidden])")
    assert "goal" in page.inner_text("#alert")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_no_page_is_wider_than_the_screen(browser: Any, server: Server, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.goto(server.link)
    for tab in ("play", "train", "watch"):
        page.click(f"#tab-{tab}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.classList.contains('dark')") == (scheme == "dark")
    context.close()
