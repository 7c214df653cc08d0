"""Agents, predictors and inverse dynamics models by name.

    @register
    class Mixed(Nearest):
        name = "mixed"
        k: int = 3

Then `train("pidm", demos, predictor="mixed(k=5)")`, the command line, sweeps and `load_agent` know it, as long as the
file is loaded: by `import`, by `--plugin mine.py`, by the environment variable PIDM_NAV_PLUGINS, which worker processes
inherit, or by an entry point of the group `pidm_nav.plugins` of an installed package. Files of agents never name code
to import: they say which plugin they need, and you load it.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec
import numpy as np

from pidm_nav.limits import suggestion
from pidm_nav.plots import AGENT_STYLES, AgentStyle, agent_style

AGENTS: dict[str, type[Any]] = {}
"""All agents by name."""
PREDICTORS: dict[str, type[Any]] = {}
"""All state predictors by name."""
IDMS: dict[str, type[Any]] = {}
"""All inverse dynamics models by name."""
KINDS = {"agent": AGENTS, "predictor": PREDICTORS, "inverse dynamics model": IDMS}
Part = TypeVar("Part", bound=type[Any])


def register(part: Part) -> Part:
    """Make a class known by its `name`; use it as a decorator."""
    kind, name = getattr(part, "kind", None), part.__dict__.get("name")
    if kind not in KINDS:
        raise ValueError(f"{part.__name__} is no agent, predictor or inverse dynamics model: derive it from one")
    if not isinstance(name, str) or not name.replace("-", "_").isidentifier():
        inherited = getattr(part, "name", None)
        hint = f" besides the '{inherited}' of its parent" if inherited else ""
        raise ValueError(f"{part.__name__} has no name of its own{hint}: add a line such as name = 'my-{kind[:5]}'")
    before = KINDS[kind].get(name)
    if before is not None and (before.__module__, before.__qualname__) != (part.__module__, part.__qualname__):
        raise ValueError(f"the {kind} '{name}' of {part.__module__} is already that of {before.__module__}: rename it")
    KINDS[kind][name] = part
    if kind == "agent" and (part.title or part.color) and name not in AGENT_STYLES:
        spare = agent_style(name)
        AGENT_STYLES[name] = AgentStyle(part.title or name, part.color or spare.color, spare.marker)
    return part


def find_part(kind: str, name: str | type[Any], plugin: str = "") -> type[Any]:
    """Return the class of a name, or register and return a given class; `plugin` is what a file says it needs."""
    if isinstance(name, type):
        if KINDS[kind].get(getattr(name, "name", "")) is not name:
            register(name)
        if name.kind != kind:
            raise ValueError(f"{name.__name__} is no {kind}: give a class that is")
        return name
    known = KINDS[kind]
    if not isinstance(name, str):
        raise ValueError(f"{name!r} stands where the {kind}'s name should: give one such as {next(iter(known))}")
    if name not in known:
        hint = suggestion(name, known, f"choose one of {', '.join(known)}")
        if plugin:
            hint = f"it was made with the plugin '{plugin}': load that first with load_plugin"
        raise ValueError(f"no {kind} is called '{name}': {hint}")
    return known[name]


def describe(part: Any) -> str:
    """Return a part as text that `make_part` reads: its name, and options that differ from the defaults."""
    if isinstance(part, str):
        return part
    kind: Any = part if isinstance(part, type) else type(part)
    if getattr(kind, "kind", None) not in KINDS:
        raise ValueError(f"{part!r} is no predictor or inverse dynamics model: give one, or its name")
    find_part(kind.kind, kind)
    options = [] if isinstance(part, type) else [field for field in fields(part) if field.init]
    values = {field.name: getattr(part, field.name) for field in options}
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
    changed = [f"{field.name}={plain[field.name]!r}" for field in options if plain[field.name] != _default(field)]
    return f"{kind.name}({', '.join(changed)})" if changed else str(kind.name)


def make_part(kind: str, text: str, plugin: str = "") -> Any:
    """Return a predictor or inverse dynamics model from a text such as `nearest` or `neighbors(k=3, pull=0.5)`."""
    try:
        label, bracket, rest = text.partition("(")
        call = ast.parse(label.strip().replace("-", "_") + bracket + rest, mode="eval").body
        name = call.func if isinstance(call, ast.Call) else call
        assert isinstance(name, ast.Name)
        given = call.keywords if isinstance(call, ast.Call) else []
        assert not (isinstance(call, ast.Call) and call.args) and all(each.arg for each in given)
        options = {str(each.arg): ast.literal_eval(ast.unparse(each.value)) for each in given}
    except (AssertionError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError(f"'{text[:80]}' cannot be read: write a name, or name(option=value, ...)") from None
    part = find_part(kind, label.strip(), plugin)
    kinds = get_type_hints(part, include_extras=True)
    known = {field.name: kinds[field.name] for field in fields(part) if field.init} if is_dataclass(part) else {}
    for option, value in options.items():
        if option not in known:
            hint = suggestion(option, known, f"it has {', '.join(known) or 'none'}")
            raise ValueError(f"the {kind} {part.name} has no option '{option}': {hint}")
        try:
            options[option] = msgspec.convert(value, known[option])
        except msgspec.ValidationError as error:
            raise ValueError(f"{option} of the {kind} {part.name} is {value!r}: {error}") from None
    return part(**options)


def signatures(kind: str) -> str:
    """Return the names and options of all parts of a kind in one line, for help texts."""
    lines = []
    for name, part in KINDS[kind].items():
        options = (
            [f"{field.name}={_default(field)}" for field in fields(part) if field.init] if is_dataclass(part) else []
        )
        lines.append(f"{name}({', '.join(options)})" if options else name)
    return ", ".join(lines)


def _default(field: Any) -> Any:
    return (
        field.default_factory() if field.default is MISSING and field.default_factory is not MISSING else field.default
    )


def plugin_of(part: type[Any]) -> str:
    """Return which plugin a class comes from, as a person would name it, or nothing if it comes with this package."""
    if _is_ours(part):
        return ""
    source = (
        inspect.getsourcefile(part)
        if part.__module__ != "__main__"
        else getattr(sys.modules["__main__"], "__file__", "")
    )
    return Path(source).name if source else part.__module__


def foreign_parts() -> tuple[type[Any], ...]:
    """Return all registered classes that do not come with this package, which worker processes must get to know."""
    parts = [part for known in KINDS.values() for part in known.values()]
    return tuple(part for part in parts if not _is_ours(part))


def _is_ours(part: type[Any]) -> bool:
    return part.__module__.partition(".")[0] == "pidm_nav"


def source_hash(*parts: type[Any]) -> str:
    """Return a hash of the source code of classes or functions that do not come with this package."""
    digest = hashlib.sha256()
    for part in parts:
        for base in inspect.getmro(part) if isinstance(part, type) else (part,):
            if getattr(base, "__module__", "").partition(".")[0] not in ("pidm_nav", "torch", "builtins", "abc"):
                try:
                    digest.update(inspect.getsource(inspect.getmodule(base) or base).encode())
                except (OSError, TypeError):
                    digest.update(repr(base).encode())
    return digest.hexdigest()[:16]
