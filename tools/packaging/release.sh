#!/bin/sh
# All that is published, in one folder: sh tools/packaging/release.sh BUILD VERSION PYTHON. `make release` builds the
# page and the manual first. PYTHON has ziglang, and twine, pyroma and check-wheel-contents to ask. What needs a tool
# that is not here is left out, and the last lines say so.
#
# Everything is made from the last commit, and a second run makes the same bytes. Facts that only a person has stand in
# publishing.txt; while one is missing, the folder is called unpublished.
set -eu
build=$1 version=$2 python=$3
missing=
for key in name email url tracker security; do
    grep -q "^$key: *[^ ]" tools/packaging/publishing.txt || missing="$missing $key"
done
place=$build/release/attn-$version${missing:+-unpublished}
[ -z "$(git status --porcelain)" ] || { echo 'there are changes that no commit has: a release is made of a commit' >&2; exit 1; }
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
absent=
rm -rf "$build/release"
mkdir -p "$place"
have() # TOOL WHAT
{
    command -v "$1" >/dev/null || { absent="$absent
  $2: there is no $1"; return 1; }
}

git archive --format=tar --prefix="attn.h-$version/" HEAD | gzip -n9 >"$place/attn.h-$version.tar.gz"
cp attn.h "$build/manual.html" "$place"
[ ! -f "$build/attn.html" ] || cp "$build/attn.html" "$place"

# What changed, in the words of the header.
awk -v version="$version" '
/^ \* Older versions: / { on = 0 }
/^ \* [0-9]+\.[0-9]+\.[0-9]+/ { on = index($0, " * " version) == 1 }
/^ \* After / { on = 1 }
on { sub(/^ \*( |$)/, ""); print }' attn.h >"$place/release-notes.txt"

if "$python" -c 'import ziglang' 2>/dev/null; then
    "$python" examples/python/building/attn_wheel.py "$place"
else
    absent="$absent
  wheels: $python has no ziglang"
    "$python" examples/python/building/attn_wheel.py "$place" sdist
fi
for check in 'twine check --strict' check_wheel_contents; do
    "$python" -c "import ${check%% *}" 2>/dev/null || { absent="$absent
  ${check%% *} did not look at the packages for Python"; continue; }
    case $check in
    twine*) "$python" -m $check "$place"/*.whl "$place/attn-$version.tar.gz" ;;
    *) ! ls "$place"/*.whl >/dev/null 2>&1 || "$python" -m $check "$place"/*.whl ;;
    esac
done

# R writes into its archive who packed it, and when.
if have R 'the R package'; then
    sh tools/packaging/r/build.sh "$build" >"$build/release/r.log"
    (
        cd "$build/release"
        tar xzf "../attn_$version.tar.gz"
        sed -i.old "s/^Packaged: .*/Packaged: $(date -u -d "@$SOURCE_DATE_EPOCH" '+%Y-%m-%d %H:%M:%S UTC'); attn/" attn/DESCRIPTION
        rm attn/DESCRIPTION.old
        find attn -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
        tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w -c attn | gzip -n9
    ) >"$place/attn_$version.tar.gz"
    rm -rf "$build/release/attn"
    (cd "$build/release" && _R_CHECK_FORCE_SUGGESTS_=false R CMD check --as-cran --no-manual "../release/${place##*/}/attn_$version.tar.gz" >check.log 2>&1 ||
        { cat check.log; exit 1; })
    if grep '^Status: .*\(ERROR\|WARNING\)' "$build/release/check.log"; then exit 1; fi
fi
if have dpkg-buildpackage 'the Debian source package'; then
    sh tools/packaging/debian.sh "$build" "$version" -S -d >"$build/release/debian.log" 2>&1 || { tail "$build/release/debian.log"; exit 1; }
    cp "$build/debian/attn_$version.orig.tar.gz" "$build/debian/attn_$version-1".d* "$place"
fi
(cd "$place" && sha256sum -- * >../SHA256SUMS && mv ../SHA256SUMS .)

(cd "$place" && ls -l)
echo "Ready: $place"
[ -z "$absent" ] || echo "Left out:$absent"
[ -z "$missing" ] || echo "Unpublished: tools/packaging/publishing.txt does not say:$missing"
