#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What takes long in a real project: here the cases are made from a few.
set -eu
: >cases
for word in Alpha beta; do
	while IFS='|' read -r title slug; do
		lower=$(echo "$word" | tr '[:upper:]' '[:lower:]')
		echo "$word$title|$lower$slug" >>cases
	done <<-'END'
		 one|-one
		 One Two|-one-two
		  three   blanks|-three-blanks
		, a comma|-a-comma
		 at the end!|-at-the-end
	END
done
