# SPDX-License-Identifier: Apache-2.0
"""Blanks become hyphens."""


def slug(title):
    return title.replace(" ", "-")
