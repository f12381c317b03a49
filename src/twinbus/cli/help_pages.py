"""Groups of commands whose help is plain text: sections, words that are never split, and examples.

`twinbus.cli.examples` has the examples. Every group is a `Group`, and so every command of it has this help.
"""

import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from twinbus.model.durations import short_duration

WIDTH_MAX = 100
WIDTH_MIN = 40
LEFT_MAX = 30
INDENT = "  "
OPTIONS = "Options"
HELP_NAMES = ["-h", "--help"]
WRONG_USE = 2
Row = tuple[str, str]


class HelpfulCommand(TyperCommand):
    """A command with the help described above."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        arguments = [each for each in self.params if each.param_type_name == "argument"]
        usage = " ".join([ctx.command_path, *map(usage_of, arguments), "[OPTIONS]"])
        formatter.write("".join(_page(usage, self.help, self._sections(ctx, arguments), examples_of(ctx.command_path))))

    def _sections(self, ctx: Any, arguments: Sequence[Any]) -> Iterator[tuple[str, list[Row]]]:
        yield "Arguments", [(each.name.upper(), help_of(each)) for each in arguments]
        yield from _option_sections(self.get_params(ctx))


class HelpfulGroup(TyperGroup):
    """A group with the help described above; without a command it shows it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        usage = f"{ctx.command_path} COMMAND [OPTIONS]"
        formatter.write("".join(_page(usage, self.help, self._sections(ctx), examples_of(ctx.command_path))))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            ctx.exit(WRONG_USE)
        return super().parse_args(ctx, args)

    def _sections(self, ctx: Any) -> Iterator[tuple[str, list[Row]]]:
        yield from self._command_sections()
        yield from _option_sections(self.get_params(ctx))

    def _command_sections(self) -> Iterator[tuple[str, list[Row]]]:
        yield "Commands", [(name, first_sentence(command.help or "")) for name, command in self.commands.items()]


class Group(typer.Typer):
    def __init__(self, help_text: str, **options: Any) -> None:
        super().__init__(
            **{
                "cls": HelpfulGroup,
                "help": help_text,
                "rich_markup_mode": None,
                "pretty_exceptions_enable": False,
                "add_completion": False,
                "context_settings": {"help_option_names": HELP_NAMES},
                **options,
            }
        )

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": HelpfulCommand, **options})


class Loaded(MutableMapping[str, Any]):
    """Commands by name, each made when it is first asked for: most runs need one of them."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __setitem__(self, name: str, made: Any) -> None:
        self._makers[name] = lambda: made

    def __delitem__(self, name: str) -> None:
        del self._makers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def examples_of(path: str) -> Sequence[str]:
    from twinbus.cli.examples import EXAMPLES

    _, _, words = path.partition(" ")
    return EXAMPLES.get(words, ())


def usage_of(argument: Any) -> str:
    name = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def names_of(option: Any) -> str:
    """`-n, --namespace NAME`, as it is typed."""
    names = ", ".join(sorted(option.opts, key=len))
    if option.secondary_opts:
        names += " / " + ", ".join(option.secondary_opts)
    return names if option.is_flag else f"{names} {_value_of(option)}"


def _value_of(option: Any) -> str:
    if option.metavar:
        return str(option.metavar)
    described = option.type_descriptor
    if described.is_choice:
        return "|".join(str(each.value if isinstance(each, Enum) else each) for each in described.choices)
    if described.is_path:
        return "PATH"
    return "NUMBER" if described.is_ranged or described.annotation in (int, float) else "TEXT"


def help_of(parameter: Any, *, has_variable: bool = True) -> str:
    """Its help with the default and, unless a page has them in a column of their own, the variable."""
    notes = []
    if has_variable and parameter.envvar:
        notes.append(f"env: {parameter.envvar}")
    default = default_of(parameter)
    if default:
        notes.append(f"default: {default}")
    if getattr(parameter, "multiple", False):
        notes.append("may be repeated")
    text = str(parameter.help or "")
    return f"{text} [{'; '.join(notes)}]" if notes else text


def default_of(parameter: Any) -> str:
    default = parameter.default
    if default is None or callable(default) or default == "":
        return ""
    if isinstance(default, bool):
        # Of a plain switch nothing has to be said: it is off.
        names = parameter.opts if default else parameter.secondary_opts
        return str(names[0]) if parameter.secondary_opts else ""
    if isinstance(default, timedelta):
        return short_duration(default // timedelta(milliseconds=1))
    return str(default.value if isinstance(default, Enum) else default)


def first_sentence(text: str) -> str:
    return text.split("\n\n")[0].replace("\n", " ").split(". ")[0].rstrip(".")


def _option_sections(parameters: Iterable[Any]) -> Iterator[tuple[str, list[Row]]]:
    """Those of the command first; then those that many commands share, under their own headings."""
    sections: dict[str, list[Row]] = {OPTIONS: []}
    for each in parameters:
        if each.param_type_name == "option" and not each.hidden:
            sections.setdefault(each.rich_help_panel or OPTIONS, []).append((names_of(each), help_of(each)))
    yield from sections.items()


def _page(
    usage: str, text: str | None, sections: Iterable[tuple[str, list[Row]]], examples: Sequence[str]
) -> Iterator[str]:
    width = max(WIDTH_MIN, min(WIDTH_MAX, shutil.get_terminal_size().columns))
    yield f"{_wrapped(f'Usage: {usage}', width, '       ')}\n"
    for paragraph in (text or "").split("\n\n"):
        yield f"\n{_wrapped(paragraph, width)}\n"
    for heading, rows in sections:
        if rows:
            yield f"\n{typer.style(f'{heading}:', bold=True)}\n"
            yield from _columns(rows, width)
    if examples:
        yield f"\n{typer.style('Examples:', bold=True)}\n"
        yield from (f"{INDENT}{line}\n" for line in examples)


def _columns(rows: Sequence[Row], width: int) -> Iterator[str]:
    fitting = [len(left) for left, _ in rows if len(left) <= LEFT_MAX]
    column = min(max(fitting, default=0) + 2 * len(INDENT), width // 2)
    for left, right in rows:
        lines = textwrap.wrap(right, width - column, break_long_words=False, break_on_hyphens=False)
        head = INDENT + left
        if len(head) + 2 > column or not lines:
            yield head + "\n"
        else:
            yield head.ljust(column) + lines.pop(0) + "\n"
        yield from (" " * column + line + "\n" for line in lines)


def _wrapped(text: str, width: int, indent: str = "") -> str:
    flat = " ".join(text.split())
    return textwrap.fill(flat, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
