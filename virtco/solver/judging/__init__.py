# SPDX-License-Identifier: Apache-2.0

"""Effects of a placement on other coflows and on groups to come."""
