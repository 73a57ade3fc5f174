"""Readings in the text format Prometheus reads, with the process's own numbers beside them."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.registry import Collector

from palyra.net.metrics import Reading

__all__ = ["CONTENT_TYPE", "render_readings"]

Family = CounterMetricFamily | GaugeMetricFamily


class _Readings(Collector):
    """One scrape's worth of numbers."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Family]:
        families: dict[str, Family] = {}
        for reading in self._readings:
            family = families.get(reading.name) or _family(reading)
            families[reading.name] = family
            family.add_metric([value for _, value in reading.labels], reading.value)
        return families.values()


def _family(reading: Reading) -> Family:
    kind = CounterMetricFamily if reading.is_total else GaugeMetricFamily
    return kind(reading.name, reading.help, labels=[name for name, _ in reading.labels])


def render_readings(readings: Iterable[Reading]) -> bytes:
    """The page; names of totals end in `_total`."""
    registry = CollectorRegistry(auto_describe=False)  # its own: nothing global is exported
    ProcessCollector(registry=registry)
    registry.register(_Readings(readings))
    return generate_latest(registry)
