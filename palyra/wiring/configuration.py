"""Whole check of a configuration that is about to be written: what a start would refuse."""

from palyra.config.load import Config
from palyra.core.ports import IncidentReporter
from palyra.secrets.service import SecretService
from palyra.wiring.edge import check_learning
from palyra.wiring.host import Host
from palyra.wiring.models import build_modelset, default_model
from palyra.wiring.runs import compaction_settings
from palyra.wiring.sandbox import read_hosts
from palyra.wiring.tools import cedar_policy
from palyra.wiring.usage import read_budgets, read_prices
from palyra.wiring.web import read_credentials


def check_config(
    config: Config, host: Host, secrets: SecretService, alarms: IncidentReporter
) -> None:
    """Raise InvalidParams for a setting that the loader takes and a start refuses.  Blocks.

    Nothing is opened: models are built and dropped, and a policy folder is only read.
    """
    read_prices(config)
    read_budgets(config)
    read_hosts(config.sandbox.hosts)
    read_credentials(config.fetch.credentials)
    cedar_policy(config)
    models = build_modelset(config, host, secrets, alarms).models
    default_model(config, models)
    compaction_settings(config, models)
    check_learning(config, models)
