"""`palyra tasks` and `palyra schedules`: background work, at once or at later times."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.listing import Span, newer, since_option, watchable
from palyra.cli.command.names import id_argument
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import age, due, fold, now_ms, one_line, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.client import Client
from palyra.core.journal.records import MissedPolicy, OverlapPolicy, TaskKind, TaskState
from palyra.core.task.views import ScheduleView, TaskView
from palyra.core.text.visible import exact, show_json, visible


class Moment(click.ParamType[int]):
    """A moment such as 2026-12-24T18:00+01:00, in Unix milliseconds."""

    name = "moment"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Convert the value; fail for one without an offset to UTC."""
        if isinstance(value, int):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.fail(
                f"{value!r}: write a moment with its offset, such as 2026-12-24T18:00+01:00",
                param,
                ctx,
            )
        return round(moment.timestamp() * 1_000)


_WORK = (
    click.option("--text", help="Message of a prompt."),
    click.option("--agent", help="Agent of a prompt; default: the default agent."),
    click.option("--session-key", help="Session of a prompt; default: a new one."),
    click.option("--workspace", help="Workspace of that session, if it is a new one."),
    click.option("--approval-mode", help="Approval mode of a prompt; default: ask."),
    click.option("--payload", help="Payload as JSON, for what has no option."),
    click.option(
        "--priority",
        type=click.IntRange(0, 9),
        default=5,
        show_default=True,
        help="Priority; higher ones start first.",
    ),
    click.option(
        "--attempts",
        "max_attempts",
        type=click.IntRange(1, 20),
        default=3,
        show_default=True,
        help="Attempts before the task fails.",
    ),
)


def _work_options(command: Any) -> Any:  # noqa: ANN401 - a decorator of click
    for option in reversed(_WORK):
        command = option(command)
    return command


def _payload(given: dict[str, Any]) -> dict[str, Any]:
    """Return the payload from the options, which are removed from `given`."""
    text = given.pop("payload")
    try:
        payload = {} if text is None else json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"it is not JSON: {error}", param_hint=["--payload"]) from None
    if not isinstance(payload, dict):
        raise click.BadParameter("write a JSON object", param_hint=["--payload"])
    for name in ("text", "agent", "session_key", "workspace", "approval_mode"):
        value = given.pop(name)
        if value is not None:
            payload[name] = value
    return payload


@click.group()
def tasks() -> None:
    """Submit, list, pause and cancel background tasks."""


@tasks.command("submit")
@click.argument("kind", type=click.Choice(get_args(TaskKind)))
@_work_options
@click.option("--in", "delay_ms", type=Span(), help="Begin after this time, such as 15m.")
@click.option("--expires-in", "expires_in_ms", type=Span(), help="End it after this time.")
@shared_options
def submit(
    options: Options,
    kind: TaskKind,
    delay_ms: int | None,
    expires_in_ms: int | None,
    **given: Any,  # noqa: ANN401 - click's, by name
) -> None:
    """Submit a task of KIND."""
    payload, now = _payload(given), now_ms()
    done = talk(
        options,
        lambda client: client.submit_task(
            kind,
            payload,
            not_before_ms=None if delay_ms is None else now + delay_ms,
            expires_ms=None if expires_in_ms is None else now + expires_in_ms,
            **given,
        ),
    )
    _print_task(options, done)


@tasks.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(get_args(TaskState)),
    multiple=True,
    help="Only those in this state.",
)
@click.option("--kind", type=click.Choice(get_args(TaskKind)), help="Only those of this kind.")
@click.option("--schedule", "schedule_id", help="Only the tasks of this schedule.")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@click.option("--after", "cursor", metavar="TASK_ID", help="Go on after this one.")
@since_option
@watchable
@shared_options
def list_(  # noqa: PLR0913 - one for each option
    options: Options,
    *,
    since_ms: int | None,
    states: tuple[TaskState, ...],
    kind: TaskKind | None,
    schedule_id: str | None,
    limit: int,
    cursor: str | None,
) -> None:
    """List tasks, newest first."""
    page = talk(
        options,
        lambda client: client.list_tasks(
            states=list(states), kind=kind, schedule_id=schedule_id, limit=limit, cursor=cursor
        ),
    )
    page = newer(page, "tasks", "created_ms", since_ms)
    if options.as_json:
        print_json(page)
        return
    columns = ("TASK", "KIND", "STATE", "TRIES", "AGE", "RUN", "ERROR")
    rows = [
        (
            task.task_id,
            task.kind,
            task.state,
            f"{task.attempts}/{task.max_attempts}",
            age(task.created_ms),
            task.run_id or "",
            one_line(task.error, 60),
        )
        for task in page.tasks
    ]
    print_table(columns, rows, empty="no tasks")
    if page.next_cursor:
        say(f"more: --after {page.next_cursor}", dim=True)


