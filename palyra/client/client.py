"""The client: one typed method per method of protocol v1, grouped by noun."""

from palyra.client.approvals import ApprovalMethods
from palyra.client.files import FileMethods
from palyra.client.incidents import IncidentMethods
from palyra.client.operations import OperationMethods
from palyra.client.registry import RegistryMethods
from palyra.client.runs import RunMethods
from palyra.client.sessions import SessionMethods
from palyra.client.skills import SkillMethods
from palyra.client.tapes import TapeMethods
from palyra.client.usage import UsageMethods


class Client(
    RunMethods,
    TapeMethods,
    ApprovalMethods,
    SessionMethods,
    FileMethods,
    RegistryMethods,
    SkillMethods,
    UsageMethods,
    IncidentMethods,
    OperationMethods,
):
    """A connection to one daemon that mends itself.

    Every method raises the PalyraError that the daemon answered with.  Mutations carry an
    idempotency key (yours, or one made here), so they are safely repeated when the connection is
    lost under way; other requests then raise Unavailable.  Deadlines are the caller's:
    `with trio.fail_after(5): await client.ping()`.
    """
