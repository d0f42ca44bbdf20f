# GNU make. `make` builds everything into build/, `make help` lists the rest.

BUILD   = build
CC      = cc
CFLAGS  = -O2
WARN    = -Wall -Wextra -pedantic -Wshadow -Wconversion
LDFLAGS =
PREFIX  = /usr/local

# Threads, if this compiler can compile and link them. OPENMP=0 turns them off.
probe  = int omp_get_max_threads(void); int main(void) { return omp_get_max_threads() < 1; }
OPENMP = $(eval OPENMP := $(shell mkdir -p $(BUILD) && \
           echo '$(probe)' | $(CC) -fopenmp -x c -o $(BUILD)/openmp-probe - 2>/dev/null && \
           echo 1))$(OPENMP)

COMPILE  = $(CC) -std=c99 $(WARN) $(if $(filter 1,$(OPENMP)),-fopenmp) $(CFLAGS) -I. -MMD -MP
LINK     = $(LDFLAGS) -lm

EXAMPLES = gpt2 lens perplexity score hello chat top5 eight ablate patch record
TOOLS    = attn-convert attn-info attn-tokenize
NOTEBOOKS = $(patsubst examples/%.c,$(BUILD)/%,$(wildcard examples/from_scratch/*.c))
PROGRAMS = $(EXAMPLES) $(TOOLS) bench
FORMATTED = $(filter-out examples/hello.c,$(wildcard *.h examples/*.c examples/from_scratch/*.[ch] tools/*.[ch] tests/*.[ch] tests/fuzz/*.[ch] tests/compile/*.c) $(wildcard examples/cpp/*.[ch]pp tests/cpp/*.cpp))
NOTEBOOK_MODELS = $(BUILD)/tiny-stories.attn $(BUILD)/from_scratch/plain.attn
TESTS    = $(patsubst tests/%.c,$(BUILD)/tests/%.o,tests/main.c $(wildcard tests/test_*.c))

# What tests run: the fuzz targets on their corpus, many threads, calls of the system that fail
# (Linux only).
TESTED   = $(BUILD)/fuzz/replay $(BUILD)/fuzz/long.attn $(BUILD)/tests/threads $(BUILD)/faults.so \
           $(BUILD)/tests/saving $(BUILD)/tests/saving-read

# The model for `make gpt2` and what `make run` does.
SIZE   = gpt2
PROMPT = Once upon a time
N      = 200
SEED   = 1

# The suites for `make test`; all of them if there are none. Several run at the same time
# (ATTN_TEST_JOBS=1: one), so threads that wait leave the processor to others.
SUITES =
TEST   = OMP_WAIT_POLICY=passive $(BUILD)/test

# Options for `make bench`.
BENCH  =

export PROMPT # whatever quotes are in it

.DELETE_ON_ERROR:
.PHONY: all run notebooks test test-full test-32bit coverage analyze mutate compare pipelines \
        portability fuzz tsan sanitize-casts sanitize-memory bench gpt2 clean distclean install \
        uninstall format format-check docs python-test languages-test msvc-test windows-test sanitize-kernels \
        help FORCE

all: $(PROGRAMS:%=$(BUILD)/%) $(BUILD)/tiny-stories.attn ## build the programs and the included model

# A story needs two programs and the kernels of this processor alone. Each of the two brings its own
# implementation, of which the compiler drops the functions that it does not call, and both compile at
# the same time. They stand in a directory of their own until `make` has built the rest.
NATIVE = $(shell echo 'int x;' | $(CC) -march=native -x c -c -o /dev/null - 2>/dev/null && \
           echo -march=native -DATTN_NO_DISPATCH)
STORY  = $(if $(wildcard $(BUILD)/gpt2),$(BUILD),$(BUILD)/run)
ALONE  = $(COMPILE) -DATTN_STATIC -MF $@.d

run: ## a story (PROMPT="Once upon a time" N=200 SEED=1)
	@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j2) \
	    $(STORY)/gpt2 $(STORY)/tiny-stories.attn
	@$(STORY)/gpt2 $(STORY)/tiny-stories.attn -n $(N) --temperature 0.7 --top-k 40 --seed $(SEED) \
	    -- "$$PROMPT"

$(BUILD)/run/gpt2: examples/gpt2.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(ALONE) $(NATIVE) $< -o $@ $(LINK)

$(BUILD)/run/attn-convert: tools/attn-convert.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(ALONE) -O1 -DATTN_NO_SIMD $< -o $@ $(LINK)

$(BUILD)/run/tiny-stories.attn: $(BUILD)/run/attn-convert
	$< examples/tiny-stories $@

notebooks: $(NOTEBOOKS) $(NOTEBOOK_MODELS) ## the notebooks on attention, in C
	@for n in $(sort $(filter $(BUILD)/from_scratch/0%,$(NOTEBOOKS))); do \
	    echo; echo "== $$n"; $$n || exit; done

test: all $(NOTEBOOKS) $(NOTEBOOK_MODELS) $(TESTED) $(BUILD)/test ## build and run the tests (SUITES="model hooks" for some)
	$(TEST) $(SUITES)

bench: $(BUILD)/bench $(BUILD)/tiny-stories.attn ## speed next to what this machine can do at all (BENCH="--quick --size 355M")
	$(BUILD)/bench $(BENCH)
	$(if $(BENCH),,$(BUILD)/bench $(BUILD)/tiny-stories.attn --only threads)

# Tests that take longer ==========================================================================

test-full: test ## the tests with every failure of a system call, long runs, more mutations, checked kernels
	ATTN_TEST_FULL=1 $(TEST) faults load bench
	$(BUILD)/fuzz/replay 1000 1 2>$(BUILD)/fuzz/replay.log || { tail -3 $(BUILD)/fuzz/replay.log; exit 1; }
	$(MAKE) --no-print-directory sanitize-kernels

portability: $(BUILD)/attn-convert ## the same bits from every compiler, option, processor here (ROWS="clang -O2")
	@sh tests/portability.sh $(BUILD) $(ROWS)

# The fuzz targets, with any compiler: replayed on their corpus and some mutations of it.
FUZZ_TARGETS = attn huggingface gguf llmc vocab tokenizer session sampler hooks
FUZZ_SOURCES = attn convert tokenizer session sampler hooks
SECONDS      = 60
FUZZ_FLAGS   =
FUZZ         = $(BUILD)/fuzz
fuzz_source  = $(if $(filter huggingface gguf llmc vocab,$(1)),convert,$(1))

$(FUZZ)/long.attn: $(BUILD)/attn-convert $(wildcard tests/golden/long/*)
	@mkdir -p $(@D)
	@$(BUILD)/attn-convert tests/golden/long $@ 2>/dev/null

$(FUZZ)/replay: $(FUZZ_SOURCES:%=tests/fuzz/fuzz_%.c) tests/fuzz/replay.c tests/fuzz/fuzz.h \
    $(wildcard tools/*.[ch]) $(BUILD)/attn.o
	@mkdir -p $(@D)
	$(filter-out -M%,$(COMPILE)) -Itests/fuzz -DTEST_BUILD='"$(BUILD)"' -DATTN__IMPLEMENTED \
	    $(filter tests/%.c %.o,$^) -o $@ $(LINK)

$(BUILD)/tests/threads: tests/threads.c $(BUILD)/attn.o
	@mkdir -p $(@D)
	$(PROGRAM) -lpthread

# Opens and saves: with files that are mapped, and with files that are read. The second brings an
# implementation of its own, without the kernels for vectors, which take long to compile.
$(BUILD)/tests/saving: tests/saving.c $(BUILD)/attn.o
	@mkdir -p $(@D)
	$(PROGRAM)

$(BUILD)/tests/saving-read: tests/saving.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(COMPILE) -DATTN_NO_MMAP -DATTN_NO_SIMD -MF $@.d $< -o $@ $(LINK)

# Where it cannot be built it is not used.
$(BUILD)/faults.so: tests/faults.c
	@$(CC) -std=c99 -O1 -shared -fPIC $< -o $@ -ldl 2>/dev/null || touch $@

# With libFuzzer, which is clang's. The implementation is compiled once, portable C only: clang needs
# minutes for the vector kernels with sanitizers, and fuzzing is not what tests those.
FUZZ_COMPILE = clang -std=c99 -O1 -g1 -mllvm -pragma-unroll-threshold=1 -Wno-pass-failed -fno-omit-frame-pointer -I. -Itests/fuzz -DATTN_NO_SIMD \
               -DTEST_BUILD='"$(BUILD)"' \
               -fsanitize=address,undefined -fno-sanitize-recover=undefined

$(FUZZ)/attn.o: attn.h tests/fuzz/untraced.txt
	@mkdir -p $(@D)
	$(FUZZ_COMPILE) -fsanitize=fuzzer-no-link -fsanitize-coverage-ignorelist=tests/fuzz/untraced.txt \
	    -DATTN_IMPLEMENTATION -x c -c $< -o $@

$(FUZZ)/target-%: $(FUZZ)/attn.o tests/fuzz/fuzz.h tests/fuzz/driver.c $(wildcard tests/fuzz/*.c tools/*.[ch])
	$(FUZZ_COMPILE) -fsanitize=fuzzer -DATTN__IMPLEMENTED -DTARGET=fuzz_$* tests/fuzz/driver.c \
	    tests/fuzz/fuzz_$(call fuzz_source,$*).c $(FUZZ)/attn.o -o $@ -lm

fuzz: $(BUILD)/tiny-stories.attn ## look for inputs that break things (SECONDS=60 for each target; needs clang)
	@clang --version >/dev/null 2>&1 || { echo 'make fuzz needs clang and its libFuzzer'; exit 1; }
	@$(MAKE) --no-print-directory $(FUZZ_TARGETS:%=$(FUZZ)/target-%)
	@status=0; for t in $(FUZZ_TARGETS); do mkdir -p $(FUZZ)/corpus/$$t; echo "== $$t"; \
	    $(FUZZ)/target-$$t -max_total_time=$(SECONDS) $(FUZZ_FLAGS) -timeout=20 -rss_limit_mb=1500 \
	        -malloc_limit_mb=600 -max_len=12000 -print_final_stats=1 -verbosity=0 \
	        -artifact_prefix=$(FUZZ)/found-$$t- $$(test ! -f tests/fuzz/$$t.dict || \
	        echo -dict=tests/fuzz/$$t.dict) $(FUZZ)/corpus/$$t tests/fuzz/corpus/$$t \
	        >$(FUZZ)/$$t.log 2>&1 || { status=1; grep -E 'ERROR|does not hold|SUMMARY|runtime' $(FUZZ)/$$t.log; }; \
	    grep -E 'number_of_executed|peak_rss' $(FUZZ)/$$t.log; done; exit $$status

# Races. Between threads of a program: ThreadSanitizer sees all there is. Between the workers of one
# call: it also has to know when OpenMP's threads begin and end, which libarcher (of clang's OpenMP)
# tells it. Portable C only, as for fuzzing.
ARCHER = $(firstword $(wildcard $(shell clang -print-file-name=libarcher.so 2>/dev/null) \
           /usr/lib/llvm-*/lib/libarcher.so))

