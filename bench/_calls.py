"""Counter of all Python and C calls in all threads, with the interpreter's profile hook.

A resumed coroutine or generator counts as a call, since it costs about as much.  The hook does not
see calls made by C code, nor calls of types (`Event(...)`) unless their `__init__` is in Python.
"""

import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import palyra
from palyra.actors.kernel.threads import DedicatedThread

PALYRA = Path(palyra.__file__).parent
# Modules that run only for the measurement: those here, and trio's calls to them.
UNCOUNTED = frozenset(
    {"__main__", "trio._core._instrumentation", *(p.stem for p in Path(__file__).parent.iterdir())}
)
Function = tuple[str, str]  # module and qualified name


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of Python functions, and of C functions by calling module and called function."""

    python: Counter[Function] = field(default_factory=Counter)
    c: Counter[tuple[str, Function]] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Thread:
    """Counters of one thread; an increment is not atomic, so threads share none."""

    python: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # by id of the code
    c: dict[tuple[str, Function], int] = field(default_factory=lambda: defaultdict(int))
    # Calls of a `DedicatedThread` that have not returned yet.
    under_way: set[int] = field(default_factory=set)


class Profile:
    """Profile hook of this thread and of every thread that starts inside the block."""

    def __init__(self) -> None:
        self.codes: dict[
            int, tuple[CodeType, str]
        ] = {}  # and the module; alive, so the id is unique
        self._threads: list[_Thread] = []

    def __enter__(self) -> Self:
        threading.setprofile(self._begin_thread)
        sys.setprofile(self._new_hook())
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def read(self) -> Callable[[], Calls]:
        """Copy the counters now; return a function that adds them up after the measurement."""
        while any(thread.under_way for thread in self._threads):
            time.sleep(0)  # the journal's thread has answered and is about to wait again
        copies = [(dict(thread.python), dict(thread.c)) for thread in self._threads]
        return lambda: self._sum(copies)

    def _sum(self, copies: list[tuple[dict[int, int], dict[tuple[str, Function], int]]]) -> Calls:
        total = Calls()
        for python, c in copies:
            for key, count in python.items():
                code, module = self.codes[key]
                if module not in UNCOUNTED:
                    total.python[module, code.co_qualname] += count
            for call, count in c.items():
                if call[0] not in UNCOUNTED:
                    total.c[call] += count
        return total

    def _begin_thread(self, frame: FrameType, event: str, arg: Any) -> None:  # noqa: ANN401 - typing's
        hook = self._new_hook()
        sys.setprofile(hook)
        hook(frame, event, arg)

    def _new_hook(self) -> Callable[[FrameType, str, Any], None]:
        thread = _Thread()
        self._threads.append(thread)
        python, c, under_way, codes = thread.python, thread.c, thread.under_way, self.codes

        def hook(frame: FrameType, event: str, arg: Any) -> None:  # noqa: ANN401 - typing's
            if event == "call":
                code = frame.f_code
                key = id(code)
                if key not in codes:
                    codes[key] = code, frame.f_globals.get("__name__", "")
                python[key] += 1
                if code is WORK:
                    under_way.add(id(frame))
            elif event == "c_call":
                module = arg.__module__ or type(arg.__self__).__module__
                c[frame.f_globals.get("__name__", ""), (module, arg.__qualname__)] += 1
            elif event == "return" and frame.f_code is WORK:
                under_way.discard(id(frame))

        return hook


def _find_work() -> CodeType:
    """Return the code that a `DedicatedThread` runs for each call."""
    constants = DedicatedThread.call.__code__.co_consts
    return next(code for code in constants if isinstance(code, CodeType) and code.co_name == "work")


WORK = _find_work()


def package_of(module: str) -> str:
    """Return the row of a module: a folder of palyra, a distribution, `stdlib` or `builtins`."""
    top, _, rest = module.partition(".")
    if top == "palyra":
        folder = rest.partition(".")[0]
        return f"palyra.{folder}" if folder and (PALYRA / folder).is_dir() else "palyra"
    if top == "builtins":
        return top
    is_stdlib = top in sys.stdlib_module_names or top.startswith("namedtuple_")
    return "stdlib" if is_stdlib else top
