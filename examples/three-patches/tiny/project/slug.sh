#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A title becomes a slug: "Hello, World!" -> "hello-world". To be mended.
printf '%s\n' "$1"
