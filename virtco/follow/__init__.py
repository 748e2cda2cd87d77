# SPDX-License-Identifier: Apache-2.0

"""Instances in Nova, followed by notifications and by queries."""
