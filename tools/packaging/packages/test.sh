#!/bin/sh
# Builds app.c, a program outside, against each package that can be made here, and says which cannot:
#
#     sh tools/packaging/packages/test.sh [cmake meson conan debian zig]
#
# Needs the package's own tool: meson, conan and ziglang (python3 -m ziglang) are on PyPI, lintian and
# debhelper are Debian's. The kernels are left out where a recipe allows that, to be quick.
set -u
root=$(git rev-parse --show-toplevel)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0
CFLAGS=-DATTN_NO_SIMD
export CFLAGS
sources() # DIRECTORY: as it would be downloaded
{
    mkdir -p "$1"
    (cd "$root" && git ls-files -z | tar -cf - --null -T -) | tar -xf - -C "$1"
}
sources "$tmp/source"
packages=$tmp/source/tools/packaging/packages
app=$packages/app.c

have() # TOOL...: the words of a command
{
    "$@" >/dev/null 2>&1 && return
    echo "not run here: $package, there is no $1${2:+ $2}"
    skipped=$((skipped + 1))
    return 1
}
step() # COMMAND...: what it prints is shown if it fails
{
    "$@" >"$tmp/log" 2>&1 && return
    echo "FAILED: $package: $*"
    tail -20 "$tmp/log"
    return 1
}
count()
{
    if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    [ "$1" = 0 ] && echo "ok: $package${2:+, $2}"
}
outside() # LIST: a CMake project that is linked with attn::attn, found below LIST
{
    rm -rf "$tmp/app"
    mkdir "$tmp/app"
    cat >"$tmp/app/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.18)
project(app C)
find_package(attn 0.4 REQUIRED)
add_executable(app $app)
target_link_libraries(app attn::attn)
END
    step cmake -S "$tmp/app" -B "$tmp/app/build" -DCMAKE_PREFIX_PATH="$1" &&
        step cmake --build "$tmp/app/build" && step "$tmp/app/build/app"
}

