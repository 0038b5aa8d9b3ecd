#!/usr/bin/env bash
# Tests what is in the release in bin/dist: checksums, archives, SBOMs, licenses, and images and charts once they are
# pushed to a registry on loopback. crane, helm and rota-release are in PATH, and go and jq.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/../.."
dist=$PWD/bin/dist failed=0
tag=$(jq -r .tag "$dist/metadata.json") commit=$(jq -r .commit "$dist/metadata.json")
work=$(mktemp -d)
trap 'kill "${registry:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
bad() {
	echo "$*" >&2
	failed=1
}

# checksums.txt has exactly what is released, and is right.
(cd "$dist" && sha256sum --check --strict --quiet checksums.txt) || failed=1
platforms=(linux_amd64 linux_arm64 darwin_amd64 darwin_arm64 windows_amd64 windows_arm64)
archives=()
for platform in "${platforms[@]}"; do
	case $platform in windows*) suffix=zip ;; *) suffix=tar.gz ;; esac
	archives+=("rota_$platform.$suffix" "kubectl-rota_$platform.$suffix")
done
{
	printf '%s\n' "${archives[@]}" images.txt rota-"${tag#v}".tgz website-"${tag#v}".tgz
	printf '%s.spdx.json\n' "${archives[@]}" image_{rota,website-operator}_linux_{amd64,arm64}
} | LC_ALL=C sort | diff - <(awk '{ print $2 }' "$dist/checksums.txt" | LC_ALL=C sort) ||
	bad "checksums.txt (>) does not list what is released (<)"

# Each archive has the program, for its platform, of this commit and version, static and without paths of the machine that
# built it; and the licenses. The SBOM names all modules in it.
for archive in "${archives[@]}"; do
	program=${archive%%_*} platform=${archive#*_}
	IFS=_ read -r os arch <<<"${platform%%.*}"
	[ "$os" != windows ] || program+=.exe
	dir=$work/$archive
	mkdir "$dir"
	case $archive in
	*.zip) unzip -q "$dist/$archive" -d "$dir" ;;
	*) tar --same-permissions -xzf "$dist/$archive" -C "$dir" ;;
	esac
	[ "$(cd "$dir" && echo *)" = "$(printf '%s\n' LICENSE THIRD_PARTY_NOTICES "$program" | sort | xargs)" ] ||
		bad "$archive has $(ls "$dir")"
	[ "$(stat -c %a "$dir/$program")" = 755 ] || bad "$archive: $program cannot be run"
	go version -m "$dir/$program" >"$work/build"
	for want in GOOS="$os" GOARCH="$arch" CGO_ENABLED=0 -trimpath=true vcs.revision="$commit" vcs.modified=false; do
		grep -q "	build	$want$" "$work/build" || bad "$archive was not built with $want"
	done
	grep -q "	mod	github.com/rota-dev/rota	$tag" "$work/build" || bad "$archive is not of version $tag"
	jq -e '.spdxVersion | startswith("SPDX-2.")' "$dist/$archive.spdx.json" >/dev/null || bad "$archive.spdx.json is no SPDX 2"
	jq -e '.documentNamespace | test("-[0-9a-f]{64}$")' "$dist/$archive.spdx.json" >/dev/null ||
		bad "$archive.spdx.json has no hash as its name"
	jq -r '.packages[] | "\(.name) \(.versionInfo)"' "$dist/$archive.spdx.json" >"$work/packages"
	modules=0
	while read -r module version; do
		modules=$((modules + 1))
		grep -qxF "$module $version" "$work/packages" || bad "$archive.spdx.json lacks $module $version"
		grep -qF "=== $module $version: " "$dir/THIRD_PARTY_NOTICES" || bad "$archive has no license of $module $version"
	done < <(awk '$1 == "dep" { print $2, $3 }' "$work/build")
	[ $modules -ge 20 ] || bad "$archive was built of $modules modules"
done

# The archives that .krew.yaml names have its bin in them, and the license that krew-index wants.
krew=$(sed -nE -e 's|.*/download/\{\{ \.TagName \}\}/([^"]+)".*|\1|p' -e 's/^    bin: //p' .krew.yaml | paste -d ' ' - -)
[ "$(wc -l <<<"$krew")" = ${#platforms[@]} ] || bad ".krew.yaml names"$'\n'"$krew"
while read -r archive program; do
	[ -f "$work/$archive/$program" ] && [ -f "$work/$archive/LICENSE" ] || bad "$archive has no $program or LICENSE"
done <<<"$krew"

# What is in the images, once pushed and pulled: one program, no shell, and nothing that its user may write.
crane registry serve --address 127.0.0.1:0 >"$work/registry" 2>&1 &
registry=$!
for _ in $(seq 100); do
	at=127.0.0.1:$(sed -n 's/.*serving on port //p' "$work/registry")
	[ "$at" = 127.0.0.1: ] || break
	sleep 0.1
done
publish() {
	REGISTRY=$at/$1 HELM_FLAGS=--plain-http HOME=$work tools/release/publish.sh >"$work/log" 2>&1 || {
		cat "$work/log" >&2
		exit 1
	}
	sed "s|^[^/]*/$1/||" "$dist/published.txt"
	rm "$dist/published.txt"
}
first=$(publish rota-dev)
at+=/rota-dev
for program in rota website-operator; do
	for arch in amd64 arm64; do
		image=$at/$program:$tag platform=linux/$arch
		crane export --platform $platform "$image" - | tar --numeric-owner -tv |
			awk '{ sub("/$", "", $6); print $6, $1, $2 }' | LC_ALL=C sort >"$work/files"
		LC_ALL=C sort >"$work/want" <<-END
			etc drwxr-xr-x 0/0
			etc/group -rw-r--r-- 0/0
			etc/passwd -rw-r--r-- 0/0
			etc/ssl drwxr-xr-x 0/0
			etc/ssl/certs drwxr-xr-x 0/0
			etc/ssl/certs/ca-certificates.crt -rw-r--r-- 0/0
			licenses drwxr-xr-x 0/0
			licenses/LICENSE -rw-r--r-- 0/0
			licenses/THIRD_PARTY_NOTICES -rw-r--r-- 0/0
			usr drwxr-xr-x 0/0
			usr/local drwxr-xr-x 0/0
			usr/local/bin drwxr-xr-x 0/0
			usr/local/bin/$program -rwxr-xr-x 0/0
		END
		diff "$work/want" "$work/files" || bad "$image $platform has other files (>) than it should (<)"
		# The front's static Pod names the command as rota, which PATH must find.
		crane config --platform $platform "$image" | jq -e --arg arch $arch --arg program $program --arg commit "$commit" '
			.architecture == $arch and .config.User == "65532:65532" and .config.Entrypoint == ["/usr/local/bin/" + $program] and
			(.config.Env | index("PATH=/usr/local/bin")) != null and
			.config.Labels["org.opencontainers.image.revision"] == $commit' >/dev/null || bad "$image $platform has another configuration"
		crane export --platform $platform "$image" - | tar -xO usr/local/bin/$program >"$work/program"
		go version -m "$work/program" | grep -q "	build	GOARCH=$arch$" || bad "$image $platform has a program for another platform"
	done
done
[ "$(crane manifest "$at/charts/rota:artifacthub.io" | jq -r .config.mediaType)" = \
	application/vnd.cncf.artifacthub.config.v1+yaml ] || bad "Artifact Hub finds no metadata of the chart"
# What is pushed again, from files of another time, has the same digests.
touch -d '1 hour ago' "$dist"/*.tgz
at=${at%/*}
diff <(echo "$first") <(publish again) || bad "what is pushed again has other digests"
exit $failed
