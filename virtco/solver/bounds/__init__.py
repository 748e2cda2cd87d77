# SPDX-License-Identifier: Apache-2.0

"""Lower bounds on the cost of any placement."""
