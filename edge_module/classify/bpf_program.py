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
"""The classifier's program and the layout of its map.

Pure. The program stands at clsact's ingress of every VM port. It looks up
(port, addresses, destination port) and then (port, addresses) in one hash
map, puts the classid it finds into the packet's priority and counts; a TCP
packet without data gets the classid of the coflow's control packets instead, a
packet that is in neither entry the one of its port. Headers are read relative
to the network header, from which the kernel has stripped a VLAN tag by then.
"""

from collections.abc import Iterable
import socket
import struct

from edge_module.classify import base
from edge_module.classify import ebpf
from edge_module.classify.ebpf import Alu
from edge_module.classify.ebpf import Jump
from edge_module.classify.ebpf import Reg
from edge_module.classify.ebpf import Size
from edge_module import minors
from edge_module.qdisc import wire

# ifindex, destination port (network order), IP version, source, destination;
# an IPv4 address is padded with zeros.
_KEY = struct.Struct('=IHH16s16s')
_KEY_PORT, _KEY_VERSION, _KEY_SOURCE, _KEY_TARGET = 4, 6, 8, 24
# bytes, packets, classid, classid of control packets (0: the same).
_VALUE = struct.Struct('=QQII')
_VALUE_PACKETS, _VALUE_CLASSID, _VALUE_CONTROL = 8, 16, 20
KEY_BYTES, VALUE_BYTES = _KEY.size, _VALUE.size
MOST_ENTRIES = 262_144

# struct __sk_buff
_SKB_LEN, _SKB_PROTOCOL, _SKB_PRIORITY, _SKB_IFINDEX = 0, 16, 32, 40
_MAP_LOOKUP, _SKB_LOAD_BYTES_RELATIVE = 1, 68
_FROM_NETWORK_HEADER = 1
_TC_ACT_UNSPEC = -1  # filters of others come after this one

_TCP, _UDP = socket.IPPROTO_TCP, socket.IPPROTO_UDP
_FRAGMENT = socket.IPPROTO_FRAGMENT
_EXTENSIONS = (socket.IPPROTO_HOPOPTS, socket.IPPROTO_ROUTING,
               socket.IPPROTO_DSTOPTS)
_MOST_EXTENSIONS = 4

# Of a TCP packet without data, with all options and a frame's header. Who
# writes a short length into a long packet gets no long packet past the data.
_CONTROL_BYTES = 140
_TCP_WORDS_AT = 12

# The frame: the key, the header that is being read, the entry that was found.
_AT_KEY, _AT_HEADER = -_KEY.size, -_KEY.size - 40
_AT_VALUE = _AT_HEADER - 8
_L4_PROTOCOL, _L4_OFFSET, _SKB = Reg.R7, Reg.R8, Reg.R6
# Bytes from the network header to the packet's end; 0 where that says nothing.
_L3_BYTES = Reg.R9


def _load_header(code: ebpf.Assembler, offset: Reg | int, length: int,
                 otherwise: str) -> None:
    """Copy part of the packet to the frame; short packets go elsewhere."""
    code.move(Reg.R1, _SKB)
    code.move(Reg.R2, offset)
    code.move(Reg.R3, Reg.FRAME)
    code.alu(Alu.ADD, Reg.R3, _AT_HEADER)
    code.move(Reg.R4, length)
    code.move(Reg.R5, _FROM_NETWORK_HEADER)
    code.call(_SKB_LOAD_BYTES_RELATIVE)
    code.jump(otherwise, Jump.NEGATIVE, Reg.R0, 0)


def _copy(code: ebpf.Assembler, size: Size, source: int, target: int
          ) -> None:
    """From the header to the key."""
    code.load(size, Reg.R1, Reg.FRAME, _AT_HEADER + source)
    code.store(size, Reg.FRAME, _AT_KEY + target, Reg.R1)


def _read_length(code: ebpf.Assembler, source: int, header_bytes: int
                 ) -> None:
    """From the header to a register, which the network's order suits not."""
    code.load(Size.BYTE, _L3_BYTES, Reg.FRAME, _AT_HEADER + source)
    code.alu(Alu.SHIFT_LEFT, _L3_BYTES, 8)
    code.load(Size.BYTE, Reg.R1, Reg.FRAME, _AT_HEADER + source + 1)
    code.alu(Alu.ADD, _L3_BYTES, Reg.R1)
    code.alu(Alu.ADD, _L3_BYTES, header_bytes)


