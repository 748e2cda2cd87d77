# SPDX-License-Identifier: Apache-2.0

"""Where should this VM go, and what if."""
