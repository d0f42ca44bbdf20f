# Installing: headers, libraries, programs, manual pages, and the files by which pkg-config and CMake
# find them.

.PHONY: install uninstall docs

# Names of the project's own: gpt2 and lens alone would take too much from others.
RENAMED   = gpt2 lens perplexity score surprisal
PLAIN     = attn-convert attn-info attn-tokenize attn-verify
INSTALLED = $(RENAMED:%=attn-%) $(PLAIN)
# Headers that need attn.h alone, those that write files and the research headers: #include <attn-lens/patch.h>
WRITE     = base model_file new_file wide writer
RESEARCH  = changes circuits curve decompose detect edges exact gradients heads logits metric pairs panels patch \
            paths process_weights prune qk refactor result sae save spectrum steering sweep
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
NEEDS     = $(addprefix $() ,$(filter -fopenmp -pthread,$(THREADED)))

$(BUILD)/libattn.a: $(BUILD)/attn.o
	rm -f $@
	$(AR) rcs $@ $<

$(BUILD)/attn.pic.o: tools/lens/library.c $(BUILD)/flags
	$(SHOW)$(COMPILE) -fPIC -fvisibility=hidden -c $< -o $@

$(BUILD)/$(SHARED): $(BUILD)/attn.pic.o
	$(SHOW)$(COMPILE) $(SHARE) $< -o $@ $(LINK)

# For Python and other languages, from the build directory
$(BUILD)/$(LINKED): $(BUILD)/$(SHARED)
	ln -sf $(SHARED) $(BUILD)/$(SONAME)
	ln -sf $(SONAME) $@

install: $(RENAMED:%=$(BUILD)/%) $(PLAIN:%=$(BUILD)/%) $(BUILD)/libattn.a $(BUILD)/$(SHARED) $(BUILD)/attn.3 ## install headers, libraries, programs, manual pages, attn.pc, a CMake package (PREFIX, DESTDIR)
	install -d "$(PREFIXED)/include/attn-lens" "$(PREFIXED)/bin" "$(PREFIXED)/lib/pkgconfig" "$(PREFIXED)/lib/cmake/attn" \
	    "$(PREFIXED)/share/doc/attn" "$(PREFIXED)/share/man/man1" "$(PREFIXED)/share/man/man3"
	install -m 644 attn.h examples/cpp/attn.hpp "$(PREFIXED)/include"
	for h in $(WRITE:%=write/%) $(RESEARCH:%=lens/%); do sed 's,^#include "\.\./write/,#include ",' tools/$$h.h \
	    >"$(PREFIXED)/include/attn-lens/$${h#*/}.h" || exit; done
	install -m 644 LICENSE README.md "$(PREFIXED)/share/doc/attn"
	install -m 755 $(PLAIN:%=$(BUILD)/%) "$(PREFIXED)/bin"
	for p in $(RENAMED); do install -m 755 $(BUILD)/$$p "$(PREFIXED)/bin/attn-$$p" || exit; done
	for p in $(RENAMED) $(PLAIN); do sh tools/packaging/man.sh $(BUILD)/$$p attn-$${p#attn-} $(VERSION) \
	    >"$(PREFIXED)/share/man/man1/attn-$${p#attn-}.1" || exit; done
	install -m 644 $(BUILD)/attn.3 "$(PREFIXED)/share/man/man3"
	install -m 644 $(BUILD)/libattn.a "$(PREFIXED)/lib"
	install -m 755 $(BUILD)/$(SHARED) "$(PREFIXED)/lib"
	ln -sf $(SHARED) "$(PREFIXED)/lib/$(SONAME)"
	ln -sf $(SONAME) "$(PREFIXED)/lib/$(LINKED)"
	for f in attnConfig attnConfigVersion; do sed -e 's/@VERSION@/$(VERSION)/; s/@SHARED@/$(SHARED)/' \
	    -e 's,@SONAME@,$(RPATH)$(SONAME),; s/@STATIC_NEEDS@/$(addprefix ;,$(NEEDS))/' tools/packaging/cmake/$$f.cmake \
	    >"$(PREFIXED)/lib/cmake/attn/$$f.cmake" || exit; done
	chmod 644 "$(PREFIXED)"/include/attn-lens/*.h "$(PREFIXED)"/share/man/man1/attn-*.1 "$(PREFIXED)"/lib/cmake/attn/*.cmake
	@printf '%s\n' 'prefix=$${pcfiledir}/../..' '' 'Name: attn' \
	    'Description: GPT-2 inference in one C header' 'Version: $(VERSION)' \
	    'Cflags: -I$${prefix}/include' 'Libs: -L$${prefix}/lib -lattn' \
	    'Libs.private:$(NEEDS) -lm' >"$(PREFIXED)/lib/pkgconfig/attn.pc"

uninstall: ## remove what install put there (PREFIX, DESTDIR)
	for p in $(INSTALLED); do rm -f "$(PREFIXED)/bin/$$p" "$(PREFIXED)/share/man/man1/$$p.1"; done
	for f in include/attn.h include/attn.hpp share/man/man3/attn.3 lib/pkgconfig/attn.pc lib/libattn.a lib/$(SHARED) lib/$(SONAME) \
	    lib/$(LINKED); do rm -f "$(PREFIXED)/$$f"; done
	rm -rf "$(PREFIXED)/share/doc/attn" "$(PREFIXED)/lib/cmake/attn" "$(PREFIXED)/include/attn-lens"

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
