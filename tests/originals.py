"""Files as the package writes them, for tests that damage them; and functions that read them, for the sandbox."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import resource
import shutil
import threading
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from sandbox import WATCH, Ended, Limits, Sandbox

MAP = "##############\n#............#\n#.A....1.....#\n#............#\n#......##....#\n#......##..2.#\n##############\n"
TINY = ["--encoder-sizes", "8", "--head-sizes", "8", "--steps", "4", "--eval-episodes", "0"]
KINDS = {
    "bc": ["--agent", "bc", *TINY],
    "retrieval-bc": ["--agent", "retrieval-bc"],
    "pidm-nearest": ["--agent", "pidm", *TINY],
    "pidm-time": ["--agent", "pidm", "--predictor", "time", *TINY],
    "pidm-learned": ["--agent", "pidm", "--predictor", "learned", *TINY],
}
SWEEP = ["--agents", "bc,pidm", "--num-demos", "1,2", "--seeds", "1", "--steps", "2", "--episodes", "2"]
SWEEP += ["--checkpoint-fractions", ""]


class Stopped(Exception):
    """A training was stopped on purpose."""


def must(ended: Ended) -> Ended:
    """Return how a run ended that has to end well."""
    assert ended.code == 0, ended.err
    return ended


def make_originals(box: Sandbox, folder: Path) -> None:
    """Write one of everything: small, within seconds."""

    def run(*words: str, **more: Any) -> None:
        must(box.run(list(words), folder, limits=Limits(inline=True), **more))

    run("collect", "--task", "zigzag", "--episodes", "3", "--out", "demos/d.npz")
    run("demos", "convert", "demos/d.npz", "minari:fuzz/demos-v0", env={"MINARI_DATASETS_PATH": str(folder / "minari")})
    run("demos", "convert", "demos/d.npz", "robomimic/d.hdf5")
    (folder / "map").mkdir()
    (folder / "map" / "map.txt").write_text(MAP)
    custom = ["--task", "custom", "--layout", "map/map.txt", "--room-size", "420", "210", "--episodes", "2"]
    run("collect", *custom, "--out", "custom/d.npz")
    run("record", "--write-mapping", "mapping/mapping.json")
    for kind, options in KINDS.items():
        run("train", "--demos", "demos/d.npz", *options, "--out", f"{kind}/agent")
    run("sweep", "--demos", "demos/d.npz", *SWEEP, "--keep-agents", "kept/agents", "--out", "sweep/results")
    for name, made in (("train", "bc/agent"), ("sweep", "sweep/results")):
        (folder / "config" / name).mkdir(parents=True)
        shutil.copy(folder / made / "run.yaml", folder / "config" / name)
    run("originals:stop_training", str(folder / "demos" / "d.npz"), str(folder / "resume" / "run"))
    pixels = ["--task", "zigzag", "--episodes", "1", "--obs-type", "pixels", "--image-size", "32"]
    run("collect", *pixels, "--out", "pixels/d.npz")
    frozen = ["--preset", "frozen", "--agent", "bc", "--frames", "random", *TINY]
    cache = {"PIDM_NAV_CACHE": str(folder / "cache")}
    run("train", "--demos", "pixels/d.npz", *frozen, "--out", "frozen/agent", env=cache)
    write_paper_files(folder)


def write_paper_files(folder: Path) -> None:
    """Write demonstrations in the formats of the paper's release and of its compact recordings."""
    from pidm_nav.demos import load_demos

    dataset = load_demos(folder / "demos" / "d.npz")
    layout = describe_zigzag()
    (folder / "paper" / "walks").mkdir(parents=True)
    for number, episode in enumerate(list(dataset)[:2]):
        stem = folder / "paper" / "walks" / f"walk_{number:02d}"
        stem.with_name(f"{stem.name}_env_config.yaml").write_text(yaml.safe_dump(layout))
        arrays = {"state": episode.observations, "action": episode.actions, "reward": episode.rewards}
        trajectory: Any = {**arrays, "obs": episode.observations[:, :2], "success": np.array(True)}
        np.savez_compressed(stem.with_name(f"{stem.name}_trajectory_data.npz"), **trajectory)
    (folder / "compact").mkdir()
    parts = {"states": "observations", "actions": "actions", "rewards": "rewards"}
    flat: Any = {name: np.concatenate([getattr(each, part) for each in dataset]) for name, part in parts.items()}
    np.savez_compressed(folder / "compact" / "d.npz", lengths=np.array([len(each) for each in dataset]), **flat)


def describe_zigzag() -> dict[str, Any]:
    """The description of Zigzag as the paper's release has it."""
    from pidm_nav.tasks import find_task

    layout = find_task("zigzag").layout()
    assert layout is not None
    marks = [mark for row in layout.rows for mark in row if mark not in "#.A"]  # in reading order
    order = sorted(range(len(marks)), key=lambda index: marks[index])
    text = re.sub(r"[^#.A\n]", "G", "\n".join(layout.rows)).replace("#", "W").replace(".", " ")
    noise = {"add_transition_noise": True, "control_deadzone": 0.1, "transition_gaussian_noise_std": [0.2, 0.2]}
    spawn = {"randomise_agent_spawn": False, "randomise_goal_positions": False}
    goal = {"num_goals": len(marks), "goal_ordering": order, "randomisation": spawn}
    return {"action": noise, "layout": text, "room_size": [800, 800], "seed": 42, "max_steps": 150, "goal": goal}


# ---- what the sandbox calls


