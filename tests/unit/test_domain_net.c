/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's network as the daemon leads it: every step and its failure, lists written meanwhile, what is refused,
 * forks. */
#include "tests/unit/net_fix.h"

/* -- starts ------------------------------------------------------------------------------------------------------- */

static void test_a_start_waits_for_its_network(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &root_user);
	struct err e;

	fakes.hold[FAKE_NETD][NETD_ALLOW] = true;
	assert_int_equal(allow(s, "# mine\nExample.COM.\n*.b.test:443\nexample.com\n", &e), 0);
	shows(s, sandbox_net_allow_show, "example.com\n*.b.test:443\n");
	command(s, "true\n"); /* starts it */
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_STARTING);
	assert_says(fakes.last_json, "\"net\":true");
	assert_says(fakes.last_json, "\"network\":\"filtered\"");
	assert_string_equal(w->fake.net_uuid, s->machine);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_EXEC], 0);
	fakes_answer(FAKE_NETD, NETD_ALLOW);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_EXEC], 1);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_NET], 0);
	assert_string_equal(fakes.net_allow, "example.com\n*.b.test:443\n");
	assert_true(fakes_traced("N:CONFIG N:OPEN N:ALLOW B:EXEC "));
	shows(s, sandbox_info_json, "\"network\":\"filtered\"");
	shows(s, sandbox_info_json, "\"net_allow\":[\"example.com\",\"*.b.test:443\"]");
	gone(w, s);
	assert_clean(w);
	/* Without one: nothing of all that. */
	s = running(w, "b");
	assert_says(fakes.last_json, "\"net\":false");
	shows(s, sandbox_info_json, "\"network\":\"none\"");
	assert_int_equal(w->fake.nets, 1);
	gone(w, s);
	assert_clean(w);
}

static void test_what_a_start_cannot_have_fails_it(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &root_user);
	static const int steps[] = { NETD_OPEN, NETD_ALLOW, NETD_PORTS };
	char text[64];
	struct err e;

	snprintf(text, sizeof(text), "%u:80\n", free_port());
	assert_int_equal(allow(s, "a.test\n", &e), 0);
	assert_int_equal(ports(s, text, &e), 0);
	w->fake.refuse_net = -ENOPROTOOPT;
	starts(w, s);
	assert_int_equal(sandbox_status(s), SBX_FAILED);
	assert_says(sandbox_error(s), "sandbox a: its network: the host cannot filter it: no nftables here");
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_EXEC], 0);
	w->fake.refuse_net = 0;
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		fakes.refuse[FAKE_NETD][steps[i]] = -EIO;
		starts(w, s);
		assert_int_equal(sandbox_status(s), SBX_FAILED);
		assert_says(sandbox_error(s), "sandbox a: its network: ");
		assert_says(sandbox_error(s), "refused by the test");
		assert_int_equal(fakes.nset[FAKE_NETS], 0);
		fakes_obey();
	}
	starts(w, s);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_string_equal(sandbox_error(s), "");
	gone(w, s);
	assert_clean(w);
}

static void test_a_start_waits_for_netd(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &root_user);
	struct err e;

	assert_int_equal(allow(s, "a.test\n", &e), 0);
	fakes_lose(FAKE_NETD);
	starts(w, s);
	assert_int_equal(sandbox_status(s), SBX_STARTING);
	fakes_up(FAKE_NETD, true);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_READY);
	gone(w, s);
	fakes_lose(FAKE_NETD);
	fakes.degraded[FAKE_NETD] = "crucible-netd: failed 5 times in a minute";
	s = new_sandbox(w, "a", &root_user);
	assert_int_equal(allow(s, "a.test\n", &e), 0);
	starts(w, s);
	assert_int_equal(sandbox_status(s), SBX_FAILED);
	assert_says(sandbox_error(s), "failed 5 times in a minute");
	gone(w, s);
	/* Whoever wants no network does not notice. */
	gone(w, running(w, "b"));
	assert_clean(w);
}

