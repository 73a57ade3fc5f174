"""The modules of the console that know no page, run by node."""

import shutil
import subprocess
from pathlib import Path

from tests.optional import needs

PURE = Path(__file__).with_name("pure.mjs")


@needs("node", is_found=shutil.which("node") is not None)  # an older one runs these, too
def test_the_modules_without_a_page() -> None:
    """Arming, text, difference, Markdown, money, time and addresses do what pure.mjs says."""
    done = subprocess.run(
        ["node", "--test", str(PURE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4_000:]
