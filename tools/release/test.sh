#!/usr/bin/env bash
# Tests what a release needs and a build does not show: that versions and users agree wherever they are written, that
# tag.sh lets the right tags be released, and that actionlint finds nothing in the workflows.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad() {
	echo "$*" >&2
	failed=1
}
(cd tools/release && GOWORK=off go vet ./...)
(cd tools/release && GOWORK=off go build -o "$work/" github.com/rhysd/actionlint/cmd/actionlint)
"$work/actionlint" -shellcheck= -pyflakes= || failed=1

# Charts, images in manifests and in what Artifact Hub is told, and versions in commands of pages are all those of one
# release: the charts' version. CONTRIBUTING.md says to change them together.
version=$(sed -n 's/^version: //p' charts/rota/Chart.yaml)
for line in "version: $version" "appVersion: v$version" "  version: $version" \
	"      image: ghcr.io/rota-dev/website-operator:v$version"; do
	grep -qxF -- "$line" charts/website/Chart.yaml || bad "charts/website/Chart.yaml has no line \"$line\""
done
pages=(-r --include=*.yaml --include=*.md charts docs examples apiservers README.md)
found=$(grep -noE "ghcr\.io/rota-dev/[a-z-]+(:v[0-9][^]\"'@)[:space:]\`]*)?" "${pages[@]}")
[ "$(wc -l <<<"$found")" -ge 5 ] || bad "only these images are in manifests: $found"
others=$(grep -vE ":ghcr\.io/rota-dev/(charts|(rota|website-operator)(:v${version//./\\.})?)$" <<<"$found") &&
	bad "these images are not those of v$version in tools/release/image.go:"$'\n'"$others"
others=$(grep -nE 'oci://ghcr\.io/rota-dev/charts\S* --version ' "${pages[@]}" | grep -vE -- "--version ${version//./\\.}( |$)") &&
	bad "these commands install another version of a chart than $version:"$'\n'"$others"

# Manifests run the images as the user that they have.
user=$(sed -n 's/^const user = //p' tools/release/image.go)
for file in charts/rota/values.yaml examples/dispatch/dispatcher.yaml examples/website/deploy/website.yaml; do
	[ "$(grep -oE 'runAsUser: [0-9]+' $file | sort -u)" = "runAsUser: $user" ] || bad "$file does not run as user $user"
done

# tag.sh: what it lets be released, and what it calls the newest.
commit() {
	git -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m "$1"
	git tag "$1"
}
git init -q -b main "$work/origin"
cd "$work/origin"
commit v0.1.0
git branch release-0.1
commit v0.2.0-rc.1
commit v0.9.0
commit v0.10.0
git switch -q release-0.1
commit v0.1.1
commit v0.2.1 # of another minor version than the branch
git switch -q -c side
commit v0.1.2
git tag v1 main
git clone -q "$work/origin" "$work/checkout" 2>/dev/null
cd "$work/checkout"
while read -r tag want; do
	got=$("$root/tools/release/tag.sh" "$tag" 2>&1) && allowed=newest || allowed=the
	[ "$got" = "$want" ] && [[ $want == "$allowed"* ]] || bad "tag.sh $tag: $got, want $want"
done <<'END'
v0.10.0 newest=true
v0.9.0 newest=false
v0.2.0-rc.1 newest=false
v0.1.1 newest=false
v0.2.1 the commit of v0.2.1 is neither on main nor on release-0.2
v0.1.2 the commit of v0.1.2 is neither on main nor on release-0.1
v1 the tag v1 is not of the form vX.Y.Z or vX.Y.Z-rc.N
END
exit $failed
