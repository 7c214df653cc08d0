"""Two people in the studio at once: steps per second, and the time from a stick to the picture that shows it.

    python benchmarks/studio.py            needs chromium and the extras `studio` and `test`

Both pages run in a headless browser on this machine, each with a gamepad made of JavaScript. The delay is from the
moment the stick moves to the moment the page has drawn the first step that it causes.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from playwright.sync_api import sync_playwright

PAD = """() => {
  const buttons = Array.from({ length: 17 }, () => ({ pressed: false }));
  window.pad = { id: "pad", index: 0, connected: true, axes: [0, 0, 0, 0], buttons };
  navigator.getGamepads = () => [window.pad];
}"""
DELAY = """() => new Promise((done) => {
  const steps = document.getElementById("steps");
  const began = performance.now();
  new MutationObserver((_, observer) => { observer.disconnect(); pad.axes[0] = 0; done(performance.now() - began); })
    .observe(steps, { childList: true, characterData: true, subtree: true });
  pad.axes[0] = 1;
})"""
RATE = """(seconds) => new Promise((done) => {
  const shown = () => Number(document.getElementById("steps").textContent);
  pad.axes[1] = 0.5;
  setTimeout(() => {
    const from = shown(), began = performance.now();
    setTimeout(() => { pad.axes[1] = 0; done((shown() - from) / (performance.now() - began) * 1000); }, seconds * 1000);
  }, 1000);
})"""


def sit_down(browser: Any, link: str) -> Any:
    """Open a page and begin to play."""
    page = browser.new_context(bypass_csp=True).new_page()
    page.goto(link)
    page.wait_for_selector("#play-form option[value=multiroom]", state="attached")
    page.evaluate(PAD)
    page.select_option("#play-form [name=task]", "multiroom")
    page.check("[name=mode][value=race]")
    page.select_option("[name=rival]", "astar")
    page.click("#start")
    page.wait_for_selector("#session:not([hidden])")
    page.wait_for_function("document.getElementById('steps').textContent === '0'")
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8, help="how long both play")
    parser.add_argument("--tries", type=int, default=25, help="how often a delay is measured")
    options = parser.parse_args()
    command = [sys.executable, "-m", "pidm_nav.cli", "studio", "--no-browser", "--port", "0"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        link = next(found[0] for line in server.stdout if (found := re.search(r"http\S+", line)))
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            pages = [sit_down(browser, link) for _ in range(2)]
            delays = []
            for _ in range(options.tries):
                for page in pages:
                    delays.append(page.evaluate(DELAY))
                    page.evaluate("() => { pad.buttons[1].pressed = true; }")  # start over
                    page.wait_for_function("document.getElementById('steps').textContent === '0'")
                    page.evaluate("() => { pad.buttons[1].pressed = false; }")
                    page.wait_for_timeout(100)
            asked = f"window.measured = ({RATE})({options.seconds})"
            for page in pages:
                page.evaluate(f"() => {{ {asked}; }}")
            rates = [page.evaluate("() => window.measured") for page in pages]
        finally:
            browser.close()
            server.terminate()
            server.wait()
    print(f"steps per second, two people at once: {rates[0]:.2f} and {rates[1]:.2f}")
    low, middle, high = statistics.quantiles(delays, n=4)
    print(f"stick to picture, ms: median {middle:.1f}, quartiles {low:.1f} and {high:.1f}, most {max(delays):.1f}")


if __name__ == "__main__":
    main()
