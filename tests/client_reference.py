"""The reference of the Python clients: every public name of `palyra.client` with signature and docstring.

Types are shown as what they stand for: an alias of literals by its values, a TypedDict of options
by its members.
"""

import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from palyra import client
from palyra.client import Client, aio, blocking

WIDTH = 100
COMMENT = re.compile(r"(?m)^    (\w+): .*?  # (.+)$")
FUNCTIONS: dict[str, Callable[..., object]] = {
    "connect": client.connect,
    "aio.connect": aio.connect,
    "blocking.connect": blocking.connect,
    "wait_any": client.wait_any,
    "export_run": client.export_run,
}
BLOCKING_TYPES = (blocking.BlockingClient, blocking.Items, blocking.RunItems)
# The buffers: the other methods are called by the connection.
FOR_CONSUMERS = {"Subscription": ("cursor", "has_item", "wait_item"), "Inbox": ()}
MANAGERS = {"AsyncGenerator": "AsyncContextManager", "Generator": "ContextManager"}


def public_names() -> dict[str, object]:
    """Every public name of the three clients; functions of one name are told apart by their module."""
    return {
        **{name: getattr(client, name) for name in client.__all__},
        **FUNCTIONS,
        **{f"blocking.{each.__name__}": each for each in BLOCKING_TYPES},
    }


def public_members(owner: type) -> dict[str, Any]:
    """Methods and properties that the class or a base of this package has, in order, bases first."""
    bases = [each for each in owner.__mro__ if each.__module__.startswith("palyra.")]
    return {
        name: member
        for base in (bases if owner is Client else reversed(bases))
        for name, member in vars(base).items()
        if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property))
    }


def render_client_functions() -> str:
    """How each client is opened, and the functions beside it."""
    return "\n".join(_member(name, function, 3) for name, function in FUNCTIONS.items())


def render_client_members() -> str:
    """The methods of the client, by noun."""
    groups = [each for each in Client.__mro__ if each.__module__.startswith("palyra.client.")]
    return "\n".join(line for group in groups for line in _group(group))


def _group(group: type) -> Iterator[str]:
    own = {name: each for name, each in public_members(Client).items() if name in vars(group)}
    if own:
        yield f"### {group.__name__.removesuffix('Methods')} methods\n\n{_doc(group)}\n"
        yield from (_member(name, member, 4) for name, member in own.items())


def render_client_blocking() -> str:
    """What the blocking client has in other forms."""
    common = public_members(Client)
    return "\n".join(
        line
        for each in BLOCKING_TYPES
        for line in [
            f"### {each.__name__}\n\n{_doc(each)}\n",
            *(
                _member(name, member, 4)
                for name, member in public_members(each).items()
                if name in vars(each)
                and (name not in common or getattr(member, "__wrapped__", None) is not common[name])
            ),
        ]
    )


def render_client_types() -> str:
    """The other public types, then those of the results, each with its members."""
    public = [each for each in public_names().values() if inspect.isclass(each)]
    shown = [each for each in public if each not in {Client, *BLOCKING_TYPES}]
    results = sorted(_reached(shown), key=lambda each: each.__name__)
    return "\n".join(_type(each) for each in [*shown, *results])


def _reached(shown: list[type]) -> set[type]:
    """Structs that a method returns, and those in their members."""
    found: set[type] = set()
    returned = [_hints(each).get("return") for each in public_members(Client).values()]
    waiting = [*_classes_in(returned), *_classes_in(_hints(each).values() for each in shown)]
    while waiting:
        each = waiting.pop()
        if issubclass(each, msgspec.Struct) and each not in found:
            found.add(each)
            waiting += _classes_in(_hints(each).values())
    return found - {*shown}


def _classes_in(hints: object) -> list[type]:
    if isinstance(hints, type) and not get_args(hints):
        return [hints]
    parts = get_args(hints) if get_origin(hints) else hints
    if isinstance(parts, Iterable) and not isinstance(parts, str):
        return [found for part in parts for found in _classes_in(part)]
    return []


def _type(kind: type) -> str:
    shown = FOR_CONSUMERS.get(kind.__name__)
    members = [
        _member(name, member, 3)
        for name, member in public_members(kind).items()
        if (isinstance(member, property) if shown is None else name in shown)
    ]
    fields = list(_fields(kind))
    body = [_code([f"class {kind.__name__}:", *fields]), ""] if fields else []
    return "\n".join([f"## {kind.__name__}\n\n{_doc(kind)}\n", *body, *members])


