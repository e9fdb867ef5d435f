# SPDX-License-Identifier: Apache-2.0
"""Makes random datagrams of all shapes, aimed at the rules in force.

`Shapes.next` makes one datagram. It chooses a path through the router. In about half of the cases,
it takes the selectors from a rule on this path. Then it gives the datagram a random shape. The same
seed and policies give the same datagrams. The modules `fragments`, `oddities` and `sealed` contain
the shapes.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

from .datagram_maker import DatagramMaker
from .datagrams import Datagram
from .fragments import FRAGMENTS
from .oddities import ODDITIES
from .policy import Policy
from .sealed import SEALED


class Shapes(DatagramMaker):
    """Generates datagrams of all shapes except those in `without`.

    A caller may replace `policy` between two datagrams.
    """

    def __init__(self, random: Random, policy: Policy, without: frozenset[str] = frozenset()):
        super().__init__(random, policy)
        self.made: Counter[str] = Counter()
        kinds: tuple[tuple[str, int, Callable[[DatagramMaker], Datagram]], ...] = (
            *FRAGMENTS,
            *ODDITIES,
            *SEALED,
        )
        kinds = tuple(kind for kind in kinds if kind[0] not in without)
        self._names = [name for name, _, _ in kinds]
        self._weights = [weight for _, weight, _ in kinds]
        self._makers = {name: maker for name, _, maker in kinds}

    def next(self) -> Datagram:
        """Returns a datagram of a random shape."""
        return self.of_shape(self.random.choices(self._names, self._weights)[0])

    def of_shape(self, shape: str) -> Datagram:
        """Returns a datagram of this shape."""
        self._number += 1
        made = self._makers[shape](self)
        made.shape = shape
        self.made[shape] += 1
        return made

    @property
    def names(self) -> list[str]:
        """Names of all shapes."""
        return list(self._names)
