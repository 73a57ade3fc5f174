"""The console's files over HTTP: types, validators, caching, headers, and addresses that are not theirs."""

from pathlib import Path

import pytest

from palyra.net.http.console import FILES, ConsoleFile, ConsoleFiles, name_release, read_files
from tests.net.http.test_http import get, serving

pytestmark = pytest.mark.real

BROWSER = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
RELEASE = ConsoleFiles("1.2.3").release


async def test_a_browser_gets_the_page() -> None:
    """The front page is the console for clients that prefer HTML, never from a cache without asking."""
    async with serving() as running:
        page = await get(running, "/", BROWSER)
        again = await get(running, "/", BROWSER, f"If-None-Match: {page.headers['etag']}")
        text = await get(running, "/", "Accept: */*")
    assert (200, "text/html; charset=utf-8") == (page.status, page.headers["content-type"])
    assert ("no-cache", "accept") == (page.headers["cache-control"], page.headers["vary"])
    assert f"console/{RELEASE}/main.js".encode() in page.body
    assert b"VERSION" not in page.body
    assert (304, b"") == (again.status, again.body)
    assert (200, "text/plain; charset=utf-8") == (text.status, text.headers["content-type"])


async def test_every_file_is_served_for_ever_with_its_type() -> None:
    """Each file has the type of its suffix, a strong validator, and never changes at its address."""
    async with serving() as running:
        for name, file in FILES.items():
            answer = await get(running, f"/console/{RELEASE}/{name}")
            if name == "index.html":
                assert 404 == answer.status
                continue
            assert (200, file.body) == (answer.status, answer.body), name
            assert file.content_type == answer.headers["content-type"]
            assert f'"{file.etag}"' == answer.headers["etag"]
            assert "public, max-age=31536000, immutable" == answer.headers["cache-control"]
            known = await get(
                running, f"/console/{RELEASE}/{name}", f'If-None-Match: "{file.etag}"'
            )
            assert (304, b"") == (known.status, known.body)


async def test_the_page_may_load_and_run_its_own_files_alone() -> None:
    """The policy forbids inline code, other origins, frames and markup from text."""
    async with serving() as running:
        headers = (await get(running, "/", BROWSER)).headers
        script = (await get(running, f"/console/{RELEASE}/main.js")).headers
    policy = headers["content-security-policy"]
    assert policy == script["content-security-policy"]
    for rule in (
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
    ):
        assert rule in policy.split("; ")
    assert "unsafe" not in policy
    assert "nosniff" == headers["x-content-type-options"]
    assert "no-referrer" == headers["referrer-policy"]
    assert "same-origin" == headers["cross-origin-opener-policy"]
    assert "same-origin" == headers["cross-origin-resource-policy"]
    assert "camera=()" in headers["permissions-policy"]
    assert [] == [name for name in headers if name.startswith("access-control")]


async def test_the_worker_is_at_the_root() -> None:
    """It may act for the page's folder, is checked for a newer one, and obeys the same policy."""
    async with serving() as running:
        answer = await get(running, "/console-worker.js")
    assert (200, FILES["worker.js"].body) == (answer.status, answer.body)
    assert "text/javascript; charset=utf-8" == answer.headers["content-type"]
    assert "no-cache" == answer.headers["cache-control"]
    assert "worker-src 'self'" in answer.headers["content-security-policy"].split("; ")


@pytest.mark.parametrize(
    "path",
    [
        f"/console/{RELEASE}/nothing.js",
        f"/console/{RELEASE}/../../pyproject.toml",
        f"/console/{RELEASE}/..%2f__init__.py",
        f"/console/{RELEASE}/%6dain.js",
        f"/console/{RELEASE}//main.js",
        f"/console/{RELEASE}/",
        "/console/1.2.3-000000000000/main.js",
        "/console/main.js",
        "/console/",
    ],
)
async def test_other_addresses_are_not_found(path: str) -> None:
    """A file has one address: no other release, spelling or folder leads to one."""
    async with serving() as running:
        assert 404 == (await get(running, path)).status


def test_a_changed_file_has_another_address(tmp_path: Path) -> None:
    """The release follows the contents, so a page never mixes files; other kinds of files are left out."""
    (tmp_path / "screens").mkdir()
    (tmp_path / "main.js").write_text("1")
    (tmp_path / "screens/a.js").write_text("2")
    (tmp_path / "notes.py").write_text("3")
    files = read_files(tmp_path)
    assert {"main.js", "screens/a.js"} == set(files)
    changed = {**files, "main.js": ConsoleFile(b"4", "text/javascript")}
    assert name_release("1", files) == name_release("1", dict(files))
    assert name_release("1", files) != name_release("1", changed)
