import json
import os
import pickle
import shutil
import subprocess
import sys
import tracemalloc
import zipfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidm_nav import PAPER_TASKS, Layout
from pidm_nav.demos import DemoDataset, Episode, from_minari, load_demos, save_demos, to_minari
from pidm_nav.demos.collect import collect
from pidm_nav.demos.formats.minari import most_bytes
from pidm_nav.demos.formats.schema import check_size

PAPER = {  # total steps, min, mean and max length, as the paper prints them
    "four_room_human": ("four-room", 5821, 103, "116.42", 154),
    "zigzag_human": ("zigzag", 4009, 66, "80.18", 106),
    "maze_human": ("maze", 9785, 176, "195.70", 227),
    "multiroom_human": ("multiroom", 12961, 241, "259.22", 314),
    "four_room_astar": ("four-room", 6148, None, "122.96", None),
    "zigzag_astar": ("zigzag", 3820, None, "76.40", None),
    "maze_astar": ("maze", 9777, None, "195.54", None),
    "multiroom_astar": ("multiroom", 13146, None, "262.92", None),
}


class Wander:
    """Seeded by what it sees, so that episodes differ and tests repeat."""

    settings = MappingProxyType({"legs": 2})

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        step = 0 if state is None else state
        rows = np.arange(len(observation))
        return np.stack([np.sin(step + rows), np.cos(2 * step + rows)], axis=1).astype(np.float32), step + 1


def wander(task="maze", episodes=3, max_steps=6, **env_kwargs):
    return collect(Wander(), task, episodes, seed=7, made_by="wander", max_steps=max_steps, **env_kwargs)


def assert_same(left: DemoDataset, right: DemoDataset) -> None:
    assert left.task == right.task and left.source == right.source and len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        for name in ("observations", "actions", "rewards"):
            assert getattr(a, name).dtype == getattr(b, name).dtype
            assert np.array_equal(getattr(a, name), getattr(b, name)), name
        assert (a.terminated, a.truncated, a.seed) == (b.terminated, b.truncated, b.seed)
        assert set(a.infos) == set(b.infos)
        for key in a.infos:
            assert np.array_equal(a.infos[key], b.infos[key]) and a.infos[key].dtype == b.infos[key].dtype


def refused(source, *words: str) -> str:
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        load_demos(source)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message
    return message


# ---- our own file


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have only names in Unicode")
@pytest.mark.parametrize("name", [b"d\xff.npz", b"d\xff.hdf5"])
def test_a_name_that_is_no_text_is_kept_with_a_mark(tmp_path, name):
    path = tmp_path / os.fsdecode(name)
    save_demos(wander(), path)
    assert load_demos(path).name == name.decode(errors="backslashreplace").replace("xff", "udcff")
    flat = {"observations": np.zeros((4, 2)), "actions": np.zeros((4, 2)), "rewards": np.zeros(4)}
    np.savez(tmp_path / os.fsdecode(b"\xff.npz"), **flat, terminals=np.arange(4) == 3)
    assert load_demos(tmp_path / os.fsdecode(b"\xff.npz")).source["made_by"].encode()


@pytest.mark.parametrize("name", ["demos.npz", "demos.hdf5", "demos.h5"])
@pytest.mark.parametrize("task", PAPER_TASKS)
def test_round_trip(task, name, tmp_path):
    data = wander(task, clip_noise=False)
    save_demos(data, tmp_path / "new" / name)
    assert_same(load_demos(tmp_path / "new" / name), data)
    assert load_demos(str(tmp_path / "new" / name)).source["env_kwargs"] == {"clip_noise": False}
    assert data.source["settings"] == {"legs": 2}


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 2**32), st.data())
def test_round_trip_of_anything(tmp_path_factory, lengths, seed, data):
    rng = np.random.default_rng(seed)
    episodes = []
    for length in lengths:
        infos = {}
        if data.draw(st.booleans()):
            infos["each step"] = rng.normal(size=length)
        if data.draw(st.booleans()):
            infos["each/state"] = rng.integers(0, 9, (length + 1, 2)).astype(np.int8)
        episodes.append(
            Episode(
                rng.normal(size=(length + 1, 3)),
                rng.normal(size=(length, 1)),
                rng.normal(size=length),
                data.draw(st.booleans()),
                data.draw(st.booleans()),
                data.draw(st.none() | st.integers(0, 2**40)),
                infos,
            )
        )
    dataset = DemoDataset("Elsewhere-v0", tuple(episodes), {"made_by": "ünï \U0001f3ae"})
    folder = tmp_path_factory.mktemp("any")
    for path in (folder / "demos.npz", folder / "demos.hdf5"):
        save_demos(dataset, path)
        assert_same(load_demos(path), dataset)