def _fields(kind: type) -> Iterator[str]:
    hints = _hints(kind)
    comments = dict(COMMENT.findall(inspect.getsource(kind)))
    if is_typeddict(kind):
        shown = {name: f"{name}: {show(hint)}" for name, hint in hints.items()}
    elif issubclass(kind, msgspec.Struct):
        shown = {
            field.name: f"{field.name}: {show(hints[field.name])}{_default(field)}"
            for field in msgspec.structs.fields(kind)
        }
    else:
        return
    for name, line in shown.items():
        said = "; ".join(filter(None, [_values(hints[name]), comments.get(name)]))
        yield f"    {line}{f'  # {said}' if said else ''}"


def _values(hint: object) -> str:
    """The values that a text may have at present; a newer daemon may send others."""
    for meta in getattr(hint, "__metadata__", ()):
        values = (
            (meta.extra_json_schema or {}).get("enum", ()) if isinstance(meta, msgspec.Meta) else ()
        )
        if values:
            return ", ".join(values)
    return ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f" = {field.default_factory.__name__}()"
    return "" if field.default is msgspec.NODEFAULT else f" = {field.default!r}"


def _member(name: str, member: object, level: int) -> str:
    function = member.fget if isinstance(member, property) else member
    assert callable(function)
    if isinstance(member, property):
        lines = ["@property", f"def {name}(self) -> {show(_hints(function)['return'])}"]
    else:
        lines = list(_signature(function, name))
    return f"{'#' * level} {name}\n\n{_code(lines)}\n\n{_doc(function)}\n"


def _signature(function: Callable[..., object], name: str) -> Iterator[str]:
    inner = inspect.unwrap(function)
    hints = _hints(inner)
    given = list(_parameters(inner, hints))
    returned = show(hints["return"])
    kind, _, rest = returned.partition("[")
    if inner is not function and kind in MANAGERS:
        returned = f"{MANAGERS[kind]}[{rest}"
    head = f"{'async ' if inspect.iscoroutinefunction(inner) else ''}def {name.rpartition('.')[2]}("
    tail = f") -> {returned}"
    line = f"{head}{', '.join(given)}{tail}"
    if len(line) <= WIDTH:
        yield line
    else:
        yield from [head, *(f"    {each}," for each in given), tail]


def _parameters(function: Callable[..., object], hints: dict[str, Any]) -> Iterator[str]:
    is_keyword = False
    for each in inspect.signature(function).parameters.values():
        if each.name == "self":
            continue
        if each.kind in {each.KEYWORD_ONLY, each.VAR_KEYWORD} and not is_keyword:
            yield "*"
            is_keyword = True
        match each.kind:
            case each.VAR_POSITIONAL:
                is_keyword = True
                yield f"*{each.name}: {show(hints[each.name])}"
            case each.VAR_KEYWORD:
                (options,) = get_args(hints[each.name])
                yield from (f"{key}: {show(hint)} = ..." for key, hint in _hints(options).items())
            case _:
                default = "" if each.default is each.empty else f" = {each.default!r}"
                yield f"{each.name}: {show(hints[each.name])}{default}"


def show(hint: Any) -> str:
    """Return an annotation as a reader writes it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return show(inner[0])
    if origin in {Union, types.UnionType}:
        return " | ".join(dict.fromkeys(show(each) for each in inner))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if isinstance(hint, list):  # the parameters of a Callable
        return f"[{', '.join(map(show, hint))}]"
    if hint in {None, types.NoneType, Ellipsis}:
        return "..." if hint is Ellipsis else "None"
    name = getattr(origin or hint, "__name__", str(hint))
    return f"{name}[{', '.join(map(show, inner))}]" if inner else str(name)


def _hints(member: Any) -> dict[str, Any]:
    if isinstance(member, property):
        member = member.fget
    return get_type_hints(inspect.unwrap(member), include_extras=True)


def _code(lines: Iterable[str]) -> str:
    return "\n".join(["```py", *lines, "```"])


def _doc(member: object) -> str:
    return inspect.cleandoc(getattr(member, "__doc__", None) or "")
