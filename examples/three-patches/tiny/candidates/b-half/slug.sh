#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lower case, and each blank a hyphen.
printf '%s\n' "$1" | tr '[:upper:] ' '[:lower:]-'
