# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""A small assembler of eBPF, so that loading a program needs no compiler.

One method per kind of instruction, labels instead of offsets. Encodings are
those of ``linux/bpf.h`` and RFC 9669.
"""

import enum
import struct

_INSTRUCTION = struct.Struct('=BBhi')
_PSEUDO_MAP_FD = 1
# Where a register stands for a map, until its descriptor is filled in.
MAP_SLOT = 0

_LD, _LDX, _ST, _STX, _JMP, _ALU64 = 0x00, 0x01, 0x02, 0x03, 0x05, 0x07
_IMM, _MEM, _ATOMIC = 0x00, 0x60, 0xC0
_REGISTER = 0x08
_MOV, _CALL, _EXIT = 0xB0, 0x80, 0x90


class Size(enum.IntEnum):
    """How many bytes a load or a store moves."""

    WORD = 0x00
    HALF = 0x08
    BYTE = 0x10
    DOUBLE = 0x18


class Alu(enum.IntEnum):
    ADD = 0x00
    SUBTRACT = 0x10
    AND = 0x50
    SHIFT_LEFT = 0x60
    SHIFT_RIGHT = 0x70
    MOVE = _MOV


class Jump(enum.IntEnum):
    ALWAYS = 0x00
    EQUAL = 0x10
    GREATER = 0x20
    NOT_EQUAL = 0x50
    ANY_BIT = 0x40
    NEGATIVE = 0xC0  # signed less than the operand


class Reg(enum.IntEnum):
    """R0 is a result, R1 to R5 arguments, R6 to R9 survive calls."""

    R0 = 0
    R1 = 1
    R2 = 2
    R3 = 3
    R4 = 4
    R5 = 5
    R6 = 6
    R7 = 7
    R8 = 8
    R9 = 9
    FRAME = 10


class Assembler:
    """Collects instructions; :meth:`program` resolves the labels."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int]] = []
        self._labels: dict[str, int] = {}
        self._jumps: dict[int, str] = {}

    def _add(self, opcode: int, dst: int = 0, src: int = 0, offset: int = 0,
             immediate: int = 0) -> None:
        self._code.append((opcode, src << 4 | dst, offset, immediate))

    def label(self, name: str) -> None:
        """Name the next instruction.

        :raises ValueError: for a name that is taken.
        """
        if name in self._labels:
            raise ValueError(f'label {name} is there already')
        self._labels[name] = len(self._code)

    def alu(self, operation: Alu, dst: Reg, operand: Reg | int) -> None:
        """dst = dst operation operand, on 64 bits."""
        if isinstance(operand, Reg):
            self._add(_ALU64 | _REGISTER | operation, dst, operand)
        else:
            self._add(_ALU64 | operation, dst, immediate=operand)

    def move(self, dst: Reg, operand: Reg | int) -> None:
        self.alu(Alu.MOVE, dst, operand)

    def load(self, size: Size, dst: Reg, base: Reg, offset: int) -> None:
        """dst = memory at base + offset, zero-extended."""
        self._add(_LDX | _MEM | size, dst, base, offset)

    def store(self, size: Size, base: Reg, offset: int,
              operand: Reg | int) -> None:
        """Memory at base + offset = operand."""
        if isinstance(operand, Reg):
            self._add(_STX | _MEM | size, base, operand, offset)
        else:
            self._add(_ST | _MEM | size, base, 0, offset, operand)

    def atomic_add(self, base: Reg, offset: int, operand: Reg) -> None:
        """Add to 64 bits of memory that other CPUs add to as well."""
        self._add(_STX | _ATOMIC | Size.DOUBLE, base, operand, offset)

    def jump(self, target: str, condition: Jump = Jump.ALWAYS,
             dst: Reg = Reg.R0, operand: int = 0) -> None:
        """Go on at a label when ``dst condition operand``."""
        self._jumps[len(self._code)] = target
        self._add(_JMP | condition, dst, immediate=operand)

    def load_map(self, dst: Reg) -> None:
        """dst = the map that :func:`with_map` fills in."""
        self._add(_LD | _IMM | Size.DOUBLE, dst, _PSEUDO_MAP_FD,
                  immediate=MAP_SLOT)
        self._add(0)

    def call(self, helper: int) -> None:
        self._add(_JMP | _CALL, immediate=helper)

    def exit(self) -> None:
        self._add(_JMP | _EXIT)

    def program(self) -> bytes:
        """The instructions.

        :raises KeyError: for a jump to a label that is nowhere.
        """
        packed = bytearray()
        for index, (opcode, registers, offset, immediate) in enumerate(
                self._code):
            if index in self._jumps:
                offset = self._labels[self._jumps[index]] - index - 1
            packed += _INSTRUCTION.pack(opcode, registers, offset, immediate)
        return bytes(packed)
