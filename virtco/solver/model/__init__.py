# SPDX-License-Identifier: Apache-2.0

"""The problem as arrays, exact reductions, and what a placement costs."""
