#!/usr/bin/env bash
# worker.sh COMMAND [ARGUMENT...]: a worker for Rota's dispatchers, with bash (4.4 or later), curl and jq.
#
# It takes one key at a time and runs COMMAND for it, with KIND, NAMESPACE, NAME, OBJECT_UID, RESOURCE_VERSION, GONE
# (true or false), CLASS, ATTEMPT, SLOT and EPOCH in its environment. COMMAND succeeded if it exits with 0. Otherwise
# the key comes again after a delay that grows with each failure. If COMMAND writes a number to the file named by
# AFTER_FILE, the key comes again after so many seconds in any case.
#
# The take is extended as long as COMMAND runs. When it ends earlier, COMMAND gets SIGTERM, and SIGKILL half a second
# later. If it cannot be extended, SIGKILL comes when it expires, and SIGTERM a tenth of its length before, at least
# half a second and at most 5 s. On SIGTERM and SIGINT, worker.sh takes no more keys, and lets COMMAND finish for a
# while.
#
#   ROTA_DISPATCH_URL            where the dispatchers are
#   ROTA_DISPATCH_KINDS          kinds, with commas between: KIND.GROUP, or KIND in the core group
#   ROTA_DISPATCH_TOKEN_FILE     has the bearer token. It is read for each request
#   ROTA_DISPATCH_CA_FILE        has the authorities to trust, in PEM. Default: those of the system
#   ROTA_DISPATCH_WORKER         the worker's name. Default: the host's, which in a Pod is the Pod's
#   ROTA_DISPATCH_LENGTH_SECONDS how long takes last, and are extended for. Default: as configured
#   ROTA_DISPATCH_GRACE_SECONDS  how long COMMAND may go on when worker.sh has to stop. Default: 20
set -euo pipefail
set -m # COMMAND is a process group of its own, so that all of it can be ended
umask 077

say() { printf 'worker.sh: %s\n' "$*" >&2; }

