"""The documentation site builds without a warning and has an entry for every public name."""

import os
import re
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pidm_nav
import pidm_nav.agents
import pidm_nav.demos

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site needs the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


@pytest.mark.thorough
def test_every_public_name_has_its_entry(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes()
    entries = zlib.decompress(inventory[inventory.index(b"zlib.\n") + 6 :]).decode()
    described = {line.split(" ")[0].rpartition(".")[2] for line in entries.splitlines()}
    public = {*pidm_nav.__all__, *pidm_nav.demos.__all__, *pidm_nav.agents.__all__}
    assert public - {"__version__"} <= described
    assert {"NavEnv3D", "action_error", "prediction_errors", "theory_report"} <= described


@pytest.mark.thorough
def test_pages_link_to_pages_that_exist_and_fetch_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?https?://[^>]+>", text), page.name
        for link in re.findall(r"(?:href|src)=[\"']?([^\"'\s>]+)", text):
            target = link.partition("#")[0]
            if target and not re.match(r"[a-z]+:|//", target) and page.name != "404.html":
                assert (page.parent / target).exists(), f"{page.name} links to {link}"


@pytest.mark.thorough
def test_links_within_a_page_and_to_examples_survive(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    assert re.search(r"href=[\"']?#examples", home) and "examples/01_first_episode.html" in home


@pytest.mark.thorough
@pytest.mark.parametrize("width", [390, 1366])
def test_nothing_is_cut_and_the_search_works_from_a_folder(width: int, site: Path, browser: Any) -> None:
    with closing(browser.new_page(viewport={"width": width, "height": 800})) as page:
        for name in ("api/agents.html", "commands.html", "index.html"):
            page.goto((site / name).as_uri())
            cut = "[...document.querySelectorAll('pre > code')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
            assert page.evaluate(f"{cut}.map((e) => e.textContent)") == []
        if width == 390:
            page.click("label.md-header__button[for=__search]")
        page.click(".md-search__input")
        page.keyboard.type("evaluate")
        page.wait_for_selector(".md-search-result__meta:has-text('matching documents')")