@pytest.mark.parametrize("name", ["images.npz", "images.hdf5"])
def test_images_round_trip(name, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    data = DemoDataset("Elsewhere-v0", (Episode(images, np.zeros((2, 2)), np.zeros(2), False, True),))
    save_demos(data, tmp_path / name)
    assert_same(load_demos(tmp_path / name), data)


@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_equal_datasets_give_equal_files(kind, tmp_path):
    save_demos(wander(), tmp_path / f"a.{kind}")
    save_demos(wander(), tmp_path / f"b.{kind}")
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


@pytest.mark.parametrize(("kind", "stride"), [("npz", 1), ("hdf5", 50)])
def test_a_file_cut_at_any_byte_is_refused(kind, stride, tmp_path):
    whole = tmp_path / f"whole.{kind}"
    save_demos(wander("four-room", episodes=1, max_steps=2), whole)
    content = whole.read_bytes()
    cut = tmp_path / f"cut.{kind}"
    for length in range(0, len(content), stride):
        cut.write_bytes(content[:length])
        message = refused(cut, str(cut))
        assert len(message) < 200


def test_a_file_with_a_wrong_byte_is_refused_or_reads_the_same(tmp_path):
    whole = tmp_path / "whole.npz"
    data = wander("four-room", episodes=1, max_steps=2)
    save_demos(data, whole)
    content = bytearray(whole.read_bytes())
    broken = tmp_path / "broken.npz"
    failures = 0
    for place in range(0, len(content), 3):
        changed = content.copy()
        changed[place] ^= 0xFF
        broken.write_bytes(changed)
        try:
            assert_same(load_demos(broken), data)
        except ValueError as error:
            assert str(broken) in str(error) and "\n" not in str(error)
            failures += 1
    assert failures > len(content) / 6


def metadata(**changes: Any) -> np.ndarray:
    """The metadata of `wander()`, but for some entries."""
    return np.array(json.dumps({"task": "maze", "source": {}, "seeds": [7, 8, 9], "infos": [], **changes}))


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": np.array(99)}, ["version is 99", "update pidm-nav"]),
        ({"version": np.array("one")}, ["version is 'one'"]),
        ({"metadata": np.array("{")}, []),
        ({"metadata": np.array("[]")}, []),
        ({"metadata": np.array("{}")}, ["incomplete", "task"]),
        ({"metadata": np.array("[" * 100_000)}, ["damaged"]),
        ({"metadata": metadata(task=3)}, ["Expected `str`, got `int`", "$.task"]),
        ({"metadata": metadata(task="this:Zen-v0")}, ["'this:Zen-v0'", "give the id alone"]),
        ({"metadata": metadata(source=5)}, ["Expected `object`, got `int`", "$.source"]),
        ({"metadata": metadata(source={"made_by": 5})}, ["Expected `str`, got `int`", "$.made_by"]),
        ({"metadata": metadata(source={"env_kwargs": {"layout": "/dev/zero"}})}, ["give the map's text"]),
        ({"metadata": metadata(source={"env_kwargs": {"layout": 5}})}, ["give the map's text"]),
        ({"metadata": metadata(source={"speed": float("nan")})}, ["damaged"]),
        ({"metadata": metadata(infos=["goals_reached"] * 33)}, ["$.infos", "length <= 32"]),
        ({"metadata": metadata(seeds=[-1, 8, 9])}, ["the seed is -1"]),
        ({"metadata": metadata(seeds=[2**63, 8, 9])}, ["the seed is 9223372036854775808"]),
        ({"metadata": metadata(source=[])}, ["Expected `object`, got `array`", "$.source"]),
        ({"metadata": metadata(source={"env_kwargs": 3})}, ["Expected `object`, got `int`", "$.env_kwargs"]),
        ({"metadata": metadata(seeds=["one", None, 3])}, ["Expected `int | null`, got `str`", "$.seeds[0]"]),
        ({"metadata": metadata(seeds=[1])}, []),
        ({"metadata": metadata(infos=[7])}, ["Expected `str`, got `int`", "$.infos[0]"]),
        ({"lengths": np.array([[6]])}, ["lengths"]),
        ({"lengths": np.array([6, 6, -6])}, ["lengths"]),
        ({"lengths": np.array([6.0, 6, 6])}, ["lengths"]),
        ({"lengths": np.array([], dtype=int)}, []),
        ({"lengths": np.array([6, 6])}, ["and its episodes have"]),
        ({"lengths": np.array([2**63, 2**63, 18], dtype=np.uint64)}, ["lengths"]),
        ({"lengths": np.ones(100_001, dtype=int)}, ["lengths"]),
        ({"lengths": np.zeros(3, dtype=[("a", int)])}, ["lengths"]),
        ({"observations": np.zeros((18, 32))}, ["and its episodes have"]),
        ({"observations": np.full((21, 32), np.nan)}, ["NaN"]),
        ({"observations": np.full((21, 32), 1e30)}, ["observations have a number beyond 1e+09"]),
        ({"observations": np.zeros((21, 32))}, ["goals of maze"]),
        ({"observations": np.zeros((21, 20))}, ["20 features"]),
        ({"actions": np.zeros(18)}, ["actions have shape"]),
        ({"actions": np.array(["up"] * 18)}, ["actions"]),
        ({"rewards": np.array(0.0)}, ["and its episodes have"]),
        ({"rewards": np.zeros(18, dtype=[("a", float)])}, ["rewards are of type"]),
        ({"terminated": np.array([True])}, []),
        ({"terminated": np.array(["False"] * 3)}, ["terminated is 'False': it must be True or False"]),
        ({"info_lengths/goals_reached": np.array([1, 1, 19])}, ["goals_reached"]),
    ],
)
def test_damaged_contents_are_refused(tmp_path, change, words):
    path = tmp_path / "demos.npz"
    save_demos(wander(), path)
    np.savez(path, **{**arrays_of(path), **change})
    refused(path, str(path), *words)


