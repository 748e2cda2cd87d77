# SPDX-License-Identifier: Apache-2.0

from tests.netns.conftest import netns_capability  # noqa: F401
