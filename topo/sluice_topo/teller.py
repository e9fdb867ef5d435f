# SPDX-License-Identifier: Apache-2.0
"""How the demo's story is told: numbered steps, what was seen in each, what was measured.

A step that does not come true raises; nothing is told that was not seen in
this run. Colours only where they are asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sluice_testkit.wait import Stopwatch

BOLD, DIM, GREEN, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[0m"
LONGEST_BAR = 40


class Teller:
    """Prints the story and keeps the measurements for the end."""

    def __init__(self, write: Callable[[str], None] = print, *, colours: bool = False):
        self._write = write
        self._colours = colours
        self._step = 0
        self.measured: list[tuple[str, str]] = []

    def _styled(self, style: str, text: str) -> str:
        return f"{style}{text}{PLAIN}" if self._colours else text

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One step: its title, then what was seen, then the time it took."""
        self._step += 1
        self._write("\n" + self._styled(BOLD, f"{self._step}. {title}"))
        watch = Stopwatch()
        yield
        self._write("   " + self._styled(GREEN, f"ok ({watch.seconds():.1f} s)"))

    def part(self, title: str) -> None:
        """A headline between steps."""
        self._write("\n" + self._styled(BOLD, f"== {title} =="))

    def say(self, text: str) -> None:
        """One thing seen."""
        self._write(f"   {text}")

    def command(self, words: str, output: Sequence[str] = ()) -> None:
        """A command that was run, and lines of what it printed."""
        self._write("   " + self._styled(DIM, f"$ {words}"))
        for line in output:
            self._write(f"     {line}".rstrip())

    def measure(self, what: str, value: str) -> None:
        """A measurement: told now, and again in the closing table."""
        self.note(what, value)
        self.say(f"{what}: {value}")

    def note(self, what: str, value: str) -> None:
        """A measurement for the closing table alone, told in another form already."""
        self.measured.append((what, value))

    def bars(self, values: Sequence[tuple[str, float]], unit: str) -> None:
        """Values to compare, as bars of their lengths."""
        longest = max(value for _, value in values)
        width = max(len(name) for name, _ in values)
        for name, value in values:
            bar = "█" * max(1, round(value / longest * LONGEST_BAR))
            self.say(f"   {name:<{width}} {significant(value):>7} {unit}  {bar}")

    def table(self) -> None:
        """The closing table."""
        width = max(len(what) for what, _ in self.measured)
        self._write("\n" + self._styled(BOLD, "Measured in this run"))
        for what, value in self.measured:
            self._write(f"   {what:<{width}}  {value}")


def significant(value: float) -> str:
    """A positive number with as many places as a person reads."""
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def expect(condition: object, sentence: str) -> None:
    """Fail the step with `sentence` unless the condition holds."""
    if not condition:
        raise AssertionError(sentence)
