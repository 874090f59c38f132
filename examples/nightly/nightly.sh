#!/bin/sh
# Publishes the day before. What was charged is never charged again.
cd "$(dirname "$0")" || exit 1
# Cron has a short PATH, and none of your variables: dpgrain is in .venv, and visits.env (readable
# only by this user) sets VISITS_DB or PGPASSWORD for a database.
PATH="$PWD/.venv/bin:$PATH"
set -a
[ ! -r ./visits.env ] || . ./visits.env
set +a
day=${1:-$(date -d yesterday +%F)}
# A late folder is worth a retry. Without it, a run would publish noise, and charge the day.
if [ ! -e "visits/day=$day" ]; then
    echo "visits/day=$day is missing" >&2
    exit 1
fi
dpgrain run releases.toml --where day="$day" --folder "$day" --ledger visits.ledger