static void test_nobody_waits_for_ever(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &root_user), *b;
	struct err e;

	assert_int_equal(allow(s, "a.test\n", &e), 0);
	w->fake.hold_net = true;
	no_delays(true); /* of timers that are made from now on; this one is longer than that */
	ask_deadline_ns = 0;
	starts(w, s);
	until(w, sandbox_status(s) == SBX_FAILED);
	assert_says(sandbox_error(s), "no answer");
	/* One late answer is no reason to end netd, which others use: peer.c asks it whether it lives. */
	w->fake.killed[0] = '\0';
	fakes.hold[FAKE_NETD][NETD_OPEN] = true;
	b = new_sandbox(w, "b", &root_user);
	assert_int_equal(allow(b, "a.test\n", &e), 0);
	w->fake.hold_net = false;
	no_delays(false);
	ask_deadline_ns = 500000000u; /* asked before that */
	starts(w, b);
	until(w, sandbox_status(b) == SBX_FAILED);
	assert_string_not_equal(w->fake.killed, LAUNCH_UUID_NETD);
	fakes_answer(FAKE_NETD, NETD_OPEN);
	gone(w, b);
	w->fake.hold_net = true;
	ask_deadline_ns = 1000000000000u;
	/* The next one goes on when that answer has come. */
	starts(w, s);
	assert_int_equal(sandbox_status(s), SBX_STARTING);
	fake_launcher_answer(&w->fake);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_READY);
	gone(w, s);
	assert_clean(w);
}

/* One of a profile's warm machine, or that goes on from a snapshot by `from`: the next start does so again. */
static void test_what_it_goes_on_from_is_kept(void **state)
{
	struct world *w = *state;
	struct sandbox *s = networked(w, "a", "a.test\n"), *c;
	struct snapshot *p = take_ready(w, s, "one");
	struct err e = { 0 };

	c = new_sandbox(w, "c", &root_user);
	assert_int_equal(sandbox_attr_store(c, ATTR_FROM, "snapshot:one", 12, &root_user, &e), 0);
	w->fake.refuse_net = -EPERM;
	starts(w, c);
	assert_int_equal(sandbox_status(c), SBX_FAILED);
	w->fake.refuse_net = 0;
	fakes.trace[0] = '\0';
	starts(w, c);
	assert_int_equal(sandbox_status(c), SBX_READY);
	assert_true(fakes_traced("B:LOAD ") && fakes_traced("N:ALLOW "));
	gone(w, c);
	/* The launcher may be busy for a moment. */
	w->fake.refuse_net = -EBUSY;
	c = new_sandbox(w, "c", &root_user);
	assert_int_equal(allow(c, "a.test\n", &e), 0);
	starts(w, c);
	assert_int_equal(sandbox_status(c), SBX_STARTING);
	w->fake.refuse_net = 0;
	until(w, sandbox_status(c) == SBX_READY);
	gone(w, c);
	snapshot_destroy(p, &root_user);
	gone(w, s);
	assert_clean(w);
}

/* -- lists that are written while it runs ------------------------------------------------------------------------- */

static void test_the_first_list_of_a_machine_that_runs(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct err e;

	w->fake.hold_net = true;
	assert_int_equal(allow(s, "a.test\n", &e), 0);
	command(s, "true\n");
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_EXEC], 0); /* what is written next has its network */
	fake_launcher_answer(&w->fake);
	spin(w);
	assert_true(fakes_traced("N:OPEN N:ALLOW B:NET B:EXEC "));
	shows(s, sandbox_info_json, "\"network\":\"filtered\"");
	/* From now on only netd is told. */
	assert_int_equal(allow(s, "b.test\n", &e), 0);
	spin(w);
	assert_string_equal(fakes.net_allow, "b.test\n");
	assert_int_equal(allow(s, "#\n", &e), 0);
	spin(w);
	assert_string_equal(fakes.net_allow, "");
	assert_int_equal(fakes.nset[FAKE_NETS], 1);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_NET], 1);
	assert_int_equal(w->fake.nets, 1);
	gone(w, s);
	assert_clean(w);
}