TSAN = clang -std=c99 -O1 -g1 -mllvm -pragma-unroll-threshold=1 -Wno-pass-failed \
       -fsanitize=thread -DATTN_NO_SIMD -I.

$(BUILD)/threads: tests/threads.c attn.h
	@mkdir -p $(@D)
	$(TSAN) $< -o $@ -lm -lpthread

$(BUILD)/threads-openmp: tests/threads.c attn.h
	@mkdir -p $(@D)
	$(TSAN) -fopenmp $< -o $@ -lm -lpthread

tsan: $(BUILD)/threads $(if $(ARCHER),$(BUILD)/threads-openmp) $(BUILD)/fuzz/long.attn \
    $(BUILD)/tiny-stories.attn ## look for races (needs clang and its OpenMP)
	$(BUILD)/threads $(FUZZ)/long.attn 16
	$(BUILD)/threads $(BUILD)/tiny-stories.attn 3
ifneq ($(ARCHER),)
	OMP_TOOL_LIBRARIES=$(ARCHER) TSAN_OPTIONS=suppressions=tests/tsan.supp \
	    $(BUILD)/threads-openmp $(FUZZ)/long.attn 3 3
	OMP_TOOL_LIBRARIES=$(ARCHER) TSAN_OPTIONS=suppressions=tests/tsan.supp \
	    $(BUILD)/threads-openmp $(BUILD)/tiny-stories.attn 1 3
	OMP_TOOL_LIBRARIES=$(ARCHER) TSAN_OPTIONS=suppressions=tests/tsan.supp \
	    $(BUILD)/threads-openmp $(BUILD)/tiny-stories.attn 2 0
