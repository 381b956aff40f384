# SPDX-License-Identifier: Apache-2.0
"""Lower case; whatever is no letter or digit is one hyphen, and none stands at an end."""
import re


def slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
