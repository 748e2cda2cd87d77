# SPDX-License-Identifier: Apache-2.0

"""``virtco-distributor``: a relay between edge modules and the leader."""

import sys

from virtco.cmd import controller


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-distributor``; return its exit code.

    :param argv: options; None takes those of the command line.
    """
    return controller.main(argv, controller.DISTRIBUTOR)


if __name__ == '__main__':
    sys.exit(main())
