"""A small campaign of hostile sockets; the large one is a command (see `hostile_sockets`)."""

import random

import pytest
import trio
from structlog.testing import capture_logs

from tests.faults.attacks import ATTACKS, SETTINGS, Target
from tests.faults.hostile_sockets import CRASH, Campaign
from tests.net.server.edges import running_edge

pytestmark = pytest.mark.real


async def test_every_attack_ends_its_own_connection_only() -> None:
    """Each attack ends as expected, and a concurrent client gets every answer."""
    campaign = Campaign()
    with capture_logs() as logs:
        async with running_edge(settings=SETTINGS) as running:
            target = Target(running.port, 200, random.Random(1))
            with trio.fail_after(120):
                await campaign.run(target, rounds=1)
    assert [] == campaign.unexpected
    assert [] == [line for line in logs if line["event"] == CRASH]
    assert set(ATTACKS) == set(campaign.ends)
    assert campaign.answers >= 2
