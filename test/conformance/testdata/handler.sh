#!/usr/bin/env bash
# The command by which the shell client is held against the protocol.
set -euo pipefail
what=${NAME%%-*}
number=${NAME#*-}
number=${number%%-*}
note() { printf '%s\n' "$*" >>"$JOURNAL"; }

note "begin $NAME $ATTEMPT $GONE"
case $what in
slow)
  trap : TERM
  sleep "$number" &
  wait $! || {
    note "stopped $NAME"
    exit 1
  }
  ;;
stuck)
  trap '' TERM
  sleep "$number"
  ;;
after) printf '%s\n' "$number" >"$AFTER_FILE" ;;
esac
note "end $NAME"
[[ $what != fail ]] || ((ATTEMPT > number))
