# SPDX-License-Identifier: Apache-2.0

"""What needs privileges, and nothing else."""
