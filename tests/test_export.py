"""ONNX files act like the agents that they were made of, along whole episodes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_discrete import Balancer

from pidm_nav import Agent, collect, collect_random_play, evaluate, load_agent, load_demos, train
from pidm_nav.cli import main

pytest.importorskip("onnx", reason="the extra onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
TOLERANCE = 1e-5


class Both:
    """The agent, and the file's actions compared with its own at every step."""

    def __init__(self, agent: Agent, path: Path) -> None:
        self.agent, self.session = agent, onnxruntime.InferenceSession(path)
        self.inputs = {each.name for each in self.session.get_inputs()}
        self.memory: Any = None
        self.steps = 0

    def predict(self, observation: Any, state: Any = None, episode_start: Any = None, **_: Any) -> Any:
        actions, state = self.agent.predict(observation, state, episode_start)
        given = {"observation": observation}
        if "memory" in self.inputs:
            if self.memory is None or len(self.memory) != len(observation):
                self.memory = np.zeros((len(observation), 2), dtype=np.int64)
            given |= {"memory": self.memory, "episode_start": np.asarray(episode_start)}
        exported, *memory = self.session.run(None, given)
        np.testing.assert_allclose(exported, actions, rtol=0, atol=TOLERANCE)
        assert exported.dtype == actions.dtype
        if memory:
            np.testing.assert_array_equal(memory[0], state)
            self.memory = memory[0]
        self.steps += len(observation)
        return actions, state


def compare(agent: Agent, task: Any, path: Path, **arguments: Any) -> Both:
    both = Both(agent, agent.to_onnx(path))
    for episodes in (1, 3):  # a batch of one row, and of many
        evaluate(both, task, episodes, **arguments)
    return both


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["bc", "pidm", "delta-pidm"])
@pytest.mark.parametrize("task", ["four-room", "maze"])  # the least and the most goals
def test_pretrained_agents(task: str, name: str, tmp_path: Path) -> None:
    agent = load_agent(f"{task}/{name}")
    both = compare(agent, task, tmp_path / "agent.onnx", **agent.description["env_kwargs"])
    assert both.steps > 300
    assert ("memory" in both.inputs) == (name == "delta-pidm")  # which follows


@pytest.mark.parametrize(
    "settings",
    [
        {"predictor": "learned(steps=50)"},
        {"predictor": "nearest", "idm": "linear"},
        {"predictor": "nearest(pull=0.5, distance='l1')", "horizons": (1, 4), "act_horizon": 4},
        {"predictor": "follow(pull=0.3, distance='l1', window=3)"},
    ],
    ids=lambda settings: settings["predictor"],
)
def test_other_parts_and_options(settings: dict[str, Any], tmp_path: Path) -> None:
    demos = load_demos("maze/human-like")[:5]
    agent = train("delta-pidm", demos, steps=30, progress=False, **settings)
    compare(agent, "maze", tmp_path / "agent.onnx", max_steps=60, **demos.env_kwargs)


@pytest.mark.parametrize("name", ["bc", "delta-pidm"])
def test_discrete_actions_are_whole_numbers(name: str, tmp_path: Path) -> None:
    demos = collect(Balancer(), "CartPole-v1", 3, max_steps=100)
    agent = train(name, demos, steps=50, progress=False)
    compare(agent, "CartPole-v1", tmp_path / "agent.onnx", max_steps=50)


def test_command_writes_a_file_that_needs_neither_torch_nor_this_package(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "agent.onnx"
    main(["export", "maze/delta-pidm", "--out", str(path)])
    assert str(path) in capsys.readouterr().out
    code = """
import json, sys
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
sizes = {each.name: each.shape for each in session.get_inputs()}
rows = {"observation": np.zeros((3, sizes["observation"][1]), np.float32), "memory": np.zeros((3, 2), np.int64)}
action, memory = session.run(None, {**rows, "episode_start": np.ones(3, bool)})
assert not {"torch", "pidm_nav"} & set(sys.modules)
print(json.dumps([action.shape, memory.shape, session.get_modelmeta().custom_metadata_map]))
"""
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    action, memory, about = json.loads(run.stdout)
    assert (action, memory) == ([3, 2], [3, 2])
    assert (about["agent"], about["task"]) == ("delta-pidm", "maze")
    assert json.loads(about["env_kwargs"]) == load_agent("maze/delta-pidm").description["env_kwargs"]


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("pidm", {"predictor": "neighbors"}, "predictor neighbors cannot be exported"),
        ("pidm", {"predictor": "time"}, "predictor time cannot be exported"),
        ("retrieval-bc", {}, "retrieval-bc cannot be exported"),
        ("chunking", {}, "chunking cannot be exported"),
    ],
)
def test_what_cannot_be_exported_is_told(name: str, settings: Any, reason: str, tmp_path: Path) -> None:
    agent = train(name, load_demos("maze/astar")[:2], steps=1, progress=False, **settings)
    with pytest.raises(ValueError, match=reason):
        agent.to_onnx(tmp_path / "agent.onnx")
    assert list(tmp_path.iterdir()) == []


def test_images_cannot_be_exported(tmp_path: Path) -> None:
    demos = collect_random_play("four-room", 20, obs_type="pixels", image_size=32)
    agent = train("bc", demos, steps=1, batch_size=8, progress=False)
    with pytest.raises(ValueError, match="observes images"):
        agent.to_onnx(tmp_path / "agent.onnx")


def test_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SystemExit) as ended:
        main(["export", "maze/bc", "--out", str(tmp_path / "agent.onnx")])
    assert ended.value.code == 2
    assert "pip install 'pidm-nav[onnx]'" in capsys.readouterr().err


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "agent.onnx"
    path.write_text("mine")
    with pytest.raises(SystemExit):
        main(["export", "maze/bc", "--out", str(path)])
    assert "--force" in capsys.readouterr().err and path.read_text() == "mine"
    main(["export", "maze/bc", "--out", str(path), "--force"])
    assert path.stat().st_size > 10_000
