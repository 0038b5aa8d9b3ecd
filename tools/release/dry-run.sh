#!/usr/bin/env bash
# Builds a release of HEAD twice, in two clones at different places, compares them byte for byte, and tests the outcome,
# which is bin/dist afterwards. Nothing is published, signed or tagged here. With COLD=1 the second build compiles
# everything anew.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -n "$(git status --porcelain)" ]; then
	echo "a release is of a commit, and there are changes besides: commit or stash them" >&2
	exit 1
fi
root=$PWD version=$(sed -n 's/^version: //p' charts/rota/Chart.yaml)
export PATH="$root/bin:$PATH"
goreleaser check --quiet
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
for copy in first a/second; do
	git clone --quiet "$root" "$work/$copy"
	git -C "$work/$copy" tag -f "v$version" HEAD >/dev/null # in the clone only
	if [ "$copy" != first ] && [ -n "${COLD:-}" ]; then
		export GOCACHE="$work/cache"
	fi
	begun=$SECONDS
	"$work/$copy/tools/release/build.sh"
	echo "built $copy in $((SECONDS - begun)) s"
done
unset GOCACHE
diff "$work/first/bin/dist.sha256" "$work/a/second/bin/dist.sha256" || {
	echo "two builds of the same commit differ" >&2
	exit 1
}
rm -rf bin/dist bin/dist.sha256
mv "$work/first/bin/dist" "$work/first/bin/dist.sha256" bin/
echo "both builds are the same: $(wc -l <bin/dist.sha256) files, all together $(sha256sum <bin/dist.sha256 | cut -c1-64)"
tools/release/inspect.sh
