#!/usr/bin/env bash
# Pushes the images and charts of bin/dist to a registry, and lists them by digest in bin/dist/published.txt, for signing.
# crane, helm and rota-release are in PATH, and logged in. REGISTRY and HELM_FLAGS are for tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
dist=${DIST:-bin/dist}
registry=${REGISTRY:-ghcr.io/rota-dev}
: >"$dist/published.txt"
while IFS=:@ read -r repository tag _ digest; do
	program=${repository##*/}
	crane push "$dist/images/$program" "$registry/$program:$tag"
	pushed=$(crane digest "$registry/$program:$tag")
	if [ "$pushed" != "sha256:$digest" ]; then
		echo "$registry/$program:$tag is $pushed, and images.txt says sha256:$digest" >&2
		exit 1
	fi
	echo "$registry/$program@$pushed" >>"$dist/published.txt"
done <"$dist/images.txt"
for chart in rota website; do
	file=$(echo "$dist/$chart"-[0-9]*.tgz)
	version=${file##*/"$chart"-}
	version=${version%.tgz}
	# Helm notes the file's time as that of the chart, in the time zone of the machine. So that a chart that is pushed again
	# has the same digest, it is the commit's.
	TZ=UTC touch -d "@$(git log -1 --format=%ct)" "$file"
	# shellcheck disable=SC2086 # flags
	TZ=UTC helm push ${HELM_FLAGS:-} "$file" "oci://$registry/charts"
	echo "$registry/charts/$chart@$(crane digest "$registry/charts/$chart:$version")" >>"$dist/published.txt"
	rota-release artifacthub "$registry/charts/$chart" "charts/$chart/artifacthub-repo.yml"
done
