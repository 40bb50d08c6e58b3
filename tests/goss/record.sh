#!/bin/bash
# Runs the goss on PATH for each assertion of matching/*.yaml, and prints the answers for
# matching/answers.json:
# tests/goss/record.sh VERSION > answers.json
# VERSION is the version of the package, because Debian's goss can't print it. The script needs jq.
# The answers contain nothing about the machine or the time.
set -euo pipefail
version=${1:?usage: record.sh VERSION}
cd "$(dirname "$0")/matching"
for file in *.yaml; do
    # Exit code 1 means that an assertion failed.
    goss -g "$file" validate -f json || [ $? -eq 1 ]
done | jq -rs --arg version "$version" '
    def told: .["matcher-result"] | {
        message, expected, actual, missing: .["missing-elements"], found: .["found-elements"], extra: .["extra-elements"],
        transforms: .["transform-chain"]
    } | with_entries(select(.value != null));
    def answer: if .result == 0 then {result: "pass"} elif .err != null then {result: "error"} else {result: "fail"} + told end;
    map(.results[]) | sort_by(.["resource-id"])
    | map("    \(.["resource-id"] | tojson): \(answer | tojson)") | join(",\n")
    | "{\n  \"goss\": \($version | tojson),\n  \"command\": \"goss -g FILE validate -f json\",\n  \"answers\": {\n\(.)\n  }\n}"'
