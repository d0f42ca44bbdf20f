#!/bin/sh
# Projects of CMake's that link attn::attn, attn::static and attn::header: from the sources, from what CMake
# installed, and from what `make install` installed, if its prefix is given.
#
#     sh tests/platforms/cmake.sh BUILD [PREFIX]
set -eu
CFLAGS=-DATTN_NO_SIMD # kernels are tested elsewhere, and take long to compile
export CFLAGS
root=$PWD
place=$(mkdir -p "$1/cmake" && cd "$1/cmake" && pwd)
rm -rf "$place" && mkdir -p "$place/added" "$place/found"

cat >"$place/app.c" <<'END'
#include <attn.h>
#include <stdio.h>
int main(void)
{
    attn_ctx ctx = ATTN_ZERO;
    return puts(attn_isa(&ctx)) < 0 || attn_version() != ATTN_VERSION;
}
END
printf '#define ATTN_IMPLEMENTATION\n' | cat - "$place/app.c" >"$place/whole.c"
cat >"$place/programs.cmake" <<'END'
foreach(library attn static)
  add_executable(${library}_app ../app.c)
  target_link_libraries(${library}_app attn::${library})
endforeach()
add_executable(header_app ../whole.c)
target_link_libraries(header_app attn::header)
END
printf 'cmake_minimum_required(VERSION 3.18)\nproject(app C)\n%s\ninclude(../programs.cmake)\n' \
    "add_subdirectory(\"$root/tools/packaging/cmake\" attn)" >"$place/added/CMakeLists.txt"
printf 'cmake_minimum_required(VERSION 3.18)\nproject(app C)\n%s\ninclude(../programs.cmake)\n' \
    'find_package(attn 1.0 REQUIRED)' >"$place/found/CMakeLists.txt"
# The same for a project of C++ alone, which asks twice, as its parts may.
mkdir "$place/cxx"
cp "$place/app.c" "$place/app.cpp"
cp "$place/whole.c" "$place/whole.cpp"
sed 's/\.c)/.cpp)/' "$place/programs.cmake" >"$place/cxx/programs.cmake"
sed 's/app C/app CXX/; s/^find_package.*/&\n&/; s,\.\./programs,programs,' "$place/found/CMakeLists.txt" >"$place/cxx/CMakeLists.txt"

# A project, a directory for it, options: all three programs run, and the second needs no library of attn's.
programs()
{
    project=$1
    directory=$2
    shift 2
    cmake -S "$place/$project" -B "$place/$directory" "$@" >/dev/null
    cmake --build "$place/$directory" >"$place/log" 2>&1 || { cat "$place/log"; exit 1; }
    for program in attn static header; do "$place/$directory/${program}_app" >/dev/null; done
    ! ldd "$place/$directory/static_app" 2>/dev/null | grep libattn
    echo "$directory: attn::attn, attn::static, attn::header"
}

for shared in OFF ON; do
    programs added "added-$shared" -DBUILD_SHARED_LIBS=$shared
    cmake -S "$root/tools/packaging/cmake" -B "$place/library-$shared" -DBUILD_SHARED_LIBS=$shared \
        -DCMAKE_INSTALL_PREFIX="$place/installed-$shared" >/dev/null
    cmake --build "$place/library-$shared" --target install >"$place/log" 2>&1 || { cat "$place/log"; exit 1; }
    programs found "found-$shared" -DCMAKE_PREFIX_PATH="$place/installed-$shared"
    programs cxx "cxx-$shared" -DCMAKE_PREFIX_PATH="$place/installed-$shared"
done
ldd "$place/added-ON/attn_app" 2>/dev/null | grep -q libattn || [ "$(uname -s)" != Linux ]
[ $# = 1 ] || { programs found found-make -DCMAKE_PREFIX_PATH="$2"; programs cxx cxx-make -DCMAKE_PREFIX_PATH="$2"; }