@pytest.mark.parametrize("name", ["metadata", "lengths", "observations", "truncated", "info/goals_reached"])
def test_missing_arrays_are_refused(tmp_path, name):
    path = tmp_path / "demos.npz"
    save_demos(wander(), path)
    arrays = arrays_of(path)
    del arrays[name]
    np.savez(path, **arrays)
    refused(path, str(path))


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        ((400_000_000,), "<f8", "3,052 MB of numbers, and at most 256 MB"),
        ((100_000_000, 1), "|b1", "MB of numbers"),  # would become float32
        ((), "<U500000000", "MB of numbers"),
        ((20_000, 224, 224, 3), "|u1", "2,871 MB of images, and at most 2,048 MB"),
        ((2**40, 2**40), "<f4", "MB of numbers"),
        ((-1, 2**40), "<f4", "MB of numbers"),
        ((10, 10), "<f4", "truncated"),
        ((3,), "|O", "pickled objects"),
    ],
)
def test_sizes_are_judged_by_the_headers(tmp_path, shape, dtype, words):
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    with zipfile.ZipFile(tmp_path / "large.npz", "w") as archive, archive.open("observations.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, header)
    refused(tmp_path / "large.npz", "large.npz", words)


@pytest.mark.parametrize("version", [1, 2])
def test_a_header_that_claims_too_much_is_not_read(tmp_path, version):
    """A few kilobytes of zeros that unpack to 64 MB of header."""
    magic = np.lib.format.magic(version, 0)
    claimed = 2**26 if version == 2 else 2**16 - 1
    start = magic + claimed.to_bytes(4 if version == 2 else 2, "little")
    path = tmp_path / "claims.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("states.npy", "w") as member:
        member.write(start)
        for _ in range(claimed >> 20):
            member.write(bytes(2**20))
    tracemalloc.start()
    refused(path, "claims.npz", f"a header has {claimed:,} bytes")
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


@pytest.mark.parametrize("members", [257, 30_000])
def test_the_number_of_arrays_has_a_limit(tmp_path, members):
    with zipfile.ZipFile(tmp_path / "many.npz", "w") as archive:
        for number in range(members):
            archive.writestr(f"{number}.npy", b"")
    refused(tmp_path / "many.npz", "many.npz", "256 are read")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compression_that_unpacks_without_limit_is_refused(tmp_path, method):
    with zipfile.ZipFile(tmp_path / "packed.npz", "w", method) as archive, archive.open("states.npy", "w") as member:
        np.lib.format.write_array(member, np.zeros(9))
    refused(tmp_path / "packed.npz", "not an npz file")


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    infos = {f"info {number}": np.zeros(1) for number in range(33)}
    many = DemoDataset(
        "Elsewhere-v0", (Episode(np.zeros((2, 1)), np.zeros((1, 1)), np.zeros(1), True, False, 0, infos),)
    )
    with pytest.raises(ValueError, match=r"cannot write '.*many\.npz': .*\$\.infos"):
        save_demos(many, tmp_path / "many.npz")
    images = np.broadcast_to(np.zeros((1, 2048, 2048, 3), np.uint8), (2, 2048, 2048, 3))
    frames = Episode(images, np.zeros((1, 1)), np.zeros(1), True, False)
    with pytest.raises(ValueError, match="2,160 MB of images"):
        check_size((frames.observations.shape, frames.observations.dtype) for _ in range(90))
    assert os.listdir(tmp_path) == []


class Trap:
    """Whoever unpickles this makes a folder."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_pickles_are_never_opened(tmp_path):
    trap = Trap(tmp_path / "sprung")
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(trap))
    refused(tmp_path / "plain.npz", "plain.npz")
    np.savez(tmp_path / "inside.npz", states=np.array([trap], dtype=object))
    refused(tmp_path / "inside.npz", "inside.npz", "pickled objects")
    save_demos(wander(), tmp_path / "dressed.npz")
    np.savez(tmp_path / "dressed.npz", **{**arrays_of(tmp_path / "dressed.npz"), "metadata": np.array([trap])})
    refused(tmp_path / "dressed.npz", "dressed.npz", "pickled objects")
    assert not (tmp_path / "sprung").exists()


def test_foreign_files_are_refused(tmp_path):
    np.savez(tmp_path / "foreign.npz", weights=np.zeros(3), bias=np.zeros(1))
    refused(tmp_path / "foreign.npz", "bias, weights", "no known format")
    np.savez(tmp_path / "empty.npz")
    refused(tmp_path / "empty.npz", "nothing")
    (tmp_path / "nothing.npz").touch()
    refused(tmp_path / "nothing.npz", "truncated or not an npz file")
    (tmp_path / "note.txt").write_text("hello")
    refused(tmp_path / "note.txt", "not an npz file")
    np.save(tmp_path / "one.npy", np.zeros(3))
    refused(tmp_path / "one.npy", "not an npz file")


@pytest.mark.parametrize("name", ["nowhere.npz", "maze/robot", "garden/astar", ""])
def test_unknown_names_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(name or tmp_path / "x", "no demonstrations")


def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "demos.npz"
    save_demos(wander(), path)
    before = path.read_bytes()

    def full_disk(file, **arrays):
        file.write(b"PK half a file")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(OSError, match="no space"):
        save_demos(wander("zigzag"), path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["demos.npz"]


def test_unfit_targets_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"ends with \.npz or \.hdf5"):
        save_demos(wander(), tmp_path / "demos.txt")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"cannot write to '.*file'"):
        save_demos(wander(), tmp_path / "file" / "demos.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        save_demos(wander(), tmp_path / "folder.npz")


# ---- the paper's recordings


@pytest.mark.parametrize("name", PAPER)
def test_compact_recordings_give_the_papers_figures(shared, name):
    task, total, shortest, mean, longest = PAPER[name]
    data = load_demos(shared / "data" / "reference_demos" / f"{name}.npz")
    summary = data.summary()
    assert (summary.task, summary.episodes, summary.total_steps, summary.success) == (task, 50, total, 1.0)
    assert f"{summary.mean_length:.2f}" == mean
    if shortest is not None:
        assert (summary.min_length, summary.max_length) == (shortest, longest)
    assert name in data.source["made_by"] and data.env_kwargs == {"clip_noise": False}


@pytest.mark.parametrize("name", [name for name in PAPER if "human" in name])
def test_released_folders_match_the_compact_recordings(shared, name):
    released = load_demos(shared / "data" / "reference_format" / f"{name}_data")
    compact = load_demos(shared / "data" / "reference_demos" / f"{name}.npz")
    assert released.task == compact.task and len(released) == 2
    assert released.env_kwargs == {"noise_std": 0.2, "deadzone": 0.1, "clip_noise": False}
    for left, right in zip(released, compact[:2], strict=True):
        assert np.array_equal(left.observations, right.observations)
        assert np.array_equal(left.actions, right.actions)
        assert np.array_equal(left.rewards, right.rewards)
        assert left.success and right.success


def compact(tmp_path, **changes):
    episode = wander("zigzag", episodes=1)[0]
    arrays = {
        "states": episode.observations,
        "actions": episode.actions,
        "rewards": episode.rewards,
        "lengths": np.array([len(episode)]),
    }
    np.savez(tmp_path / "compact.npz", **{**arrays, **changes})
    return tmp_path / "compact.npz"


def test_compact_files_are_checked(tmp_path):
    data = load_demos(compact(tmp_path))
    assert data.task == "zigzag" and data[0].truncated and not data[0].success
    refused(compact(tmp_path, states=np.zeros((7, 20))), "goals of no known task")
    refused(compact(tmp_path, states=np.zeros(7)), "observations have shape (7,)")
    refused(compact(tmp_path, lengths=np.array([5])), "and its episodes have")
    refused(compact(tmp_path, actions=np.full((6, 2), np.nan)), "NaN")


MAP = """\
WWWWWWWWWW
W        W
W  A     W
W   G  G W
WWWWWWWWWW"""


def release(folder: Path, number: int = 0, layout: str = MAP, order=(1, 0), room=(800, 400)) -> Path:
    """A folder in the shape of the paper's release, for a map that is none of the paper's."""
    folder.mkdir(exist_ok=True)
    lines = "".join(f"  {row}\n" for row in layout.splitlines())
    (folder / f"walk_{number:02d}_env_config.yaml").write_text(
        f"action:\n  add_transition_noise: false\n  control_deadzone: 0.2\n"
        f"  transition_gaussian_noise_std: [0.3, 0.3]\nlayout: |-\n{lines}room_size: {list(room)}\n"
        f"goal:\n  goal_ordering: {list(order)}\n  randomisation:\n"
        f"    randomise_agent_spawn: true\n    randomise_goal_positions: false\n"
    )
    states = np.zeros((3, 8), np.float32)
    goals = Layout.parse(layout, room, order).goals.astype(np.float32)
    states[:, 2:4], states[:, 5:7] = goals
    np.savez(
        folder / f"walk_{number:02d}_trajectory_data.npz",
        state=states,
        obs=states[:, :2],
        action=np.zeros((2, 2), np.float32),
        reward=np.zeros(2, np.float32),
        success=np.array(False),
    )
    return folder


def test_other_maps_in_the_papers_format_are_custom(tmp_path):
    data = load_demos(release(tmp_path / "walks"))
    assert data.task == "custom" and "walks" in data.source["made_by"]
    assert data.env_kwargs["room_size"] == [800, 400]
    assert data.env_kwargs["layout"].splitlines()[3] == "#...2..1.#"
    assert (data.env_kwargs["noise_std"], data.env_kwargs["deadzone"]) == (0.0, 0.2)
    assert data.env_kwargs["random_start"] is True
    assert data.goal_flags == (4, 7)
    save_demos(data, tmp_path / "walks.npz")
    assert_same(load_demos(tmp_path / "walks.npz"), data)


def test_bad_release_folders_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "no *_trajectory_data.npz files")
    release(tmp_path / "walks")
    refused(tmp_path, "give one of its folders, walks")
    release(tmp_path / "walks", 1, order=(0, 1))
    refused(tmp_path / "walks", "different maps")
    release(tmp_path / "walks", 1)
    (tmp_path / "walks" / "walk_01_env_config.yaml").unlink()
    refused(tmp_path / "walks", "walk_01_env_config.yaml")
    config = tmp_path / "walks" / "walk_01_env_config.yaml"
    for text in (
        "",
        "- 1\n",
        "layout: [",
        "[" * 10_000,
        "a: &a {x: 1}\nb:\n  <<: [*a, *a]",
        "!!python/object/apply:os.mkdir [sprung]",
        "layout: WW\n",
        "\x00",
    ):
        config.write_text(text)
        refused(tmp_path / "walks", "walk_01_env_config.yaml", "does not describe an environment")
    whole = (release(tmp_path / "walks", 1) / config.name).read_text()
    for good, wrong in (("[800, 400]", "[.inf, 400]"), ("[800, 400]", "800"), ("0.2", "none"), ("[1, 0]", "[[1], 0]")):
        config.write_text(whole.replace(good, wrong))
        refused(tmp_path / "walks", "walk_01_env_config.yaml", "does not describe an environment (Expected")
    trajectory = release(tmp_path / "walks", 1) / "walk_01_trajectory_data.npz"
    refused(trajectory, "give its folder")
    np.savez(trajectory, state=np.zeros((2, 8)), action=np.zeros((2, 2)), reward=np.zeros(2))
    refused(tmp_path / "walks", "walk_01_trajectory_data.npz", "2 observations for 2 actions")
    np.savez(trajectory, state=np.zeros((3, 8)), action=np.zeros((2, 2)), reward=np.zeros(2))
    refused(tmp_path / "walks", "walk_01_trajectory_data.npz", "do not have the goals of its map")
    np.savez(trajectory, state=np.zeros((0, 8)), action=np.zeros((2, 2)), reward=np.zeros(2))
    refused(tmp_path / "walks", "walk_01_trajectory_data.npz", "0 observations for 2 actions")
    np.savez(trajectory, state=np.zeros((3, 8), dtype=[("a", float)]), action=np.zeros((2, 2)), reward=np.zeros(2))
    refused(tmp_path / "walks", "walk_01_trajectory_data.npz", "observations are of type")
    np.savez(trajectory, observations=np.zeros(3))
    refused(tmp_path / "walks", "walk_01_trajectory_data.npz")
    trajectory.write_bytes(b"PK\x03\x04")
    refused(tmp_path / "walks", "walk_01_trajectory_data.npz", "truncated")


# ---- robomimic


def test_a_wrong_number_in_an_array_is_refused(tmp_path):
    path = hdf5(tmp_path / "demos.hdf5")
    import h5py

    with h5py.File(path) as file:
        chunk = file["data/demo_1/actions"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + 9] ^= 1
    path.write_bytes(content)
    refused(path, "demos.hdf5", "damaged")


def test_a_wrong_letter_in_a_text_is_refused(tmp_path):
    path = tmp_path / "demos.hdf5"
    save_demos(wander(noise_std=0.3), path)
    content = path.read_bytes()
    assert b'"noise_std": 0.3' in content
    path.write_bytes(content.replace(b'"noise_std": 0.3', b'"noise_std": 0.9'))
    refused(path, "demos.hdf5", "damaged")


def test_long_texts_come_back(tmp_path):
    data = replace(wander(), source={"made_by": "me", "notes": "long " * 40_000})
    save_demos(data, tmp_path / "demos.hdf5")
    assert load_demos(tmp_path / "demos.hdf5").source == data.source


def hdf5(path: Path, edit: Any = None) -> Path:
    """Write `wander()` in robomimic's layout, and change the file."""
    import h5py

    save_demos(wander(), path)
    with h5py.File(path, "a") as file:
        if edit:
            edit(file)
    return path


def test_files_have_the_layout_that_robomimic_documents(tmp_path):
    import h5py

    data = wander(noise_std=0.3)
    save_demos(data, tmp_path / "demos.hdf5")
    with h5py.File(tmp_path / "demos.hdf5") as file:
        assert list(file) == ["data"] and list(file["data"]) == ["demo_0", "demo_1", "demo_2"]
        assert file["data"].attrs["total"] == data.num_steps == 18
        env_args = json.loads(file["data"].attrs["env_args"])
        assert env_args == {"env_name": "PIDMNav-Maze-v0", "type": 2, "env_kwargs": {"noise_std": 0.3}}
        demo, episode = file["data/demo_1"], data[1]
        assert demo.attrs["num_samples"] == 6 and demo.attrs["seed"] == 8
        assert set(demo) == {"actions", "rewards", "dones", "states", "obs", "next_obs", "infos"}
        assert np.array_equal(demo["obs/flat"], episode.observations[:-1])
        assert np.array_equal(demo["next_obs/flat"], episode.observations[1:])
        assert np.array_equal(demo["states"], episode.observations[:-1])
        assert np.array_equal(demo["actions"], episode.actions) and demo["dones"][()].tolist() == [0] * 6


def test_files_of_ours_with_the_old_name_of_the_type_are_read(tmp_path):
    def rename(file):
        old = {"env_name": "PIDMNav-Maze-v0", "env_type": 2, "env_kwargs": {}}
        file["data"].attrs["env_args"] = json.dumps(old)

    assert_same(load_demos(hdf5(tmp_path / "old.hdf5", rename)), wander())


def foreign_hdf5(path: Path, *without: str, **obs: np.ndarray) -> Path:
    """A file as robomimic writes it, of 11 episodes of 3 steps; the actions say which is which."""
    import h5py

    with h5py.File(path, "w") as file:
        for index in range(11):
            demo = file.create_group(f"data/demo_{index}")
            demo["actions"] = np.full((3, 2), index / 10)
            demo["rewards"], demo["dones"] = np.array([0.0, 0, 1]), np.array([0, 0, 1])
            for key, value in obs.items():
                demo[f"obs/{key}"], demo[f"next_obs/{key}"] = value[:-1], value[1:]
            for name in without:
                del demo[name]
        env = {"env_name": "Lift", "env_version": "1.4", "env_type": 1, "env_kwargs": {"horizon": 400}}
        file["data"].attrs["env_args"] = json.dumps(env, indent=4)
        file["mask/train"] = np.array([b"demo_0", b"demo_2"])
    return path


def test_robomimic_files_by_others_are_read(tmp_path):
    pose, grip = np.arange(8.0).reshape(4, 2), np.arange(4.0) + 100
    image = np.zeros((4, 8, 8, 3), np.uint8)
    said = np.array([b"lift"] * 4)
    path = foreign_hdf5(tmp_path / "lift.hdf5", pose=pose, grip=grip, image=image, said=said)
    data = load_demos(path)
    assert data.task == "Lift" and data.env_kwargs == {"horizon": 400}
    assert data.source["made_by"] == "robomimic: lift" and len(data) == 11
    assert np.array_equal(data[0].observations, np.column_stack([grip, pose]))
    assert [round(float(episode.actions[0, 0]) * 10) for episode in data] == list(range(11))
    assert data[0].rewards.tolist() == [0, 0, 1] and data[0].terminated and not data[0].truncated
    save_demos(data, tmp_path / "lift.npz")
    assert_same(load_demos(tmp_path / "lift.npz"), data)
    short = load_demos(foreign_hdf5(tmp_path / "short.hdf5", "next_obs", "rewards", "dones", pose=pose))
    assert len(short[0]) == 2 and np.array_equal(short[0].observations, pose[:3]) and short[0].truncated
    images = load_demos(foreign_hdf5(tmp_path / "images.hdf5", image=image))
    assert images[0].observations.shape == (4, 8, 8, 3)
    two = foreign_hdf5(tmp_path / "two.hdf5", left=image, right=image)
    refused(two, "its observations are left, right: give vectors, or images of one camera")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("obs/flat", {"shape": (10**10, 32), "dtype": "f8", "chunks": (10, 32)}, "MB of numbers"),
        ("next_obs/flat", {"shape": (6, 32), "dtype": "f8", "chunks": (10**7, 32), "maxshape": (None, 32)}, "MB of"),
        ("rewards", {"shape": (6,), "dtype": "f8", "chunks": (10**9,), "maxshape": (None,)}, "MB of numbers"),
        ("rewards", {"shape": (6,), "dtype": "u1", "external": [("/dev/zero", 0, 6)]}, "refers to other files"),
        ("infos/goals_reached", {"shape": (10**9,), "dtype": "f8", "chunks": (10,)}, "MB of numbers"),
        ("actions", {"data": np.zeros((5, 2))}, "the arrays of demo_1 have different lengths"),
        ("actions", {"data": np.full((6, 2), np.nan)}, "NaN"),
        ("actions", {"data": np.zeros(6, dtype=[("a", "f4")])}, "are not arrays of numbers"),
        ("actions", {"data": np.array(3.0)}, "are not arrays of numbers"),
        ("obs/flat", {"data": np.zeros((6, 32))}, "goals of maze"),
        ("obs", {"data": np.zeros(6)}, "cannot be read"),
    ],
)
def test_hostile_arrays_for_robomimic_are_refused(tmp_path, name, arguments, words):
    def replace(file):
        del file["data/demo_1"][name]
        file["data/demo_1"].create_dataset(name, **arguments)

    refused(hdf5(tmp_path / "demos.hdf5", replace), "demos.hdf5", words)


