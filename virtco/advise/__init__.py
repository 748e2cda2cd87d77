# SPDX-License-Identifier: Apache-2.0

"""Trees of collectives and orders of ranks, by measured rates of pairs of VMs.

The uses of the RPCA paper's section V: fastest-node-first trees for broadcast
and reduce, and topology mapping. Pure: matrices in, advice out.
"""

from virtco import compiled

compiled.check()
