# SPDX-License-Identifier: Apache-2.0

"""Who sends when, and who measures whom."""
