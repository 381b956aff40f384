# SPDX-License-Identifier: Apache-2.0
#
# One non-recursive Makefile. Each folder's module.mk adds to these lists:
#
#   LIBS  += x     x_SRCS        a static archive build/$(CONFIG)/lib/x.a
#   PROGS += x     x_SRCS x_LIBS x_PKGS x_STATIC x_DIR   a program; x_DIR = bin | libexec
#   UNIT  += x     x_SRCS x_LIBS x_PKGS                  a cmocka test, run by `make check-unit`
#   FUZZ  += x     x_SRCS x_LIBS x_PKGS                  a libFuzzer target with corpus tests/fuzz/corpus/x
#
# x_LIBS names archives in link order, x_PKGS names pkg-config packages.

.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all

CONFIG  ?= release
PREFIX  ?= /usr/local
BINDIR  ?= $(PREFIX)/bin
LIBEXECDIR ?= $(PREFIX)/libexec/crucible
DATADIR ?= $(PREFIX)/share/crucible
MANDIR  ?= $(PREFIX)/share/man
UNITDIR ?= $(PREFIX)/lib/systemd/system
B       := build/$(CONFIG)
VERSION := $(shell cat VERSION)

CC      ?= gcc
AR      ?= ar
PKG_CONFIG ?= pkg-config
CSTD    := -std=gnu17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=314
WARN    := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 \
	   -Wimplicit-fallthrough -Wundef -Wpointer-arith -Wcast-align -Wwrite-strings
OPT     := -O2 -g
HARDEN  := -fstack-protector-strong -fstack-clash-protection -D_FORTIFY_SOURCE=2 -fPIE
LDHARDEN := -pie -Wl,-z,relro,-z,now
CFLAGS  ?=
LDFLAGS ?=

ifeq ($(CONFIG),san)
OPT     := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
HARDEN  := -fPIE
endif
ifeq ($(CONFIG),tsan)
OPT     := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
HARDEN  := -fPIE
endif
ifeq ($(CONFIG),fuzz)
CC      := clang
OPT     := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined
HARDEN  := -fPIE
endif
ifeq ($(CONFIG),coverage)
OPT     := -O0 -g --coverage
HARDEN  := -fPIE
endif
ifdef WERROR
WARN    += -Werror
endif
ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-7s %s\n'
endif

DEFS := -DCRUCIBLE_VERSION='"$(VERSION)"' -DCRUCIBLE_LIBEXECDIR='"$(LIBEXECDIR)"' \
	-DCRUCIBLE_DATADIR='"$(DATADIR)"'
INCLUDES := -I. -I$(B)/gen
ALL_CFLAGS = $(CSTD) $(WARN) $(OPT) $(HARDEN) $(DEFS) $(INCLUDES) -MMD -MP

# `make demo` and the tests are the only set-up that a fresh machine gets: they install what is missing. Here, and not in a
# recipe, because pkg-config is asked below, while this file is read.
ifneq ($(filter demo install lint fuzz-smoke mcp-sdk check check-% bench bench-%,$(MAKECMDGOALS)),)
ifeq ($(shell id -u),0)
ifneq ($(shell tests/deps.sh install all >&2 && echo yes),yes)
$(error what is missing could not be installed; the reason stands above)
endif
ifneq ($(filter mcp-sdk check-mcp check-mcp-clients,$(MAKECMDGOALS)),)
ifneq ($(shell tests/deps.sh install mcp >&2 && echo yes),yes)
$(error what the clients of tests/mcp need could not be installed; the reason stands above)
endif
endif
endif
endif

comma := ,
space := $(comma:,=) $(comma:,=)
LIBS :=
PROGS :=
UNIT :=
FUZZ :=
DATA :=
MODULES := base agent snapstore snapstore/disk snapstore/pager snapstore/stored netpolicy netpolicy/netd policy vmm vmm/preload cruciblefs tools tests
include $(addsuffix /module.mk,$(MODULES))

.PHONY: all
all: $(B)/stamp.all ## build every program

# -- rules ---------------------------------------------------------------------------------

# A change of the flags rebuilds everything: the stamp holds them as text.
FLAGS_TEXT = $(CC) $(ALL_CFLAGS) $(CFLAGS) $(LDFLAGS)
$(B)/flags: FORCE
	$(Q)mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(FLAGS_TEXT))' | cmp -s - $@ || \
		printf '%s\n' '$(subst ','\'',$(FLAGS_TEXT))' > $@
.PHONY: FORCE
FORCE:

pkgs_cflags = $(if $($(1)_PKGS),$(shell $(PKG_CONFIG) --cflags $($(1)_PKGS)))
pkgs_libs = $(if $($(1)_PKGS),$(shell $(PKG_CONFIG) $(if $($(1)_STATIC),--static) --libs $($(1)_PKGS)))

