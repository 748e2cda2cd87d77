# SPDX-License-Identifier: Apache-2.0

"""Code that needs privileges: changes and readings of the kernel."""
