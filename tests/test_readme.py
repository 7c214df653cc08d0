"""What README and docs say is true: code runs, commands parse, links lead somewhere, the tree is the repository's."""

import ast
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tyro
from script_loader import load_script

from pidm_nav.cli import COMMANDS, _option_rules, _take_plugins, load_command, summary_and_example
from pidm_nav.plugins import plugins_loaded

if TYPE_CHECKING:
    from sandbox import Sandbox

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(
    r"^(?:<!-- (?:skip: (?P<skip>.+?)|needs: (?P<needs>\w+)) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
SHELL = ("bash", "sh", "shell", "console", "")


WANDB = """
from contextlib import contextmanager

class Run:
    steps = []

    def log(self, data, step):
        assert data["loss"] > 0 and 0 <= data["goal_ratio"] <= 1
        self.steps.append(step)

@contextmanager
def init(project):
    yield Run()
    assert Run.steps == [10, 20, 30, 40, 50]
"""  # stands in for Weights & Biases, which the tests do not need


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _blocks(path: Path) -> list[re.Match[str]]:
    return list(FENCE.finditer(path.read_text(encoding="utf-8")))


def _program(path: Path) -> str:
    """Return the page's Python blocks as one program, each on its lines of the page, so that errors point there."""
    lines = [""] * len(path.read_text(encoding="utf-8").splitlines())
    for block in _blocks(path):
        if block["language"] == "python" and block["skip"] is None and block["needs"] is None:
            first = block.string.count("\n", 0, block.start("code"))
            code = block["code"].splitlines()
            lines[first : first + len(code)] = code
    return "\n".join(lines) + "\n"


PROGRAMS = [path for path in PAGES if _program(path).strip()]


@pytest.mark.thorough
@pytest.mark.parametrize("path", PROGRAMS, ids=_name)
def test_python_blocks_run(path: Path, box: "Sandbox", tmp_path: Path) -> None:
    from sandbox import Limits

    script = tmp_path / f"{path.stem}.md.py"
    short = _program(path).replace('train("pidm", demos)\n', 'train("pidm", demos, steps=20)\n')  # whole when slow
    script.write_text(short, encoding="utf-8")
    (tmp_path / "wandb.py").write_text(WANDB, encoding="utf-8")
    folder = tmp_path / "here"
    store = {"MINARI_DATASETS_PATH": str(folder / "minari")}
    ended = box.run([str(script)], folder, env=store, limits=Limits(inline=True))
    assert ended.code == 0, ended.err


@pytest.mark.slow
@pytest.mark.parametrize("path", PROGRAMS, ids=_name)
def test_python_blocks_run_in_a_fresh_process(path: Path, tmp_path: Path) -> None:
    """They import all that they use, which a process that has imported everything cannot tell."""
    script = tmp_path / f"{path.stem}.md.py"
    script.write_text(_program(path), encoding="utf-8")
    (tmp_path / "wandb.py").write_text(WANDB, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MINARI_DATASETS_PATH": str(tmp_path / "minari")}
    ended = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stderr


NEEDS = [(block["needs"], block["code"]) for path in PAGES for block in _blocks(path) if block["needs"]]


@pytest.mark.slow
@pytest.mark.parametrize(("library", "code"), NEEDS, ids=[library for library, _ in NEEDS])
def test_blocks_for_other_libraries_run_where_they_are_installed(library: str, code: str, tmp_path: Path) -> None:
    """Each is a program of its own."""
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MINARI_DATASETS_PATH": str(tmp_path / "minari")}
    command = [sys.executable, "block.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr


def _commands() -> list[tuple[str, str]]:
    """Return every `pidm-nav ...` line of the pages' shell blocks, with its page."""
    found = []
    for path in PAGES:
        for block in _blocks(path):
            if block["language"] not in SHELL:
                continue
            for line in block["code"].replace("\\\n", " ").splitlines():
                for part in re.split(r"&&|\|\||;|\|", line.split(" #")[0]):
                    if part.strip().removeprefix("$ ").startswith("pidm-nav"):
                        found.append((_name(path), part.strip().removeprefix("$ ")))
    return found


def _examples() -> list[tuple[str, str]]:
    return [("pidm-nav --help", summary_and_example(load_command(words))[1]) for words in COMMANDS]


def _parse(words: str, arguments: list[str]) -> None:
    """Parse a command line with the command's real parser, without running the command."""
    command = load_command(words)
    if hasattr(command, "form"):  # its options depend on the demonstrations: a reader's own files are stood in for
        pairs = zip(["", *arguments], arguments, strict=False)
        arguments = ["maze/human-like" if before == "--demos" else argument for before, argument in pairs]
        arguments += ["--task", "maze"] if "--config" in arguments else []  # which a reader's file would say
        command = command.form(arguments)
    with _option_rules():
        tyro.cli(command, args=arguments)


@pytest.mark.parametrize(("page", "line"), sorted({*_commands(), *_examples()}))
def test_shell_commands_parse(page: str, line: str) -> None:
    words = shlex.split(line)[1:]
    if not words or words in (["--version"], ["--help"]):
        return
    name = next((name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS), None)
    assert name is not None, f"{page}: there is no command in '{line}'"
    arguments = words[len(name.split()) :]
    try:
        with plugins_loaded(_take_plugins(arguments)):
            _parse(name, [argument for argument in arguments if argument != "--debug"])
    except SystemExit as ended:
        assert "--help" in arguments, f"{page}: '{line}' does not parse ({ended.code})"


@pytest.mark.parametrize("words", ["evaluate runs/x", "train --agent bc --task maze"])
def test_a_wrong_flag_would_be_noticed(words: str) -> None:
    name, *arguments = words.split()
    with pytest.raises(SystemExit):
        _parse(name, [*arguments, "--no-such-flag"])


def _links(path: Path) -> list[str]:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`\n]*`(?!\])", "", text)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def _anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub gives a page's headings."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_relative_links_lead_somewhere(path: Path) -> None:
    for link in _links(path):
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), f"{_name(path)} links to {link}, which is not there"
        if anchor and file.suffix == ".md":
            assert anchor in _anchors(file), f"{_name(path)} links to {link}, which has no such heading"


def test_the_index_names_every_page_and_example() -> None:
    linked = {link.partition("#")[0] for link in _links(ROOT / "docs" / "README.md")}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= linked
    assert {f"../examples/{path.name}" for path in (ROOT / "examples").glob("*.py")} <= linked


@pytest.mark.parametrize("name", ["commands.md", "settings.md"])
def test_generated_pages_equal_the_code(name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert page == load_script("make_reference").PAGES[name](), (
        f"docs/{name} is stale: run python scripts/make_reference.py"
    )


def _texts() -> list[str]:
    """Return all texts in the source code; the parts of an f-string count one by one."""
    files = [path for top in ("pidm_nav", "agents", "demos") for path in (ROOT / top).rglob("*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_troubleshooting_quotes_messages_that_exist() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    titles = [line for line in page.splitlines() if line.startswith("**`") and "(Gymnasium)" not in line]
    messages = re.findall(r"\*\*`(.+?)`\*\*", "\n".join(titles))
    assert len(messages) > 50
    texts = _texts()
    for message in messages:
        for part in (part.strip("'() ") for part in message.split("...")):
            assert any(part in text for text in texts), f"no error says '{part}'"


def _tree() -> list[str]:
    """Return the paths that CONTRIBUTING's annotated tree names: in each line, the words before the first non-name."""
    (block,) = [b["code"] for b in _blocks(ROOT / "CONTRIBUTING.md") if re.search(r"^pidm_nav/", b["code"], re.M)]
    paths: list[str] = []
    folders: list[tuple[int, str]] = []
    for line in block.splitlines():
        indent = len(line) - len(line.lstrip(" │├└─"))
        while folders and folders[-1][0] >= indent:
            folders.pop()
        parent = folders[-1][1] if folders else ""
        for word in line.lstrip(" │├└─").replace(",", " ").split():
            if not re.fullmatch(r"(?:[\w.*-]+/)+|(?:[\w.*-]+/)*\.?[\w*-]+\.\w+|\.ci/run|LICENSE|Makefile", word):
                break
            paths.append(parent + word)
            if word.endswith("/"):
                folders.append((indent, parent + word))
    return paths


def test_the_tree_names_only_what_exists() -> None:
    paths = _tree()
    assert len(paths) > 20
    for path in paths:
        assert list(ROOT.glob(path.rstrip("/"))), f"the tree in CONTRIBUTING names {path}, which is not there"


def test_the_tree_misses_no_module() -> None:
    named = set(_tree())
    modules = {_name(path) for top in ("pidm_nav", "agents", "demos") for path in (ROOT / top).rglob("*.py")}
    folders = {f"{Path(module).parent.as_posix()}/" for module in modules}
    modules = {module for module in modules if not module.endswith("/__init__.py")}
    linked = ("pidm_nav/agents/", "pidm_nav/demos/")  # links to the folders of the same name
    wanted = {path for path in {*modules, *folders, "tests/", "examples/", "docs/"} if not path.startswith(linked)}
    assert not wanted - named, f"the tree in CONTRIBUTING does not name {sorted(wanted - named)}"
