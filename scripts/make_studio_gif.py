"""The pictures of the studio, studio.gif and studio.png: three rounds are played, two agents trained and watched.

    python scripts/make_studio_gif.py          needs chromium and the extras `studio` and `test`; two to four minutes

The human-like player holds the stick of a gamepad made of JavaScript; everything else is what a person sees.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from pidm_nav.demos.experts import make_expert
from pidm_nav.rollouts.rollout import rollout
from pidm_nav.tasks import find_task
from pidm_nav.world2d.state import POSITION, REACHED

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TASK, ROUNDS = "zigzag", 3
VIEW = {"width": 960, "height": 760}
MOST_BYTES = 1_500_000
# A gamepad whose stick follows a path, from the state that the studio told last; it is let go before each round.
PAD = """(() => {
  let told = null, place = 0, polls = 0;
  window.path = [];
  window.WebSocket = class extends WebSocket {
    constructor(url) {
      super(url);
      this.addEventListener("message", ({ data }) => {
        const report = JSON.parse(data);
        if (!report.person) return;
        if (report.phase === "ready" && told?.phase === "running") place = polls = 0;
        told = report;
      });
    }
  };
  const pad = { id: "Gamepad", index: 0, connected: true, axes: [0, 0, 0, 0], buttons: [] };
  navigator.getGamepads = () => {
    pad.axes = [0, 0, 0, 0];
    if (!told?.person.state || polls++ < 30 || !path.length) return [pad];
    const [x, y, ...goals] = told.person.state, away = () => Math.hypot(path[place][0] - x, path[place][1] - y);
    const reached = goals.filter((flag, index) => index % 3 === 2 && flag).length;
    while (place < path.length - 1 && away() < 30 && path[place][2] <= reached) place++;  // not past a goal
    pad.axes = [(path[place][0] - x) / away(), (path[place][1] - y) / away(), 0, 0];
    return [pad];
  };
})()"""


class Film:
    """Pictures of a page, and how many milliseconds each is shown."""

    def __init__(self, page: Page) -> None:
        self.page, self.frames, self.times = page, list[Image.Image](), list[int]()

    def shoot(self, milliseconds: int) -> None:
        """Take a picture."""
        self.frames.append(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"))
        self.times.append(milliseconds)

    def write(self, path: Path) -> None:
        """Write a GIF with one palette for all pictures, so that only what moves is stored."""
        sheet = np.concatenate([np.asarray(frame) for frame in self.frames[:: max(len(self.frames) // 8, 1)]])
        palette = Image.fromarray(sheet).quantize(255, kmeans=1)
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames]
        imageio.mimsave(path, [np.asarray(frame.convert("RGB")) for frame in frames], duration=self.times, loop=0)
        if (size := path.stat().st_size) > MOST_BYTES:
            raise ValueError(f"{path} has {size:,} bytes: the README wants at most {MOST_BYTES:,}")


@contextmanager
def studio(folder: str) -> Iterator[str]:
    """Serve a folder, and give the link."""
    command = [sys.executable, "-m", "pidm_nav.cli", "studio", "--no-browser", "--port", "0"]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield next(found[0] for line in server.stdout if (found := re.search(r"http\S+", line)))
    finally:
        server.terminate()
        server.wait()


def play(page: Page, film: Film, number: int) -> None:
    """Play one round along a path of the human-like player; the first is shown."""
    player = make_expert("human-like", TASK, seed=number)
    (episode,) = rollout(player, find_task(TASK).make_vec(1), [number])
    states = episode.observations
    path = np.column_stack([states[:, POSITION], states[:, REACHED].sum(axis=1)])
    page.evaluate("(path) => { window.path = path; }", path.tolist())
    while not page.locator(f"#kept:has-text('{number + 1} now')").count():
        if number == 0:
            film.shoot(110)
        page.wait_for_timeout(50)
    page.evaluate("() => { window.path = []; }")
    film.shoot(600)


def train(page: Page, film: Film) -> None:
    """Train both agents on the rounds, with a picture whenever a curve has grown."""
    page.click("#tab-train")
    page.fill("[name=num_demos]", str(ROUNDS))
    film.shoot(700)
    page.click("#train-form button.primary")
    page.wait_for_selector(".run")
    began = len(film.frames)
    while page.locator(".run[data-status=running]").count():
        film.shoot(160)
        page.wait_for_timeout(700)
    page.wait_for_timeout(4000)  # the last evaluation
    grown = list(range(began, len(film.frames)))
    for number in sorted(set(grown) - set(grown[:: max(len(grown) // 18, 1)]), reverse=True):
        del film.frames[number], film.times[number]
    film.shoot(1200)


def watch(page: Page, film: Film, picture: Path) -> None:
    """Watch both, and drag them to another place."""
    page.click(".run:has(h2.pidm) button")
    page.wait_for_selector("#scores li")
    page.locator("#speed").fill("-2")
    page.wait_for_selector("#toggle:has-text('Pause')")
    page.click("#restart")
    taken = False
    for _ in range(36):
        film.shoot(110)
        if not taken and "3 of" in page.inner_text("#scores li:first-child"):
            taken = bool(page.screenshot(path=picture))
    page.click("#toggle")
    page.evaluate("() => document.getElementById('show-field').click()")  # which does not scroll
    page.wait_for_timeout(300)
    box = page.locator("#watch-canvas").bounding_box()
    assert box is not None
    state = page.evaluate("() => studioWatched().players[0].state")
    scale = box["width"] / 800
    page.mouse.move(box["x"] + state[0] * scale, box["y"] + state[1] * scale)
    page.mouse.down()
    for part in np.linspace(0, 1, 9):
        page.mouse.move(box["x"] + (state[0] + part * 120) * scale, box["y"] + (state[1] + part * 160) * scale)
        page.wait_for_timeout(80)
        film.shoot(150)
    page.mouse.up()
    film.shoot(2000)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder for the pictures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, studio(folder) as link, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(viewport=VIEW, bypass_csp=True).new_page()
        page.set_default_timeout(120_000)
        page.add_init_script(PAD)
        page.goto(link)
        page.wait_for_selector(f"#play-form option[value={TASK}]", state="attached")
        page.select_option("#play-form [name=task]", TASK)
        page.wait_for_timeout(500)
        film = Film(page)
        film.shoot(900)
        page.click("#start")
        page.wait_for_function("document.getElementById('steps').textContent === '0'")
        for number in range(ROUNDS):
            play(page, film, number)
        page.keyboard.press("Escape")
        page.wait_for_selector("#play-form:not([hidden])")
        train(page, film)
        watch(page, film, options.out / "studio.png")
        browser.close()
    film.write(options.out / "studio.gif")


if __name__ == "__main__":
    main()