def _read_ipv4(code: ebpf.Assembler) -> None:
    code.label('ipv4')
    _load_header(code, 0, 20, 'out')
    code.store(Size.HALF, Reg.FRAME, _AT_KEY + _KEY_VERSION, 4)
    _copy(code, Size.WORD, 12, _KEY_SOURCE)
    _copy(code, Size.WORD, 16, _KEY_TARGET)
    code.load(Size.BYTE, _L4_PROTOCOL, Reg.FRAME, _AT_HEADER + 9)
    code.load(Size.BYTE, _L4_OFFSET, Reg.FRAME, _AT_HEADER)
    code.alu(Alu.AND, _L4_OFFSET, 0x0F)
    code.alu(Alu.SHIFT_LEFT, _L4_OFFSET, 2)
    _read_length(code, 2, 0)
    # A fragment that is not the first has no ports.
    code.load(Size.HALF, Reg.R1, Reg.FRAME, _AT_HEADER + 6)
    code.jump('fragment', Jump.ANY_BIT, Reg.R1, socket.htons(0x1FFF))
    code.jump('l4')


def _read_ipv6(code: ebpf.Assembler) -> None:
    code.label('ipv6')
    _load_header(code, 0, 40, 'out')
    code.store(Size.HALF, Reg.FRAME, _AT_KEY + _KEY_VERSION, 6)
    for source, target in ((8, _KEY_SOURCE), (24, _KEY_TARGET)):
        for half in (0, 8):
            _copy(code, Size.DOUBLE, source + half, target + half)
    code.load(Size.BYTE, _L4_PROTOCOL, Reg.FRAME, _AT_HEADER + 6)
    code.move(_L4_OFFSET, 40)
    _read_length(code, 4, 40)
    for number in range(_MOST_EXTENSIONS):
        _skip_extension(code, number)


def _skip_extension(code: ebpf.Assembler, number: int) -> None:
    """Step over one extension header, if there is one."""
    code.jump(f'fragment{number}', Jump.EQUAL, _L4_PROTOCOL, _FRAGMENT)
    for kind in _EXTENSIONS:
        code.jump(f'extension{number}', Jump.EQUAL, _L4_PROTOCOL, kind)
    code.jump('l4')
    code.label(f'fragment{number}')
    _load_header(code, _L4_OFFSET, 8, 'pair')
    code.load(Size.HALF, Reg.R1, Reg.FRAME, _AT_HEADER + 2)
    code.jump('fragment', Jump.ANY_BIT, Reg.R1, socket.htons(0xFFF8))
    code.load(Size.BYTE, _L4_PROTOCOL, Reg.FRAME, _AT_HEADER)
    code.alu(Alu.ADD, _L4_OFFSET, 8)
    code.jump(f'next{number}')
    code.label(f'extension{number}')
    _load_header(code, _L4_OFFSET, 2, 'pair')
    code.load(Size.BYTE, _L4_PROTOCOL, Reg.FRAME, _AT_HEADER)
    code.load(Size.BYTE, Reg.R1, Reg.FRAME, _AT_HEADER + 1)
    code.alu(Alu.ADD, Reg.R1, 1)
    code.alu(Alu.SHIFT_LEFT, Reg.R1, 3)
    code.alu(Alu.ADD, _L4_OFFSET, Reg.R1)
    code.label(f'next{number}')


def _look_up(code: ebpf.Assembler) -> None:
    code.load_map(Reg.R1)
    code.move(Reg.R2, Reg.FRAME)
    code.alu(Alu.ADD, Reg.R2, _AT_KEY)
    code.call(_MAP_LOOKUP)


def _classify(code: ebpf.Assembler) -> None:
    code.label('l4')
    code.jump('port', Jump.EQUAL, _L4_PROTOCOL, _TCP)
    code.jump('pair', Jump.NOT_EQUAL, _L4_PROTOCOL, _UDP)
    code.label('port')
    _load_header(code, _L4_OFFSET, 4, 'pair')
    _copy(code, Size.HALF, 2, _KEY_PORT)
    _look_up(code)
    code.jump('hit', Jump.NOT_EQUAL, Reg.R0, 0)
    code.jump('pair')
    code.label('fragment')
    code.move(_L3_BYTES, 0)
    code.label('pair')
    code.store(Size.HALF, Reg.FRAME, _AT_KEY + _KEY_PORT, 0)
    _look_up(code)
    code.jump('out', Jump.EQUAL, Reg.R0, 0)
    code.label('hit')
    code.load(Size.WORD, Reg.R1, Reg.R0, _VALUE_CLASSID)
    code.store(Size.WORD, _SKB, _SKB_PRIORITY, Reg.R1)
    code.load(Size.WORD, Reg.R1, _SKB, _SKB_LEN)
    code.atomic_add(Reg.R0, 0, Reg.R1)
    code.move(Reg.R1, 1)
    code.atomic_add(Reg.R0, _VALUE_PACKETS, Reg.R1)


