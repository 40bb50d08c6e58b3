#!/bin/sh
# Writes its arguments into the first of them.
to=$1
shift
echo "$@" > "$to"
