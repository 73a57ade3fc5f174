"""Terminal output of the demonstration: steps, events with their meaning, and checked claims."""

import time

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from palyra.cli.event_text import MEANING, narrate
from palyra.cli.output import safe
from palyra.client import TapeEvent

INDENT = 11  # columns of a time as `_now` formats it


class DemoOutput:
    """Printer of one demonstration; it stamps lines with the elapsed time and collects claims."""

    def __init__(self, console: Console) -> None:
        self.claims: list[tuple[str, bool]] = []
        self._console = console
        self._began_s = time.perf_counter()

    @property
    def holds(self) -> bool:
        """True if there is at least one claim and all claims hold."""
        return bool(self.claims) and all(holds for _, holds in self.claims)

    def step(self, text: str) -> None:
        """Print a heading for the next step."""
        self._console.print()
        self._console.print(Text(f"{self._now()}{safe(text)}", style="bold"), soft_wrap=True)

    def detail(self, text: str, style: str = "") -> None:
        """Print an indented line below the current step."""
        self._console.print(Text(f"{'':{INDENT}}{safe(text)}", style=style), soft_wrap=True)

    def event(self, item: TapeEvent) -> None:
        """Print an event: its seq, kind and text, and below it the meaning of the kind."""
        line = narrate(item)
        text = Text(self._now())
        text.append(f"{item.seq:>3} {item.kind:<19}", style="cyan")
        text.append(line.text, style=line.colour or "")
        self._console.print(text, soft_wrap=True)
        meaning = MEANING.get(item.kind, "")
        self._console.print(Text(f"{'':{INDENT + 23}}{meaning}", style="dim"), soft_wrap=True)

    def claim(self, text: str, *, holds: bool) -> None:
        """Record a claim and its result for `sum_up`."""
        self.claims.append((text, holds))

    def sum_up(self, next_commands: str) -> None:
        """Print every claim with its result, and a panel of suggested commands."""
        table = Table(title="claims checked", show_header=False, title_justify="left")
        for text, holds in self.claims:
            verdict = (
                Text("holds", style="green") if holds else Text("DOES NOT HOLD", style="bold red")
            )
            table.add_row(verdict, Text(safe(text)))
        self._console.print()
        self._console.print(table)
        self._console.print(
            Panel(Text(next_commands), title="next", title_align="left", expand=False)
        )

    def _now(self) -> str:
        return f"{time.perf_counter() - self._began_s:7.3f} s  "
