"""Settings shared by the tests of services."""

from tests.actors.conftest import quiet_logs

__all__ = ["quiet_logs"]
