# SPDX-License-Identifier: Apache-2.0
"""Composes a YAML document into nodes, within fixed limits.

PyYAML's own composer calls itself for each level of nesting. So a text with 60,000 brackets
overflows the C stack and ends the process. `compose` processes the parser's events with an explicit
stack. It stops at the first event that exceeds a limit: text size, depth, or number of values
repeated by aliases. `compose` is Python code, so other threads can run meanwhile. Depends on PyYAML
only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

MAXIMUM_BYTES = 32 << 20
"""Limit of a document's text, in bytes. Longer SPD files must be plain (`policy.plain_spd`)."""
MAXIMUM_DEPTH = 32
"""Limit of the nesting of lists and mappings. A configuration has 6 levels."""
MAXIMUM_REPEATED = 100_000
"""Limit of values that all aliases together repeat."""

# libyaml parses a long list of rules in a fifth of the time of pure Python.
_Loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class LimitError(yaml.MarkedYAMLError):
    """Reports that the document exceeds a limit. `problem` names the limit and the remedy."""

    def __init__(self, problem: str, mark: Any = None) -> None:
        super().__init__(problem=problem, problem_mark=mark)


def compose(text: str) -> yaml.Node | None:
    """Returns the root of the only document in `text`, or None if it is empty.

    Raises yaml.YAMLError for invalid YAML and for wrong use of anchors, and LimitError.
    """
    if len(text) > MAXIMUM_BYTES or len(text.encode("utf-8", "replace")) > MAXIMUM_BYTES:
        raise LimitError(f"more than {MAXIMUM_BYTES} bytes; split the document")
    composer = _Composer()
    for event in yaml.parse(text, Loader=_Loader):
        composer.take(event)
    return composer.root


class _Anchored(NamedTuple):
    """Holds a value with an anchor, and the size of what an alias of it repeats: number of values
    and nested levels."""

    node: yaml.Node
    values: int
    height: int


class _Open:
    """Holds a list or mapping whose end event is still to come."""

    __slots__ = ("anchor", "height", "key", "node", "values")

    def __init__(self, node: yaml.CollectionNode, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: yaml.Node | None = None
        self.values = 1
        self.height = 1

    def add(self, node: yaml.Node, values: int, height: int) -> None:
        self.values += values
        self.height = max(self.height, height + 1)
        if isinstance(self.node, yaml.SequenceNode):
            self.node.value.append(node)
        elif self.key is None:
            self.key = node
        else:
            self.node.value.append((self.key, node))
            self.key = None


class _Composer:
    """Builds a document from the events processed so far."""

    def __init__(self) -> None:
        self.root: yaml.Node | None = None
        self._documents = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, _Anchored | None] = {}  # None: the value has not ended
        self._repeated = 0
        self._resolver: Any = yaml.resolver.Resolver()
        self._plain: dict[str, str] = {}  # tags of plain scalars, by their text

    def take(self, event: yaml.Event) -> None:
        """Processes the next event."""
        if isinstance(event, yaml.ScalarEvent):
            self._add_scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._start(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end(event)
        elif isinstance(event, yaml.AliasEvent):
            self._repeat(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _error("a second document begins; write one document", event)

    def _add_scalar(self, event: yaml.ScalarEvent) -> None:
        node = yaml.ScalarNode(
            self._scalar_tag(event),
            event.value,
            _mark(event.start_mark),
            _mark(event.end_mark),
            style=event.style,
        )
        self._claim(event)
        self._finish(node, event.anchor, 1, 0)

    def _scalar_tag(self, event: yaml.ScalarEvent) -> str:
        if event.tag is not None and event.tag != "!":
            return str(event.tag)
        if not event.implicit[0]:
            return str(self._resolver.resolve(yaml.ScalarNode, event.value, event.implicit))
        tag = self._plain.get(event.value)
        if tag is None:
            tag = str(self._resolver.resolve(yaml.ScalarNode, event.value, event.implicit))
            if len(self._plain) < MAXIMUM_REPEATED:
                self._plain[event.value] = tag
        return tag

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        self._check_depth(len(self._open) + 1, event)
        self._claim(event)
        kind: Any = yaml.MappingNode
        if isinstance(event, yaml.SequenceStartEvent):
            kind = yaml.SequenceNode
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._resolver.resolve(kind, None, event.implicit)
        node = kind(tag, [], _mark(event.start_mark), None, flow_style=event.flow_style)
        self._open.append(_Open(node, event.anchor))

    def _end(self, event: yaml.CollectionEndEvent) -> None:
        ended = self._open.pop()
        ended.node.end_mark = event.end_mark
        self._finish(ended.node, ended.anchor, ended.values, ended.height)

    def _repeat(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            raise _error(f"the alias *{event.anchor} has no anchor before it", event)
        anchored = self._anchors[event.anchor]
        if anchored is None:
            raise _error(f"the alias *{event.anchor} is inside the value that it repeats", event)
        self._repeated += anchored.values
        if self._repeated > MAXIMUM_REPEATED:
            raise LimitError(
                f"aliases repeat more than {MAXIMUM_REPEATED} values; write them out",
                event.start_mark,
            )
        self._check_depth(len(self._open) + anchored.height, event)
        self._finish(anchored.node, None, anchored.values, anchored.height)

    def _claim(self, event: yaml.NodeEvent) -> None:
        """Registers an anchor, before its value has ended."""
        if event.anchor is None:
            return
        if event.anchor in self._anchors:
            raise _error(f"the anchor &{event.anchor} is defined twice; rename one of them", event)
        self._anchors[event.anchor] = None

    def _finish(self, node: yaml.Node, anchor: str | None, values: int, height: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = _Anchored(node, values, height)
        if self._open:
            self._open[-1].add(node, values, height)
        else:
            self.root = node

    def _check_depth(self, depth: int, event: yaml.Event) -> None:
        if depth > MAXIMUM_DEPTH:
            raise LimitError(
                f"lists and mappings are nested more than {MAXIMUM_DEPTH} deep; nest them less",
                event.start_mark,
            )


def _error(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=_mark(event.start_mark))


def _mark(mark: Any) -> Any:
    """Returns `mark` without its static type. The stubs distinguish the position marks of libyaml
    from those of PyYAML, but either works everywhere."""
    return mark
