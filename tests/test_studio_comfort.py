"""The studio's page as a person meets it: nothing dead, hidden, lost or in the way."""

import json
import re
import shutil
import subprocess
import threading
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from pidm_nav import DemoDataset, load_demos, save_demos
from pidm_nav.demos.recorder.controls import BUTTONS, DEFAULTS, Controls
from pidm_nav.rollouts.episode import Episode
from pidm_nav.seeds import TEST

pytest.importorskip("starlette", reason="the studio needs the extra `studio`")
from studio_server import Server, hear, opened, packaged, start, step_until, train_briefly, wait_for

from pidm_nav.studio.play import BUTTON_NUMBERS, Begin, Input, PlayerConnection, controls_for_browsers

STATIC = files("pidm_nav.studio") / "static"
SCRIPTS = [each for each in STATIC.iterdir() if each.name.endswith(".js")]
LAPTOP = {"viewport": {"width": 1366, "height": 768}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


# ---- the files of the page


def test_every_id_is_there_once() -> None:
    text = (STATIC / "index.html").read_text()
    ids = Counter(re.findall(r'\bid="([^"]+)"', text))
    assert not [name for name, count in ids.items() if count > 1]
    asked = {name for script in SCRIPTS for name in re.findall(r'\$\("([\w-]+)"\)', script.read_text())}
    assert asked <= set(ids)
    assert len(re.findall("<main", text)) == 1


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_are_modules_that_find_each_other(script: Any) -> None:
    text = script.read_text()
    for names, other in re.findall(r'^import \{ (.*?) \} from "\./(.*?)";', text, re.MULTILINE):
        exported = re.findall(
            r"^export (?:async )?(?:const|class|function) ([\w$]+)", (STATIC / other).read_text(), re.M
        )
        assert set(names.split(", ")) <= set(exported), f"{script.name} imports {names} from {other}"
        for name in names.split(", "):
            assert len(re.findall(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text)) > 1, f"{name} is not used"
    if node := shutil.which("node"):
        checked = subprocess.run([node, "--input-type=module", "--check"], input=text, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr


# ---- the same recording in the window and in the browser


def test_keys_and_buttons_mean_the_same_in_both() -> None:
    told = controls_for_browsers(Controls())
    names = {"left shift": "Shift", "right shift": "Shift", "space": " ", "return": "Enter"}
    names |= {name: f"Arrow{name.title()}" for name in ("left", "right", "up", "down")}
    names |= {name: name.title() for name in ("backspace", "escape")}
    for action, (keys, buttons) in DEFAULTS.items():
        assert all(told["keys"][names.get(key, key)] == action for key in keys)
        assert all(told["buttons"][BUTTON_NUMBERS[button]] == action for button in buttons)
    assert set(BUTTONS) <= set(BUTTON_NUMBERS) and told["axes"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "held", [("right",), ("right", "up"), ("right", "up", "slow"), ("left", "right"), ("down", "left"), ()]
)
def test_held_keys_give_the_windows_sticks(tmp_path: Path, held: tuple[str, ...]) -> None:
    """The same keys, frame by frame, through the window's keyboard and through a page's messages."""
    import pygame

    from pidm_nav.demos.recorder.devices import Keyboard
    from pidm_nav.studio.folder import Folder, WorldRequest

    player = PlayerConnection.open(Begin(WorldRequest("maze")), Folder(tmp_path.resolve()))
    player.stepping = True  # type: ignore[assignment]  # a page is connected
    pygame.init()
    window = Keyboard(Controls())
    codes = {"right": pygame.K_d, "left": pygame.K_a, "up": pygame.K_w, "down": pygame.K_s, "slow": pygame.K_LSHIFT}
    seen: list[Any] = []
    tick = player.session.tick
    player.session.tick = lambda reading: (seen.append(reading.stick), tick(reading))  # type: ignore[method-assign]
    wanted = []
    for frame in range(12):
        down = held if frame < 7 else ()
        kind = {0: pygame.KEYDOWN, 7: pygame.KEYUP}.get(frame)
        window.read([pygame.event.Event(kind, key=codes[name]) for name in held] if kind else [])
        wanted.append(window.move(1 / 30)[0])
        player.receive(Input(held=down, pressed=down if frame == 0 else ()))
        player.tick()
    assert seen == wanted
    player.close()


def test_a_gamepads_sticks_are_recorded_as_they_are(page: Any, folder: Path) -> None:
    page.evaluate(
        """() => {
          const buttons = Array.from({ length: 17 }, () => ({ pressed: false }));
          window.pad = { id: "Test Pad", index: 0, connected: true, axes: [0, 0, 0, 0], buttons };
          navigator.getGamepads = () => [window.pad];
        }"""
    )
    start(page, "four-room", "raw.npz")
    page.evaluate("() => { pad.axes[0] = 0.75; pad.axes[1] = 0.75; }")  # beyond the unit circle, as square sticks go
    step_until(page, 8)
    page.evaluate("() => { pad.axes[0] = 0.0625; pad.axes[1] = 0.5; }")  # what little there is counts
    step_until(page, 16)
    page.evaluate("() => { pad.buttons[3].pressed = true; }")
    page.wait_for_selector("#kept:has-text('1 now')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#play-form:not([hidden])")
    actions = load_demos(folder / "raw.npz")[0].actions
    assert {(0.75, 0.75), (0.0625, 0.5)} <= set(map(tuple, actions.tolist()))


# ---- nothing dead


def watch(page: Any, task: str, *players: str) -> None:
    page.click("#tab-watch")
    page.evaluate("document.getElementById('watch-choice').open = true")  # a click could close what opens by itself
    page.select_option("#watch-form [name=task]", task)
    for number, player in enumerate(players):
        page.locator("#watch-form [name=player]").nth(number).select_option(player)
    page.click("#watch-form button")
    page.wait_for_selector("#watching:not([hidden])")


def test_the_next_episode_is_another_one(page: Any) -> None:
    watch(page, "maze", "astar")
    page.wait_for_function(f"() => studioWatched()?.seed === {TEST.start}")
    page.click("#next-episode")
    page.wait_for_function(f"() => studioWatched().seed === {TEST.start + 1} && studioWatched().playing")


def test_a_file_is_chosen_by_keyboard(page: Any, folder: Path) -> None:
    page.click("#tab-train")
    page.focus("#train-form [name=demos]")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "file"
    page.set_input_files("#drop input", {"name": "chosen.npz", "mimeType": "", "buffer": packaged()})
    page.wait_for_function("document.querySelector('#train-form [name=demos]').value === 'chosen.npz'")
    assert page.input_value("[name=num_demos]") == "50"


def test_screen_readers_hear_changes_only(page: Any) -> None:
    page.evaluate(
        """() => {
          window.heard = [];
          const all = { childList: true, characterData: true, subtree: true };
          for (const live of document.querySelectorAll("[aria-live], [role=status], [role=alert]"))
            new MutationObserver(() => heard.push(live.textContent)).observe(live, all);
        }"""
    )
    start(page, "maze", "quiet.npz")
    page.keyboard.down("ArrowUp")
    step_until(page, 15)
    page.keyboard.up("ArrowUp")
    heard = page.evaluate("() => heard")
    assert len(heard) <= 3 and len(set(heard)) == len(heard)
    page.keyboard.press("Escape")
    page.wait_for_selector("#play-form:not([hidden])")


def test_stop_keeps_the_focus_while_the_curve_grows(page: Any, server: Server) -> None:
    (name,) = server.ask("/api/trainings", {"agents": ["bc"], "demos": "maze/astar", "steps": 1_000_000})["started"]
    page.click("#tab-train")
    card = f".run:has-text('{name}')"
    page.wait_for_selector(f"{card} svg")
    page.focus(f"{card} button:has-text('Stop')")
    before = page.inner_text(f"{card} .figures")
    page.wait_for_function(f"document.querySelector('.run .figures').textContent !== {json.dumps(before)}")
    assert page.evaluate("document.activeElement.textContent") == "Stop"
    text = page.text_content(f"{card} svg")
    assert "loss" in text and "training steps" in text and "1,000,000" in text
    assert re.search(r"step [\d,]+ of 1,000,000 · \d+ (s|min) left", page.inner_text(f"{card} .figures"))
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{card}[data-status=stopped]")


def test_a_refused_training_is_told_until_there_is_room(page: Any, server: Server) -> None:
    asked = {"agents": ["bc", "bc"], "demos": "maze/astar", "steps": 1_000_000}
    names = server.ask("/api/trainings", asked)["started"]
    page.click("#tab-train")
    page.wait_for_selector(f".run:has-text('{names[1]}')")
    page.click("#train-form .primary")
    page.wait_for_selector("#alert:has-text('2 of 2 training runs are active')")
    for name in names:
        page.click(f".run:has-text('{name}') button:has-text('Stop')")
        page.wait_for_selector(f".run:has-text('{name}')[data-status=stopped]")
    page.wait_for_selector("#alert", state="hidden")


# ---- one thing leads to the next


def test_what_was_recorded_is_trained_on_and_watched(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "older.npz").write_bytes(packaged())
    server = Server(tmp_path)
    with opened(browser, server, **LAPTOP) as page:
        page.click("#tab-train")
        page.select_option("#train-form [name=demos]", "older.npz")
        page.click("#tab-play")
        start(page, "zigzag", "newer.npz")
        page.keyboard.down("ArrowDown")
        step_until(page, 12)
        page.keyboard.up("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_selector("#kept:has-text('1 now')")
        page.keyboard.press("Escape")
        page.click("#train-next:has-text('Train on it')")
        page.wait_for_function("document.querySelector('#train-form [name=demos]').value === 'newer.npz'")
        assert page.input_value("[name=num_demos]") == "1"
        page.click("#train-form > details summary")
        page.fill("[name=steps]", "20")
        page.click("#train-form button.primary")
        page.wait_for_function("document.querySelectorAll('.run[data-status=done]').length === 2")
        page.click("#tab-watch")
        page.wait_for_function("() => studioWatched()?.players.length === 2")
        assert page.input_value("#watch-form [name=task]") == "zigzag"
        assert sorted(page.locator("#scores b").all_inner_texts()) == ["BC", "PIDM"]
        page.click("#watch-choice summary")
        page.select_option("#watch-form [name=task]", "four-room")  # another task: nothing of the old one stays
        page.wait_for_selector("#watching", state="hidden")
        page.wait_for_selector("#watch-overlay:has-text('Choose who plays')")
        page.click("#tab-play")
        page.select_option("#play-form [name=task]", "maze")
        page.wait_for_selector("#play-overlay:has-text('Choose a task')")
        assert page.is_hidden("#train-next")
    server.close()


@pytest.mark.thorough
def test_watch_opens_with_what_was_trained_last(browser: Any, tmp_path: Path) -> None:
    server = Server(tmp_path)
    train_briefly(server)
    with opened(browser, server) as page:  # which has heard of the first run, and has not shown it
        asked = {"agents": ["retrieval-bc"], "demos": "zigzag/astar"}
        (name,) = server.ask("/api/trainings", asked)["started"]
        assert wait_for(server, name)["status"] == "done"
        page.click("#tab-train")
        page.wait_for_selector(f".run:has-text('{name}')")
        page.click("#tab-watch")
        page.wait_for_function("() => studioWatched() !== null")
        assert page.input_value("#watch-form [name=task]") == "zigzag"
    server.close()


# ---- everything in sight


def bottoms(page: Any, selector: str) -> list[float]:
    boxes = [each.bounding_box() for each in page.locator(selector).all() if each.is_visible()]
    return [box["y"] + box["height"] for box in boxes]


def test_on_a_laptop_nothing_needed_is_below_the_fold(browser: Any, server: Server) -> None:
    with opened(browser, server, **LAPTOP) as page:
        assert max(bottoms(page, "#play button, #play input, #play select, #play canvas")) <= 768
        page.click("#tab-train")
        assert max(bottoms(page, "#train-form button, #train-form input")) <= 768
        page.click("#tab-review")
        page.select_option("#review-demos", "maze/astar")
        page.click("#episodes button >> nth=0")
        assert max(bottoms(page, "#review-canvas, #replay button, #replay input")) <= 768
        watch(page, "maze", "maze/pidm", "maze/bc", "astar")
        page.wait_for_function("() => studioWatched()?.players.length === 3")
        assert max(bottoms(page, "#watch button, #watch input, #watch canvas, #scores li")) <= 768


@pytest.mark.parametrize("screen", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_start_train_and_what_is_wrong_are_in_sight(browser: Any, server: Server, folder: Path, screen: Any) -> None:
    high = screen["viewport"]["height"]
    (folder / "broken.npz").write_bytes(b"no demonstrations")
    whole = load_demos("zigzag/astar")[:2]
    save_demos(replace(whole, episodes=(whole[0], whole[1].cut(0, 30))), folder / "halves.npz")
    with opened(browser, server, **screen) as page:
        assert max(bottoms(page, "#start")) <= high
        page.select_option("#play-form [name=task]", "custom")
        page.fill("[name=map]", "###")
        page.wait_for_selector("#alert:has-text('The map')")
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert 0 < bottoms(page, "#alert")[0] <= high
        page.evaluate("scrollTo(0, 0)")
        assert max(bottoms(page, "#play-canvas")) <= high
        page.select_option("#play-form [name=task]", "maze")
        page.fill("[name=file]", "broken.npz")
        page.click("#start")
        page.wait_for_selector("#alert:has-text('broken.npz')")
        assert str(folder) not in page.inner_text("#alert")
        page.click("#tab-train")
        page.wait_for_selector("#main-agents input")
        page.select_option("#train-form [name=demos]", "halves.npz")
        page.click("#train-form > details summary")
        assert "failed" in page.inner_text("#failed-demos")
        assert max(bottoms(page, "#train-form > button")) <= high or screen is PHONE  # where one scrolls
        assert "broken.npz" in page.inner_text("#skipped") and str(folder) not in page.inner_text("#skipped")


def test_a_preview_of_the_map_does_not_hide_why_start_failed(browser: Any, server: Server, folder: Path) -> None:
    (folder / "broken.npz").write_bytes(b"no demonstrations")
    held: list[Any] = []  # the preview that is asked for before Start gets no answer
    with opened(browser, server, **LAPTOP) as page:
        page.select_option("#play-form [name=task]", "custom")
        page.fill("[name=map]", "###")
        page.wait_for_selector("#alert:has-text('The map')")
        page.route("**/api/world", lambda route: route.continue_() if held else held.append(route))
        page.select_option("#play-form [name=task]", "maze")
        page.fill("[name=file]", "broken.npz")
        with page.expect_response("**/api/world") as answer:  # to the preview after the failed start
            page.click("#start")
        answer.value.finished()
        page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        assert "broken.npz" in page.inner_text("#alert")


@pytest.mark.parametrize("screen", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_a_chart_has_room_for_its_numbers(browser: Any, server: Server, screen: Any) -> None:
    with opened(browser, server, **screen) as page:
        outside = page.evaluate(
            """async () => {
              const { chart } = await import("/static/chart.js");
              const card = document.createElement("div");
              card.className = "run";
              document.getElementById("train").hidden = false;
              document.getElementById("runs").replaceChildren(card);
              const outside = [];
              for (const loss of [4.56e-5, 1.23e-10, 0.00123, 0.123, 98.7, 12345]) {
                const curves = { loss: [[1, loss], [9, loss * 3]], scores: [[9, -1234]], metric: "return" };
                const svg = chart({ agent: "bc", steps: 20000, ...curves }, ""), view = svg.viewBox.baseVal;
                card.replaceChildren(svg);
                for (const text of svg.querySelectorAll("text")) {
                  const { x, y, width, height } = text.getBBox();
                  const inside = x >= 0 && y >= 0 && x + width <= view.width && y + height <= view.height;
                  if (!inside) outside.push(text.textContent);
                }
              }
              return outside;
            }"""
        )
        assert not outside


def test_on_a_phone_scores_and_pause_are_beside_the_map_and_no_keys_are_named(browser: Any, server: Server) -> None:
    with opened(browser, server, **PHONE) as page:
        assert "arrow" not in page.inner_text("#play")
        start(page, "maze", "phone.npz")
        assert page.locator("kbd:visible").count() == 0 and "Press" not in page.inner_text("#play")
        page.tap("#commands button:has-text('Quit')")
        page.wait_for_selector("#play-form:not([hidden])")
        watch(page, "maze", "maze/pidm", "maze/bc")
        page.evaluate("scrollTo(0, 0)")
        assert max(bottoms(page, "#watch-canvas, #scores li, #toggle, #next-episode")) <= 844
        assert "arrow keys" not in page.inner_text("#watch")


def test_each_players_goals_are_its_own(page: Any) -> None:
    """BC has reached what PIDM has not: a dot in each player's color says so at the goal."""
    drawn = page.evaluate(
        """async () => {
          const { Board } = await import("/static/draw.js");
          const board = new Board(document.getElementById("watch-canvas"));
          document.getElementById("watch").hidden = false;
          board.use({ room: [800, 800], walls: [] });
          board.begin();
          const dots = [];
          board.dot = (x, y, kind, full) => dots.push([kind, full]);
          const goals = (...reached) => reached.map((each, index) => ({ x: 100 * index + 100, y: 100, reached: each }));
          board.goals([{ goals: goals(false, false), kind: "pidm" }, { goals: goals(true, false), kind: "bc" }]);
          board.agent({ x: 799, y: 799 }, "pidm", "a name at the edge");
          board.agent({ x: 799, y: 799 }, "bc", "another at the same place");
          board.agent({ x: 90, y: 118 }, "third", "beside a goal, which it does not cover");
          return { dots, texts: board.texts };
        }"""
    )
    assert drawn["dots"] == [["pidm", False], ["bc", True], ["pidm", False], ["bc", False]]
    for index, (left, top, right, bottom) in enumerate(drawn["texts"]):
        assert left >= 0 and top >= 0 and right <= 800 and bottom <= 800
        for other in drawn["texts"][:index]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]


# ---- other environments


@pytest.mark.thorough
def test_another_environment_is_trained_and_watched_by_its_own_measure(page: Any, server: Server, folder: Path) -> None:
    env = gym.make("Pendulum-v1")
    episodes = []
    for seed in range(2):
        observations, actions = [env.reset(seed=seed)[0]], [env.action_space.sample() for _ in range(60)]
        observations += [env.step(action)[0] for action in actions]
        episodes.append(Episode(np.array(observations), np.array(actions), -np.ones(60), False, True, seed))
    save_demos(DemoDataset("Pendulum-v1", tuple(episodes), {"made_by": "nobody"}), folder / "pendulum.npz")
    (name,) = server.ask("/api/trainings", {"agents": ["bc"], "demos": "pendulum.npz", "steps": 20})["started"]
    run = wait_for(server, name)
    assert run["status"] == "done" and run["metric"] == "return", run
    page.click("#tab-train")
    figures = page.inner_text(f".run:has-text('{name}') .figures")
    assert re.search(r"return -\d+", figures) and "%" not in figures
    page.click(f".run:has-text('{name}') button:has-text('Watch it')")
    page.wait_for_selector("#scores:has-text('return -')")
    shades = "(canvas) => new Set(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data).size"
    page.wait_for_function(f"({shades})(document.getElementById('watch-canvas')) > 20")
    assert page.is_hidden("#thoughts")


# ---- recordings and runs


def test_the_page_says_how_many_demonstrations_failed(page: Any, folder: Path) -> None:
    whole = load_demos("zigzag/astar")[:3]
    save_demos(replace(whole, episodes=(whole[0], whole[1].cut(0, 30), whole[2])), folder / "halfway.npz")
    page.click("#tab-train")
    page.wait_for_selector("#train-form [name=demos] option[value='halfway.npz']", state="attached")
    page.select_option("#train-form [name=demos]", "halfway.npz")
    assert "1 of 3 failed: PIDM leaves them out" in page.inner_text("#failed-demos")
    page.select_option("#train-form [name=demos]", "maze/astar")
    assert page.is_hidden("#failed-demos")
    save_demos(replace(whole, episodes=(whole[1].cut(0, 30),)), folder / "failed.npz")
    page.click("#tab-train")
    page.wait_for_selector("#train-form [name=demos] option[value='failed.npz']", state="attached")
    page.select_option("#train-form [name=demos]", "failed.npz")
    assert "None of these reaches all goals" in page.inner_text("#failed-demos")


def test_a_recording_is_looked_into_and_edited(page: Any, folder: Path) -> None:
    whole = load_demos("zigzag/astar")[:3]
    save_demos(whole, folder / "reviewed.npz")
    questions: list[str] = []
    page.on("dialog", lambda dialog: (questions.append(dialog.message), dialog.accept()))
    page.click("#tab-review")
    page.wait_for_selector("#review-demos option[value='reviewed.npz']", state="attached")
    page.select_option("#review-demos", "reviewed.npz")
    page.wait_for_selector("#episodes tbody tr:nth-child(3)")
    cells = page.locator("#episodes tbody tr:nth-child(2) td").all_inner_texts()
    assert cells == ["1", "all goals", str(len(whole[1]))]
    page.click("#episodes tbody tr:nth-child(2) td:nth-child(3)")
    page.wait_for_function("Number(document.getElementById('replay-step').value) > 5")
    page.click("#replay-toggle")
    page.locator("#trim-end").evaluate("(slider) => { slider.value = 30; slider.oninput(); }")
    page.click("#trim-episode")
    page.wait_for_selector("#episodes tbody tr:nth-child(2):has-text('30')")
    trimmed = load_demos(folder / "reviewed.npz")
    assert [len(each) for each in trimmed] == [len(whole[0]), 30, len(whole[2])] and trimmed[1].truncated
    page.click("#episodes tbody tr:nth-child(1) button")
    page.click("#drop-episode")
    page.wait_for_function("document.querySelectorAll('#episodes tbody tr').length === 2")
    assert [len(each) for each in load_demos(folder / "reviewed.npz")] == [30, len(whole[2])]
    assert len(questions) == 2 and all("cannot be undone" in question for question in questions)
    page.select_option("#review-demos", "maze/astar")  # which comes with the package
    page.wait_for_selector("#episodes tbody tr:nth-child(50)")
    page.click("#episodes tbody tr:nth-child(1) button")
    assert page.is_hidden("#drop-episode") and page.is_hidden("#trim-episode")


def test_runs_are_renamed_and_deleted_after_a_question(page: Any, server: Server, folder: Path) -> None:
    (name,) = server.ask("/api/trainings", {"agents": ["retrieval-bc"], "demos": "maze/astar"})["started"]
    assert wait_for(server, name)["status"] == "done"
    answers: list[Any] = ["renamed", None, True]
    page.on("dialog", lambda dialog: dialog.dismiss() if (answer := answers.pop(0)) is None
            else dialog.accept(answer) if isinstance(answer, str) else dialog.accept())  # fmt: skip
    page.click("#tab-train")
    page.click(f".run:has-text('{name}') button:has-text('Rename')")
    page.wait_for_selector(".run:has-text('runs/renamed')")
    assert (folder / "runs" / "renamed" / "agent.json").exists() and not (folder / name).exists()
    page.click(".run:has-text('runs/renamed') button:has-text('Delete')")  # thought better of it
    page.click(".run:has-text('runs/renamed') button:has-text('Delete')")
    page.wait_for_selector(".run:has-text('runs/renamed')", state="detached")
    assert not (folder / "runs" / "renamed").exists() and not answers


def test_editing_a_recording_in_use_is_refused(server: Server, folder: Path) -> None:
    save_demos(load_demos("zigzag/astar")[:2], folder / "idle.npz")
    with server.socket("/play", {"world": {"task": "zigzag"}, "file": "busy.npz"}) as line:
        hear(line)
        assert "being written" in server.refusal("/api/demos/busy.npz/edit", {"episode": 0})[1]
    assert "no episode 9" in server.refusal("/api/demos/idle.npz/edit", {"episode": 9})[1]
    assert server.refusal("/api/demos/..%2Fx.npz/edit", {"episode": 0})[0] in (400, 404)


# ---- the browser's own protections


@pytest.mark.thorough
def test_the_page_keeps_to_its_own_policy(browser: Any, server: Server) -> None:
    broken: list[str] = []
    train_briefly(server)
    with opened(browser, server, bypass_csp=False) as page:
        page.on("console", lambda message: broken.append(message.text) if message.type == "error" else None)
        for tab in ("review", "train", "play"):
            page.click(f"#tab-{tab}")
        watch(page, "maze", "astar")
        page.wait_for_selector("#scores:has-text('step')")
    assert not broken


def test_the_link_works_from_another_sites_page(browser: Any, server: Server) -> None:
    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<a id=link href='{server.link}'>open</a>".encode())

        def log_message(self, *arguments: Any) -> None:
            pass

    other = HTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://localhost:{other.server_port}/")  # another site than 127.0.0.1
    page.click("#link")
    page.wait_for_selector("#play-form option[value=maze]", state="attached")
    context.close()
    other.shutdown()
