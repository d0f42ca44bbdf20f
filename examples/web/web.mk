# The page and the module: `make web` builds build/attn.html, and for pages of your own build/attn.js
# with build/attn.wasm and its variants attn-simd.wasm and attn-relaxed.wasm.

.PHONY: web web-test

CLICKS =

# The first clang here that makes WebAssembly with relaxed SIMD, or zig, if PYTHON has the package ziglang.
WASM_CC    = $(eval WASM_CC := $(shell for c in clang-21 clang-19 clang-18 clang-17 clang-16 clang; do \
                 echo 'int main(void) { return 0; }' | $$c --target=wasm32-wasi -mrelaxed-simd -x c \
                     -o /dev/null - 2>/dev/null && echo $$c && exit; done; \
                 $(PYTHON) -c 'import ziglang' 2>/dev/null && echo sh $(WEB)/zig.sh $(PYTHON)))$(WASM_CC)
WASM_FLAGS = -std=gnu99 -I. -I$(BUILD) -Wall -Wextra -Wshadow -Wconversion -Wno-language-extension-token -Wno-unused-function \
             -Wno-enum-float-conversion -DATTN_NO_MMAP
WASM_LINK  = -mexec-model=reactor -Wl,--strip-all -Wl,-z,stack-size=1048576
WASI       = -D_WASI_EMULATED_SIGNAL -D_WASI_EMULATED_GETPID -D_WASI_EMULATED_PROCESS_CLOCKS
WASI_LIBS  = -lwasi-emulated-signal -lwasi-emulated-getpid -lwasi-emulated-process-clocks
WEB        = examples/web
MODULES    = $(BUILD)/attn.wasm $(BUILD)/attn-simd.wasm $(BUILD)/attn-relaxed.wasm
PAGE       = page.html draw.css page.css wasi.js attn.js worker.js draw.js flow.js changes.js save.js ask.js \
             surprisal.js questions.js tour.js page.js

web: $(BUILD)/attn.html $(BUILD)/attn.js ## the model in a web page, build/attn.html (needs clang-16 and wasi-libc, or PYTHON=one with ziglang)

$(BUILD)/web-tools:
	@test -n '$(WASM_CC)' || { echo 'make web needs a compiler for WebAssembly: pip install ziglang, or on Debian' \
	    'apt install clang-16 lld-16 wasi-libc libclang-rt-16-dev-wasm32'; exit 1; } >&2
	@mkdir -p $(@D) && echo '$(WASM_CC)' >$@

# Two modules share a memory and a table of functions: attn.h (glue.c), and questions (glue_query.c), which call it. The
# linker begins the memory of the first after ROOM bytes, where the second has its own, and the second's functions after
# PLACES others, whose places in the table are the first module's.
ROOM       = 2097152
PLACES     = 256
ASKED      = $(wildcard tools/common/*.h tools/convert/*.h tools/lens/*.h tools/lens/program/*.h tools/lens/program/draw/*.h \
               tools/score/*.h tools/surprisal/*.h tools/waist/*.h tools/write/*.h)
CALLED     = malloc calloc realloc free aligned_alloc $(sort $(shell grep -oh '\battn_[a-z0-9_]*' $(ASKED) $(WEB)/attn.js))
ANSWERS    = $(sort $(shell grep -oh 'lens_query_[a-z]\+' tools/waist/query.h))
$(BUILD)/attn.wasm:         VARIANT =
$(BUILD)/attn-simd.wasm:    VARIANT = -msimd128
$(BUILD)/attn-relaxed.wasm: VARIANT = -msimd128 -mrelaxed-simd
WASM = $(WASM_CC) --target=wasm32-wasi $(WASM_FLAGS) $(WASI)
$(MODULES): $(WEB)/glue.c $(WEB)/attn.js $(ASKED) attn.h $(WEB)/web.mk $(BUILD)/web-tools
	$(SHOW)$(WASM) $(VARIANT) -O3 $(WASM_LINK) -Wl,--max-memory=2147483648 -Wl,--global-base=$(ROOM) -Wl,--export-table \
	    -Wl,--growable-table $(CALLED:%=-Wl,--export-if-defined=%) $< -o $@

$(BUILD)/attn-query.wasm: $(WEB)/glue_query.c $(ASKED) attn.h $(WEB)/no_signals.h $(WEB)/web.mk $(BUILD)/lens_embedded.h $(BUILD)/web-tools
	$(SHOW)(seq $(PLACES) | sed 's/.*/void place&(void) {}/'; echo 'void (*places[])(void) = {'; seq $(PLACES) | sed 's/.*/place&,/'; echo '};') \
	    | $(WASM) -Oz -c -x c - -o $@.places.o
	$(SHOW)$(WASM) -Os $(WASM_LINK) -Wl,--stack-first -Wl,--import-memory -Wl,--initial-memory=$(ROOM) -Wl,--import-table -Wl,--growable-table \
	    -Wl,--allow-undefined -Wl,--export=places $(ANSWERS:%=-Wl,--export-if-defined=%) $@.places.o $< $(WASI_LIBS) -o $@
	@rm $@.places.o

# The converter, which runs as a program of its own (wasi.js).
$(BUILD)/attn-convert.wasm: tools/convert/attn-convert.c $(wildcard tools/convert/*.h tools/common/*.h tools/write/*.h) attn.h \
    $(WEB)/no_signals.h $(BUILD)/web-tools
	$(SHOW)$(WASM_CC) --target=wasm32-wasi -Os -std=gnu99 -I. -include $(WEB)/no_signals.h $(WASI) -DATTN_NO_MMAP -DATTN_NO_SIMD \
	    -DATTN_STATIC -Wl,--strip-all -Wl,-z,stack-size=1048576 $< $(WASI_LIBS) -o $@

$(BUILD)/attn.js: $(WEB)/attn.js $(WEB)/wasi.js
	@mkdir -p $(@D)
	$(SHOW)sed '/^import .* from /d' $^ >$@

$(BUILD)/attn.html: $(PAGE:%=$(WEB)/%) $(WEB)/inline.sh $(MODULES) $(BUILD)/attn-query.wasm $(BUILD)/attn-convert.wasm \
    $(BUILD)/tiny-stories.attn
	$(SHOW)sh $(WEB)/inline.sh $(WEB) $(BUILD) $@

# Tests ===========================================================================================

$(BUILD)/tests/web-native: tests/web/native.c $(BUILD)/attn.o
	@mkdir -p $(@D)
	$(PROGRAM)

web-test: $(BUILD)/tests/web-native $(BUILD)/attn-convert $(BUILD)/lens $(BUILD)/gpt2 $(BUILD)/surprisal $(BUILD)/libattn.so $(BUILD)/tiny-stories.attn ## module and page beside the library (needs make web's; node; Playwright; CLICKS=1800: so many seconds of random clicks)
	@sh tests/web/run.sh $(BUILD) '$(WASM_CC)' $(CLICKS)
