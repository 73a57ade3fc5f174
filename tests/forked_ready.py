"""What every daemon compiles while it starts, compiled once in the process that the others fork from.

Imported there (`tests.forked`), and nowhere else.
"""

import gc

from palyra.core.redaction.redactor import Redactor

for _ in Redactor(()).prepare():
    pass
gc.freeze()  # children share these objects; a collection would copy their pages
