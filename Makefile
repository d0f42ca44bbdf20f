# GNU make. `make` builds everything into build/, `make help` lists the rest. `make test` and what else a
# contributor runs is in tests/checks.mk; installing and packages are in tools/packaging/install.mk.

$(if $(wildcard tests/checks.mk),,$(error This Makefile works in its own directory: \
    make -C $(dir $(lastword $(MAKEFILE_LIST))) $(MAKECMDGOALS)))

BUILD     = build
# `make install` takes what `make` has built, with the settings that it was given then.
ifeq ($(MAKECMDGOALS),install)
-include $(wildcard $(BUILD)/settings.mk)
endif
ifeq ($(origin CC),default)
CC        = cc
endif
CFLAGS   ?= -O2
CPPFLAGS ?=
LDFLAGS  ?=
WARN      = -Wall -Wextra -pedantic -Wshadow -Wconversion
PREFIX   ?= /usr/local

$(if $(filter 1,$(words $(BUILD))),,$(error BUILD="$(BUILD)": make needs one name without blanks))

# As many jobs as there are processors where the caller did not say how many.
JOBS    = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2))

# Threads come from OpenMP, if this compiler can compile and link it. Otherwise attn.h makes its own
# (THREADS=own). THREADS=none: one thread.
probe   = int omp_get_max_threads(void); int main(void) { return omp_get_max_threads() < 1; }
ifneq ($(filter undefined environment,$(origin THREADS)),)
THREADS = $(eval THREADS := $(shell mkdir -p $(BUILD) && \
            echo '$(probe)' | $(CC) -fopenmp -x c -o $(BUILD)/openmp-probe - 2>/dev/null && \
            echo openmp || echo own))$(THREADS)
endif

THREADS_openmp = -fopenmp
THREADS_own    = -DATTN_THREADS -D_DEFAULT_SOURCE -D_DARWIN_C_SOURCE -pthread
THREADS_none   =
THREADED       = $(if $(filter undefined,$(origin THREADS_$(THREADS))),$(error \
                   THREADS=$(THREADS): openmp, own and none are possible))$(THREADS_$(THREADS))

# Which headers a program reads; tcc knows one option for it.
READS   = $(if $(filter tcc,$(notdir $(CC))),-MD,-MMD -MP)
COMPILE = $(CC) -std=c99 $(WARN) $(THREADED) $(CPPFLAGS) $(CFLAGS) -I. $(READS)
LINK    = $(LDFLAGS) -lm

# For another system: CC is a cross compiler, and BUILD_CC compiles the programs that run here, to convert models
# and to print their help for the manual pages.
NATIVE  = $(if $(BUILD_CC),$(BUILD)/native,$(BUILD))
# One make builds all of them, or two would write the same objects at the same time.
NATIVES = $(BUILD)/native/attn-convert $(if $(filter install,$(MAKECMDGOALS)),$(addprefix $(BUILD)/native/,gpt2 $(TOOLS)))
ifneq ($(BUILD_CC),)
natives: FORCE
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/native CC='$(BUILD_CC)' CFLAGS=-O1 CPPFLAGS=-DATTN_NO_SIMD LDFLAGS= \
	    THREADS=none BUILD_CC= $(sort $(NATIVES))
$(BUILD)/native/%: natives ;
endif

# A step prints the file that it makes; with V=1, its whole command.
SHOW    = $(if $(V),,@printf '  %s\n' '$@';)

