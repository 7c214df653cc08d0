"""Plugins: files or modules that register agents, their parts or environments."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

PLUGINS_VARIABLE = "PIDM_NAV_PLUGINS"
ENTRY_POINTS = "pidm_nav.plugins"

plugins_in_use: list[str] = []  # those of the running command, as they were given


def load_plugin(plugin: str | Path) -> ModuleType:
    """Import a plugin, given as the path of a Python file or the name of a module."""
    path = Path(plugin)
    if path.suffix != ".py":
        try:
            return importlib.import_module(str(plugin))
        except ModuleNotFoundError as error:
            if not f"{plugin}.".startswith(f"{error.name}."):  # an import of the plugin failed
                raise
            raise ValueError(f"there is no module '{plugin}': give an installed module, or a .py file") from None
    path = path.resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no plugin '{plugin}': give the path of a .py file, or a module's name")
    name = f"pidm_nav_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def failing_line(error: BaseException) -> tuple[str, int | None] | None:
    """Return the file and the line of a plugin that raised an error while it was loaded; None for other errors."""
    frames = traceback.extract_tb(error.__traceback__)
    loading = [frame.filename == __file__ and frame.name == load_plugin.__name__ for frame in frames]
    if True not in loading:
        return None
    importing = ("<frozen importlib", str(importlib.__file__), __file__)
    own = [frame for frame in frames[loading.index(True) :] if not frame.filename.startswith(importing)]
    if own:  # the last line of the plugin itself, and not of what it called
        last = [frame for frame in own if frame.filename == own[0].filename][-1]
        return last.filename, last.lineno
    if isinstance(error, SyntaxError) and error.filename is not None:
        return error.filename, error.lineno
    return None


def load_plugins() -> None:
    """Load the plugins of installed packages and of the environment variable."""
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
    for plugin in filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)):
        load_plugin(plugin)


@contextmanager
def plugins_loaded(plugins: Sequence[str]) -> Iterator[None]:
    """Load plugins here and, inside the block, in all worker processes, which inherit the environment variable."""
    before = os.environ.get(PLUGINS_VARIABLE)
    for plugin in plugins:
        load_plugin(plugin)
    paths = [str(Path(plugin).resolve()) if plugin.endswith(".py") else plugin for plugin in plugins]
    os.environ[PLUGINS_VARIABLE] = os.pathsep.join([*([before] if before else []), *paths])
    plugins_in_use[:] = plugins
    try:
        yield
    finally:
        plugins_in_use.clear()
        os.environ.pop(PLUGINS_VARIABLE)
        if before is not None:
            os.environ[PLUGINS_VARIABLE] = before