@pytest.mark.parametrize(
    ("group", "name", "value", "words"),
    [
        ("data", "pidm_nav", "{", "cannot be used"),
        ("data", "pidm_nav", "[" * 100_000, "damaged"),
        ("data", "pidm_nav", '{"task": 3, "source": {}}', "Expected `str`, got `int`"),
        ("data", "pidm_nav", '{"task": "this:Zen-v0", "source": {}}', "'this:Zen-v0'"),
        ("data", "pidm_nav", 7, "damaged"),
        ("data", "pidm_nav", ["a", "b"], "its attribute pidm_nav is not one text or number"),
        ("data/demo_2", "seed", -1, "the seed is -1"),
        ("data/demo_2", "seed", 1.5, "its attribute seed is not one text or number"),
        ("data/demo_2", "terminated", "True", "terminated is 'True'"),
    ],
)
def test_hostile_attributes_for_robomimic_are_refused(tmp_path, group, name, value, words):
    refused(hdf5(tmp_path / "demos.hdf5", lambda file: file[group].attrs.update({name: value})), "demos.hdf5", words)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes on Windows")
@pytest.mark.parametrize("name", ["data", "data/demo_0", "data/demo_1/obs", "data/demo_1/infos", "data/demo_2/actions"])
def test_other_files_that_hdf5_refers_to_are_not_opened(tmp_path, name):
    import h5py

    os.mkfifo(tmp_path / "pipe")  # opening it would never end

    def link(file):
        del file[name]
        file[name] = h5py.ExternalLink(tmp_path / "pipe", "/data")

    refused(hdf5(tmp_path / "linked.hdf5", link), "linked.hdf5", "refers to other files: store it as one file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes on Windows")