def _train(demos: str, out: str, **settings: Any) -> Any:
    from pidm_nav.agents import train
    from pidm_nav.demos import load_demos

    sizes: Any = {"encoder_sizes": (8,), "head_sizes": (8,), "save_every": 2, "log_every": 1, "checkpoints": (5,)}
    return train("bc", load_demos(demos), "fast", out, steps=8, **sizes, **settings)


def stop_training(demos: str, out: str) -> None:
    """Leave a training behind that was stopped between two of its saves."""

    def stop(step: int, agent: Any) -> None:
        raise Stopped

    try:
        _train(demos, out, on_checkpoint=stop)
    except Stopped:
        return


def run_and_signal(number: str, pattern: str, files: str, *words: str) -> None:
    """Run a command in a process that gets a signal as soon as so many files match a pattern and hold something."""
    from pidm_nav.cli import main

    def watch() -> None:
        while sum(os.path.getsize(path) > 0 for path in glob(pattern)) < int(files):  # none that is hidden
            threading.Event().wait(0.02)
        os.kill(os.getpid(), int(number))

    threading.Thread(target=watch, daemon=True).start()
    main(list(words))


def fill_disks(*words: str) -> list[tuple[Any, str]]:
    """Run a command where files cannot grow beyond 0, 100 and 20,000 bytes, and return exit codes and errors."""
    from pidm_nav.cli import main

    WATCH.active = False  # it counts in a file, which could not grow either
    ended: list[tuple[Any, str]] = []
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 100, 20_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            with contextlib.redirect_stderr(io.StringIO()) as told:
                main(list(words))
        except SystemExit as end:
            ended.append((end.code, told.getvalue()))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return ended


def resume_training(demos: str, out: str) -> str:
    """Finish the training, and return a digest of the agent."""
    return _digest(_train(demos, out))


def read_demos(source: str) -> str:
    """Load demonstrations, and return a digest of all they hold."""
    from pidm_nav.demos import load_demos

    dataset = load_demos(source)
    digest = hashlib.sha256(json.dumps([dataset.task, dict(dataset.source)], sort_keys=True).encode())
    for episode in dataset:
        infos = sorted(episode.infos.items())
        for name, array in (("o", episode.observations), ("a", episode.actions), ("r", episode.rewards), *infos):
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
        digest.update(repr((episode.terminated, episode.truncated, episode.seed)).encode())
    return digest.hexdigest()


def read_agent(folder: str) -> str:
    """Load an agent, and return a digest of its weights and of what it does."""
    from pidm_nav.agents import load_agent

    return _digest(load_agent(folder))


def _digest(agent: Any) -> str:
    digest = hashlib.sha256()
    arrays = {name: tensor.numpy() for name, tensor in agent.state_dict().items()}
    for place, module in agent.named_modules():
        remembered = getattr(module, "remembered_arrays", dict)()
        arrays |= {f"{place} {name}": array for name, array in remembered.items()}
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape}".encode() + array.tobytes())
    low, high = agent.observation_space.low, agent.observation_space.high
    observation = np.clip(np.linspace(low, high, 3, dtype=np.float64), -1000, 1000).astype(low.dtype)
    action, _ = agent.predict(observation, episode_start=np.ones(3, bool))
    digest.update(np.asarray(action).tobytes())
    return digest.hexdigest()


def read_sweep(folder: str) -> str:
    """Make the report of a sweep without drawing it, and return a digest of its numbers."""
    from pidm_nav.experiments.report import make_report

    report = make_report([Path(folder)])
    return hashlib.sha256(repr((report.summary, report.facts)).encode()).hexdigest()


def train_frozen(demos: str, out: str) -> str:
    """Train on images with a frozen encoder, whose vectors are kept in a cache, and return a digest."""
    from pidm_nav.agents import train
    from pidm_nav.demos import load_demos

    sizes: Any = {"encoder_sizes": (8,), "head_sizes": (8,)}
    return _digest(train("bc", load_demos(demos), "frozen", out, steps=4, frames="random", **sizes))


def read_controls(path: str) -> str:
    """Read a mapping of controls."""
    from pidm_nav.demos.recorder import controls

    return repr(controls.read_controls(path))


def read_config(path: str) -> str:
    """Read the options of a run."""
    from pidm_nav.commands.config import Config

    return repr(Config(["--config", path]).options)


def read_map(path: str) -> str:
    """Read a map."""
    from pidm_nav.world2d.layout import Layout

    return Layout.load(Path(path), (420, 210)).text


def record(out: str, episodes: str) -> None:
    """Record episodes with the real command, a scripted hand and no clock; say when an episode is safe."""
    from pidm_nav.cli import main
    from pidm_nav.demos.recorder import loop
    from pidm_nav.demos.recorder.controls import Reading
    from pidm_nav.demos.recorder.session import Session

    tick = Session.tick
    rests = [True]

    def scripted(session: Session, reading: Reading) -> None:
        before = session.phase
        if session.problem:
            tick(session, Reading(commands=("quit",)))
        elif before == "complete" or session.person.steps >= 20:
            tick(session, Reading(commands=("finish",)))
        else:
            rests[0] = before == "ready" and not rests[0]  # the stick must be let go before an episode
            tick(session, Reading() if rests[0] else Reading((1.0, 0.5)))
        if before == "ready" and session.phase == "running" and session.file is not None:
            print("safe:", len(session.file), flush=True)

    setattr(Session, "tick", scripted)  # noqa: B010
    setattr(loop.Pace, "wait", lambda self, measure: None)  # noqa: B010
    main(["record", "--task", "zigzag", "--episodes", episodes, "--out", out])
