"""What MkDocs is told beyond docs/: the examples, the commands' help, and pages of the repository's root.

`make docs` builds the site. Links that leave docs/ on GitHub lead to the pages that are made here.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pidm_nav.cli import GROUPS, load_command, main, summary_and_example

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    made = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    made |= {f"examples/{path.stem}.md": _example(path) for path in EXAMPLES}
    made |= {f"examples/notebooks/{path.stem}.md": _notebook(path) for path in NOTEBOOKS}
    made |= {"examples/index.md": _examples(), "commands.md": _commands()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of docs/ to the page that stands for their target, or to no page where there is none."""
    here = posixpath.dirname(page.file.src_uri)
    in_docs = page.file.src_uri not in PAGES and not here.startswith("examples")

    def lead(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path = posixpath.normpath(posixpath.join("docs" if in_docs else "", here, target)).removeprefix("docs/")
        path = re.sub(r"^(examples/[\w/]+)\.(py|ipynb)$", r"\1.md", path)
        if files.get_file_from_path(path) is None:  # a file of the repository that is no page
            return text
        return f"[{text}]({posixpath.relpath(path, here or '.')}{anchor})"

    return re.sub(r"(?<!!)\[((?:[^\[\]]|`[^`]*`)+)\]\(([^)\s#]*)(#[^)\s]*)?\)", lead, markdown)


def _example(path: Path) -> str:
    code = path.read_text(encoding="utf-8")
    return f"# {path.stem[3:].replace('_', ' ').capitalize()}\n\n`examples/{path.name}`\n\n```python\n{code}```\n"


def _notebook(path: Path) -> str:
    """Return a notebook as a page: its text, its code, and what the code showed."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            shown = {kind: "".join(lines) for kind, lines in output.get("data", {}).items()}
            if "text/html" in shown:
                parts.append(shown["text/html"])
            elif "image/png" in shown:
                parts.append(f'<img src="data:image/png;base64,{shown["image/png"].strip()}" alt="">')
            else:
                text = shown.get("text/plain") or "".join(output.get("text", []))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _examples() -> str:
    """Return the list of examples, which stands in docs/README.md."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    return "# Examples\n" + index.partition("## Examples\n")[2].replace("../examples/", "").replace(".py)", ".md)")


def _commands() -> str:
    lines = ["# Commands", "", "`pidm-nav COMMAND --help` prints the same.", ""]
    for title, group in GROUPS.items():
        lines += [f"## {title}", ""]
        for words in group:
            lines += [
                f"### {words}",
                "",
                summary_and_example(load_command(words))[0] + ".",
                "",
                "```text",
                _help(words),
                "```",
                "",
            ]
    return "\n".join(lines)


def _help(words: str) -> str:
    told: Any = io.StringIO()
    wide = patch.dict(os.environ, {"COLUMNS": "76", "NO_COLOR": "1", "TERM": "dumb"})
    with wide, contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        main([*words.split(), "--help"])
    return "\n".join(line.rstrip() for line in told.getvalue().splitlines())
