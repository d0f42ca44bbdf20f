# Installing: headers, libraries, programs, manual pages, and the files by which pkg-config and CMake
# find them.

.PHONY: install uninstall deb release docs

# Names of the project's own: gpt2 and lens alone would take too much from others.
RENAMED   = gpt2 lens perplexity score surprisal
PLAIN     = attn-convert attn-info attn-tokenize attn-verify
# Headers that need attn.h alone, those that write files and the research headers: #include <attn-lens/patch.h>
WRITE     = base model_file new_file wide writer
RESEARCH  = changes circuits curve decompose detect edges exact gradients graph graph_check graph_nodes graph_prune \
            heads interaction logarithm logits metric pairs panels patch paths process_weights prune qk refactor result sae save \
            spectrum spread steering sweep
VERSION   = $(shell sed -n 's/^.define ATTN_VERSION_[MP][AIT][JNT][OC][RH] *\([0-9][0-9]*\)$$/\1/p' attn.h | \
              paste -sd. -)

# The name of the shared library has the major version: a program that was linked with an older minor version runs.
MAJOR     = $(firstword $(subst ., ,$(VERSION)))
ifeq ($(shell uname -s),Darwin)
SHARED    = libattn.$(VERSION).dylib
SONAME    = libattn.$(MAJOR).dylib
LINKED    = libattn.dylib
RPATH     = @rpath/
SHARE     = -dynamiclib -install_name @rpath/$(SONAME) -compatibility_version $(MAJOR) \
            -current_version $(VERSION)
else
SHARED    = libattn.so.$(VERSION)
SONAME    = libattn.so.$(MAJOR)
LINKED    = libattn.so
# It stays loaded after dlclose (nodelete), because OpenMP's threads stay, too, and run code of its library. Its own calls
# go to its own functions, not by way of a table.
SHARE     = -shared -Wl,-soname,$(SONAME) -Wl,-z,nodelete -Wl,-Bsymbolic-functions
endif
NEEDS     = $(filter -fopenmp -pthread,$(THREADED))

$(BUILD)/libattn.a: $(BUILD)/attn.o
	rm -f $@
	$(AR) rcs $@ $<

$(BUILD)/attn.pic.o: tools/lens/library.c $(BUILD)/flags $(BUILD)/lens_embedded.h
	$(SHOW)$(COMPILE) -I$(BUILD) -fPIC -fvisibility=hidden -c $< -o $@

$(BUILD)/$(SHARED): $(BUILD)/attn.pic.o
	$(SHOW)$(COMPILE) $(SHARE) $< -o $@ $(LINK)

# For Python and other languages, from the build directory
$(BUILD)/$(LINKED): $(BUILD)/$(SHARED)
	ln -sf $(SHARED) $(BUILD)/$(SONAME)
	ln -sf $(SONAME) $@

# Where things go. All may have blanks. What is built for a package goes below DESTDIR.
DESTDIR   ?=
ifeq ($(origin prefix),command line) # as GNU's standards spell it
PREFIX    := $(prefix)
endif
BINDIR    ?= $(PREFIX)/bin
LIBDIR    ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR   ?= $(PREFIX)/share
MANDIR    ?= $(DATADIR)/man
DOCDIR    ?= $(DATADIR)/doc/attn
PLACED     = $(foreach v,DESTDIR PREFIX BINDIR LIBDIR INCLUDEDIR DATADIR MANDIR DOCDIR BUILD NATIVE RENAMED PLAIN VERSION SHARED \
               SONAME LINKED RPATH NEEDS,$(v)='$($(v))') HEADERS='$(WRITE:%=write/%) $(RESEARCH:%=lens/%)'

install: $(RENAMED:%=$(BUILD)/%) $(PLAIN:%=$(BUILD)/%) $(if $(BUILD_CC),$(RENAMED:%=$(NATIVE)/%) $(PLAIN:%=$(NATIVE)/%)) \
    $(BUILD)/libattn.a $(BUILD)/$(SHARED) $(BUILD)/attn.3
install: ## install headers, libraries, programs, their completion in shells, manual pages, attn.pc, a CMake package (PREFIX, DESTDIR, BINDIR, LIBDIR ...)
	@$(PLACED) sh tools/packaging/install.sh $@

uninstall: ## remove what install put there (the same variables)
	@$(PLACED) sh tools/packaging/install.sh $@

release: docs $(BUILD)/attn-convert $(BUILD)/surprisal ## all that is published, in build/release (PYTHON=one with ziglang)
	@$(if $(WASM_CC),$(MAKE) --no-print-directory web)
	@env -u CFLAGS -u CPPFLAGS -u LDFLAGS -u MAKEFLAGS sh tools/packaging/release.sh $(BUILD) $(VERSION) $(PYTHON)

deb: ## Debian packages in build/debian, checked by lintian (needs dpkg-dev, debhelper, dh-python, mandoc, r-base-dev)
	@env -u CFLAGS -u CPPFLAGS -u LDFLAGS -u MAKEFLAGS sh tools/packaging/debian.sh $(BUILD) $(VERSION) -b

# Documentation ===================================================================================

# tools/packaging/docs.sh gives the reasons for mandoc.
$(BUILD)/attn.3: attn.h tools/packaging/docs.sh
	@mkdir -p $(@D)
	@sh tools/packaging/docs.sh attn.h >$@

# A page for each notebook in C: its lines, and beside them what they print. The program that prints it does not
# inline functions, so that each line knows its caller.
BOOK = examples/from_scratch/page

$(BUILD)/notebooks/%: examples/from_scratch/%.c $(BUILD)/attn.o
	@mkdir -p $(@D)
	$(PROGRAM) -DNOTEBOOK_PAGE -fno-inline -fno-optimize-sibling-calls

$(BUILD)/notebooks/%.html: $(BUILD)/notebooks/% $(BOOK)/page.awk $(BOOK)/page.css $(MODELS)
	$(SHOW)$< >$<.out && awk -f $(BOOK)/page.awk -v source=examples/from_scratch/$*.c -v style=$(BOOK)/page.css \
	    -v pages='$(READ)' $<.out >$@

docs: $(BUILD)/attn.3 $(READ:%=$(BUILD)/notebooks/%.html) $(BUILD)/$(SHARED) ## the manual and API as one page, Python's names, and a page for each notebook in C (needs mandoc)
	@mandoc -? 2>/dev/null; [ $$? != 127 ] || { echo 'make docs needs mandoc'; exit 1; }
	@mandoc -T html $< | awk -f tools/packaging/page.awk >$(BUILD)/manual.html
	@echo 'Ready: $(BUILD)/manual.html, and for man: $<'
	@echo 'Notebooks, in their order: $(READ:%=$(BUILD)/notebooks/%.html)'
	@if $(PYTHON) -c 'import numpy' 2>/dev/null; then \
	    ATTN_LIBRARY=$(BUILD)/$(SHARED) $(PYTHON) examples/python/building/attn_reference.py >$(BUILD)/python.md && \
	    echo 'Python: $(BUILD)/python.md'; else echo 'Python: skipped, no python3 with numpy here'; fi
