"""DAgger: the expert labels what the agent gets into, everything is kept, and a killed run gives the same agent."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pidm_nav.agents import dagger, load_agent, train
from pidm_nav.agents.dagger import labeled_episodes
from pidm_nav.cli import main
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts import make_expert
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.formats import save_demos
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.tasks import find_task

TINY: dict[str, Any] = {"steps": 40, "batch_size": 32, "encoder_sizes": (32,), "head_sizes": (16,)}


@pytest.fixture(scope="module")
def dataset() -> DemoDataset:
    return collect(AStarExpert("four-room"), "four-room", episodes=2)


def test_labels_are_what_the_expert_would_have_done(dataset: DemoDataset) -> None:
    agent, expert = train("bc", dataset, **TINY), AStarExpert("four-room")
    env = find_task("four-room").make_vec(2, max_steps=30)
    episodes = labeled_episodes(agent, expert, env, range(7, 12))  # in waves of two rows
    played = evaluate(agent, "four-room", 5, seed=7, max_steps=30).episodes
    assert [episode.seed for episode in episodes] == [7, 8, 9, 10, 11]
    for episode, own in zip(episodes, played, strict=True):
        np.testing.assert_array_equal(episode.observations, own.observations)
        np.testing.assert_array_equal(episode.actions, expert.predict(episode.observations[:-1])[0])


@pytest.mark.parametrize("looks", [{}, {"obs_type": "pixels", "image_size": 32}])
@pytest.mark.parametrize("name", ["astar", "human-like"])
def test_any_expert_labels_whatever_is_observed(name: str, looks: dict[str, Any]) -> None:
    expert = make_expert(name, "four-room")
    demos = collect(expert, "four-room", 1, max_steps=15, **looks)
    agent = train("bc", demos, steps=1, encoder_sizes=(8,), head_sizes=(8,), batch_size=8)
    env = find_task("four-room").make_vec(2, max_steps=10, **looks)
    episodes = labeled_episodes(agent, expert, env, range(2))
    assert all(np.abs(episode.actions).max() > 0.1 for episode in episodes)


@pytest.mark.thorough
def test_rounds_add_episodes_and_help(dataset: DemoDataset) -> None:
    settings = {**TINY, "steps": 1000, "encoder_sizes": (64, 64), "batch_size": 64}
    alone, taught = train("bc", dataset, **settings), dagger("bc", dataset, 3, **settings)
    assert taught.description["data"]["episodes"] == 8
    assert taught.description["data"]["made_by"] == "astar + astar, labeling bc"
    before, after = (evaluate(agent, "four-room", 30).mean_goal_ratio for agent in (alone, taught))
    assert after > max(before, 0.8)


def test_the_same_call_gives_the_same_agent(dataset: DemoDataset) -> None:
    first, again = (dagger("bc", dataset, 1, **TINY).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_a_killed_run_is_resumed_with_the_same_result(dataset: DemoDataset, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def die(step: int, agent: object) -> None:
        raise Killed

    settings = {**TINY, "save_every": 10, "checkpoints": (25,)}
    with pytest.raises(Killed):
        dagger("bc", dataset, 1, out=tmp_path, on_checkpoint=die, **settings)
    assert (tmp_path / "training.safetensors").exists() and not (tmp_path / "agent.json").exists()
    dagger("bc", dataset, 1, out=tmp_path, **settings)
    whole, resumed = dagger("bc", dataset, 1, **settings).state_dict(), load_agent(tmp_path).state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    with pytest.raises(ValueError, match="already holds a trained agent"):
        dagger("bc", dataset, 1, out=tmp_path, **settings)


def test_a_map_of_ones_own() -> None:
    room = "########\n#......#\n#.A..1.#\n#......#\n########"
    env_kwargs: dict[str, Any] = {"layout": room, "room_size": [400, 250]}
    env = find_task("custom").make(**env_kwargs)
    demos = collect(AStarExpert(env), "custom", 1, max_steps=40, **env_kwargs)
    agent = dagger("retrieval-bc", demos, 1)
    assert agent.description["data"]["episodes"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pidm", 1), "DAgger cannot train"),
        (("chunking", 1), "DAgger cannot train"),
        (("bc", 0), "number of rounds"),
        (("bc", 1, "scripted"), "four-room has no expert 'scripted'"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[Any, ...], message: str, dataset: DemoDataset) -> None:
    agent, *others = arguments
    with pytest.raises(ValueError, match=message):
        dagger(agent, dataset, *others, **TINY)


def test_the_command(dataset: DemoDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_demos(dataset, tmp_path / "demos.npz")
    command = ["train", "--agent", "bc", "--demos", str(tmp_path / "demos.npz"), "--out", str(tmp_path / "run")]
    command += ["--steps", "20", "--encoder-sizes", "16", "--head-sizes", "16"]
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--dagger-expert", "astar"])
    assert "add --dagger" in capsys.readouterr().err
    main([*command, "--dagger", "2"])
    assert load_agent(tmp_path / "run").description["data"]["episodes"] == 6
