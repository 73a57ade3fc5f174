"""Settings shared by the tests of services."""

from tests.actors.conftest import _quiet_logs

__all__ = ["_quiet_logs"]
