#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Blanks become hyphens.
printf '%s\n' "$1" | tr ' ' '-'
