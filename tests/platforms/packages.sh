#!/bin/sh
# What is published, as its users and its indexes see it.
#
#     sh tests/platforms/packages.sh PYTHON
#
# PYTHON has pip; twine, pyroma and check-wheel-contents are asked if it has them.
set -u
python=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. tests/platforms/check.sh

builder=examples/python/building/attn_wheel.py
pip="$python -m pip wheel --no-deps --no-build-isolation -q"

# The source distribution: the same bytes from another place and by another umask.
sdist()
{
    "$python" $builder "$tmp/one" sdist && cp -R attn.h LICENSE examples tools "$tmp/two" && cd "$tmp/two" &&
        umask 077 && "$python" $builder "$tmp/three" sdist && cmp "$tmp"/one/*.tar.gz "$tmp"/three/*.tar.gz
}
mkdir "$tmp/two"
check 'source distribution: the same bytes' eval '(sdist)'

# A wheel's tag for 40 platforms, as their Python names them, is one of those that pip takes there.
check 'tags of wheels' env PYTHONPATH=examples/python/building "$python" tests/platforms/wheel_tags.py

# From it alone, without a network, by whoever has a compiler.
check 'source distribution: installs' "$python" -m pip install -q --no-index --no-deps --no-build-isolation \
    --target "$tmp/installed" "$tmp"/one/*.tar.gz
if "$python" -c 'import numpy' 2>/dev/null; then
    check 'source distribution: a story' sh -c "PYTHONPATH='$tmp/installed' '$python' -m attn | grep -q 'Once upon a time'"
    check 'source distribution: attn-convert' env PYTHONPATH="$tmp/installed" "$tmp/installed/bin/attn-convert" tests/golden/plain \
        "$tmp/plain.attn" --no-tokenizer
else
    skip "no numpy for $python: a story from the installed package"
fi

# Without a compiler: one sentence that says what to do.
mkdir "$tmp/out"
none()
{
    if env CC=no-such-compiler $pip -w "$tmp/out" ./examples/python >"$tmp/none" 2>&1; then return 1; fi
    grep -q 'attn needs a C compiler, and there is no no-such-compiler: install gcc or clang' "$tmp/none" &&
        ! grep -q FileNotFoundError "$tmp/none"
}
check 'no compiler' none

# What the environment gives comes beside -O2, not in its place.
cat >"$tmp/compiler" <<'END'
#!/bin/sh
case "$*" in *library.c*) echo "$*" >>"$LOG" ;; esac
exec cc "$@"
END
chmod +x "$tmp/compiler"
flags()
{
    LOG=$tmp/commands CC=$tmp/compiler CFLAGS=-DONE CPPFLAGS=-DTWO LDFLAGS=-L. $pip -w "$tmp/out" ./examples/python &&
        grep -q -e ' -O2 -DTWO -DONE -L\. ' "$tmp/commands"
}
check 'flags of the environment' flags

# The indexes' own checkers.
package=$(ls "$tmp"/one/*.tar.gz)
for tool in twine pyroma check_wheel_contents; do
    "$python" -c "import $tool" 2>/dev/null || { skip "no $tool for $python"; continue; }
    case $tool in
    twine) check twine "$python" -m twine check --strict "$package" "$tmp"/out/*.whl ;;
    pyroma) check pyroma "$python" -m pyroma -n 9 --skip-tests Author,AuthorEmail,Url "$package" ;;
    *) check check-wheel-contents "$python" -m check_wheel_contents "$tmp"/out/*.whl ;;
    esac
done

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
