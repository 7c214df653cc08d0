"""Play: random actions with inertia, in our tasks and in anybody's."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from pidm_nav import PAPER_TASKS, collect, load_agent, load_demos, make_expert
from pidm_nav.cli import main
from pidm_nav.demos.experts.random_play import RandomPlay, collect_random_play


@pytest.mark.parametrize("task", [*PAPER_TASKS, "Pendulum-v1", "MountainCarContinuous-v0"])
def test_play_fills_the_action_space_with_inertia(task: str) -> None:
    data = collect_random_play(task, 600, seed=3)
    assert 600 <= data.num_steps < 700 and data.source["made_by"] == "random"
    space = gym.make(task if task not in PAPER_TASKS else PAPER_TASKS[task].env_id).action_space
    assert isinstance(space, gym.spaces.Box)
    actions = np.concatenate([episode.actions for episode in data])
    assert (actions >= space.low).all() and (actions <= space.high).all()
    assert (np.ptp(actions, axis=0) > 0.95 * (space.high - space.low)).all()
    changes = np.concatenate([np.diff(episode.actions, axis=0) for episode in data])
    assert (changes.std(axis=0) < 0.8 * actions.std(axis=0)).all()  # independent draws would give 1.4


def test_play_begins_anywhere_and_one_seed_gives_one_result() -> None:
    data, again, other = (
        collect_random_play("maze", 200, seed=5),
        collect_random_play("maze", 200, seed=5),
        collect_random_play("maze", 200, seed=6),
    )
    assert len({episode.observations[0].tobytes() for episode in data}) == len(data) == 4
    assert data.sha256 == again.sha256 != other.sha256
    assert data.env_kwargs["random_start"] is True


def test_each_row_has_its_own_sticks_and_begins_anew() -> None:
    player = RandomPlay("maze", seed=1)
    rows = np.zeros((50, 32))
    first, state = player.predict(rows)
    begins = np.arange(50) < 25
    second, state = player.predict(rows, state, begins)
    moved = np.abs(second - first).mean(axis=1)
    assert len(np.unique(first)) > 50 and moved[begins].mean() > 1.5 * moved[~begins].mean()


def test_the_command_collects_play_of_any_task(tmp_path: Path) -> None:
    for task in ("zigzag", "Pendulum-v1"):
        out = tmp_path / f"{task}.npz"
        main(["collect", "--task", task, "--expert", "random", "--episodes", "2", "--out", str(out)])
        data = load_demos(out)
        assert len(data) == 2 and data.source["settings"]["expert"] == "random"
    assert load_demos(tmp_path / "zigzag.npz").env_kwargs == {"random_start": True}


def test_states_alone_and_play_train_pidm_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states, out = str(tmp_path / "states.npz"), tmp_path / "agent"
    main(["demos", "convert", "zigzag/human-like", states, "--drop-actions"])
    assert load_demos(states).action_dim == 0
    small = ["--demos", states, "--num-demos", "1", "--steps", "60", "--out", str(out)]
    main(["train", *small, "--idm-demos", "random", "--random-play-steps", "150"])
    printed = capsys.readouterr().out
    assert "collected 150 transitions of random play in 3 episodes" in printed
    assert "future use: " in printed and "warning" not in printed
    description = load_agent(out).description
    assert description["idm_data"]["made_by"] == "random" and description["idm_data"]["total_steps"] == 150
    for words in (["--agent", "bc"], []):
        with pytest.raises(SystemExit):
            main(["train", *small, *words, "--force"])
        assert "these demonstrations have no actions" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["demos", "replay", states, "--check"])
    assert "no actions" in capsys.readouterr().err


def test_an_agent_that_does_not_look_at_the_future_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    networks = ["--idm", "state", "--encoder-sizes", "32", "32", "--head-sizes", "32", "--steps", "100"]
    main(["train", "--task", "maze", "--num-demos", "1", *networks, "--out", str(tmp_path / "agent")])
    assert "warning: this agent barely uses the predicted future" in capsys.readouterr().out


class Switches(gym.Env[np.ndarray, np.ndarray]):
    observation_space = gym.spaces.Box(0, 1, (1,))
    action_space = gym.spaces.MultiBinary(2)


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(ValueError, match="MultiBinary actions"):
        gym.register("Switches-v0", Switches)
        make_expert("random", "Switches-v0")
    with pytest.raises(ValueError, match="below 1"):
        RandomPlay("maze", inertia=1.0)
    with pytest.raises(ValueError, match="at least 1"):
        collect_random_play("maze", 0)
    with pytest.raises(ValueError, match="Pendulum-v1 has no expert"):
        make_expert(None, "Pendulum-v1")
    assert collect(make_expert("random", "maze"), "maze", 1, max_steps=5).num_steps == 5
