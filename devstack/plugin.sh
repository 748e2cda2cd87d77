#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Dispatches the phases of DevStack; what they do is in lib/virtco.

# DevStack sources this file, so its options are left as they are.
VIRTCO_XTRACE=$(set +o | grep xtrace)
set +o xtrace

VIRTCO_DEVSTACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=devstack/lib/virtco
source "$VIRTCO_DEVSTACK_DIR/lib/virtco"

if is_service_enabled virtco-controller virtco-edge; then
    case "$1 ${2:-}" in
        "stack pre-install")
            echo_summary "Installing what virtco needs of the system"
            install_virtco_packages
            ;;
        "stack install")
            echo_summary "Installing virtco"
            install_virtco
            ;;
        "stack post-config")
            echo_summary "Configuring virtco"
            create_virtco_accounts
            configure_virtco
            init_virtco
            ;;
        "stack extra")
            echo_summary "Starting virtco"
            start_virtco
            ;;
        "stack test-config")
            echo_summary "Telling Tempest about virtco"
            configure_virtco_tempest
            ;;
        "unstack "*)
            stop_virtco
            ;;
        "clean "*)
            cleanup_virtco
            ;;
    esac
fi

$VIRTCO_XTRACE