static void test_a_machine_that_runs_goes_on_without(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct err e;

	fakes.refuse[FAKE_BOX][BOX_NET] = -EIO;
	assert_int_equal(allow(s, "a.test\n", &e), 0);
	command(s, "true\n");
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_says(sandbox_error(s), "sandbox a: its network: the guest: refused by the test");
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_EXEC], 1);
	assert_int_equal(fakes.nset[FAKE_NETS], 0); /* closed, not half open */
	fakes_obey();
	/* Written again: tried again. */
	assert_int_equal(allow(s, "a.test\n", &e), 0);
	spin(w);
	assert_int_equal(fakes.nset[FAKE_NETS], 1);
	shows(s, sandbox_info_json, "\"network\":\"filtered\"");
	/* A list that netd does not take must not leave the one before in force. */
	fakes.refuse[FAKE_NETD][NETD_ALLOW] = -EINVAL;
	assert_int_equal(allow(s, "b.test\n", &e), 0);
	spin(w);
	assert_int_equal(fakes.nset[FAKE_NETS], 0);
	assert_says(sandbox_error(s), "net/allow: refused by the test");
	fakes_obey();
	fakes_lose(FAKE_NETD);
	fakes_up(FAKE_NETD, true);
	spin(w);
	assert_int_equal(fakes.nset[FAKE_NETS], 1);
	assert_string_equal(fakes.net_allow, "b.test\n");
	gone(w, s);
	assert_clean(w);
}

static void test_what_is_written_while_it_opens_counts(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &root_user);
	struct err e;

	assert_int_equal(allow(s, "a.test\n", &e), 0);
	w->fake.hold_net = true;
	starts(w, s);
	assert_int_equal(allow(s, "b.test\n", &e), 0);
	spin(w);
	fakes.hold[FAKE_NETD][NETD_ALLOW] = true;
	fake_launcher_answer(&w->fake);
	spin(w);
	assert_int_equal(fakes.asked[FAKE_NETD][NETD_ALLOW], 1);
	assert_int_equal(allow(s, "c.test\n", &e), 0);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_STARTING);
	fakes_answer(FAKE_NETD, NETD_ALLOW);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_int_equal(fakes.asked[FAKE_NETD][NETD_ALLOW], 2);
	assert_string_equal(fakes.net_allow, "c.test\n");
	gone(w, s);
	assert_clean(w);
}

static void test_removed_or_stopped_while_it_opens(void **state)
{
	struct world *w = *state;
	struct err e;

	for (int how = 0; how < 4; how++) {
		struct sandbox *s = new_sandbox(w, "a", &root_user);

		assert_int_equal(allow(s, "a.test\n", &e), 0);
		w->fake.hold_net = how < 2;
		fakes.hold[FAKE_NETD][NETD_OPEN] = how >= 2;
		starts(w, s);
		assert_int_equal(sandbox_status(s), SBX_STARTING);
		if (how % 2) {
			assert_int_equal(sandbox_ctl(s, "stop", &root_user, &e), 0);
			spin(w);
			assert_int_equal(sandbox_status(s), SBX_STOPPED);
			starts(w, s); /* waits for the answer of the one before */
			assert_int_equal(sandbox_status(s), SBX_STARTING);
		} else {
			gone(w, s);
		}
		fake_launcher_answer(&w->fake);
		fakes_answer(FAKE_NETD, NETD_OPEN);
		spin(w);
		if (how % 2) {
			assert_int_equal(sandbox_status(s), SBX_READY);
			assert_int_equal(fakes.nset[FAKE_NETS], 1);
			gone(w, s);
		}
		assert_clean(w);
	}
}

/* -- what may be written ------------------------------------------------------------------------------------------ */