EXAMPLES  = gpt2 hello chat top5 eight ablate patch record zip
TOOLS     = attn-convert attn-info attn-tokenize attn-verify lens score perplexity surprisal
NOTEBOOKS = $(patsubst examples/%.c,$(BUILD)/%,$(wildcard examples/from_scratch/*.c))
READ      = $(basename $(notdir $(sort $(wildcard examples/from_scratch/0*.c))))
PROGRAMS  = $(EXAMPLES) $(TOOLS) reproduce
MODELS    = $(BUILD)/tiny-stories.attn $(BUILD)/from_scratch/plain.attn
vpath %.c examples examples/gpt2 tools tools/convert tools/lens/program tools/receipt tools/reproduce tools/score tools/surprisal

# The model for `make gpt2` and what `make run` does.
SIZE   = gpt2
PROMPT = Once upon a time
N      = 200
SEED   = 1

# Options for `make bench`.
BENCH  =

export PROMPT # whatever quotes are in it

.DELETE_ON_ERROR:
.PHONY: all run notebooks bench gpt2 reproduce clean distclean help FORCE

all: $(PROGRAMS:%=$(BUILD)/%) $(BUILD)/tiny-stories.attn ## build the programs and the included model

# A story needs two programs and the kernels of this processor alone. Each of the two brings its own
# implementation, of which the compiler drops the functions that it does not call, and both compile at
# the same time. They stand in a directory of their own until `make` has built the rest.
TUNED  = $(shell echo 'int x;' | $(CC) -march=native -x c -c -o /dev/null - 2>/dev/null && \
           echo -march=native -DATTN_NO_DISPATCH)
STORY  = $(if $(wildcard $(BUILD)/gpt2),$(BUILD),$(BUILD)/run)
ALONE  = $(COMPILE) -DATTN_STATIC -MF $@.d

run: ## a story (PROMPT="Once upon a time" N=200 SEED=1)
	@$(MAKE) --no-print-directory $(JOBS) \
	    $(STORY)/gpt2 $(BUILD)/tiny-stories.attn CONVERTER=$(STORY)/attn-convert
	@$(STORY)/gpt2 $(BUILD)/tiny-stories.attn -n $(N) --temperature 0.7 --top-k 40 --seed $(SEED) \
	    -- "$$PROMPT"

$(BUILD)/run/gpt2: gpt2.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(SHOW)$(ALONE) $(TUNED) $< -o $@ $(LINK)

$(BUILD)/run/attn-convert: attn-convert.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(SHOW)$(ALONE) -O1 -DATTN_NO_SIMD $< -o $@ $(LINK)

notebooks: $(NOTEBOOKS) $(MODELS) ## the notebooks on attention, in C
	@for n in $(READ:%=$(BUILD)/from_scratch/%); do echo; echo "== $$n"; $$n || exit; done

bench: $(BUILD)/bench $(BUILD)/tiny-stories.attn ## speed next to what this machine can do at all (BENCH="--quick --size 355M")
	$(BUILD)/bench $(BENCH)
	$(if $(BENCH),,$(BUILD)/bench $(BUILD)/tiny-stories.attn --only threads)

# Models ==========================================================================================

FILES = $(BUILD)/gpt2-files/$(SIZE)

gpt2: $(BUILD)/gpt2 $(BUILD)/$(SIZE).attn ## download real GPT-2 and convert it (SIZE=gpt2-medium ...)
	@echo 'Ready: $(BUILD)/gpt2 $(BUILD)/$(SIZE).attn "Hello, my name is"'

reproduce: $(BUILD)/reproduce ## published figures of GPT-2, computed again (after make gpt2)
	@test -f $(BUILD)/gpt2.attn || { echo 'The real weights are not here: run make gpt2 first'; exit 1; }
	@$(BUILD)/reproduce $(BUILD)/gpt2.attn --files $(BUILD)/gpt2-files/gpt2

$(FILES)/model.safetensors:
	@sh tools/download-gpt2.sh $(SIZE) $(FILES)

$(BUILD)/$(SIZE).attn: $(FILES)/model.safetensors $(BUILD)/attn-convert
	$(BUILD)/attn-convert $(FILES) $@ --name $(SIZE) \
	    --source https://huggingface.co/$(if $(filter distil%,$(SIZE)),distilbert,openai-community)/$(SIZE) \
	    --license $(if $(filter distil%,$(SIZE)),apache-2.0,mit)

CONVERTER = $(NATIVE)/attn-convert
CONVERT = $(SHOW)$(filter %/attn-convert,$^) --quiet $(<D) $@

$(BUILD)/tiny-stories.attn $(BUILD)/induction.attn: $(BUILD)/%.attn: examples/%/config.json \
    $(wildcard examples/tiny-stories/* examples/induction/*) $(CONVERTER)
	$(CONVERT)

$(BUILD)/from_scratch/plain.attn: tests/golden/plain/config.json $(wildcard tests/golden/plain/*) \
    $(CONVERTER)
	@mkdir -p $(@D)
	$(CONVERT) --no-tokenizer

# Building ========================================================================================

# The implementation is most of the work, so it is compiled once: ATTN__IMPLEMENTED keeps it out of
# the programs, each of which would build by itself just as well.
$(BUILD)/attn.o: attn.h $(BUILD)/flags
	$(SHOW)$(COMPILE) -DATTN_IMPLEMENTATION -x c -c $< -o $@

PROGRAM = $(SHOW)$(COMPILE) -DATTN__IMPLEMENTED -DBUILD='"$(BUILD)"' -MF $@.d $(filter %.c %.o,$^) -o $@ $(LINK)

$(BUILD)/from_scratch/%: examples/from_scratch/%.c $(BUILD)/attn.o
	@mkdir -p $(@D)
	$(PROGRAM)

$(BUILD)/%.o: %.c $(BUILD)/flags
	$(SHOW)$(COMPILE) $(GENERATED) -DATTN__IMPLEMENTED -c $< -o $@

# The scripts and styles of lens's pages, and its words, as C.
$(BUILD)/lens_embedded.h: $(addprefix tools/lens/program/draw/,embed.sh page.js page.css) examples/web/draw.js \
    examples/web/draw.css $(wildcard tools/lens/program/words/*.txt)
	@mkdir -p $(@D)
	$(SHOW)sh $< >$@

DRAWN = $(addprefix $(BUILD)/,lens.o attn-verify.o reproduce.o) \
        $(addprefix $(BUILD)/tests/suites/,lens-tool/grid.o waist/lens.o proof/questions.o)
$(DRAWN): $(BUILD)/lens_embedded.h
$(DRAWN): GENERATED = -I$(BUILD)

.PRECIOUS: $(BUILD)/%.o
$(BUILD)/%: $(BUILD)/%.o $(BUILD)/attn.o
	$(SHOW)$(COMPILE) $(filter %.o,$^) -o $@ $(LINK)

# It looks inside the header, so it brings an implementation of its own.
$(BUILD)/bench: tools/bench/bench.c $(BUILD)/flags
	$(SHOW)$(COMPILE) -MF $@.d $< -o $@ $(LINK)

# Changes only when the compiler or its flags do, and then everything is built again.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(COMPILE) $(LINK)' | cmp -s - $@ || \
	    { echo '$(COMPILE) $(LINK)' >$@; printf '%s = %s\n' \
	    $(foreach v,CC CFLAGS CPPFLAGS LDFLAGS THREADS BUILD_CC,$(v) '$(subst $$,$$$$,$($(v)))') >$(BUILD)/settings.mk; }

FORCE:

include tools/packaging/install.mk tests/checks.mk examples/web/web.mk
-include $(wildcard $(BUILD)/*.d $(BUILD)/run/*.d $(BUILD)/from_scratch/*.d $(BUILD)/notebooks/*.d $(BUILD)/tests/*.d \
    $(BUILD)/tests/suites/*/*.d)

clean: ## remove what was built; downloaded files stay
	@test ! -d $(BUILD) || find $(BUILD) -mindepth 1 -maxdepth 1 ! -name gpt2-files -exec rm -rf {} +

.DEFAULT:
	@echo "make: '$@' is neither a target nor a file; make help lists the targets" >&2; exit 2

distclean: ## remove everything in build/, downloads too
	rm -rf $(BUILD)

help: ## this list
	@echo 'Targets:'
	@sed -n 's/^\([a-z-][a-z0-9-]*\):.*## \(.*\)/\1|\2/p' Makefile tests/checks.mk tools/packaging/install.mk examples/web/web.mk | \
	    while IFS='|' read -r name text; do printf '  %-16s %s\n' "$$name" "$$text"; done
	@echo 'Variables: CC, CFLAGS, CPPFLAGS, LDFLAGS, THREADS (openmp, own, none), BUILD (instead of build/), BUILD_CC (cross builds:'
	@echo '           the compiler for this machine), V=1 (whole commands)'
