"""Registry of agents, predictors and inverse dynamics models by name.

    @register
    @dataclass(eq=False)
    class Mixed(Nearest):
        name = "mixed"
        k: int = 3

Then `train("pidm", demos, predictor="mixed(k=5)")`, the command line, sweeps and `load_agent` accept the name, as long
as the file is loaded: by `import`, by `--plugin mine.py`, by the environment variable PIDM_NAV_PLUGINS, which worker
processes inherit, or by an entry point of the group `pidm_nav.plugins` of an installed package. Saved agents never
import code: they only name the plugin that they need, and you load it.
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

from pidm_nav.agents.config import TrainConfig
from pidm_nav.limits import suggestion
from pidm_nav.plots import AGENT_STYLES, AgentStyle, agent_style

AGENTS: dict[str, type[Any]] = {}
"""All agents by name."""
PREDICTORS: dict[str, type[Any]] = {}
"""All state predictors by name."""
IDMS: dict[str, type[Any]] = {}
"""All inverse dynamics models by name."""
KINDS = {"agent": AGENTS, "predictor": PREDICTORS, "inverse dynamics model": IDMS}
TAKEN = {  # names that options cannot have: settings of training, and attributes that are set later
    "agent": frozenset(field.name for field in fields(TrainConfig)),
    "predictor": frozenset(("scale", "seed", "horizon", "flags")),
    "inverse dynamics model": frozenset(("num_horizons",)),
}
Part = TypeVar("Part", bound=type[Any])


def register(part: Part) -> Part:
    """Class decorator that registers an agent, predictor or inverse dynamics model by its `name`."""
    kind, name = getattr(part, "kind", None), part.__dict__.get("name")
    if kind not in KINDS:
        raise ValueError(f"{part.__name__} is not an agent, predictor or inverse dynamics model: derive it from one")
    if not isinstance(name, str) or not name.replace("-", "_").isidentifier():
        inherited = getattr(part, "name", None)
        hint = f" besides the inherited '{inherited}'" if inherited else ""
        raise ValueError(f"{part.__name__} has no name{hint}: add a line such as name = 'my-{kind[:5]}'")
    options = part.config_class if kind == "agent" else part
    for option in [field.name for field in fields(options)] if is_dataclass(options) else []:
        if option in TAKEN[kind]:
            raise ValueError(f"{part.__name__} has the option '{option}', which is set elsewhere: rename the option")
    before = KINDS[kind].get(name)
    if before is not None and (before.__module__, before.__qualname__) != (part.__module__, part.__qualname__):
        raise ValueError(f"{before.__module__} already registers the {kind} '{name}': rename that of {part.__module__}")
    KINDS[kind][name] = part
    if "_plugin" not in part.__dict__:  # a worker's copy of a class has it, but not its source file
        part._plugin = _find_plugin(part)
    if kind == "agent" and (part.title or part.color) and name not in AGENT_STYLES:
        spare = agent_style(name)
        AGENT_STYLES[name] = AgentStyle(part.title or name, part.color or spare.color, spare.marker)
    return part


def find_part(kind: str, name: str | type[Any], plugin: str = "") -> type[Any]:
    """Return the class registered under a name, or register a given class; `plugin` is named in the error."""
    if isinstance(name, type):
        if KINDS[kind].get(getattr(name, "name", "")) is not name:
            register(name)
        if name.kind != kind:
            raise ValueError(f"{name.__name__} is not a class of the kind {kind}: give such a class")
        return name
    known = KINDS[kind]
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is not a text: give the {kind}'s name, such as {next(iter(known))}")
    if name not in known:
        hint = suggestion(name, known, f"choose one of {', '.join(known)}")
        if plugin:
            hint = f"load the plugin '{plugin}' first with load_plugin"
        raise ValueError(f"there is no {kind} '{name}': {hint}")
    return known[name]


def describe(part: Any) -> str:
    """Return the text from which `make_part` makes a part: its name, and options that differ from the defaults."""
    if isinstance(part, str):
        return part
    kind: Any = part if isinstance(part, type) else type(part)
    if getattr(kind, "kind", None) not in KINDS:
        raise ValueError(f"{part!r} is not a predictor or inverse dynamics model: give one, or its name")
    find_part(kind.kind, kind)
    options = [] if isinstance(part, type) else [field for field in fields(part) if field.init]
    values = {field.name: getattr(part, field.name) for field in options}
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
    changed = [f"{field.name}={plain[field.name]!r}" for field in options if plain[field.name] != _default(field)]
    return f"{kind.name}({', '.join(changed)})" if changed else str(kind.name)


def make_part(kind: str, text: str) -> Any:
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
    part = find_part(kind, label.strip())
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
    """Return the names and options of all parts of a kind, for help texts."""
    texts = []
    for name, part in KINDS[kind].items():
        init = [field for field in fields(part) if field.init] if is_dataclass(part) else []
        options = ", ".join(f"{field.name}={_default(field)}" for field in init)
        texts.append(f"{name}({options})" if options else name)
    return ", ".join(texts)


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def plugin_of(part: type[Any]) -> str:
    """Return the plugin that a registered class comes from, or nothing for classes of this package."""
    plugin: str = part.__dict__["_plugin"]
    return plugin


def _find_plugin(part: type[Any]) -> str:
    """Return the file or module of a class from outside this package."""
    if _is_ours(part):
        return ""
    source = getattr(sys.modules.get(part.__module__), "__file__", None)
    return Path(source).name if source else part.__module__


def foreign_parts() -> tuple[type[Any], ...]:
    """Return all registered classes from outside this package, which worker processes must register too."""
    parts = [part for known in KINDS.values() for part in known.values()]
    return tuple(part for part in parts if not _is_ours(part))


def _is_ours(part: type[Any]) -> bool:
    return part.__module__.partition(".")[0] == "pidm_nav"


def source_hash(*parts: type[Any]) -> str:
    """Return a hash of the source code of classes or functions from outside this package."""
    digest = hashlib.sha256()
    for part in parts:
        for base in inspect.getmro(part) if isinstance(part, type) else (part,):
            if getattr(base, "__module__", "").partition(".")[0] not in ("pidm_nav", "torch", "builtins", "abc"):
                try:
                    digest.update(inspect.getsource(inspect.getmodule(base) or base).encode())
                except (OSError, TypeError):
                    digest.update(repr(base).encode())
    return digest.hexdigest()[:16]
