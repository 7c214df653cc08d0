"""The command `completion`, which prints shell completion scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from pidm_nav.commands import COMMANDS, load_command
from pidm_nav.demos.experts import EXPERTS
from pidm_nav.demos.formats.npz import BUNDLED
from pidm_nav.packaged import packaged_agents
from pidm_nav.tasks import PAPER_TASKS, TASKS

BASH = """\
_pidm_nav() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" names=""
  case "${COMP_WORDS[1]} ${COMP_WORDS[2]} $COMP_CWORD|$prev|$cur" in
%s
  esac
  COMPREPLY=($(compgen -W "$names" -- "$cur"))
}
complete -o default -F _pidm_nav pidm-nav
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


@dataclass(frozen=True)
class Completion:
    """Print a shell completion script for commands, options, tasks, agents and files.

    For bash, add eval "$(pidm-nav completion bash)" to ~/.bashrc. For zsh, add the same with zsh to ~/.zshrc. For fish,
    write the script to ~/.config/fish/completions/pidm-nav.fish.

    Example: pidm-nav completion bash
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Shell: bash, zsh or fish."""

    def run(self) -> None:
        """Print the script."""
        script = fish_script() if self.shell == "fish" else bash_script()
        print((ZSH if self.shell == "zsh" else "") + script, end="")


@dataclass(frozen=True)
class Option:
    """An option of a command: its flags (none if positional) and known values."""

    flags: list[str]
    values: list[str] = field(default_factory=list)
    is_switch: bool = False  # whether it takes no value


def command_options() -> dict[str, list[Option]]:
    """Return the options of every command."""
    found = {}
    for words in COMMANDS:
        command = load_command(words)
        form = command.form(["--help"]) if hasattr(command, "form") else command
        common = [Option(["--help", "--debug"], is_switch=True), Option(["--plugin"])]
        found[words] = [*_options(words, form), *common]
    return found


def _options(words: str, form: Any) -> Iterator[Option]:
    hints = get_type_hints(form, include_extras=True)
    for each in fields(form):
        kind, marks = hints[each.name], []
        while get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            marks += more
        if is_dataclass(kind):
            yield from _options(words, kind)
            continue
        kinds = (kind, *get_args(kind))
        literals = [value for part in kinds if get_origin(part) is Literal for value in get_args(part)]
        flags = [f"--{each.name.replace('_', '-')}"]
        if bool in kinds:
            flags.append(f"--no-{flags[0][2:]}")
        positional = tyro.conf.Positional in marks
        names = list(map(str, literals)) or _names(words, each.name)
        yield Option([] if positional else flags, names, bool in kinds)


def _names(words: str, name: str) -> list[str]:
    """Return the known values of an option, besides files."""
    if name in ("task", "tasks"):
        return list(TASKS)
    if name in ("demos", "file", "files", "source", "merge", "predictor_demos", "idm_demos"):
        return [f"{task}/{kind}" for task in PAPER_TASKS for kind in BUNDLED]
    if name in ("agent", "agents"):
        from pidm_nav.agents.registry import AGENTS

        return list(AGENTS) if words in ("train", "sweep") else [*packaged_agents(), *EXPERTS]
    return []


def bash_script() -> str:
    """Return the script for bash and zsh."""
    commands = command_options()
    cases = {"* 1|*": " ".join(dict.fromkeys(words.split()[0] for words in commands))}
    for family in {words.split()[0]: None for words in commands if " " in words}:
        cases[f"{family} * 2|*"] = " ".join(words.split()[1] for words in commands if words.startswith(f"{family} "))
    for words, options in commands.items():
        for option in options:
            if option.flags and not option.is_switch:
                cases[f"{words} *|{option.flags[0]}|*"] = " ".join(option.values)
        cases[f"{words} *|*|-*"] = " ".join(flag for option in options for flag in option.flags)
        cases[f"{words} *"] = " ".join(value for option in options if not option.flags for value in option.values)
    lines = []
    for pattern, names in cases.items():
        shown = '"' + pattern.replace("*", '"*"') + '"'  # quoted except for the stars
        lines.append(f'    {shown}) names="{names}" ;;')
    return BASH % "\n".join(lines)


def fish_script() -> str:
    """Return the script for fish."""
    commands = command_options()
    firsts = " ".join(dict.fromkeys(words.split()[0] for words in commands))
    lines = [f"complete -c pidm-nav -n __fish_use_subcommand -f -a '{firsts}'"]
    for words, options in commands.items():
        first, *second = words.split()
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words.split())
        if second:
            lines.append(f"complete -c pidm-nav -n '__fish_seen_subcommand_from {first}' -a '{second[0]}'")
        for option in options:
            values = f" -a '{' '.join(option.values)}'" if option.values else ""
            follows = "" if option.is_switch else f" -r{values}"
            for flag in option.flags:
                lines.append(f"complete -c pidm-nav -n '{seen}' -l {flag[2:]}{follows}")
            if values and not option.flags:
                lines.append(f"complete -c pidm-nav -n '{seen}'{values}")
    return "\n".join(lines) + "\n"
