# SPDX-License-Identifier: Apache-2.0

"""Where the edge module learns which device belongs to which VM."""