static void test_lists_that_are_refused(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &root_user);
	struct buf many;
	struct err e;

	assert_int_equal(allow(s, "a.test\n", &e), 0);
	assert_int_equal(allow(s, "b.test\n*\n", &e), -EINVAL);
	assert_says(e.msg, "sandbox a: net/allow: ");
	assert_string_equal(sandbox_error(s), e.msg);
	assert_int_equal(allow(s, "10.0.0.0/8\n", &e), -EINVAL);
	assert_int_equal(allow(s, "a.test\n-b.test\n", &e), -EINVAL);
	assert_says(e.msg, "-b.test: it is not in the list");
	buf_init(&many, 1 << 20);
	for (int i = 0; i < 300; i++)
		buf_addf(&many, "n%d.test\n", i);
	assert_int_equal(allow(s, buf_str(&many), &e), -E2BIG);
	buf_fini(&many);
	shows(s, sandbox_net_allow_show, "a.test\n");
	assert_int_equal(allow(s, "a.test\n+b.test\n-a.test\n", &e), 0);
	assert_string_equal(s->attrs.net_allow, "b.test\n");
	/* Blanks say nothing, around a line or alone. */
	assert_int_equal(allow(s, "  c.test \r\n \t\n + b.test\n # a remark\n- c.test", &e), 0);
	assert_string_equal(s->attrs.net_allow, "b.test\n");
	/* Kept over a restart of the daemon. */
	bring_down(w);
	bring_up(w);
	s = registry_find(w->reg, NULL, "a");
	assert_string_equal(s->attrs.net_allow, "b.test\n");
}

static void test_net_allow_max_EPERM_EDQUOT(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &root_user);
	struct err e = { 0 };

	assert_int_equal(config_set(&w->cfg, "net_allow_max", "*.b.test, a.test:443", &e), 0);
	assert_int_equal(config_finish(&w->cfg, &e), 0);
	assert_int_equal(allow(s, "x.b.test:80\na.test:443\n", &e), 0);
	assert_int_equal(allow(s, "x.b.test\na.test\n", &e), -EDQUOT);
	assert_says(e.msg, "a.test");
	assert_says(e.msg, "net_allow_max");
	assert_int_equal(config_set(&w->cfg, "net_allow_max", "", &e), 0);
	assert_int_equal(config_finish(&w->cfg, &e), 0);
	assert_int_equal(allow(s, "x.b.test\n", &e), -EPERM);
	assert_int_equal(ports(s, "8080:80\n", &e), -EPERM);
	/* What was written before is not let through either. */
	e = (struct err){ 0 };
	assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), -EPERM);
	assert_says(e.msg, "net_allow_max is empty");
	assert_int_equal(allow(s, "#\n", &e), 0);
	starts(w, s);
	assert_int_equal(sandbox_status(s), SBX_READY);
	gone(w, s);
	assert_clean(w);
}

/* -- forks -------------------------------------------------------------------------------------------------------- */

static void test_a_fork_has_its_snapshots_list(void **state)
{
	struct world *w = *state;
	struct sandbox *s = networked(w, "a", "a.test\n"), *f, *c;
	struct snapshot *p;
	char text[64];
	struct err e = { 0 };

	snprintf(text, sizeof(text), "%u:80\n", free_port());
	assert_int_equal(ports(s, text, &e), 0);
	spin(w);
	p = take_ready(w, s, "one");
	assert_int_equal(allow(s, "a.test\nb.test\n", &e), 0);
	w->fake.hold_net = true;
	e = (struct err){ 0 };
	if (fork_of(w, p, "#", &e) >= 0)
		fail_msg("'#' is a name");
	w->fake.hold_net = false;
	assert_int_equal(fork_of(w, p, "f", &e), 0);
	f = registry_find(w->reg, NULL, "f");
	assert_string_equal(f->attrs.net_allow, "a.test\n");
	assert_int_equal(f->net.nports, 0);
	assert_true(fakes_have(FAKE_NETS, f->uuid));
	assert_says(fakes.last_json, "\"net\":true");
	/* The same by `from`; what was in the file goes. */
	c = new_sandbox(w, "c", &root_user);
	assert_int_equal(allow(c, "z.test\n", &e), 0);
	assert_int_equal(sandbox_attr_store(c, ATTR_FROM, "snapshot:one", 12, &root_user, &e), 0);
	assert_string_equal(c->attrs.net_allow, "a.test\n");
	/* Root has narrowed what any may have: none is made. */
	assert_int_equal(config_set(&w->cfg, "net_allow_max", "b.test", &e), 0);
	assert_int_equal(config_finish(&w->cfg, &e), 0);
	e = (struct err){ 0 };
	assert_int_equal(fork_of(w, p, "2", &e), -EDQUOT);
	assert_says(e.msg, "a.test");
	assert_null(registry_find(w->reg, NULL, "one-1"));
	snapshot_destroy(p, &root_user);
	gone(w, s);
	gone(w, f);
	gone(w, c);
	assert_clean(w);
}