@tasks.command()
@id_argument("task_id")
@shared_options
def show(options: Options, task_id: str) -> None:
    """Show a task: what it is to do, how far it is, and what came of it."""
    task = talk(options, lambda client: client.get_task(task_id))
    if options.as_json:
        print_json(task)
        return
    say(f"{task.task_id}: {task.kind}, {task.state}", bold=True)
    for line in _describe(task):
        say(line, dim=True)
    if task.error:
        say(fold(f"error: {visible(task.error)}"), fg="red")
    _print_fields("payload", task.payload)
    _print_fields("result", task.result)
    if task.run_id is not None:
        say(f"`palyra runs show {task.run_id}` has the answer of its run", dim=True)


def _describe(task: TaskView) -> list[str]:
    """Return the lines about times, attempts and origin of a task."""
    is_early = task.state in {"queued", "paused"} and task.not_before_ms > now_ms()
    facts = [
        f"submitted by {visible(task.principal)} {age(task.created_ms)} ago, priority {task.priority}",
        f"attempt {task.attempts} of {task.max_attempts}",
        f"begins {due(task.not_before_ms)}" if is_early else "",
        f"last progress {age(task.progress_ms)} ago" if task.state == "running" else "",
        f"ended {age(task.finished_ms)} ago" if task.finished_ms is not None else "",
        f"expires {due(task.expires_ms)}" if task.expires_ms and task.finished_ms is None else "",
        f"fired by {visible(task.firing)}" if task.firing else "",
        f"repeats {task.retry_of}" if task.retry_of else "",
    ]
    return [each for each in facts if each]


def _print_fields(title: str, fields: dict[str, Any]) -> None:
    """Print the members of an object: texts by lines, everything else as JSON."""
    if not fields:
        return
    say(f"{title}:")
    for name, value in fields.items():
        if isinstance(value, (dict, list)):
            lines = show_json(value).split("\n")
        else:
            lines = value.split("\n") if isinstance(value, str) else [json.dumps(value)]
        is_short = len(lines) == 1
        say(fold(f"  {visible(name)}: {exact(lines[0])}") if is_short else f"  {visible(name)}:")
        for line in () if is_short else lines:
            say(fold(f"    {exact(line)}"))


@tasks.command()
@id_argument("task_id", latest=False)
@click.option("--reason", default="", help="Why; recorded with the task.")
@shared_options
def cancel(options: Options, task_id: str, reason: str) -> None:
    """Cancel a task and stop its work at once."""
    _print_task(options, talk(options, lambda client: client.cancel_task(task_id, reason)))


@tasks.command()
@id_argument("task_id", latest=False)
@shared_options
def pause(options: Options, task_id: str) -> None:
    """Keep a queued task from being started."""
    _print_task(options, talk(options, lambda client: client.pause_task(task_id)))


@tasks.command()
@id_argument("task_id", latest=False)
@shared_options
def resume(options: Options, task_id: str) -> None:
    """Queue a paused task again."""
    _print_task(options, talk(options, lambda client: client.resume_task(task_id)))


@tasks.command()
@click.argument("task_id")
@click.option("--expires-in", "expires_in_ms", type=Span(), help="End it after this time.")
@shared_options
def retry(options: Options, task_id: str, expires_in_ms: int | None) -> None:
    """Submit a task that repeats a failed or expired one."""
    expires_ms = None if expires_in_ms is None else now_ms() + expires_in_ms
    done = talk(options, lambda client: client.retry_task(task_id, expires_ms=expires_ms))
    _print_task(options, done)


def _print_task(options: Options, task: TaskView) -> None:
    if options.as_json:
        print_json(task)
    else:
        say(f"{task.task_id} ({task.kind}) is {task.state}")


@click.group()
def schedules() -> None:
    """Add, list, pause and remove schedules of tasks."""


@schedules.command()
@click.argument("name")
@click.option("--cron", help="Five fields, minute to weekday, such as '0 7 * * 1-5'.")
@click.option("--zone", help="Time zone of --cron, such as Europe/Berlin; default: UTC.")
@click.option("--every", "every_ms", type=Span(), help="A period from 30s, such as 15m.")
@click.option("--at", "at_ms", type=Moment(), help="One moment, such as 2026-12-24T18:00+01:00.")
@click.option(
    "--kind",
    type=click.Choice(get_args(TaskKind)),
    default="prompt",
    show_default=True,
    help="Kind of the tasks that it submits.",
)
@_work_options
@click.option("--expires-after", "expires_after_ms", type=Span(), help="End each task then.")
@click.option(
    "--missed",
    type=click.Choice(get_args(MissedPolicy)),
    default="once",
    show_default=True,
    help="What to do about instants that were missed.",
)
@click.option(
    "--overlap",
    type=click.Choice(get_args(OverlapPolicy)),
    default="forbid",
    show_default=True,
    help="What to do if the task before has not ended.",
)
@shared_options
def add(options: Options, name: str, **given: Any) -> None:  # noqa: ANN401 - click's, by name
    """Add a schedule; give one of --cron, --every and --at."""
    payload = _payload(given)
    done = talk(options, lambda client: client.add_schedule(name, payload=payload, **given))
    _print_schedule(options, done, f"fires next at {_moment(done.next_ms, done.zone)}")


