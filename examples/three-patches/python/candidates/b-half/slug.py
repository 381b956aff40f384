# SPDX-License-Identifier: Apache-2.0
"""Lower case, and words with a hyphen between."""


def slug(title):
    return "-".join(title.lower().split())
