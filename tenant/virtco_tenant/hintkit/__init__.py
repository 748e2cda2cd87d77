# SPDX-License-Identifier: Apache-2.0

"""``virtco hint``: hints checked and made on the tenant's own machine.

Light: the standard library, and cliff for the commands. Nothing here needs a
cloud; only the what-if asks a controller.
"""
