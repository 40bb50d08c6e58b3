#!/bin/sh
echo failing
exit 9
