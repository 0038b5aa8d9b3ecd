#!/usr/bin/env bash
# Builds a release of the tagged commit that is checked out, into bin/dist: what GoReleaser builds, and then images.
# Nothing is published or signed here. goreleaser, syft, helm and rota-release are in PATH.
set -euo pipefail
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH SYFT_CHECK_FOR_APP_UPDATE=false
version=$(sed -n 's/^version: //p' charts/rota/Chart.yaml)
tag=$(git describe --exact-match --tags --match 'v*')
if [ "$tag" != "v$version" ]; then
	echo "the tag is $tag, but the charts are of version $version: CONTRIBUTING.md says what to change first" >&2
	exit 1
fi
goreleaser release --clean --skip=publish,announce
rota-release images bin/dist "$tag"
cp bin/assets/*.tgz bin/dist/
# What GoReleaser does not know belongs to the release, too: the images' digests, and what is in them.
(cd bin/dist && sha256sum images.txt image_*.spdx.json >>checksums.txt)
# What a build leaves behind, in the form of sha256sum. GoReleaser's own notes have the time and folders in them.
(cd bin/dist && find . -type f ! -name artifacts.json ! -name metadata.json ! -name config.yaml | LC_ALL=C sort |
	xargs sha256sum >../dist.sha256)