@pytest.mark.parametrize("name", ["data/demo_0/obs/flat", "data/demo_1/actions"])
def test_other_files_with_rows_of_an_array_are_not_opened(tmp_path, name):
    import h5py

    os.mkfifo(tmp_path / "pipe")

    def spread(file):
        shape, every = file[name].shape, slice(0, h5py.h5s.UNLIMITED)
        del file[name]
        layout = h5py.VirtualLayout(shape, "f4", maxshape=(None, *shape[1:]))
        source = h5py.VirtualSource(tmp_path / "pipe", "rows", shape, "f4", maxshape=(None, *shape[1:]))
        layout[every, :] = source[every, :]
        file.create_virtual_dataset(name, layout)

    refused(hdf5(tmp_path / "spread.hdf5", spread), "spread.hdf5", "refers to other files: store it as one file")


def test_other_hdf5_files_are_refused(tmp_path):
    import h5py

    def link(file):
        del file["data/demo_1"]
        file["data/demo_1"] = h5py.ExternalLink("other.hdf5", "data/demo_1")

    hdf5(tmp_path / "other.hdf5")
    refused(hdf5(tmp_path / "linked.hdf5", link), "linked.hdf5", "refers to other files")
    refused(hdf5(tmp_path / "empty.hdf5", lambda file: file["data"].clear()), "it has 0 episodes")
    refused(hdf5(tmp_path / "none.hdf5", lambda file: file.clear()), "not an HDF5 file of robomimic")
    (tmp_path / "text.hdf5").write_text("hello")
    refused(tmp_path / "text.hdf5", "not an HDF5 file of robomimic")
    refused(tmp_path / "nowhere.hdf5", "no demonstrations")