run_by_wine() # DIRECTORY of the .dll
{
    ran='linked and not run'
    command -v wine >/dev/null || return 0
    ran='run by Wine'
    cp "$1"/*.dll "$tmp" 2>/dev/null # beside the program, where Windows looks for it
    WINEPREFIX=$tmp/wine WINEDEBUG=-all step wine "$tmp/app.exe"
}

try_cmake()
{
    have cmake --version || return
    for shared in OFF ON; do
        step cmake -S "$tmp/source/tools/packaging/cmake" -B "$tmp/cmake" -DBUILD_SHARED_LIBS=$shared \
            -DCMAKE_INSTALL_PREFIX="$tmp/a prefix $shared" && step cmake --build "$tmp/cmake" &&
            step cmake --install "$tmp/cmake" && outside "$tmp/a prefix $shared"
        count $? "BUILD_SHARED_LIBS=$shared"
    done
    # -O2, also where the build type is Debug or none
    for type in Debug ''; do
        step cmake -S "$tmp/source/tools/packaging/cmake" -B "$tmp/cmake-$type" -DCMAKE_BUILD_TYPE=$type &&
            step grep -e '-O2' "$tmp/cmake-$type/CMakeFiles/attn.dir/flags.make"
        count $? "CMAKE_BUILD_TYPE=$type"
    done
    x86_64-w64-mingw32-gcc --version >/dev/null 2>&1 || { echo 'not run here: cmake for Windows'; return; }
    for shared in OFF ON; do # a program finds the functions of the .dll only if it exports them
        step cmake -S "$tmp/source/tools/packaging/cmake" -B "$tmp/windows-$shared" -DBUILD_SHARED_LIBS=$shared \
            -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_C_COMPILER=x86_64-w64-mingw32-gcc -DATTN_OPENMP=OFF &&
            step cmake --build "$tmp/windows-$shared" && step x86_64-w64-mingw32-gcc -I"$root" "$app" \
            -L"$tmp/windows-$shared" -lattn -o "$tmp/app.exe" && run_by_wine "$tmp/windows-$shared"
        count $? "for Windows, $ran, BUILD_SHARED_LIBS=$shared"
    done
}

try_meson()
{
    have meson --version || return
    mkdir -p "$tmp/meson/subprojects"
    cp -R "$packages/meson/packagefiles" "$tmp/meson/subprojects"
    (cd "$tmp/source" && git init -q && git add -A && git -c user.name=test -c user.email=test commit -qm source)
    sed -e "s,^url = .*,url = file://$tmp/source," -e "s,^revision = .*,revision = HEAD," -e '/^depth/d' \
        "$packages/meson/attn.wrap" >"$tmp/meson/subprojects/attn.wrap"
    cp "$app" "$tmp/meson/app.c"
    cat >"$tmp/meson/meson.build" <<'END'
project('app', 'c')
test('app', executable('app', 'app.c', dependencies: dependency('attn', version: '>=0.4')))
END
    for kind in static shared; do
        step meson setup "$tmp/meson/$kind" "$tmp/meson" -Ddefault_library=$kind &&
            step meson test -C "$tmp/meson/$kind" app
        count $? "$kind, $(meson --version)"
    done
}

try_conan()
{
    have conan --version || return
    CONAN_HOME=$tmp/conan
    export CONAN_HOME
    step conan profile detect
    for shared in False True; do
        (cd "$tmp" && step conan create "$packages/conan" -o "attn/*:shared=$shared" --build=missing --no-remote)
        count $? "shared=$shared, $(conan --version)"
    done
}

try_debian()
{
    have dpkg-buildpackage --version && have lintian --version && have dpkg-query -W debhelper || return
    sources "$tmp/debian/attn-0.4.0" # without what other packages built in theirs
    cp -R "$packages/debian" "$tmp/debian/attn-0.4.0"
    (cd "$tmp/debian/attn-0.4.0" && unset CFLAGS && step dpkg-buildpackage -us -uc) &&
        step lintian --fail-on error,warning "$tmp"/debian/*.changes &&
        for package in "$tmp"/debian/*.deb; do dpkg-deb -x "$package" "$tmp/debian/installed"; done
    status=$?
    package=debian
    if [ $status = 0 ]; then
        grep -v '^$' "$tmp/log"
        lib=$(dirname "$(find "$tmp/debian/installed" -name libattn.so)")
        # shellcheck disable=SC2046 # options are a list of words
        step cc "$app" $(PKG_CONFIG_PATH="$lib/pkgconfig" pkg-config --cflags --libs attn) -o "$tmp/debian/app" &&
            LD_LIBRARY_PATH="$lib" step "$tmp/debian/app" && outside "$tmp/debian/installed/usr"
        status=$?
    fi
    count $status "$(dpkg-buildpackage --version | head -1), $(lintian --version)"
}

try_zig()
{
    have python3 -m ziglang version || return
    cp -R "$packages/zig" "$tmp/zig"
    cp -R "$tmp/source" "$tmp/zig/source"
    mkdir "$tmp/zig-app"
    cp "$app" "$tmp/zig-app"
    cat >"$tmp/zig-app/build.zig.zon" <<'END'
.{ .name = .app, .version = "0.0.0", .fingerprint = 0, .dependencies = .{ .attn = .{ .path = "../zig" } }, .paths = .{""} }
END
    cat >"$tmp/zig-app/build.zig" <<'END'
const std = @import("std");
pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const app = b.addExecutable(.{ .name = "app", .root_module = b.createModule(.{ .target = target, .link_libc = true }) });
    app.root_module.addCSourceFile(.{ .file = b.path("app.c") });
    app.root_module.linkLibrary(b.dependency("attn", .{ .target = target }).artifact("attn"));
    b.default_step.dependOn(&b.addRunArtifact(app).step);
}
END
    cd "$tmp/zig-app" || return
    # Zig names the number that a new package has to have.
    number=$(python3 -m ziglang build 2>&1 | sed -n 's/.*use this value: \(0x[0-9a-f]*\).*/\1/p')
    sed "s/\.fingerprint = 0,/.fingerprint = $number,/" build.zig.zon >numbered
    mv numbered build.zig.zon
    step python3 -m ziglang build
    count $? "$(python3 -m ziglang version)"
    cd "$root" || exit
}

for package in ${*:-cmake meson conan debian zig}; do
    try_$package
done
echo "$passed passed, $failed failed, $skipped not run"
[ $failed = 0 ]
