# SPDX-License-Identifier: Apache-2.0
# The profile builder: a script with its parts beside it, and the profiles that come with it.

PROFILE_DIR := tools/profile
PROFILE_PARTS := $(addprefix $(B)/libexec/profile/,run.sh recipe.sh apt.sh boot.sh image.sh store.sh enter.sh finish.sh \
	sources.awk nodoc.cfg)
PROFILE_TEXTS := $(patsubst $(PROFILE_DIR)/profiles/%,$(B)/share/profiles/%,$(wildcard $(PROFILE_DIR)/profiles/*.profile))

DATA += $(B)/libexec/crucible-profile $(PROFILE_PARTS) $(PROFILE_TEXTS)

$(B)/libexec/crucible-profile: $(PROFILE_DIR)/crucible-profile $(B)/flags
	$(Q)mkdir -p $(@D); sed 's|@DATADIR@|$(DATADIR)|' $< >$@; chmod 0755 $@

$(B)/libexec/profile/%: $(PROFILE_DIR)/%
	$(Q)mkdir -p $(@D); cp -p $< $@; touch $@

$(B)/share/profiles/%: $(PROFILE_DIR)/profiles/%
	$(Q)mkdir -p $(@D); cp $< $@

.PHONY: install-profile
install-profile: $(B)/libexec/crucible-profile $(PROFILE_PARTS) $(PROFILE_TEXTS)
	install -d $(DESTDIR)$(LIBEXECDIR)/profile $(DESTDIR)$(DATADIR)/profiles
	install -m 0755 $(B)/libexec/crucible-profile $(DESTDIR)$(LIBEXECDIR)/crucible-profile
	install -m 0644 $(PROFILE_PARTS) $(DESTDIR)$(LIBEXECDIR)/profile
	chmod 0755 $(DESTDIR)$(LIBEXECDIR)/profile/enter.sh
	install -m 0644 $(PROFILE_TEXTS) $(DESTDIR)$(DATADIR)/profiles

.PHONY: check-profile
check-profile: ## test the profile builder (root; a few minutes)
	$(Q)$(PROFILE_DIR)/test_profile.sh