def test_what_robomimics_layout_cannot_hold_is_not_written(tmp_path):
    infos: dict[str, Any] = {".": np.zeros(1)}
    for names in (infos, {f"info {number}": np.zeros(1) for number in range(33)}):
        episode = Episode(np.zeros((2, 1)), np.zeros((1, 1)), np.zeros(1), True, False, 0, names)
        with pytest.raises(ValueError, match=r"cannot write '.*demos\.hdf5'"):
            save_demos(DemoDataset("Elsewhere-v0", (episode,)), tmp_path / "demos.hdf5")
    assert os.listdir(tmp_path) == []


def test_hdf5_on_a_full_disk_leaves_the_old_one(tmp_path):
    """HDF5 would end the process here; a limit on the size of files acts like a full disk."""
    path = hdf5(tmp_path / "demos.hdf5")
    before = path.read_bytes()
    convert = f"""if True:
        import resource
        from pidm_nav.cli import main
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        main(["demos", "convert", "maze/astar", {str(path)!r}, "--force"])"""
    done = subprocess.run([sys.executable, "-c", convert], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: cannot write '") and "demos.hdf5" in done.stderr
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["demos.hdf5"]


# ---- Minari


@pytest.fixture
def store(tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_minari_both_ways(task, store):
    import minari

    data = wander(task, clip_noise=False)
    to_minari(data, f"pidmnav/{task}/wander-v0")
    assert_same(load_demos(f"minari:pidmnav/{task}/wander-v0"), data)
    stored = minari.load_dataset(f"pidmnav/{task}/wander-v0")
    assert stored.total_episodes == 3 and stored.total_steps == data.num_steps
    assert stored.recover_environment().spec.id == PAPER_TASKS[task].env_id
    assert stored.recover_environment().unwrapped.world.physics.clip_noise is False
    assert list(minari.list_local_datasets()) == [f"pidmnav/{task}/wander-v0"]


@pytest.mark.parametrize(("given", "author"), [({}, "wander"), ({"author": "Ada", "description": "Walks."}, "Ada")])
def test_minaris_metadata_say_who_what_and_how_good(store, given, author):
    import minari

    to_minari(wander(), "maze/wander-v0", **given)
    stored = minari.load_dataset("maze/wander-v0")
    metadata = stored.storage.metadata
    assert metadata["author"] == {author} and metadata["algorithm_name"] == "wander"
    assert metadata["description"] == given.get("description", "3 demonstrations of maze")
    assert (metadata["ref_min_score"], metadata["ref_max_score"]) == (0.0, 10.0)
    assert minari.get_normalized_score(stored, np.array([0, 5, 10])).tolist() == [0, 0.5, 1]
    episode = Episode(np.zeros((2, 1)), np.zeros((1, 1)), np.zeros(1), True, False)
    to_minari(DemoDataset("Elsewhere-v0", (episode,)), "other-v0")
    assert "ref_max_score" not in minari.load_dataset("other-v0").storage.metadata


def test_custom_maps_and_other_environments_go_to_minari(store):
    layout = "########\n#......#\n#..A.1.#\n########\n"
    data = wander("custom", layout=layout, room_size=[800, 300])
    to_minari(data, "custom-v0")
    assert_same(from_minari("custom-v0"), data)
    images = np.random.default_rng(0).integers(0, 256, (3, 40, 40, 3), dtype=np.uint8)
    pictures = DemoDataset("Nobody-Knows-v0", (Episode(images, np.zeros((2, 2)), np.zeros(2), True, False),))
    if version("minari") == "0.5.3":  # the last one for Python 3.10
        with pytest.raises(ValueError, match="changes images by JPEG"):
            to_minari(pictures, "other/pictures-v1")
        return
    to_minari(pictures, "other/pictures-v1")
    assert_same(from_minari("other/pictures-v1"), pictures)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "maze",
        "pidmnav/maze/human",
        "pidmnav/maze/human-vx",
        "/maze/human-v0",
        "../maze-v0",
        "a//b-v0",
        "a b-v0",
        "k/z-v0",
    ],
)
def test_bad_minari_ids_leave_nothing(name, store):
    with pytest.raises(ValueError, match="is not a Minari id"):
        to_minari(wander(), name)
    with pytest.raises(ValueError, match="is not a Minari id"):
        from_minari(name)
    assert not store.exists()


