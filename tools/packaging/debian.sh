#!/bin/sh
# The source tree of the Debian package, and the packages if dpkg-buildpackage is here:
#
#     sh tools/packaging/debian.sh BUILD VERSION [OPTIONS of dpkg-buildpackage]
#
# Everything is below BUILD/debian. Files are those that git tracks; the time is the last commit's.
set -eu
build=$1 version=$2
shift 2
major=${version%%.*}
place=$build/debian/attn-$version
fact() # KEY: what tools/packaging/publishing.txt says
{
    sed -n "s/^$1: *//p" tools/packaging/publishing.txt | head -1
}
name=$(fact name) email=$(fact email) url=$(fact url)
maintainer="${name:-The attn.h authors} <${email:-attn@example.org}>"
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

rm -rf "$build/debian"
mkdir -p "$place"
git ls-files -z | xargs -0 cp --parents -p -t "$place"
cp -R "$place/tools/packaging/debian" "$place/debian"
mv "$place/debian/libattn.install" "$place/debian/libattn$major.install"
sed -i "s/@MAINTAINER@/$maintainer/; s/@MAJOR@/$major/g; s/@VERSION@/$version/g; s|@URL@|$url|; /^Homepage: *$/d" \
    "$place/debian/control" "$place/debian/rules"
cat >"$place/debian/changelog" <<END
attn ($version-1) unstable; urgency=medium

  * New version: see ">>changes" at the end of attn.h.

 -- $maintainer  $(date -u -R -d "@$time")
END
chmod -R u+rwX,go+rX,go-w "$place"
find "$place" -exec touch -h -d "@$time" {} +
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --exclude="attn-$version/debian" \
    -C "$build/debian" -c "attn-$version" | gzip -n9 >"$build/debian/attn_$version.orig.tar.gz"
command -v dpkg-buildpackage >/dev/null || { echo 'there is no dpkg-buildpackage here (Debian: dpkg-dev, debhelper)'; exit; }
cd "$place"
SOURCE_DATE_EPOCH=$time dpkg-buildpackage -us -uc "$@"
# The number of a bug that asks for the package in Debian comes with the person who uploads it.
! command -v lintian >/dev/null || lintian --profile debian --fail-on error,warning --allow-root \
    --suppress-tags initial-upload-closes-no-bugs ../*.changes
