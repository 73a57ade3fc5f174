"""Settings shared by the tests of operations: those of the actors that they ask."""

from tests.actors.conftest import quiet_logs

__all__ = ["quiet_logs"]