def test_minari_datasets_are_not_overwritten_unasked(store):
    first, second = wander(), wander("zigzag")
    to_minari(first, "pidmnav/maze/wander-v0")
    with pytest.raises(FileExistsError, match="already has 'pidmnav/maze/wander-v0'"):
        to_minari(second, "pidmnav/maze/wander-v0")
    assert_same(from_minari("pidmnav/maze/wander-v0"), first)
    to_minari(second, "pidmnav/maze/wander-v0", force=True)
    assert_same(from_minari("pidmnav/maze/wander-v0"), second)
    assert os.listdir(store) == ["pidmnav"]


def test_a_failing_write_to_minari_leaves_the_old_one(store, monkeypatch):
    import minari

    data = wander()
    to_minari(data, "maze/wander-v0")

    def full_disk(*arguments, **keywords):
        raise OSError("no space left on device")

    monkeypatch.setattr(minari, "create_dataset_from_buffers", full_disk)
    with pytest.raises(OSError, match="no space"):
        to_minari(wander("zigzag"), "maze/wander-v0", force=True)
    assert_same(from_minari("maze/wander-v0"), data)
    assert os.listdir(store) == ["maze"] and os.environ["MINARI_DATASETS_PATH"] == str(store)


def test_minari_on_a_full_disk_leaves_the_old_one(store):
    """HDF5 would end the process here; a limit on the size of files acts like a full disk."""
    data = wander()
    to_minari(data, "maze/wander-v0")
    convert = """if True:
        import resource, sys
        from pidm_nav.cli import main
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        main(["demos", "convert", "maze/astar", "minari:maze/wander-v0", "--force"])"""
    done = subprocess.run([sys.executable, "-c", convert], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: cannot write Minari's 'maze/wander-v0' to '")
    assert_same(from_minari("maze/wander-v0"), data)
    assert os.listdir(store) == ["maze"]


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: wander(episodes=20),
        lambda: wander(max_steps=1, episodes=1, obs_type="pixels", image_size=128),
        lambda: wander(max_steps=40, episodes=3, obs_type="pixels", image_size=20),
        lambda: wander(episodes=2, max_steps=300),
    ],
)
def test_the_room_that_minari_may_take_is_enough(store, dataset):
    data = dataset()
    if data[0].observations.ndim == 4 and version("minari") == "0.5.3":
        pytest.skip("Minari 0.5.3 cannot keep images as they are")
    to_minari(data, "room/x-v0")
    assert sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) < most_bytes(data, "")


def edit_hdf5(store, edit):
    import h5py

    with h5py.File(store / "maze" / "wander-v0" / "data" / "main_data.hdf5", "a") as file:
        edit(file)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("observations", {"shape": (10**10, 32), "dtype": "f8", "chunks": (10, 32)}, "MB of numbers"),
        ("rewards", {"shape": (6,), "dtype": "f8", "chunks": (10**9,), "maxshape": (None,)}, "MB of numbers"),
        ("rewards", {"shape": (6,), "dtype": "u1", "external": [("/dev/zero", 0, 6)]}, "refers to other files"),
        ("observations", {"data": np.zeros((7, 9), np.uint8)}, "observations do not have the shape"),
        ("terminations", {"data": np.arange(6)}, "terminated is"),
        ("observations", {"data": np.zeros(7, dtype=[("a", "f4")])}, "cannot be used"),
    ],
)
def test_hostile_minari_datasets_are_refused(store, name, arguments, words):
    def replace(file):
        del file["episode_1"][name]
        file["episode_1"].create_dataset(name, **arguments)

    to_minari(wander(), "maze/wander-v0")
    edit_hdf5(store, replace)
    refused("minari:maze/wander-v0", "maze/wander-v0", words)


@pytest.mark.parametrize("name", ["observations", "actions", "rewards"])
def test_one_changed_number_in_minari_is_noticed(store, name):
    def change(file):
        file["episode_1"][name][-1] += 0.5

    to_minari(wander(), "maze/wander-v0")
    edit_hdf5(store, change)
    refused("minari:maze/wander-v0", "maze/wander-v0", "changed after they were written")


@pytest.mark.parametrize("words", [("wander", "wanter"), ("maze", "maza"), ("legs", "lags"), ("7, ", "9, ")])
def test_a_changed_letter_in_what_we_keep_with_minari_is_noticed(store, words):
    to_minari(wander(noise_std=0.7, deadzone=0.0), "store/name-v0")
    metadata = store / "store" / "name-v0" / "data" / "metadata.json"
    stored = json.loads(metadata.read_text())
    assert words[0] in stored["pidm_nav"]
    stored["pidm_nav"] = stored["pidm_nav"].replace(*words)
    metadata.write_text(json.dumps(stored))
    refused("minari:store/name-v0", "changed after they were written")


def test_episodes_added_with_minari_are_read(store):
    import minari

    data = wander()
    to_minari(data, "maze/wander-v0")
    to_minari(data, "maze/again-v0")
    again = minari.load_dataset("maze/again-v0")
    minari.load_dataset("maze/wander-v0").storage.update_from_storage(again.storage)
    assert len(from_minari("maze/wander-v0")) == 2 * len(data)


