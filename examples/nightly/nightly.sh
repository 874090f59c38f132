#!/bin/sh
# Publishes the day before. What was charged is never charged again.
cd "$(dirname "$0")" || exit 1
day=${1:-$(date -d yesterday +%F)}
dpgrain run releases.toml --where day="$day" --folder "$day" --ledger visits.ledger
