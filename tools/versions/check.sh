#!/usr/bin/env bash
# Vets all packages and runs the tests of what depends most on controller-runtime and client-go with each pair of them
# that Rota works with, and the whole demo with some. Each pair has a modfile: go.mod the lowest, go.latest.mod the
# newest, and tools/versions those between. An argument chooses versions of controller-runtime by a regular expression.
# SHORT=-short leaves out what -short does, DEMO=none the demo. Output is in bin/versions-*.log.
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOWORK=off
failed=0
for modfile in go.mod $(printf '%s\n' tools/versions/*.mod | sort -V) go.latest.mod; do
	read -r runtime client < <(go list -modfile="$modfile" -m -f '{{.Version}}' sigs.k8s.io/controller-runtime k8s.io/client-go |
		paste -sd ' ')
	[[ $runtime =~ ${1:-.} ]] || continue
	toolchain=$(go env GOTOOLCHAIN)
	if [ "$modfile" = go.mod ]; then
		toolchain=go$(sed -n 's/^go //p' go.mod) # the lowest pair with the lowest Go, which the go command downloads
	fi
	log=bin/versions-$runtime.log
	try() { GOTOOLCHAIN=$toolchain "$@" >>"$log" 2>&1 || { echo "FAILED: $*: see $log"; failed=1; }; }
	echo "controller-runtime $runtime, client-go $client"
	: >"$log"
	try go vet -modfile="$modfile" ./...
	try go test -modfile="$modfile" -v -count=1 -vet=off -p 1 -timeout 40m ${SHORT:-} ./internal/upstream/... ./ctrlrt ./internal/engine ./internal/delivery/...
	if [[ $runtime =~ ${DEMO:-^v0\.23\.[01]$} ]]; then # those of ACK and Crossplane
		try go build -modfile="$modfile" -o bin/rota-demo-versions ./cmd/rota-demo
		go version -m bin/rota-demo-versions | grep -qP "\tsigs.k8s.io/controller-runtime\t\Q$runtime\E\t"
		try bin/rota-demo-versions --objects 300 --seed 1 --output json
	fi
	grep -E '^ok' "$log" || true
	for verdict in PASS FAIL SKIP; do
		echo "$verdict: $(grep -c "^ *--- $verdict: " "$log" || true)"
	done
done
exit $failed
