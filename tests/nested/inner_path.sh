#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs inside the nested machine, as root: crucible once more, under KVM and cgroup v2.
# shellcheck source=tests/nested/inner_begin.sh
. "$(dirname "$0")/inner_begin.sh"

rmdir $R/a
stop_daemon "the daemon ends in order"
finish
