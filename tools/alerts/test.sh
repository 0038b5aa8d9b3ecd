#!/usr/bin/env bash
# Has promtool evaluate docs/alerts.yaml over the metrics of members that go through what the alerts are about
# (TestScenarios), and over what is in written.yaml; and parse the expressions of the Grafana dashboard.
set -euo pipefail
cd "$(dirname "$0")/../.."
promtool=${PROMTOOL:-promtool}
if ! command -v "$promtool" >/dev/null; then
	echo "NO TEST OF THE ALERTS: promtool is not installed. On Debian: apt-get install prometheus" >&2
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=tools/alerts
go test -count=1 -run '^TestScenarios$' ./internal/engine -series "$work"
for file in "$work"/*.txt; do
	name=$(basename "$file" .txt)
	grep -q "^$name:" $here/firing.txt || { echo "$here/firing.txt has no scenario $name" >&2; exit 1; }
	# A file has a line with the period, and a line for each series.
	awk -v name="$name" -v firing="$(sed -n "s/^$name: *//p" $here/firing.txt)" -v rules="$PWD/docs/alerts.yaml" '
		NR == 1 { printf "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n- name: %s\n  interval: %s\n  input_series:\n", rules, name, $2 }
		NR > 1 {
			at = index($0, "} "); series = substr($0, 3, at - 2); values = substr($0, at + 2)
			gsub("'\''", "&&", series); printf "  - {series: '\''%s'\'', values: '\''%s'\''}\n", series, values
			scrapes = split(values, all, " ")
		}
		END {
			printf "  promql_expr_test:\n  - expr: group by (alertname) (last_over_time(ALERTS{alertstate=\"firing\"}[1d]))\n"
			printf "    eval_time: %ds\n    exp_samples:\n", (scrapes - 2) * 15
			n = split(firing, alerts, " ")
			for (i = 1; i <= n; i++) printf "    - {labels: '\''{alertname=\"%s\"}'\'', value: 1}\n", alerts[i]
		}' "$file" >"$work/$name.yaml"
	rm "$file"
done
diff <(sed -n 's/^\([a-z-]*\):.*/\1/p' $here/firing.txt | sort) <(basename -s .yaml "$work"/*.yaml | sort) # each scenario is there
for alert in $(sed -n 's/^ *- alert: //p' docs/alerts.yaml); do
	grep -q "\b$alert\b" $here/firing.txt $here/written.yaml || { echo "$alert never fires" >&2; exit 1; }
done
$promtool test rules $here/written.yaml "$work"/*.yaml >"$work/log" 2>&1 || { grep -v SUCCESS "$work/log"; exit 1; }
{
	printf 'groups:\n- name: dashboard\n  rules:\n'
	sed -nE 's/^ *"expr": ("(\\.|[^"\\])*"),?$/  - {record: panel, expr: \1}/p' docs/grafana-dashboard.json |
		sed 's/\$rota/a/g; s/\$__rate_interval/1m/g' | awk '{ sub("panel", "panel_" NR); print }'
} >"$work/dashboard.yaml"
$promtool check rules docs/alerts.yaml "$work/dashboard.yaml"
