# SPDX-License-Identifier: Apache-2.0
"""Prints the demo's output: numbered steps, with observations and measurements.

A step that fails raises an exception. All printed values were observed in this run. Colours are
optional.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sluice_testkit.wait import Stopwatch

BOLD, DIM, GREEN, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[0m"
LONGEST_BAR = 40


class DemoPrinter:
    """Prints the demo's steps. Collects the measurements for the table at the end."""

    def __init__(self, write: Callable[[str], None] = print, *, colours: bool = False):
        self._write = write
        self._colours = colours
        self._step = 0
        self.measured: list[tuple[str, str]] = []

    def _styled(self, style: str, text: str) -> str:
        return f"{style}{text}{PLAIN}" if self._colours else text

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Runs one step. Prints its title, then the observations, then the time that it took."""
        self._step += 1
        self._write("\n" + self._styled(BOLD, f"{self._step}. {title}"))
        watch = Stopwatch()
        yield
        self._write("   " + self._styled(GREEN, f"ok ({watch.seconds():.1f} s)"))

    def part(self, title: str) -> None:
        """Prints the headline of a part, before the part's first step."""
        self._write("\n" + self._styled(BOLD, f"== {title} =="))

    def say(self, text: str) -> None:
        """Prints one observation."""
        self._write(f"   {text}")

    def command(self, words: str, output: Sequence[str] = ()) -> None:
        """Prints a command that was run, and lines of its output."""
        self._write("   " + self._styled(DIM, f"$ {words}"))
        for line in output:
            self._write(f"     {line}".rstrip())

    def measure(self, what: str, value: str) -> None:
        """Prints a measurement at once, and again in the table at the end."""
        self.note(what, value)
        self.say(f"{what}: {value}")

    def note(self, what: str, value: str) -> None:
        """Adds a measurement to the table at the end only. For steps that print it in another
        form.
        """
        self.measured.append((what, value))

    def bars(self, values: Sequence[tuple[str, float]], unit: str) -> None:
        """Prints values as horizontal bars, so that they can be compared."""
        longest = max(value for _, value in values)
        width = max(len(name) for name, _ in values)
        for name, value in values:
            bar = "█" * max(1, round(value / longest * LONGEST_BAR))
            self.say(f"   {name:<{width}} {significant(value):>7} {unit}  {bar}")

    def table(self) -> None:
        """Prints the table of all measurements."""
        width = max(len(what) for what, _ in self.measured)
        self._write("\n" + self._styled(BOLD, "Measured in this run"))
        for what, value in self.measured:
            self._write(f"   {what:<{width}}  {value}")


def significant(value: float) -> str:
    """Formats a positive number, with fewer decimals for larger numbers."""
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def expect(condition: object, sentence: str) -> None:
    """Raises an exception with the text `sentence` if the condition does not hold."""
    if not condition:
        raise AssertionError(sentence)
