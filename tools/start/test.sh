#!/usr/bin/env bash
# Runs the commands of docs/start.md in one shell, as a reader of the page would, and ends if one fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v kubectl >/dev/null; then
	echo "NO TEST OF docs/start.md: kubectl is not installed" >&2
	exit 0
fi
if [ -e bin/start ]; then
	echo "bin/start exists: end what goes through the page now, and remove the folder" >&2
	exit 1
fi
commands=$(awk '/^```/ { block = ($0 == "```sh"); next } block' docs/start.md)
log=$(mktemp)
setsid timeout 900 bash -e -o pipefail -c "$commands" >"$log" 2>&1 &
pid=$!
finish() {
	kill -KILL -- "-$pid" 2>/dev/null || true # the control plane and the replicas are in its group
	rm -rf bin/start "$log"
}
trap finish EXIT
wait "$pid" || { cat "$log"; exit 1; }
for want in web-0- web-1- web-3- Expelled 'kind: ConfigMap' 'works on Website default/hello-7' \
	'works on Service default/hello-7' 'was expelled'; do
	grep -qF "$want" "$log" || { cat "$log"; echo "the output has no \"$want\"" >&2; exit 1; }
done
if [ -n "$(ls bin/start 2>/dev/null)" ]; then
	ls bin/start && echo "the page leaves these behind" >&2 && exit 1
fi
