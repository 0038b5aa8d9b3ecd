#!/usr/bin/env bash
# Tries Rota on control planes of versions of Kubernetes, such as 1.33 1.37; without an argument on all that have a
# modfile in kube. For docs/versions.md it prints how the tests of each delivery, of the fence and of `rota check`
# ended, what `rota check --pre` says, and the demo's zeros. The tests' client is the newest. Output is in
# bin/kubernetes-*.log.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off
versions=("$@")
if [ $# = 0 ]; then
	kubernetes=$(cd kube && go list -m -f '{{.Version}}' k8s.io/kubernetes | cut -d. -f1,2)
	mapfile -t versions < <((basename -s .mod kube/versions/*.mod && echo "${kubernetes#v}") | sort -V)
fi
go build -o bin/ ./cmd/rota ./cmd/rota-demo
go build -o bin/rota-kube ./test/controlplane/cmd
failed=0
for version in "${versions[@]}"; do
	KUBEBUILDER_ASSETS=$(bin/rota-kube assets -kubernetes "$version")
	export KUBEBUILDER_ASSETS
	log=bin/kubernetes-$version.log
	"$KUBEBUILDER_ASSETS/kube-apiserver" --version | tee "$log"
	begun=$SECONDS
	while read -r package tests; do
		go test -modfile=go.latest.mod -v -vet=off -count=1 -timeout=30m -run "$tests" "$package" </dev/null >>"$log" 2>&1 || {
			echo "FAILED: $package: see $log"
			failed=1
		}
	done <<-END
		./internal/delivery ^TestAPIServer\$
		./fence .
		./cmd/rota ^TestCheck
	END
	passed() { echo "$1: $(grep -cE "^ *--- PASS: $2" "$log" || true) tests passed"; }
	passed SlotLabel TestAPIServer/SlotLabel
	passed ShardSelector TestAPIServer/ShardSelector
	echo "Filter: $(grep -E '^ *--- PASS: TestAPIServer/' "$log" | grep -cvE '/(SlotLabel|ShardSelector)' || true) tests passed"
	passed 'all, with fence and rota check' Test
	echo "tests took $((SECONDS - begun)) s"

	kubeconfig=$(mktemp -d)/config
	coproc plane { bin/rota-kube up --json --kubeconfig "$kubeconfig" 2>>"$log"; }
	read -r _ <&"${plane[0]}"
	bin/rota check --pre website -n default --kubeconfig "$kubeconfig" --kind ConfigMap --owned Deployment.apps || failed=1
	pid=$plane_PID
	exec {plane[1]}>&- # it ends with its input
	wait "$pid" || true
	rm -rf "${kubeconfig%/*}"

	begun=$SECONDS
	bin/rota-demo --objects 300 --rate 10 --baseline 5s --output json >"bin/kubernetes-$version-demo.json" 2>>"$log" || failed=1
	grep -E '"(overlaps|foreign_writes|unowned_at_end|deletions_missed|taken_over_seconds)"' "bin/kubernetes-$version-demo.json"
	echo "the demo took $((SECONDS - begun)) s"
done
exit $failed