@schedules.command("list")
@shared_options
def list_schedules(options: Options) -> None:
    """List schedules, by creation."""
    found = talk(options, lambda client: client.list_schedules())
    if options.as_json:
        print_json({"schedules": found})
        return
    columns = ("SCHEDULE", "NAME", "KIND", "TIMING", "NEXT", "FIRED", "LEFT OUT")
    rows = [
        (
            each.schedule_id,
            each.name,
            each.kind,
            _timing(each),
            "paused" if each.paused else _moment(each.next_ms, each.zone),
            each.fired,
            each.left_out,
        )
        for each in found
    ]
    print_table(columns, rows, empty="no schedules")


@schedules.command("next")
@id_argument("schedule_id")
@shared_options
def next_(options: Options, schedule_id: str) -> None:
    """Print the coming ten instants of a schedule, in its time zone."""
    found = talk(options, lambda client: client.next_instants(schedule_id))
    if options.as_json:
        print_json(found)
        return
    for at_ms in found.instants:
        say(_moment(at_ms, found.zone))


@schedules.command("show")
@id_argument("schedule_id")
@shared_options
def show_schedule(options: Options, schedule_id: str) -> None:
    """Show one schedule: its timing, its task and what became of its instants."""
    found = talk(options, lambda client: _find_schedule(client, schedule_id))
    if options.as_json:
        print_json(found)
        return
    facts = {
        "schedule": found.schedule_id,
        "name": found.name,
        "timing": _timing(found),
        "next": "paused" if found.paused else _moment(found.next_ms, found.zone),
        "fired": f"{found.fired}, {found.left_out} left out",
        "policies": f"missed {found.missed}, overlap {found.overlap}",
        "task": f"{found.kind} {json.dumps(found.payload, ensure_ascii=False)}",
        "problem": found.problem,
    }
    for name, value in facts.items():
        if value:
            say(f"{name:<9} {visible(value)}")


@schedules.command("run-now")
@id_argument("schedule_id", latest=False)
@shared_options
def run_now(options: Options, schedule_id: str) -> None:
    """Submit the task of a schedule once, now; its instants do not change."""

    async def work(client: Client) -> TaskView:
        found = await _find_schedule(client, schedule_id)
        return await client.submit_task(
            found.kind, found.payload, priority=found.priority, max_attempts=found.max_attempts
        )

    task = talk(options, work)
    if options.as_json:
        print_json(task)
    else:
        say(f"{task.task_id} is {task.state}: `palyra tasks show {task.task_id}`")


async def _find_schedule(client: Client, schedule_id: str) -> ScheduleView:
    """Return the schedule.  Raises CommandFailed if there is none."""
    for each in await client.list_schedules():
        if each.schedule_id == schedule_id:
            return each
    raise CommandFailed(
        f"no schedule {schedule_id!r}", "`palyra schedules list` shows which there are"
    )


@schedules.command("pause")
@id_argument("schedule_id", latest=False)
@shared_options
def pause_schedule(options: Options, schedule_id: str) -> None:
    """Fire nothing until the schedule is resumed."""
    done = talk(options, lambda client: client.pause_schedule(schedule_id))
    _print_schedule(options, done, "is paused")


@schedules.command("resume")
@id_argument("schedule_id", latest=False)
@shared_options
def resume_schedule(options: Options, schedule_id: str) -> None:
    """Fire from the next instant on."""
    done = talk(options, lambda client: client.resume_schedule(schedule_id))
    _print_schedule(options, done, f"fires next at {_moment(done.next_ms, done.zone)}")


@schedules.command()
@id_argument("schedule_id", latest=False)
@shared_options
def remove(options: Options, schedule_id: str) -> None:
    """Remove a schedule; its tasks are not touched."""
    done = talk(options, lambda client: client.remove_schedule(schedule_id))
    _print_schedule(options, done, "is removed")


def _print_schedule(options: Options, schedule: ScheduleView, what: str) -> None:
    if options.as_json:
        print_json(schedule)
    else:
        say(f"{schedule.schedule_id} ({schedule.name}) {what}")


def _timing(schedule: ScheduleView) -> str:
    if schedule.cron is not None:
        return f"{schedule.cron} {schedule.zone}"
    if schedule.every_ms is not None:
        return f"every {schedule.every_ms // 1_000} s"
    return f"at {_moment(schedule.at_ms, None)}"


def _moment(at_ms: int | None, zone: str | None) -> str:
    """Return the moment in the zone, or in UTC if this machine does not know the zone."""
    if at_ms is None:
        return "no time"
    try:
        rules = UTC if zone is None else ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        rules = UTC
    return datetime.fromtimestamp(at_ms / 1_000, rules).isoformat(" ", "seconds")
