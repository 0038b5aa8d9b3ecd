#!/usr/bin/env bash
# Tests what is in the release in bin/dist. crane, helm and rota-release are in PATH.
set -euo pipefail
cd "$(dirname "$0")"
GOWORK=off RELEASE="$(cd ../.. && pwd)/bin/dist" go test -count=1 -timeout 20m -v -run '^TestRelease' .
