# SPDX-License-Identifier: Apache-2.0

"""What a placement does to other coflows and to groups to come."""
