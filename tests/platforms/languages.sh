#!/bin/sh
# The library from C++ and from Lua, and unloaded by dlclose: sh tests/platforms/languages.sh BUILD
#
# BUILD holds attn.o, libattn.so and tiny-stories.attn. A language whose compiler or interpreter is
# not here is skipped.
set -u
build=$(cd "$1" && pwd)
model=$build/tiny-stories.attn
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. tests/platforms/check.sh
flags='-Wall -Wextra -pedantic -Wshadow -Wconversion -Werror -I.'

have() # TOOL NAME
{
    command -v "$1" >/dev/null && return
    skip "$2, there is no $1"
    return 1
}
prints() # TEXT COMMAND...: a line that begins like this
{
    text=$1
    shift
    "$@" >"$tmp/printed" 2>&1
    cat "$tmp/printed"
    grep -q "^$text" "$tmp/printed"
}
fails_with() # TEXT COMMAND...
{
    text=$1
    shift
    ! "$@" >"$tmp/printed" 2>&1 && grep -q "$text" "$tmp/printed"
}

for compiler in g++ clang++; do
    have $compiler 'attn.hpp' || continue
    for standard in 17 20; do
        # shellcheck disable=SC2086 # flags are a list of words
        for program in examples/cpp/glass_box.cpp tests/platforms/cpp/test_attn.cpp; do
            check "$program" $compiler -std=c++$standard $flags -fopenmp -DATTN__IMPLEMENTED -Iexamples/cpp $program \
                "$build/attn.o" -o "$tmp/$(basename $program .cpp)"
        done
        check 'glass_box.cpp' prints 'with the head 12.42, without it 12.72, by a hook 12.72' "$tmp/glass_box" "$model"
        check 'glass_box.cpp' prints 'before layer 3:,' "$tmp/glass_box" "$model"
        check 'glass_box.cpp' fails_with '/no/such.attn: cannot be read' "$tmp/glass_box" /no/such.attn
        check 'test_attn.cpp' "$tmp/test_attn" "$model"
    done
done
check 'attn.hpp has at most 345 lines' [ "$(wc -l <examples/cpp/attn.hpp)" -le 345 ]

if have luajit 'attn.lua'; then
    export ATTN_LIBRARY="$build/libattn.so"
    for i in 1 2 3 4 5; do # it unloads the library at its end
        check 'attn.lua' prints "a comma's logit with a head 12.42, without it 12.72" \
            luajit examples/lua/attn.lua "$model" 'Once upon a time'
    done
    check 'attn.lua' fails_with '/no/such.attn: cannot be read' luajit examples/lua/attn.lua /no/such.attn
    check 'attn.lua has at most 133 lines of code' [ "$(grep -vcE '^ *(--.*)?$' examples/lua/attn.lua)" -le 133 ]
    check 'attn.lua' prints passed luajit tests/platforms/lua/test_attn.lua "$model"
fi

# OpenMP's threads outlive a dlclose.
cat >"$tmp/unload.c" <<'END'
#include "attn.h"
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    static const int32_t tokens[200];
    for (int i = 0; i < 10; i++) {
        attn_ctx ctx = ATTN_ZERO;
        attn_model *model = NULL;
        attn_session *session = NULL;
        void *library = dlopen(argv[argc - 2], RTLD_NOW);
        attn_status (*open)(attn_ctx *, attn_model **, const char *, const attn_model_desc *);
        attn_status (*make)(attn_ctx *, attn_session **, const attn_model *, const attn_session_desc *);
        attn_status (*feed)(attn_ctx *, attn_session *, const int32_t *, size_t);
        void (*end)(attn_session *), (*close)(attn_model *);
        if (!library)
            return puts(dlerror()), 1;
        *(void **)&open = dlsym(library, "attn_model_open");
        *(void **)&make = dlsym(library, "attn_session_new");
        *(void **)&feed = dlsym(library, "attn_feed");
        *(void **)&end = dlsym(library, "attn_session_free");
        *(void **)&close = dlsym(library, "attn_model_close");
        ctx.n_threads = 4;
        if (open(&ctx, &model, argv[argc - 1], NULL) || make(&ctx, &session, model, NULL) ||
            feed(&ctx, session, tokens, 200))
            return puts(ctx.message), 1;
        end(session); /* which own threads end with */
        close(model);
        dlclose(library);
        usleep(30000);
    }
    return 0;
}
END
check 'dlclose' cc -I. "$tmp/unload.c" -ldl -o "$tmp/unload"
check 'dlclose' "$tmp/unload" "$build/libattn.so" "$model"
check 'dlclose of own threads' cc -O1 -fPIC -shared -pthread -D_DEFAULT_SOURCE -DATTN_THREADS -DATTN_NO_SIMD -DATTN_IMPLEMENTATION -x c attn.h \
    -o "$tmp/own.so" -lm
check 'dlclose of own threads' "$tmp/unload" "$tmp/own.so" "$model"

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
