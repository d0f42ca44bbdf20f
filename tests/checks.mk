# What a contributor runs: the tests, those that take longer, comparisons with others, other languages and
# platforms, planted errors, format. tests/README.md says what they prove.

.PHONY: test tests check tested test-full test-32bit coverage analyze analyze-gcc mutate planted compare pipelines \
        portability fuzz watchers tsan sanitize-casts sanitize-memory sanitize-kernels sanitize-best format format-check python-test \
        languages-test faces-test r-package r-test cmake-test msvc-test packages-test windows-test abi

# The suites ======================================================================================

TESTED    = $(BUILD)/fuzz/replay $(BUILD)/fuzz/long.attn $(BUILD)/tests/threads $(BUILD)/faults.so \
            $(BUILD)/tests/saving $(BUILD)/tests/saving-read $(BUILD)/tests/failing
TESTS     = $(patsubst tests/%.c,$(BUILD)/tests/%.o,tests/main.c $(wildcard tests/suites/*/*.c))

# The suites for `make test`; all of them if there are none. Several run at the same time
# (ATTN_TEST_JOBS=1: one), so threads that wait leave the processor to others.
SUITES =
TEST   = OMP_WAIT_POLICY=passive $(BUILD)/test

# Suites are folders: a name that is none of them is found before anything is built.
NO_SUITE = $(foreach s,$(SUITES),$(if $(wildcard tests/suites/$(firstword $(subst /, ,$(s)))/*.c),,$(s)))

test: ## build and run the tests (SUITES="session record" for some)
	@$(if $(strip $(NO_SUITE)),echo 'no suite is named "$(firstword $(NO_SUITE))"; the suites are: \
	    $(notdir $(wildcard tests/suites/*))'; exit 2)
	@mkdir -p $(BUILD)
	@sh tests/building.sh $(BUILD) $$PPID $(MAKE) --no-print-directory $(JOBS) tested
	@OMP_WAIT_POLICY=passive $(RUNNER) $(SUITES)

tests check: test

# Some suites are a program of their own, which names the programs and models that it needs, as do the headers that
# it includes. The last of these find names elsewhere, so all is built for them.
SOME   = $(if $(filter pages tools notebooks,$(WANTED)),,$(WANTED))
WANTED = $(sort $(foreach s,$(SUITES),$(firstword $(subst /, ,$(s)))))
RUNNER = $(BUILD)/test$(if $(SOME),s/with/$(subst $() ,+,$(SOME)))
NAMED  = $(shell $(CC) -MM -MG -I. $(SOME:%=tests/suites/%/*.c) | tr ' ' '\n' | grep '^tests/' | sort -u | \
           xargs cat | tr '\n' ' ' | sed 's/BIN."/BUILD "\//g' | grep -Eo 'BUILD *"/[^"% ]+|BUILT/[^"% ]+' | \
           sed 's/^[^/]*/$(subst /,\/,$(BUILD))/' | sort -u)
ALL    = $(PROGRAMS:%=$(BUILD)/%) $(NOTEBOOKS) $(MODELS) $(TESTED) $(if $(ATTN_TEST_FULL),$(BUILD)/bench)

tested: $(RUNNER) $(if $(SOME),$(filter $(ALL),$(NAMED)),$(ALL))

# To optimise a test takes longer than to run it as it is, but for suites that compute.
COMPUTING   = fma format kernels ops
UNOPTIMIZED = $(if $(filter -O2 -O3,$(CFLAGS)),-O0)
$(COMPUTING:%=$(BUILD)/tests/suites/%/%.o): UNOPTIMIZED =

$(BUILD)/tests/%.o: tests/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(SHOW)$(COMPILE) $(GENERATED) $(UNOPTIMIZED) -DTEST_BUILD='"$(BUILD)"' -DTEST_SUITE='"$(notdir $(<D))"' -c $< -o $@

# A call of each function of attn.h.
$(BUILD)/misuse_calls.h: tests/suites/misuse/calls.awk attn.h tests/suites/misuse/arguments.h
	@mkdir -p $(@D)
	$(SHOW)awk -f $^ >$@

$(BUILD)/tests/suites/misuse/misuse.o: $(BUILD)/misuse_calls.h
$(BUILD)/tests/suites/misuse/misuse.o: GENERATED = -I$(BUILD)

$(BUILD)/test: $(TESTS)
$(if $(SOME),$(RUNNER)): $(patsubst tests/%.c,$(BUILD)/tests/%.o,tests/main.c $(wildcard $(SOME:%=tests/suites/%/*.c)))
$(sort $(BUILD)/test $(RUNNER)): $(BUILD)/attn.o
	@mkdir -p $(@D)
	$(SHOW)$(COMPILE) $^ -o $@ $(LINK)

# Longer tests ====================================================================================

FULL = ATTN_TEST_FULL=1 $(MAKE) --no-print-directory

test-full: test ## the tests with every failure of a system call, the bench, long runs, more mutations, checked kernels
	$(FULL) test SUITES='faults load bench readers proof ops lens-tool surprisal'
	$(FULL) test SUITES='tools/all_programs tools/outputs_through_links tools/outputs_that_are_no_plain_files'
	$(FULL) test SUITES=bench BUILD=$(BUILD)/sanitizers THREADS=own \
	    CFLAGS='-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all'
	$(BUILD)/fuzz/replay 1000 1 2>$(BUILD)/fuzz/replay.log || { tail -3 $(BUILD)/fuzz/replay.log; exit 1; }
	$(MAKE) --no-print-directory sanitize-kernels
	$(MAKE) --no-print-directory analyze-gcc
	$(MAKE) --no-print-directory BUILD=$(BUILD)/own THREADS=own test

portability: $(BUILD)/attn-convert $(BUILD)/gpt2 $(BUILD)/attn-verify ## the same bits from every compiler, option, processor here (ROWS="clang -O2")
	@sh tests/platforms/portability.sh $(BUILD) $(ROWS)

# The fuzz targets, with any compiler: replayed on their corpus and some mutations of it.
FUZZ_TARGETS = attn huggingface pickle gguf llmc vocab tokenizer session sampler hooks lens surprisal
FUZZ_SOURCES = attn convert tokenizer session sampler hooks lens surprisal
SECONDS      = 60
FUZZ_FLAGS   =
FUZZ         = $(BUILD)/fuzz
fuzz_source  = $(if $(filter huggingface pickle gguf llmc vocab,$(1)),convert,$(1))

$(FUZZ)/long.attn: $(BUILD)/attn-convert $(wildcard tests/golden/long/*)
	@mkdir -p $(@D)
	@$(BUILD)/attn-convert tests/golden/long $@ 2>/dev/null

$(FUZZ)/replay: $(FUZZ_SOURCES:%=tests/fuzz/fuzz_%.c) tests/fuzz/replay.c $(wildcard tests/fuzz/*.h) \
    $(wildcard tools/*/*.[ch]) $(BUILD)/attn.o | $(BUILD)/tiny-stories.attn
	@mkdir -p $(@D)
	$(SHOW)$(filter-out -M%,$(COMPILE)) $(UNOPTIMIZED) -Itests/fuzz -DTEST_BUILD='"$(BUILD)"' -DATTN__IMPLEMENTED \
	    $(filter tests/%.c %.o,$^) -o $@ $(LINK)

$(BUILD)/tests/threads: tests/programs/threads.c $(BUILD)/attn.o
	@mkdir -p $(@D)
	$(PROGRAM) -lpthread

# Opens and saves: with files that are mapped, and with files that are read. The second brings an
# implementation of its own, without the kernels for vectors, which take long to compile.
$(BUILD)/tests/saving: tests/programs/saving.c $(BUILD)/attn.o
	@mkdir -p $(@D)
	$(PROGRAM)

$(BUILD)/tests/saving-read: tests/programs/saving.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(SHOW)$(COMPILE) $(UNOPTIMIZED) -DATTN_NO_MMAP -DATTN_NO_SIMD -MF $@.d $< -o $@ $(LINK)

# A suite whose cases fail, for the suite `runner`.
$(BUILD)/tests/failing: tests/programs/failing.c $(BUILD)/tests/main.o $(BUILD)/attn.o
	$(PROGRAM) -DTEST_SUITE='"failing"'

# Where it cannot be built it is not used.
$(BUILD)/faults.so: tests/programs/faults.c
	@$(CC) -std=c99 -O1 -shared -fPIC $< -o $@ -ldl 2>/dev/null || touch $@

# With libFuzzer, which is clang's. The implementation is compiled once, portable C only: clang needs
# minutes for the vector kernels with sanitizers, and fuzzing is not what tests those.
FUZZ_COMPILE = clang -std=c99 -O1 -g1 -mllvm -pragma-unroll-threshold=1 -Wno-pass-failed -fno-omit-frame-pointer -I. -Itests/fuzz -DATTN_NO_SIMD \
               -DTEST_BUILD='"$(BUILD)"' \
               -fsanitize=address,undefined -fno-sanitize-recover=undefined

$(FUZZ)/attn.o: attn.h tests/fuzz/untraced.txt
	@mkdir -p $(@D)
	$(SHOW)$(FUZZ_COMPILE) -fsanitize=fuzzer-no-link -fsanitize-coverage-ignorelist=tests/fuzz/untraced.txt \
	    -DATTN_IMPLEMENTATION -x c -c $< -o $@

$(FUZZ)/target-%: $(FUZZ)/attn.o $(wildcard tests/fuzz/*.[ch] tools/*/*.[ch])
	$(SHOW)$(FUZZ_COMPILE) -fsanitize=fuzzer -DATTN__IMPLEMENTED -DTARGET=fuzz_$* tests/fuzz/driver.c \
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

watchers: $(BUILD)/test $(BUILD)/attn-convert $(BUILD)/tiny-stories.attn ## hooks that write random numbers (SECONDS=3600: an hour of them)
	ATTN_TEST_FULL=1 ATTN_TEST_SECONDS=$(SECONDS) ATTN_TEST_SEED=$$(date +%s) $(TEST) watch/random_watchers

# Races. Between threads of a program, and between attn.h's own (ATTN_THREADS): ThreadSanitizer sees all
# there is. It also has to know when OpenMP's threads begin and end, which libarcher (of clang's OpenMP)
# tells it. Portable C only, as for fuzzing.
ARCHER = $(firstword $(wildcard $(shell clang -print-file-name=libarcher.so 2>/dev/null) \
           /usr/lib/llvm-*/lib/libarcher.so))

TSAN = clang -std=c99 -O1 -g1 -mllvm -pragma-unroll-threshold=1 -Wno-pass-failed \
       -fsanitize=thread -DATTN_NO_SIMD -I.

$(BUILD)/threads: tests/programs/threads.c attn.h
	@mkdir -p $(@D)
	$(SHOW)$(TSAN) -pthread -DATTN_THREADS $< -o $@ -lm

$(BUILD)/threads-openmp: tests/programs/threads.c attn.h
	@mkdir -p $(@D)
	$(SHOW)$(TSAN) -fopenmp $< -o $@ -lm -lpthread

tsan: $(BUILD)/threads $(if $(ARCHER),$(BUILD)/threads-openmp) $(BUILD)/fuzz/long.attn \
    $(BUILD)/tiny-stories.attn ## look for races (needs clang and its OpenMP)
	$(BUILD)/threads $(FUZZ)/long.attn 16
	$(BUILD)/threads $(FUZZ)/long.attn 3 3
	$(BUILD)/threads $(BUILD)/tiny-stories.attn 3
	$(BUILD)/threads $(BUILD)/tiny-stories.attn 1 3
	$(BUILD)/threads $(BUILD)/tiny-stories.attn 2 0
ifneq ($(ARCHER),)
	OMP_TOOL_LIBRARIES=$(ARCHER) TSAN_OPTIONS=suppressions=tests/programs/tsan.supp \
	    $(BUILD)/threads-openmp $(FUZZ)/long.attn 3 3
	OMP_TOOL_LIBRARIES=$(ARCHER) TSAN_OPTIONS=suppressions=tests/programs/tsan.supp \
	    $(BUILD)/threads-openmp $(BUILD)/tiny-stories.attn 1 3
	OMP_TOOL_LIBRARIES=$(ARCHER) TSAN_OPTIONS=suppressions=tests/programs/tsan.supp \
	    $(BUILD)/threads-openmp $(BUILD)/tiny-stories.attn 2 0
else
	@echo 'no libarcher.so here: races between OpenMP's threads are not looked for'
endif

# Conversions that lose something, and memory that nobody wrote: checks of clang's that the others do
# not have. Portable C only, as for fuzzing, and without OpenMP, which is not instrumented.
comma     = ,
SANITIZED = $(MAKE) --no-print-directory BUILD=$(BUILD)/$(1) CC=clang THREADS=none CFLAGS='-O1 -g1 \
    -mllvm -pragma-unroll-threshold=1 -Wno-pass-failed -fno-omit-frame-pointer -DATTN_NO_SIMD \
    -fsanitize=$(2) -fno-sanitize-recover=all' test

sanitize-casts: $(BUILD)/tiny-stories.attn ## the tests, with every conversion checked that changes a number (needs clang)
	$(call SANITIZED,casts,undefined$(comma)float-cast-overflow$(comma)implicit-conversion)

# It takes stat64 and its kin for functions that write nothing; off_t has 64 bits all the same.
sanitize-memory: $(BUILD)/tiny-stories.attn ## the tests, with every use of memory checked that nobody wrote (needs clang)
	$(call SANITIZED,memory,memory -D_FILE_OFFSET_BITS=32)

# Suites run the best instruction set by default; `kernels`, `ops`, `attention`, `gpt2` and `generate` go through all of them.
# Only what these suites need is built: each program with the kernels in it takes minutes to compile.
# Plain C is left out, which `make fuzz` runs under the same sanitizers: here it takes twice as long.
MODEL_SUITES  = kernels ops attention gpt2 session threads watch record generate score memory lens models sampling
MODEL_PARTS   = $(foreach suite,$(MODEL_SUITES),suites/$(suite)/$(suite)) suites/lens/patch
CHECKED       = $(BUILD)/sanitized-kernels
CHECKED_FLAGS = CC=gcc THREADS=none BUILD=$(CHECKED) CFLAGS='-O1 -g1 -fsanitize=address,undefined \
    -fno-sanitize-recover=all -DATTN_SANITIZE_KERNELS'
CHECKED_NEEDS = $(addprefix $(CHECKED)/,test-models attn-convert tiny-stories.attn fuzz/long.attn)

sanitize-kernels: sanitize-best ## kernels and models under sanitizers, once for each instruction set (needs gcc)
	$(CHECKED)/test-models --isas | grep -v portable | sed '$$d' | while read -r isa; do echo "== $$isa"; \
	    ATTN_TEST_ISA="$$isa" $(CHECKED)/test-models $(filter-out kernels ops attention,$(MODEL_SUITES)) </dev/null || exit; done

sanitize-best: ## the same for the best instruction set only
	$(MAKE) --no-print-directory $(CHECKED_FLAGS) $(CHECKED_NEEDS)
	$(CHECKED)/test-models $(SUITES) </dev/null

$(BUILD)/test-models: $(patsubst %,$(BUILD)/tests/%.o,main $(MODEL_PARTS)) $(BUILD)/attn.o
	$(SHOW)$(COMPILE) $^ -o $@ $(LINK)

# A static program of 32 bits runs where one of 64 does.
test-32bit: $(BUILD)/tiny-stories.attn ## the tests with sizes of 32 bits (needs i686-linux-gnu-gcc)
	$(MAKE) --no-print-directory BUILD=$(BUILD)/32bit CC=i686-linux-gnu-gcc THREADS=none \
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

coverage: all $(NOTEBOOKS) $(MODELS) ## lines and branches that the tests run (needs clang, llvm-cov, python3)
	@rm -rf $(COUNTED:%=%/profile)
	$(call COVERAGE,$(BUILD)/coverage) THREADS=none test
	ATTN_TEST_FULL=1 $(call COVERAGE,$(BUILD)/coverage) THREADS=none SUITES='faults bench' test
	$(call COVERAGE,$(BUILD)/coverage-threads,-fprofile-update=atomic -DATTN_NO_MMAP) \
	    SUITES='format record tensors ops/more_threads_than_work threads/more_threads_than_the_session_has' \
	    test $(BUILD)/coverage-threads/bench
	LLVM_PROFILE_FILE=$(abspath $(BUILD)/coverage-threads)/profile/%m%c.profraw \
	    $(BUILD)/coverage-threads/bench $(BUILD)/tiny-stories.attn --quick --threads 2 \
	    --only roofs,first >/dev/null
	@python3 tests/coverage.py $(COUNTED)

# Errors that can be found without running anything. .clang-tidy says which checks, and why not all;
# what is found and is none has its reason beside it (NOLINT). Headers are analysed in the programs
# that include them (the shared library only exports them again), attn.h by itself: its implementation as portable C, because the vector kernels are
# the same lines again, and those for AVX-512 once more without the slow checks. gcc's analyser would
# take four minutes for attn.h, and as long for the bench, which brings an implementation of its own.
# cppcheck's style checks are left out: beside wishes for variables in inner blocks (variableScope)
# they call conditions constant that loops decide (knownConditionTrueFalse), members and results
# unused that other files use, and names shadowed that no caller sees. None was an error.
ANALYZED = $(filter-out tools/bench/bench.c tools/lens/library.c,\
           $(wildcard tools/*.c tools/*/*.c tools/lens/program/*.c examples/*.c examples/gpt2/*.c examples/from_scratch/*.c))
TIDY     = nice clang-tidy --quiet
CPPCHECK = cppcheck --quiet --std=c99 --language=c --enable=warning,performance,portability \
           --error-exitcode=1 --inline-suppr -I.
HEADERS  = -Xclang -analyzer-opt-analyze-headers
# They include every program. Clang's analyser has the functions of the headers from lens.c, which takes it six minutes, and
# begins here with the program's own; gcc's ends neither for these nor for lens.c within 15 GB.
ASKERS   = tools/receipt/attn-verify.c tools/reproduce/reproduce.c
# Runs the commands of its input, two at a time, and fails if one prints anything of its own.
IN_PAIRS = tr '\n' '\0' | xargs -0 -P2 -I{} sh -c '{} 2>&1 || { echo "FAILED: {}"; exit 1; }' | \
	    if grep -v ' warnings\? \|generated\.$$\|^Suppressed\|^Use '; then exit 1; fi
LONGEST  = tools/lens/program/lens.c

analyze: $(BUILD)/lens_embedded.h ## look for errors without running anything (needs clang-tidy and cppcheck)
	@clang-tidy --version >/dev/null && cppcheck --version >/dev/null
	@{ for f in $(LONGEST) $(filter-out $(ASKERS) $(LONGEST),$(ANALYZED)); do \
	       echo "$(TIDY) $$f -- -std=c99 -I. -I$(BUILD) -DATTN__IMPLEMENTED $(HEADERS)"; done; \
	   echo '$(TIDY) attn.h -- -x c -std=c99 -I. -DATTN_IMPLEMENTATION -DATTN_NO_SIMD'; \
	   echo '$(TIDY) tools/bench/bench.c -- -std=c99 -I. -DATTN_NO_SIMD'; \
	   echo '$(CPPCHECK) -DATTN__IMPLEMENTED $(ANALYZED) tools/bench/bench.c'; \
	   echo '$(CPPCHECK) -DATTN_IMPLEMENTATION -DATTN_NO_SIMD attn.h'; \
	   echo "$(TIDY) --checks='-clang-analyzer-*' attn.h -- -x c -std=c99 -I. -DATTN_IMPLEMENTATION"; \
	   for f in $(ASKERS); do echo "$(TIDY) $$f -- -std=c99 -I. -I$(BUILD) -DATTN__IMPLEMENTED"; done; \
	} | $(IN_PAIRS)

analyze-gcc: $(BUILD)/lens_embedded.h ## the same by gcc's analyser
	@{ for f in $(filter-out $(ASKERS) $(LONGEST),$(ANALYZED)); do \
	       echo "gcc -std=c99 -O1 -fanalyzer -Werror -I. -I$(BUILD) -DATTN__IMPLEMENTED -c $$f -o /dev/null"; done; \
	} | $(IN_PAIRS)

# Small errors made from the sources, planted one at a time: see tests/planted/mutate.py.
MUTATE =

mutate: ## plant errors, see that tests notice them: minutes each (MUTATE="--seed 1 --count 50 --only attn.h")
	@python3 tests/planted/mutate.py $(MUTATE)

# Errors that somebody thought of, each with the test that must notice it: see tests/planted/planted.py.
PLANTED =

planted: all tested $(BUILD)/$(LINKED) $(BUILD)/induction.attn ## plant the errors of tests/planted/faults, see that each one's test fails (PLANTED="python dots")
	@python3 tests/planted/planted.py $(PLANTED)

# score under what runs many processes, each where it is installed.
PYTHON = python3

pipelines: all ## score under GNU parallel, a Slurm array, Spark, lm-evaluation-harness (PYTHON=one with pyspark, lm-eval[hf])
	@PYTHON='$(PYTHON)' sh tests/compare/truth/pipelines.sh $(BUILD)

# Beside an implementation that is not ours; without a directory, random weights of GPT-2's size.
CHECKPOINT = examples/tiny-stories

compare: all ## logits, losses and text next to PyTorch's (CHECKPOINT=HF_DIRECTORY; needs python3 with torch)
	@python3 -c 'import numpy, torch' || { echo 'make compare needs numpy and PyTorch' \
	    '(Debian: python3-numpy, python3-torch)'; exit 1; }
	@python3 tests/compare/truth/compare_with_torch.py $(BUILD) $(CHECKPOINT)

# Other languages =================================================================================

python-test: $(BUILD)/$(LINKED) $(addprefix $(BUILD)/,attn-convert attn-verify gpt2 lens surprisal) $(BUILD)/tiny-stories.attn $(BUILD)/induction.attn ## the package attn next to NumPy, PyTorch and the C programs (needs python3 with numpy; also mypy and torch, if they are there)
	for test in attn query surprisal calls check convert pictures attn_serve; do \
	    ATTN_BUILD='$(abspath $(BUILD))' OMP_WAIT_POLICY=passive $(PYTHON) tests/platforms/python/test_$$test.py || exit; done
	@if $(PYTHON) -c 'import mypy' 2>/dev/null; then $(PYTHON) -m mypy --strict --cache-dir '$(BUILD)/mypy' examples/python/attn examples/python/building; \
	    else echo 'skipped: the types of the package, there is no mypy'; fi

# R must not see what a person gave to make.
NO_FLAGS = unset CFLAGS CXXFLAGS LDFLAGS MAKEFLAGS MFLAGS

r-package: $(BUILD)/attn-convert $(BUILD)/surprisal ## the R package in build/attn_VERSION.tar.gz, for R CMD INSTALL (needs R)
	@$(NO_FLAGS); sh tools/packaging/r/build.sh $(BUILD)

# An empty list of CRAN's packages, for a machine that does not reach it: the check looks there for orphaned ones.
NO_ORPHANS = Rscript -e 'saveRDS(cbind(Package = "attn", Maintainer = "attn"), "cran/web/packages/packages.rds")'

r-test: r-package ## the R package, checked as CRAN does (needs R)
	@$(NO_FLAGS); cd $(BUILD) && mkdir -p cran/web/packages && $(NO_ORPHANS) && \
	    R_CRAN_WEB="file://$$PWD/cran" _R_CHECK_FORCE_SUGGESTS_=false R CMD check --as-cran --no-manual attn_$(VERSION).tar.gz

packages-test: ## the source distribution for Python, installed, and asked by the checkers of its index (PYTHON=one with pip)
	@$(NO_FLAGS); sh tests/platforms/packages.sh $(PYTHON)

wheels: ## Python wheels for seven platforms and the source distribution in build/wheels (PYTHON=one with ziglang)
	$(PYTHON) examples/python/building/attn_wheel.py '$(BUILD)/wheels'

languages-test: $(BUILD)/$(LINKED) $(BUILD)/attn.o $(BUILD)/tiny-stories.attn ## attn.hpp and attn.lua (needs g++ or clang++; luajit)
	@OMP_WAIT_POLICY=passive sh tests/platforms/languages.sh $(BUILD)

CASES = 40

faces-test: $(BUILD)/$(LINKED) $(BUILD)/attn-convert $(BUILD)/surprisal $(BUILD)/lens $(BUILD)/tiny-stories.attn ## every setting of lens, and surprisal of random files: program, Python, R, the page's module (CASES=200; needs python3 with numpy, and make r-package web)
	@OMP_WAIT_POLICY=passive $(PYTHON) tests/platforms/faces/settings.py '$(BUILD)'
	@ATTN_BUILD='$(abspath $(BUILD))' $(PYTHON) tests/platforms/python/test_convert.py Download.test_r
	@OMP_WAIT_POLICY=passive $(PYTHON) tests/platforms/faces/faces.py '$(BUILD)' $(CASES)

# How the fixture was made, of the header of 1.0.0: abidw --exported-interfaces-only --no-corpus-path --no-comp-dir-path
# --no-show-locs --no-write-default-sizes --suppressions tests/platforms/abi.ini abi.so | gzip -9n
abi: ## what programs that are linked with attn.h of 1.0.0 would miss here (needs abidiff)
	@mkdir -p $(BUILD)
	$(CC) -g -fPIC -shared -DATTN_IMPLEMENTATION -x c attn.h -o $(BUILD)/abi.so -lm
	gzip -dc tests/fixtures/abi/attn-1.0.0.xml.gz >$(BUILD)/abi.xml
	abidiff --no-added-syms --suppressions tests/platforms/abi.ini $(BUILD)/abi.xml $(BUILD)/abi.so

cmake-test: ## attn::attn, attn::static and attn::header: added, and installed by CMake (needs cmake)
	@sh tests/platforms/cmake.sh '$(BUILD)'

msvc-test: ## attn.h in MSVC's dialect, parsed only (needs clang and the headers of mingw-w64)
	@sh tests/platforms/msvc.sh

windows-test: $(BUILD)/gpt2 $(BUILD)/tiny-stories.attn ## programs for Windows: UTF-8 and a console (needs x86_64-w64-mingw32-gcc, wine; tmux)
	@sh tests/platforms/windows.sh $(BUILD)

# Format ==========================================================================================

FORMATTED = $(filter-out ./tests/compile/%.h ./tools/packaging/%,$(shell find . \
              -name '.?*' -prune -o -path ./build -prune -o \( -name '*.[ch]' -o -name '*.[ch]pp' \) -print))

format: ## run clang-format over the sources
	clang-format -i $(FORMATTED)

PAGES = $(shell find . -name '.?*' -prune -o -path ./build -prune -o -name '*.md' -print)

format-check: ## complain about what clang-format would change, what is too long, functions without a caller, dead links
	@failed=0; clang-format --dry-run -Werror $(FORMATTED) || { failed=1; echo 'make format changes what clang-format names'; }; \
	LC_ALL=C awk -f tests/lengths.awk $(FORMATTED) $(PAGES) || failed=1; \
	python3 tests/api.py || failed=1; \
	python3 tests/pages.py || failed=1; exit $$failed
