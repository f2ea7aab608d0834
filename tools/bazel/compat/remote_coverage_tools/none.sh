#!/bin/sh
echo "no coverage here" >&2
exit 1
