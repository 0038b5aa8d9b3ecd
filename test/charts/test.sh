#!/usr/bin/env bash
# Lints the charts, compares what they render with the files in testdata and examples/website/deploy, and holds
# refused.txt against the schemas and templates. UPDATE=1 writes the files. `make bin/helm` builds Helm.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD/test/charts root=$PWD helm=${HELM:-$PWD/bin/helm} failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HELM_CACHE_HOME=$work/cache HELM_CONFIG_HOME=$work/config HELM_DATA_HOME=$work/data

# compare compares a file with standard input, or writes it.
compare() {
	cat >"$work/new"
	if [ -n "${UPDATE:-}" ]; then cp "$work/new" "$1"; fi
	diff -u "$1" "$work/new" || {
		echo "$1 is stale: UPDATE=1 test/charts/test.sh writes it" >&2
		failed=1
	}
}
compare charts/rota/files/alerts.yaml <docs/alerts.yaml
compare charts/website/crds/web.example.com_websites.yaml <examples/website/config/crd/web.example.com_websites.yaml

# The chart that docs/deploy.md shows to those who have their own.
cp -R charts/rota charts/website "$work"
mkdir -p "$work/shop/templates"
awk -v dir="$work/shop/" '
	/^```/ { file = ""; if (block = !block) { getline; if (/^# ([A-Za-z]+|templates\/[a-z]+)\.yaml$/) { file = dir $2; next } } }
	file { print >file }' docs/deploy.md
cd "$work"
for chart in website shop; do
	"$helm" dependency update --skip-refresh $chart >/dev/null
done
"$helm" lint --strict --quiet rota website || failed=1

# render prints what a chart renders, for people to read.
render() {
	"$helm" template "$@" | grep -vE '^(# Source: .*)?$' | sed 1d
}
for values in "$here"/testdata/*.values.yaml; do
	name=$(basename "$values" .values.yaml)
	case $name in website) golden=$root/examples/website/deploy/$name.yaml ;; *) golden=$here/testdata/$name.yaml ;; esac
	{
		echo "# Rendered from charts/website with test/charts/testdata/$name.values.yaml. Do not edit."
		render website-operator website -n operators -f "$values"
	} | compare "$golden"
done
{
	echo "# Rendered from the chart in docs/deploy.md. Do not edit."
	render prod shop -n shops --set rota.delivery=SlotLabel --set rota.fence.enabled=true
} | compare "$here/testdata/shop.yaml"
# Names that the outer chart defines win over the library's.
printf '%s' '{{ define "rota.fullname" }}shop-manager{{ end }}{{ define "rota.selectorLabels" }}app: shop{{ end }}' \
	>shop/templates/_names.tpl
render prod shop -n shops --show-only templates/deployment.yaml | compare "$here/testdata/shop-names.yaml"

while IFS='|' read -r value wants; do
	[[ $value != \#* ]] || continue
	if said=$("$helm" template website-operator website -n operators --set-json "${value% }" 2>&1); then
		[ "$wants" = ' accepted' ] || { echo "accepted: $value" >&2; failed=1; }
		continue
	fi
	while read -r want; do
		[[ $said == *"$want"* ]] || { echo "$value: the message lacks \"$want\": $said" >&2; failed=1; }
	done < <(tr '|' '\n' <<<"$wants")
done <"$here/refused.txt"
exit $failed
