# SPDX-License-Identifier: Apache-2.0

"""``virtco-cast``: hand files to all VMs of a group.

On the VM that has them::

    virtco-cast send model/ --receivers 8

prints the address that the other VMs take::

    virtco-cast receive http://10.0.0.5:41234/kZ3… /data
"""

import argparse
from collections.abc import Callable
import re
import sys

from rich import console

from virtco import exception
from virtco import units
from virtco_tenant.cast import receiving
from virtco_tenant.cast import sending
from virtco_tenant.cast import tracker as trackers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='virtco-cast', description='Hand files to all VMs of a group.')
    actions = parser.add_subparsers(dest='action', required=True,
                                    metavar='ACTION')
    send = actions.add_parser('send', help='on the VM that has the files')
    send.set_defaults(run=sending.send)
    send.add_argument('path', help='file or directory')
    send.add_argument('--receivers', required=True,
                      type=_between(1, trackers.MAX_MEMBERS - 1),
                      help='how many others there are')
    send.add_argument('--port', type=_between(0, 65535), default=0,
                      help='of the tracker, default: any')
    send.add_argument('--key', type=_key, help=(
        'of the address, default: drawn; with --port, a sender that was '
        'killed comes back at the same address'))
    send.add_argument('--wait', type=_between(1, 1_000_000), help=(
        f'seconds for a VM that is gone, default: {trackers.MISSED_S:g}, and '
        f'for those that never came, default: {trackers.ABSENT_S:g}'))
    send.add_argument('--clusters', metavar='FILE',
                      help='JSON: {"VM": "rack", …}, by names of VMs')
    send.add_argument('--group', help=(
        'ask the controller at VIRTCO_URL which VMs of this group share a '
        'rack, and announce what the cast sends'))
    send.add_argument('--history', metavar='FILE',
                      help='learn racks from the rates of former casts')
    send.add_argument('--plain', action='store_true',
                      help='one swarm of random neighbours, without shares')
    receive = actions.add_parser('receive', help='on each other VM')
    receive.set_defaults(run=receiving.receive)
    receive.add_argument('url', help='what the sender printed')
    receive.add_argument('directory', help='where the files go')
    for action in (send, receive):
        action.add_argument('--name',
                            help='of this VM, default: its host name')
        action.add_argument('--cluster', help='the rack or host of this VM')
        action.add_argument('--address', default='0.0.0.0',
                            help='where to listen, default: everywhere')
        action.add_argument('--rate', type=_rate, default=0,
                            help='cap of what this VM sends, as in 1Gbit/s')
    return parser


def _key(text: str) -> str:
    if not re.fullmatch(r'[A-Za-z0-9_-]{16,255}', text):
        raise argparse.ArgumentTypeError(exception.expected(
            '16 to 255 letters, digits, - and _',
            f'{len(text)} characters'))
    return text


def _between(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers between two limits."""
    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(exception.expected(
                f'a whole number between {least} and {most}', repr(text)))
        return int(text)

    return parse


def _rate(text: str) -> float:
    try:
        return units.parse_rate_bps(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-cast``; return its exit code."""
    args = _parser().parse_args(argv)
    out = console.Console()
    try:
        return int(args.run(args, out))
    except exception.VirtcoException as error:
        print(f'virtco-cast: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == '__main__':
    sys.exit(main())
