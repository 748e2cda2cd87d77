# SPDX-License-Identifier: Apache-2.0

"""A whole OpenStack on one machine, with virtco in it.

``tools/cloud up`` starts the real services, each as processes of its own, in
network namespaces: nothing listens on the machine's own network, and
``tools/cloud down`` leaves nothing. A VM is a namespace of its own
(:mod:`virtco_lab.cloud.driver`).
"""