static void test_a_fork_that_cannot_have_it_is_not_made(void **state)
{
	struct world *w = *state;
	struct sandbox *s = networked(w, "a", "a.test\n");
	struct snapshot *p = take_ready(w, s, "one");
	struct err e = { 0 };

	w->fake.refuse_net = -ENOENT;
	assert_int_equal(fork_of(w, p, "f", &e), -EIO);
	assert_says(e.msg, "no nftables here");
	assert_null(registry_find(w->reg, NULL, "f"));
	w->fake.refuse_net = 0;
	snapshot_destroy(p, &root_user);
	gone(w, s);
	assert_clean(w);
}

static void warmed(struct world *w)
{
	w->cfg.warm_size = 1;
	pool_fill(w->reg);
	until(w, warm_count(w->reg, WARM_FORKED, true) == 1);
	spin(w);
	w->cfg.warm_size = 0; /* no further one */
}

static void test_a_machine_that_waits_has_it_made(void **state)
{
	struct world *w = *state;
	struct sandbox *s = networked(w, "a", "a.test\n");
	struct snapshot *p = take_ready(w, s, "one");
	struct err e = { 0 };
	unsigned nets;

	gone(w, s);
	assert_int_equal(fork_of(w, p, "f", &e), 0);
	warmed(w);
	nets = w->fake.nets;
	assert_int_equal(fork_of(w, p, "g", &e), 0);
	assert_int_equal(w->fake.nets, nets);
	assert_true(fakes_have(FAKE_NETS, registry_find(w->reg, NULL, "g")->uuid));
	/* What cannot be made beforehand is asked for when it is wanted. */
	w->fake.refuse_net = -EPERM;
	warmed(w);
	w->fake.refuse_net = 0;
	nets = w->fake.nets;
	assert_int_equal(fork_of(w, p, "h", &e), 0);
	assert_int_equal(w->fake.nets, nets + 1);
	assert_true(fakes_have(FAKE_NETS, registry_find(w->reg, NULL, "h")->uuid));
	/* Nobody comes: before the launcher has answered, and after it. */
	w->fake.hold_net = true;
	warmed(w);
	assert_non_null(w->reg->net_early);
	warm_drain(w->reg);
	fake_launcher_answer(&w->fake);
	until(w, !w->reg->net_early);
	warmed(w);
	assert_non_null(w->reg->net_early);
	snapshot_destroy(p, &root_user);
	until(w, !w->reg->net_early);
	while (w->reg->first)
		gone(w, w->reg->first);
	assert_clean(w);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, snapshot_world, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_start_waits_for_its_network),
		T(test_what_a_start_cannot_have_fails_it),
		T(test_a_start_waits_for_netd),
		T(test_nobody_waits_for_ever),
		T(test_what_it_goes_on_from_is_kept),
		T(test_the_first_list_of_a_machine_that_runs),
		T(test_a_machine_that_runs_goes_on_without),
		T(test_what_is_written_while_it_opens_counts),
		T(test_removed_or_stopped_while_it_opens),
		T(test_lists_that_are_refused),
		T(test_net_allow_max_EPERM_EDQUOT),
		T(test_a_fork_has_its_snapshots_list),
		T(test_a_fork_that_cannot_have_it_is_not_made),
		T(test_a_machine_that_waits_has_it_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