else
	@echo 'no libarcher.so here: races between the workers of one call are not looked for'
endif

# Conversions that lose something, and memory that nobody wrote: checks of clang's that the others do
# not have. Portable C only, as for fuzzing, and without OpenMP, which is not instrumented.
comma     = ,
SANITIZED = $(MAKE) --no-print-directory BUILD=$(BUILD)/$(1) CC=clang OPENMP=0 CFLAGS='-O1 -g1 \
    -mllvm -pragma-unroll-threshold=1 -Wno-pass-failed -fno-omit-frame-pointer -DATTN_NO_SIMD \
    -fsanitize=$(2) -fno-sanitize-recover=all' test

sanitize-casts: $(BUILD)/tiny-stories.attn ## the tests, with every conversion checked that changes a number (needs clang)
	$(call SANITIZED,casts,undefined$(comma)float-cast-overflow$(comma)implicit-conversion)

# It takes stat64 and its kin for functions that write nothing; off_t has 64 bits all the same.
sanitize-memory: $(BUILD)/tiny-stories.attn ## the tests, with every use of memory checked that nobody wrote (needs clang)
	$(call SANITIZED,memory,memory -D_FILE_OFFSET_BITS=32)

# Suites run the best instruction set by default; `kernels`, `ops` and `model` go through all of them.
# Only what these suites need is built: each program with the kernels in it takes minutes to compile.
# Plain C is left out, which `make fuzz` runs under the same sanitizers: here it takes twice as long.
MODEL_SUITES  = model hooks lens sampling
CHECKED       = $(BUILD)/sanitizers
CHECKED_FLAGS = CC=gcc OPENMP=0 BUILD=$(CHECKED) CFLAGS='-O1 -g1 -fsanitize=address,undefined \
    -fno-sanitize-recover=all -DATTN_SANITIZE_KERNELS'
