"""Settings shared by the whole suite."""

import os

from hypothesis import settings

# With CI set hypothesis loads its own profile: derandomised, no deadline, no example database.
# At a desk examples stay random, but a loaded machine must not fail a test by its deadline.
settings.register_profile("desk", deadline=None)
if "CI" not in os.environ:
    settings.load_profile("desk")