if (($# == 0)) || [[ -z ${ROTA_DISPATCH_URL:-} || -z ${ROTA_DISPATCH_KINDS:-} ]]; then
  say 'usage: ROTA_DISPATCH_URL=... ROTA_DISPATCH_KINDS=... worker.sh COMMAND [ARGUMENT...]'
  exit 2
fi
for program in curl jq; do
  command -v "$program" >/dev/null || { say "there is no $program"; exit 2; }
done

url=${ROTA_DISPATCH_URL%/}
token_file=${ROTA_DISPATCH_TOKEN_FILE:-}
worker=${ROTA_DISPATCH_WORKER:-$HOSTNAME}
length=${ROTA_DISPATCH_LENGTH_SECONDS:-0}
grace=$((${ROTA_DISPATCH_GRACE_SECONDS:-20} * 100))

dir=$(mktemp -d) # for requests and answers: they have secrets, which must not be in command lines
trap '[[ $BASHPID != "$$" ]] || rm -rf "$dir"' EXIT # not when a subshell ends
mkfifo "$dir/wake"
exec 3<>"$dir/wake"

stopping='' # worker.sh has to stop
trap 'stopping=1' TERM INT

# Times are in hundredths of a second, by a clock that goes on while the machine sleeps, where there is one.
now() {
  local up
  if read -r up _ </proc/uptime; then
    time=$((10#${up/./}))
  else
    time=$((SECONDS * 100))
  fi 2>/dev/null
}

# decimal TIME MOST sets duration to a time in seconds, from 0.01 to MOST hundredths of a second.
decimal() {
  local of=$(($1 > $2 ? $2 : ($1 > 0 ? $1 : 1)))
  printf -v duration '%d.%02d' $((of / 100)) $((of % 100))
}

# nap waits for so many hundredths of a second, or until something has happened.
nap() {
  decimal "$1" 10000
  read -r -t "$duration" -u 3 _ || true
}

# secrets prints what curl must not have on its command line.
secrets() {
  [[ -z $token_file ]] || printf 'header = "Authorization: Bearer %s"\n' "$(<"$token_file")"
}

# request PATH TIME MOST sends what is in $dir/body, and waits for the answer for that time. It sets status,
# and sent to when it did so. The answer is in $dir/answer.
request() {
  decimal "$2" "$3"
  local options=(--silent --show-error --max-time "$duration" --header 'Content-Type: application/json'
    --data-binary "@$dir/body" --output "$dir/answer" --dump-header "$dir/headers" --write-out '%{http_code}')
  [[ -z ${ROTA_DISPATCH_CA_FILE:-} ]] || options+=(--cacert "$ROTA_DISPATCH_CA_FILE")
  : >"$dir/headers"
  now
  sent=$time
  {
    curl --config <(secrets) "${options[@]}" "$url$1" >"$dir/status" 2>"$dir/error" 3>&- || true
    echo >&3
  } &
  local pid=$! waited=0
  while kill -0 "$pid" 2>/dev/null; do
    if [[ -n $stopping && $1 == /v1/take ]]; then # an answer may be on its way: what it brings is released
      ((waited++ < 2)) || kill -- "-$pid" 2>/dev/null || true # again: a new process may miss it
    fi
    nap 25
  done
  wait "$pid" 2>/dev/null || true
  status=$(<"$dir/status")
  status=${status:-000}
}

# complain says what was wrong with the last answer.
complain() {
  local why
  why=$(jq -r '.detail // .title // empty' "$dir/answer" 2>/dev/null) || why=''
  say "$1: $status ${why:-$(<"$dir/error")}"
}

# delay sets pause: what Retry-After says, or a delay that doubles with failures up to 10 s; both with jitter.
failures=0
delay() {
  local after
  after=$(sed -n 's/^[Rr]etry-[Aa]fter: *\([0-9]\{1,4\}\)[[:space:]]*$/\1/p' "$dir/headers" | tail -n 1)
  failures=$((failures + 1))
  if [[ -n $after ]] && ((10#$after > 0)); then
    pause=$((10#$after * 100 + 10#$after * RANDOM / 1311)) # never before
    return
  fi
  pause=$((10 << (failures < 8 ? failures - 1 : 7)))
  ((pause <= 1000)) || pause=1000
  pause=$((pause / 2 + pause * RANDOM / 65536))
}

# temporary says whether the same request may succeed later.
temporary() { [[ $status == 000 || $status == 408 || $status == 429 || $status == 5* ]]; }

# tell PATH sends the end of the take, in $dir/body, until there is an answer, as long as there is a take.
tell() {
  failures=0
  while now && ((time < deadline)); do
    request "$1" $((deadline - time)) 1000
    [[ $status != 2* && $status != 410 ]] || return 0
    complain "cannot end the take of $key"
    temporary || [[ $status == 401 ]] || return 0
    delay
    now
    ((time + pause < deadline)) || break
    nap "$pause"
  done
  say "the take of $key expires"
}

# finish RESULT AFTER
finish() {
  printf '{"token": %s, "result": "%s", "afterSeconds": %s}\n' "$token" "$1" "$2" >"$dir/body"
  tell /v1/done
}

release() {
  printf '{"token": %s}\n' "$token" >"$dir/body"
  tell /v1/release
}

# extend has the take last longer. It sets ended if the take has ended, and extend_at to when to do it again.
extend() {
  local expires
  printf '{"token": %s, "lengthSeconds": %s}\n' "$token" "$length" >"$dir/body"
  request /v1/extend $((deadline - margin - time)) 500
  now
  unsaid=''
  if [[ $status == 200 ]] && expires=$(jq ".expiresInSeconds | $hundredths" "$dir/answer"); then
    failures=0
    deadline=$((sent + expires))
    extend_at=$((time + ((deadline - time) / 3 > 20 ? (deadline - time) / 3 : 20)))
  elif [[ $status == 410 ]]; then
    ended=1
  elif ((time >= deadline - margin)); then
    unsaid=1 # SIGTERM first: where processes start slowly, saying it takes some of the time that COMMAND has
  else
    complain "cannot extend the take of $key, trying again until it expires"
    delay
    extend_at=$((time + pause))
  fi
}

# end_command ends COMMAND and all that it has started, by SIGKILL at that time.
end_command() {
  kill -TERM -- "-$job" 2>/dev/null || true
  while kill -0 -- "-$job" 2>/dev/null; do
    now
    if ((time >= $1)); then
      kill -KILL -- "-$job" 2>/dev/null || true
    fi
    nap 2
  done
  wait "$job" 2>/dev/null || true
}

# work runs COMMAND for a take, of which fields has what the filter above says.
work() {
  local after=0 left cut=''
  token=${fields[0]}
  deadline=$((sent + fields[1]))
  margin=$((fields[1] / 10)) # how long before the deadline COMMAND is told to end
  margin=$((margin < 50 ? 50 : (margin > 500 ? 500 : margin)))
  fields=("${fields[@]:2}")
  key="${fields[0]} ${fields[1]:+${fields[1]}/}${fields[2]}"
  now
  if ((time >= deadline - margin)); then # worker.sh was stopped for long, or the answer was
    say "the take of $key has ended before its command began"
    return
  fi
  extend_at=$((time + (deadline - time) / 3))
  ended='' unsaid='' failures=0
  if [[ -n $stopping ]]; then
    release
    return
  fi
  rm -f "$dir/code" "$dir/after"
  (
    code=0
    env KIND="${fields[0]}" NAMESPACE="${fields[1]}" NAME="${fields[2]}" OBJECT_UID="${fields[3]}" \
      RESOURCE_VERSION="${fields[4]}" GONE="${fields[5]}" CLASS="${fields[6]}" ATTEMPT="${fields[7]}" \
      SLOT="${fields[8]}" EPOCH="${fields[9]}" AFTER_FILE="$dir/after" "$@" 3>&- || code=$?
    echo "$code" >"$dir/code.new"
    mv "$dir/code.new" "$dir/code"
    echo >&3
  ) &
  job=$!
  while [[ ! -e $dir/code ]] && kill -0 "$job" 2>/dev/null; do
    now
    if ((time >= deadline - margin)); then
      ended=1
    elif ((time >= extend_at)); then
      extend
    fi
    if [[ -n $ended ]]; then
      end_command $((time < deadline - margin ? time + 50 : deadline))
      [[ -z $unsaid ]] || complain "cannot extend the take of $key"
      say "the take of $key has ended before its command"
      return
    fi
    [[ -z $stopping || -n $cut ]] || cut=$((time + grace))
    if [[ -n $cut ]] && ((time >= cut)); then
      end_command $((deadline < time + 500 ? deadline - 50 : time + 500))
      release
      return
    fi
    left=$((extend_at - time))
    nap $((left > 25 ? 25 : (left > 1 ? left : 1)))
  done
  wait "$job" || true
  [[ ! -s $dir/after ]] || read -r after <"$dir/after" || true
  if [[ ! $after =~ ^(0|[1-9][0-9]{0,8})(\.[0-9]+)?$ ]]; then
    say "$key: not a number of seconds in AFTER_FILE: $after"
    after=0
  fi
  ((${after%%.*} < 31536000)) || after=31536000 # dispatchers refuse more than about a year
  if [[ -e $dir/code && $(<"$dir/code") == 0 ]]; then
    finish ok "$after"
  else
    say "$key failed; it will come again"
    finish retry "$after"
  fi
}

# Filters of jq. A time in hundredths of a second is rounded down.
hundredths='. * 100 | floor | if . > 1e12 then 1e12 else . end'
take=".takes[0] // empty | (.token | @json), (.expiresInSeconds | $hundredths), .kind, .namespace // \"\", .name,
  .uid // \"\", .resourceVersion // \"\", .gone // false, .class // \"\", .attempt // 1, .slot // 0, .epoch // 0
  | tostring | gsub(\"\n\"; \" \")"

poll_body=$(jq -c -n --arg worker "$worker" --arg kinds "$ROTA_DISPATCH_KINDS" --argjson length "$length" \
  '{worker: $worker, kinds: ($kinds | split(",")), max: 1, waitSeconds: 30, lengthSeconds: $length}')
while [[ -z $stopping ]]; do
  printf '%s\n' "$poll_body" >"$dir/body"
  request /v1/take 4000 4000
  fields=()
  [[ $status != 200 ]] || mapfile -t fields < <(jq -r "$take" "$dir/answer")
  if ((${#fields[@]} == 12)); then
    failures=0
    work "$@"
  elif [[ $status == 200 ]]; then
    failures=0
    nap 5
  elif [[ -z $stopping ]]; then
    complain 'cannot take keys, trying again'
    delay
    nap "$pause"
  fi
done
