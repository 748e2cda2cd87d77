# SPDX-License-Identifier: Apache-2.0

"""nova-compute with the cloud's driver.

Nova takes a driver's name as one below ``nova.virt``.
"""

import sys

# Imported first: it patches, or forbids, modules that others import.
from nova.cmd import compute

from virtco_lab.cloud import driver


def main() -> None:
    """Register the cloud's driver below ``nova.virt`` and run nova-compute."""
    sys.modules['nova.virt.virtco_lab'] = driver
    compute.main()


if __name__ == '__main__':
    main()
