"""The templates of `palyra skills init`: each is built and called."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import msgspec
import pytest
import wasmtime

import palyra
from palyra.tools.skills.tools import read_output, render_input
from palyra.tools.wasm.limits import MAX_MODULE_BYTES
from palyra.tools.wasm.runtime import check_module
from tests.optional import needs
from tests.tools.wasm.kit import open_runtime, run

pytestmark = pytest.mark.real

TEMPLATES = Path(palyra.__file__).parent / "templates" / "skills"
CLANG = next((found for name in ("clang", "clang-14") if (found := shutil.which(name))), "")


@cache
def find_rust() -> tuple[str, str] | None:
    """A compiler and the target it has a library for; None where there is none."""
    for rustc in filter(None, (shutil.which("rustc"), shutil.which("rustc", path="/usr/bin"))):
        words = [rustc, "--print", "sysroot"]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        for target in ("wasm32-wasip1", "wasm32-wasi"):
            if (Path(done.stdout.strip()) / "lib/rustlib" / target).is_dir():
                return rustc, target
    return None


def build(tmp_path: Path, template: str, *command: str) -> bytes:
    """The module that these words make of a copy of the template."""
    folder = tmp_path / template
    shutil.copytree(TEMPLATES / template, folder)
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "module.wasm").read_bytes()


async def answers(module: bytes, tool: str, *texts: str) -> list[str]:
    """The guest's results for these texts; it has no imports that need a declaration."""
    assert frozenset() == check_module(module)
    async with open_runtime() as runtime:
        return [
            read_output(await run(runtime, module, render_input(tool, {"text": text}))).text
            for text in texts
        ]


async def test_wat() -> None:
    """The smallest skill gives back what it gets, also when that is long."""
    module = bytes(wasmtime.wat2wasm((TEMPLATES / "wat" / "module.wat").read_text()))
    texts = ("hello", 'ä "quoted" \\ 🌍\n', "x" * 500_000)
    for text, answer in zip(texts, await answers(module, "echo", *texts), strict=True):
        assert {"tool": "echo", "arguments": {"text": text}} == msgspec.json.decode(answer)


@needs("clang for WASM", is_found=bool(CLANG))
async def test_c(tmp_path: Path) -> None:
    """A WASI command with the C library counts words and lines."""
    module = build(tmp_path, "c", "make", f"CLANG={CLANG}")
    assert len(module) < MAX_MODULE_BYTES
    assert [
        '{"words":0,"lines":1}',
        '{"words":2,"lines":1}',
        '{"words":3,"lines":2}',
    ] == await answers(module, "count", "", "two words", ' one "two"\nthree')


@needs("rustc for WASM", is_found=find_rust() is not None)
async def test_rust(tmp_path: Path) -> None:
    """A WASI command with Rust's library finds the longest word, escapes and all."""
    rustc, target = find_rust() or ("", "")
    module = build(tmp_path, "rust", "make", f"RUSTC={rustc}", f"TARGET={target}")
    assert len(module) < MAX_MODULE_BYTES
    assert [
        '{"word":"","letters":0}',
        '{"word":"words","letters":5}',
        r'{"word":"\"quo\\ted\"","letters":9}',
    ] == await answers(module, "longest", "", "two words", ' ä "quo\\ted" 🌍\nthree')


@needs("asc")
async def test_assemblyscript(tmp_path: Path) -> None:
    """Texts are turned round, escapes and pairs kept whole."""
    module = build(tmp_path, "assemblyscript", "npm", "run", "build")
    assert ["", "cba", '\n"ä🌍'] == await answers(module, "reverse", "", "abc", '🌍ä"\n')


def test_templates_are_skills() -> None:
    """Each has its description and no compiled module."""
    for template in TEMPLATES.iterdir():
        assert (template / "skill.toml").is_file()
        assert not (template / "module.wasm").exists()
