# SPDX-License-Identifier: Apache-2.0

"""Real Nova in this process; no other functional test imports Nova."""

import os

os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', '1')

# Before anything else of Nova.
from virtco_lab.emulation import nova_cloud  # noqa: F401
