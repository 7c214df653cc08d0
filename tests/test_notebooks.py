"""Notebooks run from top to bottom, and what they show is a picture that never fails."""

import base64
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pidm_nav import AStarExpert, Comparison, DemoDataset, Episode, collect, evaluate, train

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_BYTES = 300_000
BAR = """\
from pidm_nav.console import progress_bar
with progress_bar("<counting>", 3) as advance:
    advance(3, note="done")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.delenv("MPLBACKEND", raising=False)  # a notebook's reader has none
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    parameters.source = re.sub(r"^steps = \d+", "steps = 2", parameters.source)
    for cell in notebook.cells:
        cell.source = cell.source.replace("episodes=50", "episodes=3")
    notebook.cells.append(nbformat.v4.new_code_cell(BAR))
    shown = []
    runner = client.NotebookClient(notebook, timeout=120, kernel_name="python3", on_cell_executed=shown_by(shown))
    runner.execute(cwd=str(path.parent))
    assert not [each for each in shown if each.get("name") == "stderr"], shown
    kinds = [kind for each in shown for kind in each.get("data", {})]
    assert "image/png" in kinds and "text/html" in kinds
    assert any("data:image/gif" in each.get("data", {}).get("text/html", "") for each in shown)


def shown_by(shown):
    return lambda cell, cell_index, execute_reply: shown.extend(cell.outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_its_links_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < MOST_BYTES
    assert not re.search(r"/(home|root|tmp|Users)/", text), "it shows a path of the machine that ran it"
    assert '"output_type": "error"' not in text
    for link in re.findall(r"\]\((?!https?:)([^)\s#]+)", text):
        assert (path.parent / link).exists(), link


@pytest.fixture(scope="module")
def objects():
    demos = collect(AStarExpert("zigzag"), "zigzag", 2)
    result = evaluate(AStarExpert("zigzag"), "zigzag", 2)
    agent = train("pidm", demos, steps=2, predictor="time")
    return {
        "dataset": demos,
        "episode": demos[0],
        "result": result,
        "agent": agent,
        "comparison": Comparison({"a": result, "<b>": result}),
    }


@pytest.mark.parametrize("name", ["dataset", "episode", "result", "agent", "comparison"])
def test_what_notebooks_show_has_a_small_picture(objects, name):
    shown = objects[name]._repr_html_()
    (picture,) = re.findall(r'src="data:image/png;base64,([^"]+)"', shown)
    assert base64.b64decode(picture)[1:4] == b"PNG" and len(picture) < 60_000
    assert shown.startswith(f"<pre>{type(objects[name]).__name__}(") and "<b>" not in shown


def test_being_shown_changes_nothing_that_an_agent_does_later(objects):
    before = evaluate(train("pidm", objects["dataset"], steps=2, predictor="time"), "zigzag", 2).episodes[1]
    agent = train("pidm", objects["dataset"], steps=2, predictor="time")
    agent._repr_html_()
    np.testing.assert_array_equal(evaluate(agent, "zigzag", 2).episodes[1].actions, before.actions)


def test_whatever_has_no_map_shows_its_returns_and_nothing_raises(objects):
    swings = collect(Swing(), "Pendulum-v1", 2, max_steps=9)
    images = collect(AStarExpert("zigzag"), "zigzag", 1, max_steps=3, obs_type="pixels", image_size=32)
    bare = DemoDataset("zigzag", (replace(images[0], infos={}),), {"env_kwargs": {"obs_type": "pixels"}})
    strange = DemoDataset("No$where-v0", (Episode(np.zeros((2, 1)), np.zeros((1, 1)), np.zeros(1), True, False),))
    for each in (swings, swings[0], images, images[0], bare, strange, evaluate(Swing(), "Pendulum-v1", 1)):
        assert "data:image/png" in each._repr_html_()
    agent = train("bc", swings, steps=1)
    assert agent._repr_html_() == f"<pre>{agent}</pre>"  # which has no map to draw rollouts on
    agent.description = {"task": "<nowhere>"}
    assert agent._repr_html_().startswith("<pre>BC(untrained")
    assert "&lt;" in replace(objects["dataset"].summary(), task="<i>")._repr_html_()


class Swing:
    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return np.ones((len(observation), 1), np.float32), state


def test_figures_and_clips_show_themselves(objects):
    for name in ("dataset", "result", "comparison"):
        assert objects[name].plot()._repr_png_()[1:4] == b"PNG"
    clip = objects["result"].video(size=64)
    assert clip.gif[:3] == b"GIF" and "data:image/gif" in clip._repr_html_() and repr(clip).startswith("Clip(")


def test_nothing_is_drawn_before_it_is_asked_for():
    program = """
import sys
from pidm_nav import AStarExpert, Comparison, collect, evaluate
collect(AStarExpert("zigzag"), "zigzag", 1, max_steps=2).summary()
print(Comparison({"a": evaluate(AStarExpert("zigzag"), "zigzag", 1, max_steps=2)}))
assert not {"matplotlib", "IPython", "torch"} & set(sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
