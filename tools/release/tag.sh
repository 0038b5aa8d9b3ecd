#!/usr/bin/env bash
# Says whether a tag may be released: its commit must be on main, or on the branch release-X.Y of its minor version. It
# prints newest=true if no release is of a higher version, for the mark "latest" and for krew; else newest=false.
set -euo pipefail
tag=$1
if [[ ! $tag =~ ^v([0-9]+\.[0-9]+)\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "the tag $tag is not of the form vX.Y.Z or vX.Y.Z-rc.N" >&2
	exit 1
fi
branch=release-${BASH_REMATCH[1]} candidate=${BASH_REMATCH[2]}
on() { git merge-base --is-ancestor "$tag^{commit}" "refs/remotes/origin/$1" 2>/dev/null; }
if ! on main && ! on "$branch"; then
	echo "the commit of $tag is neither on main nor on $branch" >&2
	exit 1
fi
if [ -z "$candidate" ] && [ "$(git tag | grep -Ex 'v[0-9]+(\.[0-9]+){2}' | sort -V | tail -n 1)" = "$tag" ]; then
	echo newest=true
else
	echo newest=false
fi
