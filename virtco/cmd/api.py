# SPDX-License-Identifier: Apache-2.0

"""``virtco-api``: the REST API, for Nova, tenants and operators."""

import sys

from virtco.cmd import controller


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-api``; return its exit code.

    :param argv: options; None takes those of the command line.
    """
    return controller.main(argv, controller.API)


if __name__ == '__main__':
    sys.exit(main())
