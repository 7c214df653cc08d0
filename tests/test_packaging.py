"""What is installed: every package and data file, inside pidm_nav and nowhere else."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BY_HAND = {"agents": "pidm_nav.agents", "demos": "pidm_nav.demos"}  # folders that install under another name


def _setuptools() -> dict[str, list[str]]:
    """The `[tool.setuptools]` table."""
    if sys.version_info < (3, 11):
        pytest.skip("reading pyproject.toml needs Python 3.11's tomllib")
    import tomllib

    table: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    return table


def _package_folders() -> set[str]:
    """The dotted names of all folders with an `__init__.py`."""
    names = set()
    for top in ("pidm_nav", *BY_HAND):
        for marker in (ROOT / top).rglob("__init__.py"):
            parts = marker.parent.relative_to(ROOT).parts
            name = ".".join((BY_HAND.get(parts[0], parts[0]), *parts[1:]))
            names.add(name)
    return names


def test_every_package_is_listed() -> None:
    listed = _setuptools()["packages"]
    assert len(listed) == len(set(listed))
    assert set(listed) == _package_folders()


def test_every_module_of_our_folders_is_in_a_package() -> None:
    for top in ("pidm_nav", *BY_HAND):
        for module in (ROOT / top).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), f"{module} is in a folder without __init__.py"


@pytest.mark.parametrize("name", BY_HAND)
def test_the_links_point_to_the_folders(name: str) -> None:
    if (ROOT / "PKG-INFO").exists():
        pytest.skip("a source distribution has no links")
    link = ROOT / "pidm_nav" / name
    if not link.is_symlink():
        # A checkout without links has text files in their place, and installs through the mapping all the same.
        assert link.is_file() and link.read_text().strip() == f"../{name}"
        pytest.skip("this checkout has no symbolic links")
    assert os.readlink(link) == f"../{name}"
    assert link.resolve() == (ROOT / name).resolve()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel built from a copy, so that the checkout gets no build folder."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    unwanted = shutil.ignore_patterns(".*", "tests", "build", "*.egg-info", "__pycache__", "runs", "results")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=unwanted)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(copy)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_everything_inside_pidm_nav(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pidm_nav", "pidm_nav_command.py"}
    for top in ("pidm_nav", *BY_HAND):
        for source in (ROOT / top).rglob("*"):
            inside = source.relative_to(ROOT)
            if inside.parts[:2] in {("pidm_nav", name) for name in BY_HAND}:
                continue  # the links: their files are looked for under their own folders
            wanted = (
                source.suffix in (".py", ".txt", ".npz", ".html", ".jinja", ".json", ".safetensors")
                or source.name == "py.typed"
            )
            if wanted and source.is_file():
                assert "/".join((*BY_HAND.get(top, top).split("."), *inside.parts[1:])) in names


def test_the_wheel_has_the_command_and_the_license(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "pidm-nav = pidm_nav_command:main" in wheel.read(entry_points).decode()
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


@pytest.mark.thorough
def test_the_source_distribution_holds_what_its_tests_read(tmp_path: Path) -> None:
    unwanted = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, tmp_path / "copy", symlinks=True, ignore=unwanted)
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", "dist", "copy"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    (path,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE", "constraints.txt", ".ci/run"}
    for top in ("docs", "examples", "scripts", "benchmarks", "tests", "pidm_nav", *BY_HAND):
        files = (path for path in (ROOT / top).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        wanted |= {path.relative_to(ROOT).as_posix() for path in files}
    links = tuple(f"pidm_nav/{name}" for name in BY_HAND)
    assert not {name for name in wanted - names if not name.startswith(links)}


def test_bundled_demonstrations_are_complete(wheel: zipfile.ZipFile) -> None:
    from pidm_nav import PAPER_TASKS
    from pidm_nav.demos.formats.npz import BUNDLED

    expected = {f"pidm_nav/demos/data/{task}_{kind}.npz" for task in PAPER_TASKS for kind in BUNDLED}
    assert expected <= set(wheel.namelist())


def test_importing_gives_no_warning_and_no_heavy_module() -> None:
    heavy = "{'torch', 'pygame', 'matplotlib', 'scipy', 'stable_baselines3'}"
    program = f"import pidm_nav, sys; found = {heavy} & set(sys.modules); assert not found, found"
    ended = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_names_of_demonstrations_do_not_bring_torch() -> None:
    program = (
        "from pidm_nav import AStarExpert, collect, evaluate, load_demos\nimport sys; assert 'torch' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.thorough
def test_the_package_has_the_names_of_its_rooms_and_shows_no_others() -> None:
    program = """