CHECKED_NEEDS = $(addprefix $(CHECKED)/,test-models attn-convert tiny-stories.attn fuzz/long.attn)

sanitize-kernels: ## the tests of models under sanitizers, once for each instruction set (needs gcc)
	$(MAKE) --no-print-directory $(CHECKED_FLAGS) $(CHECKED_NEEDS)
	$(CHECKED)/test-models --isas | grep -v portable | while read -r isa; do echo "== $$isa"; \
	    ATTN_TEST_ISA="$$isa" $(CHECKED)/test-models </dev/null || exit; done

$(BUILD)/test-models: $(patsubst %,$(BUILD)/tests/%.o,main $(MODEL_SUITES:%=test_%)) $(BUILD)/attn.o
	$(COMPILE) $^ -o $@ $(LINK)

# A static program of 32 bits runs where one of 64 does.
test-32bit: $(BUILD)/tiny-stories.attn ## the tests with sizes of 32 bits (needs i686-linux-gnu-gcc)
	$(MAKE) --no-print-directory BUILD=$(BUILD)/32bit CC=i686-linux-gnu-gcc OPENMP=0 \
	    CFLAGS='-O1 -static -msse2 -mfpmath=sse' test

# Which lines and branches the tests run, measured by clang in two builds whose counts are added. The
# first has no threads and runs one suite at a time, because its counters are not atomic; the second
# has threads, and reads files instead of mapping them, but atomic counters in the kernels are too slow
# for all of the tests. %c has counters live in the file, so that those of a program that a signal ends
# are not lost.
COVERAGE = ATTN_TEST_JOBS=1 LLVM_PROFILE_FILE=$(abspath $(1))/profile/%m%c.profraw \
    $(MAKE) --no-print-directory BUILD=$(1) CC=clang CFLAGS='-O1 -fprofile-instr-generate \
    -fcoverage-mapping -Wno-pass-failed -mllvm -pragma-unroll-threshold=1 \
    -mllvm -runtime-counter-relocation $(2)'
COUNTED  = $(BUILD)/coverage $(BUILD)/coverage-threads