def _prefer_control(code: ebpf.Assembler) -> None:
    """Another class for TCP packets without data."""
    code.store(Size.DOUBLE, Reg.FRAME, _AT_VALUE, Reg.R0)
    code.jump('out', Jump.NOT_EQUAL, _L4_PROTOCOL, _TCP)
    code.load(Size.WORD, Reg.R1, _SKB, _SKB_LEN)
    code.jump('out', Jump.GREATER, Reg.R1, _CONTROL_BYTES)
    _load_header(code, _L4_OFFSET, _TCP_WORDS_AT + 1, 'out')
    code.load(Size.BYTE, Reg.R1, Reg.FRAME, _AT_HEADER + _TCP_WORDS_AT)
    code.alu(Alu.AND, Reg.R1, 0xF0)
    code.alu(Alu.SHIFT_RIGHT, Reg.R1, 2)
    code.alu(Alu.ADD, Reg.R1, _L4_OFFSET)
    code.alu(Alu.SUBTRACT, Reg.R1, _L3_BYTES)
    code.jump('out', Jump.NOT_EQUAL, Reg.R1, 0)
    code.load(Size.DOUBLE, Reg.R2, Reg.FRAME, _AT_VALUE)
    code.load(Size.WORD, Reg.R1, Reg.R2, _VALUE_CONTROL)
    code.jump('out', Jump.EQUAL, Reg.R1, 0)
    code.store(Size.WORD, _SKB, _SKB_PRIORITY, Reg.R1)


def build() -> bytes:
    """The program's instructions."""
    code = ebpf.Assembler()
    code.move(_SKB, Reg.R1)
    # A packet that is in no map must not keep a priority that it brought.
    code.load(Size.WORD, Reg.R1, _SKB, _SKB_IFINDEX)
    code.alu(Alu.AND, Reg.R1, minors.N_PORTS - 1)
    code.alu(Alu.ADD, Reg.R1, wire.ROOT_HANDLE | minors.FIRST_PORT)
    code.store(Size.WORD, _SKB, _SKB_PRIORITY, Reg.R1)
    for offset in range(0, _KEY.size, 8):
        code.store(Size.DOUBLE, Reg.FRAME, _AT_KEY + offset, 0)
    code.load(Size.WORD, Reg.R1, _SKB, _SKB_IFINDEX)
    code.store(Size.WORD, Reg.FRAME, _AT_KEY, Reg.R1)
    code.load(Size.WORD, Reg.R1, _SKB, _SKB_PROTOCOL)
    code.jump('ipv4', Jump.EQUAL, Reg.R1, socket.htons(wire.ETH_P_IP))
    code.jump('ipv6', Jump.EQUAL, Reg.R1, socket.htons(wire.ETH_P_IPV6))
    code.jump('out')
    _read_ipv4(code)
    _read_ipv6(code)
    _classify(code)
    _prefer_control(code)
    code.label('out')
    code.move(Reg.R0, _TC_ACT_UNSPEC)
    code.exit()
    return code.program()


def pack_key(key: base.Key, ifindex: int) -> bytes:
    """An entry's key, as the program builds it from a packet."""
    family = socket.AF_INET6 if key.is_ipv6 else socket.AF_INET
    return _KEY.pack(ifindex, socket.htons(key.dst_port),
                     6 if key.is_ipv6 else 4,
                     socket.inet_pton(family, key.src_ip),
                     socket.inet_pton(family, key.dst_ip))


def pack_values(classes: Iterable[tuple[int, int]]) -> bytes:
    """Values of entries that have counted nothing yet.

    :param classes: minor of the data, and of the control packets or 0.
    """
    return b''.join(
        _VALUE.pack(0, 0, wire.ROOT_HANDLE | minor,
                    wire.ROOT_HANDLE | control if control else 0)
        for minor, control in classes)


def read_key(packed: bytes) -> tuple[int, base.Key]:
    """(ifindex, key without its device)."""
    ifindex, port, version, source, target = _KEY.unpack(packed)
    if version == 6:
        addresses = (socket.inet_ntop(socket.AF_INET6, source),
                     socket.inet_ntop(socket.AF_INET6, target))
    else:
        addresses = (socket.inet_ntoa(source[:4]),
                     socket.inet_ntoa(target[:4]))
    return ifindex, base.Key('', *addresses, socket.ntohs(port))


def read_values(packed: bytes
                ) -> list[tuple[tuple[int, int], base.Counted]]:
    """(classes as in :func:`pack_values`, counters) of each entry."""
    return [((classid & 0xFFFF, control & 0xFFFF),
             base.Counted(sent_bytes, packets))
            for sent_bytes, packets, classid, control
            in _VALUE.iter_unpack(packed)]
