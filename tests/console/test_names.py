"""Names of the console's modules, checked by the TypeScript compiler where it is installed.

Only what is wrong whatever the types are: unknown names, imports and exports that are not there,
assignments to constants.  The modules are not written for its opinion on types of the document.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from palyra.net.http.console import FOLDER
from tests.optional import needs

# Syntax; unknown name, also with a proposal; no such export or module; constant; said twice; no such label.
WRONG = re.compile(
    r"(?m)^(.+?\.js)\(.*error TS(1\d\d\d|2304|2552|2305|2614|2724|2307|2588|2300|2451): "
)
OPTIONS = {"checkJs": True, "noEmit": True, "target": "es2022", "module": "es2022", "types": []}
OPTIONS |= {"moduleResolution": "bundler", "lib": ["es2024", "dom", "dom.iterable"]}
FAULTS = {
    "name.js": "export const made = nowhere;",
    "export.js": 'import {nothing} from "./console/view.js";\nnothing();',
    "module.js": 'import "./console/gone.js";\nimport {html} from "./console/gone.js";\nhtml();',
    "constant.js": "export const made = 1;\nmade = 2;",
}


@pytest.mark.real
@needs("tsc")
def test_every_name_is_known(tmp_path: Path) -> None:
    """No module has such an error; the four that are put beside them are found."""
    shutil.copytree(FOLDER, tmp_path / "console")
    for name, text in FAULTS.items():
        (tmp_path / name).write_text(text, "utf-8")
    config = {"compilerOptions": OPTIONS, "include": ["**/*.js"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(config), "utf-8")
    command = ["tsc", "--project", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert set(FAULTS) == {found[1] for found in WRONG.finditer(done.stdout)}, done.stdout
