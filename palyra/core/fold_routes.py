"""The rules of the fold about which model answers, and what of the past it is shown."""

import msgspec

from palyra.core import events as ev
from palyra.core.fold_rules import RulesOf, need, registrar
from palyra.core.run_state import Run

RULES: RulesOf = {}
_rule = registrar(RULES)
_replace = msgspec.structs.replace


@_rule(ev.RoutePlanned)
def _route_planned(run: Run, event: ev.RoutePlanned, _at_ms: int) -> Run:
    need(run.state == "in_progress" and run.attempt == 0, run, event)
    return _replace(run, model=event.uses)


@_rule(ev.RouteChanged)
def _route_changed(run: Run, event: ev.RouteChanged, _at_ms: int) -> Run:
    need(run.state == "in_progress" and not run.turn_is_open, run, event)
    need(event.from_model == run.model and event.model not in run.left, run, event)
    return _replace(run, model=event.model, left=(*run.left, run.model), spent_attempts=run.attempt)


@_rule(ev.ContextCompacted)
def _context_compacted(run: Run, event: ev.ContextCompacted, _at_ms: int) -> Run:
    need(run.state == "in_progress" and not run.turn_is_open, run, event)
    need(event.turn == run.turn and event.through <= len(run.transcript), run, event)
    return _replace(run, compacted=event, spent_attempts=run.attempt)