coverage: all $(NOTEBOOKS) $(NOTEBOOK_MODELS) ## lines and branches that the tests run (needs clang, llvm-cov, python3)
	@rm -rf $(COUNTED:%=%/profile)
	$(call COVERAGE,$(BUILD)/coverage) OPENMP=0 test
	ATTN_TEST_FULL=1 $(call COVERAGE,$(BUILD)/coverage) OPENMP=0 SUITES='faults bench' test
	$(call COVERAGE,$(BUILD)/coverage-threads,-fprofile-update=atomic -DATTN_NO_MMAP) \
	    SUITES='format files tensors ops/more_threads_than_work model/more_threads_than_the_session_has' \
	    test
	LLVM_PROFILE_FILE=$(abspath $(BUILD)/coverage-threads)/profile/%m%c.profraw \
	    $(BUILD)/coverage-threads/bench $(BUILD)/tiny-stories.attn --quick --threads 2 \
	    --only roofs,first >/dev/null
	@python3 tests/coverage.py $(COUNTED)

# Errors that can be found without running anything. .clang-tidy says which checks, and why not all;
# what is found and is none has its reason beside it (NOLINT). Headers are analysed in the programs
# that include them, attn.h by itself: its implementation as portable C, because the vector kernels are
# the same lines again, and those for AVX-512 once more without the slow checks. gcc's analyser would
# take four minutes for attn.h, and as long for the bench, which brings an implementation of its own.
# cppcheck's style checks are left out: beside wishes for variables in inner blocks (variableScope)
# they call conditions constant that loops decide (knownConditionTrueFalse), members and results
# unused that other files use, and names shadowed that no caller sees. None was an error.
ANALYZED = $(filter-out tools/bench.c,$(wildcard tools/*.c examples/*.c examples/from_scratch/*.c))
TIDY     = nice clang-tidy --quiet
CPPCHECK = cppcheck --quiet --std=c99 --language=c --enable=warning,performance,portability \
           --error-exitcode=1 --inline-suppr -I.
HEADERS  = -Xclang -analyzer-opt-analyze-headers

analyze: ## look for errors without running anything (needs clang-tidy, cppcheck and gcc)
	@clang-tidy --version >/dev/null && cppcheck --version >/dev/null && gcc --version >/dev/null
	@{ echo '$(TIDY) attn.h -- -x c -std=c99 -I. -DATTN_IMPLEMENTATION -DATTN_NO_SIMD'; \
	   echo '$(TIDY) tools/bench.c -- -std=c99 -I. -DATTN_NO_SIMD'; \
	   echo '$(CPPCHECK) -DATTN__IMPLEMENTED $(ANALYZED) tools/bench.c'; \
	   echo '$(CPPCHECK) -DATTN_IMPLEMENTATION -DATTN_NO_SIMD attn.h'; \
	   echo "$(TIDY) --checks='-clang-analyzer-*' attn.h -- -x c -std=c99 -I. -DATTN_IMPLEMENTATION"; \
	   for f in $(ANALYZED); do \
	       echo "$(TIDY) $$f -- -std=c99 -I. -DATTN__IMPLEMENTED $(HEADERS)"; \
	       echo "gcc -std=c99 -O1 -fanalyzer -Werror -I. -DATTN__IMPLEMENTED -c $$f -o /dev/null"; done; \
	} | tr '\n' '\0' | xargs -0 -P2 -I{} sh -c '{} 2>&1 || { echo "FAILED: {}"; exit 1; }' | \
	    if grep -v ' warnings\? \|generated\.$$\|^Suppressed\|^Use '; then exit 1; fi

# Errors planted one at a time, see tests/mutate.py.
ONLY   =
MUTATE =

mutate: ## plant errors, see that tests notice them: hours (ONLY="attn.h" MUTATE="--quick --every 20")
	@python3 tests/mutate.py --only '$(ONLY)' $(MUTATE)

# score under what runs many processes, each where it is installed.
PYTHON = python3

pipelines: all ## score under GNU parallel, a Slurm array, Spark, lm-evaluation-harness (PYTHON=one with pyspark, lm-eval[hf])
	@PYTHON='$(PYTHON)' sh tests/pipelines.sh $(BUILD)

# Beside an implementation that is not ours; without a directory, random weights of GPT-2's size.
CHECKPOINT = examples/tiny-stories

compare: all ## logits, losses and text next to PyTorch's (CHECKPOINT=HF_DIRECTORY; needs python3 with torch)
	@python3 -c 'import numpy, torch' || { echo 'make compare needs numpy and PyTorch' \
	    '(Debian: python3-numpy, python3-torch)'; exit 1; }
	@python3 tests/compare_with_torch.py $(BUILD) $(CHECKPOINT)

# Models of the Hugging Face hub ==================================================================

FILES = $(BUILD)/gpt2-files/$(SIZE)

gpt2: $(BUILD)/gpt2 $(BUILD)/$(SIZE).attn ## download real GPT-2 and convert it (SIZE=gpt2-medium ...)
	@echo 'Ready: $(BUILD)/gpt2 $(BUILD)/$(SIZE).attn "Hello, my name is"'

$(FILES)/model.safetensors:
	@sh tools/download-gpt2.sh $(SIZE) $(FILES)

$(BUILD)/$(SIZE).attn: $(FILES)/model.safetensors $(BUILD)/attn-convert
	$(BUILD)/attn-convert $(FILES) $@

# Building ========================================================================================

$(BUILD)/tiny-stories.attn: $(BUILD)/attn-convert $(wildcard examples/tiny-stories/*)
	$(BUILD)/attn-convert examples/tiny-stories $@

# The implementation is most of the work, so it is compiled once: ATTN__IMPLEMENTED keeps it out of
# the programs, each of which would build by itself just as well.
$(BUILD)/attn.o: attn.h $(BUILD)/flags
	$(COMPILE) -DATTN_IMPLEMENTATION -x c -c $< -o $@

PROGRAM = $(COMPILE) -DATTN__IMPLEMENTED -MF $@.d $(filter %.c %.o,$^) -o $@ $(LINK)

$(BUILD)/from_scratch/%: examples/from_scratch/%.c $(BUILD)/attn.o
	@mkdir -p $(@D)
	$(PROGRAM)

$(BUILD)/from_scratch/plain.attn: $(BUILD)/attn-convert $(wildcard tests/golden/plain/*)
	@mkdir -p $(@D)
	$(BUILD)/attn-convert tests/golden/plain $@

$(BUILD)/%.o: examples/%.c $(BUILD)/flags
	$(COMPILE) -DATTN__IMPLEMENTED -c $< -o $@

$(BUILD)/%.o: tools/%.c $(BUILD)/flags
	$(COMPILE) -DATTN__IMPLEMENTED -c $< -o $@

.PRECIOUS: $(BUILD)/%.o
$(BUILD)/%: $(BUILD)/%.o $(BUILD)/attn.o
	$(COMPILE) $(filter %.o,$^) -o $@ $(LINK)

# It looks inside the header, so it brings an implementation of its own.
$(BUILD)/bench: tools/bench.c $(BUILD)/flags
	$(COMPILE) -MF $@.d $< -o $@ $(LINK)

$(BUILD)/tests/%.o: tests/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(COMPILE) -DTEST_BUILD='"$(BUILD)"' -c $< -o $@

$(BUILD)/test: $(TESTS) $(BUILD)/attn.o
	$(COMPILE) $^ -o $@ $(LINK)

# Changes only when the compiler or its flags do, and then everything is built again.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(COMPILE) $(LINK)' | cmp -s - $@ || \
	    echo '$(COMPILE) $(LINK)' >$@

-include $(wildcard $(BUILD)/*.d $(BUILD)/run/*.d $(BUILD)/from_scratch/*.d $(BUILD)/tests/*.d)

# Housekeeping ====================================================================================

clean: ## remove what was built; downloaded files stay
	@test ! -d $(BUILD) || find $(BUILD) -mindepth 1 -maxdepth 1 ! -name gpt2-files -exec rm -rf {} +

distclean: ## remove everything in build/, downloads too
	rm -rf $(BUILD)

# Installing ======================================================================================

# Names of the project's own: gpt2 and lens alone would take too much from others.
INSTALLED = $(RENAMED:%=attn-%) $(TOOLS)
RENAMED   = gpt2 lens perplexity score
VERSION   = $(shell sed -n 's/^.define ATTN_VERSION_[MP][AIT][JNT][OC][RH] *\([0-9][0-9]*\)$$/\1/p' attn.h | \
              paste -sd. -)
PREFIXED  = $(DESTDIR)$(PREFIX)# may have spaces, so that every command quotes it

# The name of the shared library says with which minor version a program was linked: until 1.0 it
# may rename things.
MINOR     = $(basename $(VERSION))
ifeq ($(shell uname -s),Darwin)
SHARED    = libattn.$(VERSION).dylib
SONAME    = libattn.$(MINOR).dylib
LINKED    = libattn.dylib
RPATH     = @rpath/
SHARE     = -dynamiclib -install_name @rpath/$(SONAME) -compatibility_version $(MINOR) \
            -current_version $(VERSION)
else
SHARED    = libattn.so.$(VERSION)
SONAME    = libattn.so.$(MINOR)
LINKED    = libattn.so
# It stays loaded after dlclose (nodelete), because OpenMP's threads stay, too, and run code of its library.
SHARE     = -shared -Wl,-soname,$(SONAME) -Wl,-z,nodelete
endif
NEEDS     = $(if $(filter 1,$(OPENMP)), -fopenmp)

$(BUILD)/libattn.a: $(BUILD)/attn.o
	rm -f $@
	$(AR) rcs $@ $<

$(BUILD)/attn.pic.o: attn.h $(BUILD)/flags
	$(COMPILE) -fPIC -fvisibility=hidden -DATTN_IMPLEMENTATION \
	    '-DATTN_API=extern __attribute__((visibility("default")))' -x c -c $< -o $@

$(BUILD)/$(SHARED): $(BUILD)/attn.pic.o
	$(COMPILE) $(SHARE) $< -o $@ $(LINK)

# For Python and other languages, from the build directory
$(BUILD)/$(LINKED): $(BUILD)/$(SHARED)
	ln -sf $(SHARED) $(BUILD)/$(SONAME)
	ln -sf $(SONAME) $@

install: $(RENAMED:%=$(BUILD)/%) $(TOOLS:%=$(BUILD)/%) $(BUILD)/libattn.a $(BUILD)/$(SHARED) $(BUILD)/attn.3 ## install headers, libraries, programs, manual pages, attn.pc, a CMake package (PREFIX, DESTDIR)
	install -d "$(PREFIXED)/include" "$(PREFIXED)/bin" "$(PREFIXED)/lib/pkgconfig" "$(PREFIXED)/lib/cmake/attn" \
	    "$(PREFIXED)/share/doc/attn" "$(PREFIXED)/share/man/man1" "$(PREFIXED)/share/man/man3"
	install -m 644 attn.h examples/cpp/attn.hpp "$(PREFIXED)/include"
	install -m 644 LICENSE README.md "$(PREFIXED)/share/doc/attn"
	install -m 755 $(TOOLS:%=$(BUILD)/%) "$(PREFIXED)/bin"
	for p in $(RENAMED); do install -m 755 $(BUILD)/$$p "$(PREFIXED)/bin/attn-$$p" || exit; done
	for p in $(RENAMED) $(TOOLS); do sh tools/man.sh $(BUILD)/$$p attn-$${p#attn-} $(VERSION) \
	    >"$(PREFIXED)/share/man/man1/attn-$${p#attn-}.1" || exit; done
	install -m 644 $(BUILD)/attn.3 "$(PREFIXED)/share/man/man3"
	install -m 644 $(BUILD)/libattn.a "$(PREFIXED)/lib"
	install -m 755 $(BUILD)/$(SHARED) "$(PREFIXED)/lib"
	ln -sf $(SHARED) "$(PREFIXED)/lib/$(SONAME)"
	ln -sf $(SONAME) "$(PREFIXED)/lib/$(LINKED)"
	for f in attnConfig attnConfigVersion; do sed -e 's/@VERSION@/$(VERSION)/; s/@SHARED@/$(SHARED)/' \
	    -e 's,@SONAME@,$(RPATH)$(SONAME),; s/@STATIC_NEEDS@/$(NEEDS:%=;-fopenmp)/' tools/cmake/$$f.cmake \
	    >"$(PREFIXED)/lib/cmake/attn/$$f.cmake" || exit; done
	chmod 644 "$(PREFIXED)"/share/man/man1/attn-*.1 "$(PREFIXED)"/lib/cmake/attn/*.cmake
	@printf '%s\n' 'prefix=$${pcfiledir}/../..' '' 'Name: attn' \
	    'Description: GPT-2 inference in one C header' 'Version: $(VERSION)' \
	    'Cflags: -I$${prefix}/include' 'Libs: -L$${prefix}/lib -lattn' \
	    'Libs.private:$(NEEDS) -lm' >"$(PREFIXED)/lib/pkgconfig/attn.pc"

uninstall: ## remove what install put there (PREFIX, DESTDIR)
	for p in $(INSTALLED); do rm -f "$(PREFIXED)/bin/$$p" "$(PREFIXED)/share/man/man1/$$p.1"; done
	for f in include/attn.h include/attn.hpp share/man/man3/attn.3 lib/pkgconfig/attn.pc lib/libattn.a lib/$(SHARED) lib/$(SONAME) \
	    lib/$(LINKED); do rm -f "$(PREFIXED)/$$f"; done
	rm -rf "$(PREFIXED)/share/doc/attn" "$(PREFIXED)/lib/cmake/attn"

# Other languages =================================================================================

python-test: $(BUILD)/$(LINKED) $(BUILD)/attn-convert $(BUILD)/gpt2 $(BUILD)/tiny-stories.attn ## attn.py next to NumPy, PyTorch and the C programs (needs python3 with numpy; also mypy and torch, if they are there)
	ATTN_BUILD='$(abspath $(BUILD))' OMP_WAIT_POLICY=passive $(PYTHON) tests/python/test_attn.py
	@if $(PYTHON) -c 'import mypy' 2>/dev/null; then $(PYTHON) -m mypy --strict --cache-dir '$(BUILD)/mypy' examples/python/attn.py examples/python/notebook.py; \
	    else echo 'skipped: the types of attn.py, there is no mypy'; fi

languages-test: $(BUILD)/$(LINKED) $(BUILD)/attn.o $(BUILD)/tiny-stories.attn ## attn.hpp and attn.lua (needs g++ or clang++; luajit)
	@OMP_WAIT_POLICY=passive sh tests/languages.sh $(BUILD)

msvc-test: ## attn.h in MSVC's dialect, parsed only (needs clang and the headers of mingw-w64)
	@sh tests/msvc.sh

windows-test: $(BUILD)/gpt2 $(BUILD)/tiny-stories.attn ## programs for Windows: UTF-8 and a console (needs x86_64-w64-mingw32-gcc, wine; tmux)
	@sh tests/windows.sh $(BUILD)

# tools/docs.sh gives the reasons for mandoc. mandoc writes HTML without a style sheet, so one is added.
PAGE_STYLE = body { max-width: 60em; margin: auto; font-family: sans-serif } \
             pre { background: \#8882; padding: .5em; overflow: auto } :root { color-scheme: light dark }

$(BUILD)/attn.3: attn.h tools/docs.sh
	@mkdir -p $(@D)
	@sh tools/docs.sh attn.h >$@

docs: $(BUILD)/attn.3 ## the manual and API of the header as one page, build/attn.html (needs mandoc)
	@mandoc -? 2>/dev/null; [ $$? != 127 ] || { echo 'make docs needs mandoc'; exit 1; }
	@mandoc -T html -O toc $< | sed 's|</head>|<style>$(PAGE_STYLE)</style></head>|' >$(BUILD)/attn.html
	@echo 'Ready: $(BUILD)/attn.html, and for man: $<'

format: ## run clang-format over the sources
	clang-format -i $(FORMATTED)

format-check: ## complain about what clang-format would change
	clang-format --dry-run -Werror $(FORMATTED)

help: ## this list
	@echo 'Targets:'
	@sed -n 's/^\([a-z-][a-z0-9-]*\):.*## \(.*\)/\1|\2/p' Makefile | \
	    while IFS='|' read -r name text; do printf '  %-15s %s\n' "$$name" "$$text"; done
	@echo 'Variables: CC, CFLAGS, LDFLAGS, OPENMP=0 (no threads), BUILD (instead of build/)'
