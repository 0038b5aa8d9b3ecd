#!/usr/bin/env bash
# Makes what a release has besides binaries, in bin/assets: the charts, and the licenses of what the binaries link.
# GoReleaser runs it first. helm and rota-release are in PATH.
set -euo pipefail
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf bin/assets
mkdir -p bin/assets
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HELM_CACHE_HOME=$work/cache HELM_CONFIG_HOME=$work/config HELM_DATA_HOME=$work/data
# In a copy: what Helm writes beside a chart does not belong into the checkout.
cp -r charts "$work/charts"
for chart in rota website; do
	cp LICENSE "$work/charts/$chart/"
	helm package --dependency-update --destination bin/assets "$work/charts/$chart" >/dev/null
done
rota-release notices . >bin/assets/THIRD_PARTY_NOTICES