import pidm_nav
shown = dir(pidm_nav)
from pidm_nav import *
from pidm_nav import agents, analysis, demos, policies
assert shown == sorted(pidm_nav.__all__) and len(set(shown)) == len(shown), shown
rooms = {*agents.__all__, *analysis.__all__, *demos.__all__, *policies.__all__}
own = {name for name in shown if name not in rooms}
assert rooms <= set(shown), rooms - set(shown)
assert all(name in vars(pidm_nav) for name in own) and "gym" not in own, own
assert train is agents.train and collect is demos.collect
"""
    ended = run_python(program)
    assert ended.returncode == 0, ended.stderr


TORCH_FREE = """
import sys

class Absent:
    def find_spec(name, *_):
        if name.partition(".")[0] in ("torch", "stable_baselines3", "safetensors"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Absent)
import gymnasium as gym
import numpy as np
import pidm_nav
from pidm_nav import AStarExpert, HumanLikePlayer, collect, evaluate, load_demos, save_demos
from pidm_nav.cli import main
import pidm_nav.demos.recorder.session, pidm_nav.demos.recorder.screen, pidm_nav.demos.recorder.devices

env = gym.make("PIDMNav-Maze-v0", render_mode="rgb_array")
env.reset(seed=0)
assert env.render().ndim == 3
assert evaluate(AStarExpert("zigzag"), "zigzag", episodes=1).goal_ratio == 1
save_demos(collect(HumanLikePlayer("zigzag"), "zigzag", 1), "own.npz")
main("demos info own.npz zigzag/astar".split())
main("demos replay own.npz --check".split())
main("evaluate astar --task zigzag --episodes 1".split())
main([])
for words in ("train --demos own.npz", "evaluate zigzag/pidm", "agents"):
    try:
        main(words.split())
    except SystemExit as stop:
        assert stop.code == 2, words
    else:
        raise AssertionError(words)
try:
    pidm_nav.train
except ModuleNotFoundError as error:
    print(error, file=sys.stderr)
"""


def test_all_but_agents_works_without_torch(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", TORCH_FREE], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    said = set(ended.stderr.replace("error: ", "").strip().splitlines())
    assert said == {"agents need torch: pip install 'pidm-nav[agents]'"}


@pytest.mark.thorough
def test_type_checkers_know_every_public_name_and_no_other(tmp_path: Path) -> None:
    """The README's snippets as a user's file under mypy, without other packages, which would take a minute."""
    pytest.importorskip("mypy")
    if not (ROOT / "pidm_nav" / "agents").is_dir():
        pytest.skip("this checkout has no symbolic links, which mypy follows")
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    code = "\n".join([*blocks, "reveal_type(load_demos)", "from pidm_nav import nonsense"])
    (tmp_path / "user.py").write_text(code, "utf-8")
    (tmp_path / "mypy.ini").write_text("[mypy]\nfollow_imports = skip\n[mypy-pidm_nav.*]\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "user.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    told = [line for line in ended.stdout.splitlines() if line.startswith("user.py")]
    assert len(told) == 2, ended.stdout + ended.stderr
    assert "-> pidm_nav.demos.dataset.DemoDataset" in told[0]
    assert 'Module "pidm_nav" has no attribute "nonsense"' in told[1]


def test_the_version_is_said_once() -> None:
    from importlib.metadata import version

    from pidm_nav import __version__

    _setuptools()  # skips where pyproject.toml cannot be read
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert project["version"] == __version__ == version("pidm-nav")
    assert f"version: {__version__}" in citation
