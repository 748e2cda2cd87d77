# SPDX-License-Identifier: Apache-2.0

"""Cornet: hands files to all VMs of a group (Orchestra §5)."""
