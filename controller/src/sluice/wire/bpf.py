# SPDX-License-Identifier: Apache-2.0
"""Assembles eBPF programs (Documentation/bpf/standardization/instruction-set.rst).

A `Program` collects instructions in order. Jumps name labels, which `code` resolves. Registers are
given by number: R0 has results, R1 to R5 have arguments, R6 to R9 keep their values over calls, and
R10 is the frame pointer. Pure: `sources.bpf` loads the programs.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = range(11)

# opcode, destination and source registers, offset, immediate
INSTRUCTION = Struct("=BBhi")
MOVE_REGISTER, MOVE, ADD, AND = 0xBF, 0xB7, 0x07, 0x57
LOAD_WIDE = 0x18
LOAD_WORD, LOAD_HALF, LOAD_BYTE = 0x61, 0x69, 0x71
STORE_WORD, STORE_HALF = 0x63, 0x6B
STORE_WORD_VALUE = 0x62
JUMP, JUMP_IF_EQUAL, JUMP_UNLESS_EQUAL = 0x05, 0x15, 0x55
CALL, EXIT = 0x85, 0x95

MAP_DESCRIPTOR = 1
"""Source register of `LOAD_WIDE` if the value is the descriptor of a map (BPF_PSEUDO_MAP_FD)."""
LONGEST_VALUE = 1 << 31


class _Instruction(NamedTuple):
    opcode: int
    destination: int
    source: int
    offset: int
    value: int
    label: str | None = None


class Program:
    """Collects the instructions of one program."""

    def __init__(self) -> None:
        self._instructions: list[_Instruction] = []
        self._labels: dict[str, int] = {}

    def _add(
        self,
        opcode: int,
        destination: int = 0,
        source: int = 0,
        offset: int = 0,
        *,
        value: int = 0,
        label: str | None = None,
    ) -> None:
        if value >= LONGEST_VALUE:  # an immediate operand is signed
            value -= 1 << 32
        self._instructions.append(_Instruction(opcode, destination, source, offset, value, label))

    def label(self, name: str) -> None:
        """Defines a label at the next instruction, as the target of jumps."""
        self._labels[name] = len(self._instructions)

    def copy(self, to: int, register: int) -> None:
        """Copies a register."""
        self._add(MOVE_REGISTER, to, register)

    def set(self, register: int, value: int) -> None:
        """Sets a register to a number."""
        self._add(MOVE, register, value=value)

    def add(self, register: int, value: int) -> None:
        """Adds a number to a register."""
        self._add(ADD, register, value=value)

    def mask(self, register: int, value: int) -> None:
        """Sets a register to its bitwise AND with a number."""
        self._add(AND, register, value=value)

    def load_map(self, register: int, descriptor: int) -> None:
        """Sets a register to a map, which is given by its descriptor at load time."""
        self._add(LOAD_WIDE, register, MAP_DESCRIPTOR, value=descriptor)
        self._add(0)

    def load(self, opcode: int, to: int, base: int, offset: int) -> None:
        """Loads from memory. `opcode` is LOAD_WORD, LOAD_HALF or LOAD_BYTE."""
        self._add(opcode, to, base, offset)

    def store(self, opcode: int, base: int, offset: int, register: int) -> None:
        """Stores a register. `opcode` is STORE_WORD or STORE_HALF."""
        self._add(opcode, base, register, offset)

    def store_value(self, base: int, offset: int, value: int) -> None:
        """Stores a number as a word."""
        self._add(STORE_WORD_VALUE, base, 0, offset, value=value)

    def jump(self, label: str) -> None:
        """Jumps."""
        self._add(JUMP, label=label)

    def jump_if(self, register: int, value: int, label: str) -> None:
        """Jumps if a register equals a number."""
        self._add(JUMP_IF_EQUAL, register, value=value, label=label)

    def jump_unless(self, register: int, value: int, label: str) -> None:
        """Jumps unless a register equals a number."""
        self._add(JUMP_UNLESS_EQUAL, register, value=value, label=label)

    def call(self, helper: int) -> None:
        """Calls a helper function of the kernel."""
        self._add(CALL, value=helper)

    def leave(self, value: int | None = None) -> None:
        """Ends the program with a value, or with the value of R0."""
        if value is not None:
            self.set(R0, value)
        self._add(EXIT)

    def code(self) -> bytes:
        """Returns the encoded program. Raises KeyError if a label is missing."""
        encoded = bytearray()
        for position, each in enumerate(self._instructions):
            offset = each.offset
            if each.label is not None:
                offset = self._labels[each.label] - position - 1
            registers = each.destination | each.source << 4
            encoded += INSTRUCTION.pack(each.opcode, registers, offset, each.value)
        return bytes(encoded)
