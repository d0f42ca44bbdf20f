#!/bin/sh
# What `make install` and `make uninstall` do: sh tools/packaging/install.sh install|uninstall. make gives all names in
# the environment. They may have blanks, except those of what is built.
set -eu
umask 022
bin=$DESTDIR$BINDIR lib=$DESTDIR$LIBDIR include=$DESTDIR$INCLUDEDIR man=$DESTDIR$MANDIR doc=$DESTDIR$DOCDIR
bash=$DESTDIR$DATADIR/bash-completion/completions zsh=$DESTDIR$DATADIR/zsh/site-functions
fish=$DESTDIR$DATADIR/fish/vendor_completions.d

if [ "$1" = uninstall ]; then
    for p in $RENAMED $PLAIN; do
        name=attn-${p#attn-}
        rm -f "$bin/$name" "$man/man1/$name.1" "$bash/$name" "$zsh/_$name" "$fish/$name.fish"
    done
    rm -f "$include/attn.h" "$include/attn.hpp" "$man/man3/attn.3" "$lib/pkgconfig/attn.pc" "$lib/pkgconfig/attn-static.pc"
    rm -f "$lib/libattn.a" "$lib/$SHARED" "$lib/$SONAME" "$lib/$LINKED"
    rm -f "$doc/LICENSE" "$doc/README.md" # the directory may be one that others use
    rmdir "$doc" 2>/dev/null || true
    rm -rf "$lib/cmake/attn" "$include/attn-lens"
    exit
fi

# What is installed may be moved, so files name other files from the prefix on, and the prefix by the way up to it. A
# directory that is not below the prefix has its own name.
up() # DIRECTORY HERE: the prefix, from a file in the directory, whose name is HERE there
{
    case $1 in
    "$PREFIX"/*) printf '%s' "$2"; printf '%s' "${1#"$PREFIX"}" | sed 's,/[^/]*,/..,g' ;;
    *) printf '%s' "$PREFIX" ;;
    esac
}
below() # DIRECTORY VARIABLE: its name, by the variable that holds the prefix
{
    case $1 in
    "$PREFIX"/*) printf '%s' "\${$2}/${1#"$PREFIX"/}" ;;
    *) printf '%s' "$1" ;;
    esac
}
quoted() # TEXT: for the right side of s|||
{
    printf '%s' "$1" | sed 's/[&|\\]/\\&/g'
}

for directory in "$bin" "$lib/pkgconfig" "$lib/cmake/attn" "$include/attn-lens" "$man/man1" "$man/man3" "$doc" \
    "$bash" "$zsh" "$fish"; do
    mkdir -p "$directory"
done
for p in $RENAMED $PLAIN; do
    name=attn-${p#attn-}
    install -m 755 "$BUILD/$p" "$bin/$name"
    sh tools/packaging/man.sh "$NATIVE/$p" "$name" "$VERSION" >"$man/man1/$name.1"
    sh tools/packaging/completion.sh bash "$name" >"$bash/$name"
    sh tools/packaging/completion.sh zsh "$name" >"$zsh/_$name"
    sh tools/packaging/completion.sh fish "$name" >"$fish/$name.fish"
done
install -m 644 attn.h examples/cpp/attn.hpp "$include"
for h in $HEADERS; do
    sed 's,^#include "\.\./write/,#include ",' "tools/$h.h" >"$include/attn-lens/${h#*/}.h"
done
install -m 644 LICENSE README.md "$doc"
install -m 644 "$BUILD/attn.3" "$man/man3"
install -m 644 "$BUILD/libattn.a" "$lib"
install -m 755 "$BUILD/$SHARED" "$lib"
ln -sf "$SHARED" "$lib/$SONAME"
ln -sf "$SONAME" "$lib/$LINKED"

for f in attnConfig attnConfigVersion; do
    sed -e "s/@VERSION@/$VERSION/; s|@SONAME@|$RPATH$SONAME|; s/@STATIC_NEEDS@/$(printf ';%s' $NEEDS | sed 's/^;$//')/" \
        -e "s|@PREFIX@|$(quoted "$(up "$LIBDIR/cmake/attn" '${CMAKE_CURRENT_LIST_DIR}')")|" \
        -e "s|@LIBRARY@|$(quoted "$(below "$LIBDIR" attn_prefix)")/$SHARED|" \
        -e "s|@ARCHIVE@|$(quoted "$(below "$LIBDIR" attn_prefix)")/libattn.a|" \
        -e "s|@INCLUDE@|$(quoted "$(below "$INCLUDEDIR" attn_prefix)")|" \
        tools/packaging/cmake/$f.cmake >"$lib/cmake/attn/$f.cmake"
done
url=$(sed -n 's/^url: *//p' tools/packaging/publishing.txt)
cat >"$lib/pkgconfig/attn.pc" <<END
prefix=$(up "$LIBDIR/pkgconfig" '${pcfiledir}')
includedir=$(below "$INCLUDEDIR" prefix)
libdir=$(below "$LIBDIR" prefix)

Name: attn
Description: $(sed -n 's/^summary: *//p' tools/packaging/publishing.txt)
${url:+URL: $url
}Version: $VERSION
Cflags: -I\${includedir}
Libs: -L\${libdir} -lattn
Libs.private: ${NEEDS:+$NEEDS }-lm
END
sed -e 's/^Name: attn/&-static/' -e "s|^Libs: .*|Libs: \${libdir}/libattn.a ${NEEDS:+$NEEDS }-lm|" -e '/^Libs.private/d' \
    "$lib/pkgconfig/attn.pc" >"$lib/pkgconfig/attn-static.pc"
