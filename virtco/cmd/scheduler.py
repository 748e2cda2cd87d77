# SPDX-License-Identifier: Apache-2.0

"""``virtco-scheduler``: decides who sends when, if it leads."""

import sys

from virtco.cmd import controller


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-scheduler``; return its exit code.

    :param argv: options; None takes those of the command line.
    """
    return controller.main(argv, controller.SCHEDULER)


if __name__ == '__main__':
    sys.exit(main())
