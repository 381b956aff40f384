#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lower case; whatever is no letter or digit is one hyphen, and none stands at an end.
printf '%s\n' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9][^a-z0-9]*/-/g; s/^-//; s/-$//'
