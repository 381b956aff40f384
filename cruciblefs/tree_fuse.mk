# SPDX-License-Identifier: Apache-2.0
# The FUSE half: session, nodes, tables. Included by module.mk.
LIBS += cfsfuse
cfsfuse_SRCS := $(addprefix cruciblefs/, \
	session.c dispatch.c begin.c request.c handle.c poll.c dirbuf.c node.c idtable.c may.c \
	tree.c tablemay.c place.c promise.c dir.c dirchange.c scratch.c \
	text.c control.c stream.c wait.c uploadfile.c livein.c lease.c \
	root.c readme.c jobfile.c views.c snapshots.c run.c netdir.c exec.c logs.c)

cfsfuse_UNIT := session listing text control cmd wait stream names slot snapshot view view_end view_policy
test_cfs_view_end_EXTRA := tests/unit/fuseall.c
# The made-up domain.
cfsfuse_DOMAIN := $(addprefix tests/unit/,fake_domain.c fake_exec.c fake_net.c fake_snapshot.c fake_view.c)
cfsfuse_FAKES := tests/unit/fusewire.c $(cfsfuse_DOMAIN)
UNIT += $(addprefix test_cfs_,$(cfsfuse_UNIT))
$(foreach t,$(cfsfuse_UNIT),$(eval test_cfs_$(t)_SRCS := tests/unit/test_cfs_$(t).c $(cfsfuse_FAKES) $(test_cfs_$(t)_EXTRA)) \
	$(eval test_cfs_$(t)_LIBS := cfsfuse cfsguest agentproto policy netpolicy base)$(eval test_cfs_$(t)_PKGS := fuse3 json-c))

FUZZ += fuzz_fuse
fuzz_fuse_SRCS := tests/fuzz/fuzz_fuse.c $(cfsfuse_DOMAIN)
fuzz_fuse_LIBS := cfsfuse cfsguest agentproto policy netpolicy base
fuzz_fuse_PKGS := fuse3 json-c

# The tree over the fake domain on a real mount: what tests/e2e/15_fuse_tools.sh tries programs on. Not installed.
$(B)/unit/fakefs: $(patsubst %.c,$(B)/obj/%.o,tests/unit/fakefs.c $(cfsfuse_DOMAIN)) \
		$(addprefix $(B)/lib/,cfsfuse.a cfsguest.a agentproto.a policy.a netpolicy.a base.a)
	$(say) LD $@
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(OPT) $(LDHARDEN) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
		$(shell $(PKG_CONFIG) --libs fuse3 json-c) $(LDFLAGS)

# The runner finds it built when it comes to tests/e2e/15_fuse_tools.sh.
$(B)/unit/test_cfs_names: | $(B)/unit/fakefs