$(B)/obj/%.o: %.c $(B)/flags | deps-present
	$(say) CC $<
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(PKG_CFLAGS) $(CFLAGS) -c -o $@ $<

# libfuse, json-c and friends keep their headers in folders of their own.
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags fuse3 json-c libseccomp libnl-3.0 libnl-route-3.0 2>/dev/null)

objs_of = $(patsubst %.c,$(B)/obj/%.o,$(filter %.c,$($(1)_SRCS)))

define lib_rule
$(B)/lib/$(1).a: $(call objs_of,$(1))
	$$(say) AR $$@
	$$(Q)mkdir -p $$(@D); rm -f $$@; $$(AR) rcs $$@ $$^
endef
$(foreach l,$(LIBS),$(eval $(call lib_rule,$(l))))

define prog_rule
$(B)/$(or $($(1)_DIR),$(2))/$(1): $(call objs_of,$(1)) $(patsubst %,$(B)/lib/%.a,$($(1)_LIBS))
	$$(say) LD $$@
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(CC) $$(OPT) $(if $($(1)_STATIC),-static,$$(LDHARDEN)) $($(1)_LDFLAGS) $(3) -o $$@ $(call objs_of,$(1)) \
		-Wl,--start-group $(patsubst %,$(B)/lib/%.a,$($(1)_LIBS)) -Wl,--end-group $$(call pkgs_libs,$(1)) $$(LDFLAGS)
endef
$(foreach p,$(PROGS),$(eval $(call prog_rule,$(p),bin,)))
$(foreach t,$(UNIT),$(eval $(t)_PKGS += cmocka)$(eval $(call prog_rule,$(t),unit,)))
ifeq ($(CONFIG),fuzz)
$(foreach f,$(FUZZ),$(eval $(call prog_rule,$(f),fuzz,-fsanitize=fuzzer)))
else
# Elsewhere a fuzz target replays its corpus: the same entry point, with a main of our own.
$(foreach f,$(FUZZ),$(eval $(f)_SRCS += tests/fuzz/fuzz_main.c)$(eval $(call prog_rule,$(f),fuzz,)))
endif

PROG_BINS = $(foreach p,$(PROGS),$(B)/$(or $($(p)_DIR),bin)/$(p))
UNIT_BINS = $(addprefix $(B)/unit/,$(UNIT))
FUZZ_BINS = $(addprefix $(B)/fuzz/,$(FUZZ))

$(B)/stamp.all: $(PROG_BINS) $(DATA)
	$(Q)touch $@

-include $(shell find build/$(CONFIG)/obj -name '*.d' 2>/dev/null)

# -- targets for people ---------------------------------------------------------------------

.PHONY: help
help: ## list these targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: deps
deps: ## install what is missing (Debian packages)
	$(Q)tests/deps.sh install

.PHONY: deps-present
deps-present:
	$(Q)tests/deps.sh check

.PHONY: clean
clean: ## remove what was built
	rm -rf build

.PHONY: demo
demo: all ## run a Python command in a virtual machine, through files, and show its record (root)
	$(Q)tools/demo.sh $(B)

.PHONY: check-nested
check-nested: all $(B)/unit/test_engine ## the main path under KVM, and engines that are forked, in a machine inside a machine (root; minutes)
	$(Q)tests/nested/run.sh $(B) path 19 1

.PHONY: check-nested-forks
check-nested-forks: all $(B)/unit/test_engine ## the same and forks of the real tree there, on a quiet host (docs/OPEN.md 11a)
	$(Q)tests/nested/run.sh $(B) forks 66 1

.PHONY: install
install: all ## install programs, man pages, completions and the systemd unit (PREFIX, DESTDIR)
	+$(Q)$(MAKE) --no-print-directory install-built

.PHONY: install-built
install-built: install-profile
	install -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(LIBEXECDIR) $(DESTDIR)$(UNITDIR) \
		$(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man5 $(DESTDIR)$(MANDIR)/man8 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -m 755 $(filter $(B)/bin/%,$(PROG_BINS)) $(DESTDIR)$(BINDIR)
	install -m 755 $(filter $(B)/libexec/%,$(PROG_BINS)) $(DESTDIR)$(LIBEXECDIR)
	install -m 755 $(PRELOAD) $(DESTDIR)$(LIBEXECDIR)
	install -m 644 $(wildcard docs/man/*.1) $(DESTDIR)$(MANDIR)/man1
	install -m 644 $(wildcard docs/man/*.5) $(DESTDIR)$(MANDIR)/man5
	install -m 644 $(wildcard docs/man/*.8) $(DESTDIR)$(MANDIR)/man8
	install -m 644 tools/crucible/completion/crucible.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/crucible
	install -m 644 tools/crucible/completion/_crucible $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -m 644 tools/crucible/completion/crucible.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	sed 's|@LIBEXECDIR@|$(LIBEXECDIR)|' tools/systemd/crucible.service.in > $(DESTDIR)$(UNITDIR)/crucible.service