@pytest.mark.parametrize("file", ["metadata.json", "main_data.hdf5"])
@pytest.mark.parametrize("plant", ["pipe", "device"])
def test_pipes_and_devices_in_minaris_store_are_refused(store, file, plant):
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no pipes and devices on Windows")
    to_minari(wander(), "maze/wander-v0")
    path = store / "maze" / "wander-v0" / "data" / file
    path.unlink()
    os.mkfifo(path) if plant == "pipe" else path.symlink_to("/dev/zero")
    refused("minari:maze/wander-v0", "maze/wander-v0")


def test_a_linked_namespace_does_not_lead_out_of_minaris_store(store, tmp_path):
    store.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (store / "maze").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="leads out of"):
        to_minari(wander(), "maze/wander-v0")
    refused("minari:maze/wander-v0", "leads out of")
    assert os.listdir(tmp_path / "elsewhere") == []


def test_minari_imports_no_module_that_a_dataset_names(store):
    """Minari itself makes the environment of a dataset that keeps no spaces."""
    to_minari(wander(), "maze/wander-v0")
    metadata = store / "maze" / "wander-v0" / "data" / "metadata.json"
    stored = json.loads(metadata.read_text())
    del stored["pidm_nav"]
    spec = {**json.loads(stored["env_spec"]), "id": "this:Zen-v0", "entry_point": "this:Zen"}
    stored["env_spec"] = json.dumps(spec)
    metadata.write_text(json.dumps(stored))
    refused("minari:maze/wander-v0", "'this:Zen-v0'")
    del stored["observation_space"]
    metadata.write_text(json.dumps(stored))
    refused("minari:maze/wander-v0", "observation_space")
    assert "this" not in sys.modules


def foreign_minari(name, observations, space=None):
    import gymnasium as gym
    import minari
    from minari.data_collector import EpisodeBuffer

    buffer = EpisodeBuffer(
        id=0,
        seed=5,
        observations=observations,
        actions=np.zeros((3, 1), np.float32),
        rewards=np.zeros(3),
        terminations=np.array([False, False, True]),
        truncations=np.zeros(3, bool),
        infos={"note": np.arange(4), "nested": {"a": np.zeros(4)}, "short": np.zeros(1)},
    )
    minari.create_dataset_from_buffers(
        name,
        [buffer],
        observation_space=space or gym.spaces.Box(-9, 9, (3,)),
        action_space=gym.spaces.Box(-1, 1, (1,)),
    )


@pytest.mark.filterwarnings("ignore")
def test_datasets_by_others_are_read(store):
    foreign_minari("swing/expert-v0", np.zeros((4, 3), np.float32))
    data = from_minari("swing/expert-v0")
    assert data.task == "swing/expert-v0" and data[0].seed == 5 and data[0].terminated
    assert set(data[0].infos) == {"note"}


@pytest.mark.filterwarnings("ignore")
def test_t_observations_from_minari_are_refused(store):
    foreign_minari("swing/short-v0", np.zeros((3, 3), np.float32))
    refused("minari:swing/short-v0", "swing/short-v0", "3 observations for 3 actions: give 4")


@pytest.mark.filterwarnings("ignore")
def test_dictionaries_from_minari_are_flattened_as_gymnasium_does_it(store):
    import gymnasium as gym

    box, rng = gym.spaces.Box, np.random.default_rng(0)
    inner = gym.spaces.Dict({"q": box(-9, 9, (2, 2)), "p": box(-9, 9, (1,), np.float64)})
    space = gym.spaces.Dict([("z", box(-9, 9, (3,))), ("a", inner)])  # pairs keep their order
    seen = {"z": rng.random((4, 3)), "a": {"q": rng.random((4, 2, 2)), "p": rng.random((4, 1))}}
    foreign_minari("swing/dict-v0", seen, space)
    rows = [{"z": seen["z"][t], "a": {name: seen["a"][name][t] for name in "qp"}} for t in range(4)]
    expected = np.stack([gym.spaces.flatten(space, row) for row in rows])
    np.testing.assert_allclose(from_minari("swing/dict-v0")[0].observations, expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("space", "observations", "words"),
    [
        ("Tuple", (np.zeros((4, 3), np.float32),), "are Tuple"),
        ("Discrete", np.zeros(4, np.int64), "are Discrete"),
        ("images", {"camera": np.zeros((4, 8, 8, 3), np.uint8)}, "observations"),
    ],
)
def test_what_is_neither_numbers_nor_images_in_minari_is_refused(store, space, observations, words):
    import gymnasium as gym

    box = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    made = {
        "Tuple": gym.spaces.Tuple([gym.spaces.Box(-9, 9, (3,))]),
        "Discrete": gym.spaces.Discrete(3),
        "images": gym.spaces.Dict({"camera": box}),
    }
    foreign_minari("swing/odd-v0", observations, made[space])
    refused("minari:swing/odd-v0", "swing/odd-v0", words)


def test_damaged_and_missing_minari_datasets_are_refused(store):
    refused("minari:pidmnav/maze/none-v0", "Minari has no 'pidmnav/maze/none-v0'")
    to_minari(wander(), "maze/wander-v0")
    metadata = store / "maze" / "wander-v0" / "data" / "metadata.json"
    whole = metadata.read_text()
    metadata.write_text(whole[: len(whole) // 2])
    refused("minari:maze/wander-v0", "maze/wander-v0", "cannot be used")
    stored = json.loads(whole)
    for ours in ("{", "[" * 100_000, "{}", '{"task": 3, "source": {}}', '{"task": "maze", "source": []}'):
        metadata.write_text(json.dumps({**stored, "pidm_nav": ours}))
        refused("minari:maze/wander-v0", "maze/wander-v0", "cannot be")
    for change in ({"total_episodes": 10**12}, {"total_episodes": 4}, {"data_format": "arrow"}, {"action_space": 3}):
        metadata.write_text(json.dumps({**stored, **change}))
        refused("minari:maze/wander-v0", "maze/wander-v0", "cannot be")
    metadata.write_text(whole)
    main = store / "maze" / "wander-v0" / "data" / "main_data.hdf5"
    main.write_bytes(main.read_bytes()[:1000])
    refused("minari:maze/wander-v0", "maze/wander-v0", "damaged")
    shutil.rmtree(store / "maze" / "wander-v0" / "data")
    refused("minari:maze/wander-v0", "Minari has no")
