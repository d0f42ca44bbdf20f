#!/bin/sh
# Puts the page together: sh inline.sh SOURCES BUILD OUTPUT
#
# page.html has a mark where each part goes. Modules become one script: their imports go, for all
# names are then in one scope. The policy in the page's head allows these scripts and styles by their
# hashes, and no request at all.
set -eu
sources=$1 build=$2 output=$3
parts=$build/web
mkdir -p "$parts"

join() # FILE...: modules in the order of their imports, as one script
{
    for file; do
        sed -e '/^import .* from /d' -e 's/^export //' -e 's/import\.meta\.url/""/' -e '/^ *\/\/ /d' "$sources/$file"
    done
}
bytes() { printf %b "$(sed 's/../0x& /g' | xargs printf '\\0%03o')"; } # of hexadecimal digits
hash() { printf "'sha256-%s'" "$(sha256sum <"$1" | cut -c1-64 | bytes | base64)"; }

join wasi.js attn.js worker.js >"$parts/worker"
{ echo "\"use strict\";"; join draw.js flow.js changes.js save.js ask.js surprisal.js questions.js tour.js page.js; } >"$parts/script"
# awk below drops the last line end, so the hashes are of parts without it
printf %s "$(cat "$sources/draw.css" "$sources/page.css")" >"$parts/style"
printf %s "$(cat "$parts/script")" >"$parts/script.cut" && mv "$parts/script.cut" "$parts/script"
for file in attn.wasm attn-simd.wasm attn-relaxed.wasm attn-query.wasm attn-convert.wasm tiny-stories.attn; do
    gzip -9nc "$build/$file" | base64 -w 0 >"$parts/${file%.*}"
done
mv "$parts/tiny-stories" "$parts/model"
cat >"$parts/policy" <<END
default-src 'none'; script-src $(hash "$parts/script") 'wasm-unsafe-eval'; worker-src blob:; style-src $(hash "$parts/style"); img-src data: blob:; base-uri 'none'; form-action 'none'
END

# A mark stands alone in its line: @part@. The part follows without a line end of its own.
awk -v parts="$parts" '
    function put(file,    line, first) {
        first = 1
        while ((getline line < file) > 0) {
            printf "%s%s", first ? "" : "\n", line
            first = 0
        }
        close(file)
    }
    { while (match($0, /@[a-z-]+@/)) {
          printf "%s", substr($0, 1, RSTART - 1)
          put(parts "/" substr($0, RSTART + 1, RLENGTH - 2))
          $0 = substr($0, RSTART + RLENGTH)
      }
      print }' "$sources/page.html" >"$output.part"
mv "$output.part" "$output"
