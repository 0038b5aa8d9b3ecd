#!/usr/bin/env bash
# Tests the release in bin/dist: what is in it, and that a user can install it. rota-kube is built; crane, helm and
# rota-release are in PATH. What runs programs with another root needs root, and is skipped otherwise.
set -euo pipefail
cd "$(dirname "$0")"
GOWORK=off RELEASE="$(cd ../.. && pwd)/bin/dist" go test -count=1 -timeout 20m -v -run '^TestRelease' .
