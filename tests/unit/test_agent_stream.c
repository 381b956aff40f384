/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, credit and frames, driven through the real agent. */
#include "test_agent_harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"

/* -- output ------------------------------------------------------------------------- */

static void outputs_of_exact_sizes(void **state)
{
	static const size_t sizes[] = { 0, 1, 4096, 65535, 65536, 65537, 98304, 1048576 };
	char script[96];

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct cmd *c;

		snprintf(script, sizeof(script), "head -c %zu /dev/zero | tr '\\0' A", sizes[i]);
		c = sh(*state, script);
		assert_int_equal(cmd_int(c, "stdout_bytes"), sizes[i]);
		assert_int_equal(c->out.len, sizes[i]);
		for (size_t n = 0; n < sizes[i]; n++)
			assert_int_equal(c->out.data[n], 'A');
	}
}

/* What one process wrote before it ended is whole even if nothing of it was read by then. */
static void output_of_a_writer_that_ends_at_once(void **state)
{
	for (int i = 0; i < 50; i++) {
		struct cmd *c = cmd_open(*state, "{\"argv\":[\"head\",\"-c\",\"60000\",\"/dev/zero\"]}");

		cmd_wait(*state, c);
		assert_int_equal(c->out.len, 60000);
	}
}

static void stderr_first_then_stdout_then_both(void **state)
{
	struct cmd *c =
		sh(*state,
		   "head -c 1048576 /dev/zero >&2; head -c 1048576 /dev/zero\n"
		   "i=0; while [ $i -lt 200 ]; do head -c 999 /dev/zero; head -c 998 /dev/zero >&2; i=$((i+1)); done");

	assert_int_equal(c->out.len, 1048576 + 200 * 999);
	assert_int_equal(c->err.len, 1048576 + 200 * 998);
}

/* Without credit exactly the window arrives; the command waits, others do not, and the agent does not grow. */
static void slow_reader_stops_one_stream_only(void **state)
{
	struct host *h = *state;
	struct cmd *slow = cmd_open(h, "{\"argv\":[\"head\",\"-c\",\"3000000\",\"/dev/zero\"]}"), *other;

	slow->keep_credit = true;
	while (slow->out.len < AG_WINDOW)
		host_pump(h, 100);
	for (int i = 0; i < 20; i++) {
		other = sh(h, "echo fine");
		assert_string_equal(cmd_out(other), "fine\n");
	}
	assert_int_equal(slow->out.len, AG_WINDOW);
	assert_null(slow->exit);
	slow->keep_credit = false;
	{
		uint8_t le[4] = { AG_WINDOW & 0xff, AG_WINDOW >> 8 & 0xff, AG_WINDOW >> 16, 0 };

		slow->unreturned[0] = 0;
		host_send(h, BULK, AG_CREDIT, AG_STDOUT, slow->stream, le, 4);
	}
	cmd_wait(h, slow);
	assert_int_equal(slow->out.len, 3000000);
}

static void the_agent_does_not_grow(void **state)
{
	struct host *h = *state;
	struct cmd *c[8];
	long before;

	sh(h, "head -c 3000000 /dev/zero");
	before = resident_kib(h->pid);
	for (int i = 0; i < 8; i++) {
		c[i] = cmd_open(
			h, "{\"argv\":[\"sh\",\"-c\",\"head -c 20000000 /dev/zero; head -c 20000000 /dev/zero >&2\"]}");
		c[i]->keep_credit = true;
	}
	for (int i = 0; i < 8; i++)
		while (c[i]->out.len < AG_WINDOW)
			host_pump(h, 100);
	if (memory_can_be_measured())
		assert_true(resident_kib(h->pid) - before < 1024);
	for (int i = 0; i < 8; i++)
		host_send(h, CONTROL, AG_KILL, 0, c[i]->stream, NULL, 0);
	for (int i = 0; i < 8; i++) {
		/* What stood in the pipe still comes, once there is credit. */
		uint8_t le[4] = { AG_WINDOW & 0xff, AG_WINDOW >> 8 & 0xff, AG_WINDOW >> 16, 0 };

		c[i]->keep_credit = false;
		c[i]->unreturned[0] = 0;
		host_send(h, BULK, AG_CREDIT, AG_STDOUT, c[i]->stream, le, 4);
	}
	for (int i = 0; i < 8; i++) {
		cmd_wait(h, c[i]);
		assert_string_equal(cmd_str(c[i], "signal"), "SIGKILL");
	}
}

/* A host that reads nothing at all: the queue is bounded, and all goes on when it reads again. */
static void host_that_does_not_read(void **state)
{
	struct host *h = *state;
	struct cmd *c[16];

	for (int i = 0; i < 16; i++)
		c[i] = cmd_open(h, "{\"argv\":[\"head\",\"-c\",\"200000\",\"/dev/zero\"]}");
	usleep(200000); /* the thing itself: a while in which nobody reads */
	if (memory_can_be_measured())
		assert_true(resident_kib(h->pid) < 4096);
	for (int i = 0; i < 16; i++) {
		cmd_wait(h, c[i]);
		assert_int_equal(c[i]->out.len, 200000);
	}
}

/* -- input -------------------------------------------------------------------------- */

static void stdin_of_1_MiB(void **state)
{
	struct host *h = *state;
	size_t len = 1 << 20;
	uint8_t *data = malloc(len);
	struct cmd *c = cmd_open(h, "{\"argv\":[\"cat\"],\"stdin\":true}");

	assert_non_null(data);
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	cmd_write(h, c, AG_STDIN, data, len, true);
	cmd_wait(h, c);
	assert_int_equal(c->out.len, len);
	assert_memory_equal(c->out.data, data, len);
	free(data);
}

static void child_that_reads_one_byte_and_ends(void **state)
{
	struct host *h = *state;
	size_t len = 4 << 20;
	uint8_t *data = calloc(1, len);
	struct cmd *c = cmd_open(h, "{\"argv\":[\"head\",\"-c\",\"1\"],\"stdin\":true}");

	assert_non_null(data);
	cmd_write(h, c, AG_STDIN, data, len, true);
	cmd_wait(h, c);
	assert_int_equal(c->out.len, 1);
	free(data);
	sh(h, "true");
}

/* It has closed its input and goes on: what is sent is dropped, and credit comes back all the same. */
static void child_that_closes_its_input(void **state)
{
	struct host *h = *state;
	size_t len = 2 << 20;
	uint8_t *data = calloc(1, len);
	struct cmd *c = cmd_open(
		h,
		"{\"argv\":[\"sh\",\"-c\",\"exec 0</dev/null; echo closed; while [ ! -e %s/go ]; do sleep 0.02; done\"],"
		"\"stdin\":true}",
		h->root);
	char path[256];
	FILE *f;

	assert_non_null(data);
	cmd_write(h, c, AG_STDIN, data, len, true);
	assert_null(c->exit);
	snprintf(path, sizeof(path), "%s/go", h->root);
	f = fopen(path, "we");
	assert_non_null(f);
	fclose(f);
	cmd_wait(h, c);
	assert_int_equal(cmd_int(c, "exit_code"), 0);
	free(data);
}

static void cat_without_stdin_returns_at_once(void **state)
{
	struct cmd *c = cmd_open(*state, "{\"argv\":[\"cat\"]}");

	cmd_wait(*state, c);
	assert_int_equal(cmd_int(c, "exit_code"), 0);
	assert_int_equal(c->out.len, 0);
}

static void stdin_that_comes_before_the_script_is_whole(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_open(h, "{\"script\":true,\"stdin\":true}");

	cmd_write(h, c, AG_SCRIPT, "ca", 2, false);
	cmd_write(h, c, AG_STDIN, "early ", 6, false);
	cmd_write(h, c, AG_SCRIPT, "t\n", 2, true);
	cmd_write(h, c, AG_STDIN, "late", 4, true);
	cmd_wait(h, c);
	assert_string_equal(cmd_out(c), "early late");
}

/* The two ports are read in any order: DATA can be seen before its EXEC. */
static void script_that_overtakes_its_exec(void **state)
{
	struct host *h = *state;
	struct cmd *a, *b;

	for (int i = 0; i < 20; i++) {
		/* Fill the next one's DATA in first, by sending with the number that it will have. */
		uint32_t next = h->next_stream;

		host_send(h, BULK, AG_DATA, AG_SCRIPT | AG_EOF, next, "echo over\n", 10);
		host_pump(h, i % 3);
		a = cmd_open(h, "{\"script\":true}");
		assert_int_equal(a->stream, next);
		cmd_wait(h, a);
		assert_string_equal(cmd_out(a), "over\n");
	}
	/* One whose EXEC never comes delays the port for a second, not for ever. */
	host_send(h, BULK, AG_DATA, AG_STDIN, 4000000, "x", 1);
	b = sh(h, "echo after");
	assert_string_equal(cmd_out(b), "after\n");
}

/* -- frames that must not be -------------------------------------------------------- */

static bool said_bye(struct host *h, void *arg)
{
	(void)arg;
	return h->bye.len > 0;
}

static void assert_recovers(struct host *h, uint64_t epoch)
{
	struct cmd *c;

	host_until(h, said_bye, NULL);
	h->bye.len = 0;
	host_forget(h);
	host_hello(h, epoch);
	c = sh(h, "echo well");
	assert_string_equal(cmd_out(c), "well\n");
}

static void malformed_frames_end_the_epoch(void **state)
{
	static const struct {
		int port;
		uint8_t type, flags;
		uint32_t stream;
		const char *data;
		size_t len;
	} bad[] = {
		{ CONTROL, AG_DATA, 0, 9, "x", 1 },		      /* belongs to bulk */
		{ BULK, AG_KILL, 0, 9, NULL, 0 },		      /* belongs to control */
		{ CONTROL, AG_EXIT, 0, 9, "{}", 2 },		      /* the agent's */
		{ CONTROL, AG_EXEC, 0, 0, "{\"argv\":[\"a\"]}", 14 }, /* stream 0 */
		{ BULK, AG_DATA, AG_STDOUT, 0, "x", 1 },	      /* stream 0 */
		{ CONTROL, AG_TYPE_COUNT, 0, 1, NULL, 0 },	      /* no such type */
		{ CONTROL, AG_PING, 1, 0, NULL, 0 },		      /* flags */
		{ BULK, AG_CREDIT, AG_STDOUT, 1, "abc", 3 },	      /* length */
		{ BULK, AG_FS_REQ, AG_FS_OP_COUNT, 1, NULL, 0 },      /* no such operation */
	};
	struct host *h = *state;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		host_send(h, bad[i].port, bad[i].type, bad[i].flags, bad[i].stream, bad[i].data, bad[i].len);
		assert_recovers(h, i + 2);
	}
}

static void sequence_gap_ends_the_epoch(void **state)
{
	struct host *h = *state;

	h->port[CONTROL].seq_out++;
	host_send(h, CONTROL, AG_PING, 0, 0, "x", 1);
	assert_recovers(h, 2);
	h->port[BULK].seq_out--;
	host_send(h, BULK, AG_DATA, AG_STDIN, 77, "x", 1);
	assert_recovers(h, 3);
}

static void noise_is_skipped_up_to_hello(void **state)
{
	struct host *h = *state;
	uint8_t noise[100000];

	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)(i * 2654435761u >> 11);
	host_send_raw(h, BULK, noise, sizeof(noise));
	host_send_raw(h, CONTROL, noise, sizeof(noise));
	assert_recovers(h, 2);
}

static bool has_started(struct host *h, void *arg)
{
	(void)h;
	return ((struct cmd *)arg)->started;
}

static void more_than_the_window_ends_the_epoch(void **state)
{
	static const uint8_t full[AG_PAYLOAD_MAX];
	struct host *h = *state;
	struct cmd *c;

	sh(h, "echo x"); /* the first frame on bulk: what is under way at HELLO must not have seq 0 */
	c = cmd_open(h, "{\"argv\":[\"sleep\",\"60\"],\"stdin\":true}");
	c->stdin_credit = 0; /* the pipe takes one frame, so some comes back */
	for (int i = 0; i < 6; i++)
		host_send(h, BULK, AG_DATA, AG_STDIN, c->stream, full, sizeof(full));
	assert_recovers(h, 2);
	c = cmd_open(h, "{\"argv\":[\"sleep\",\"60\"]}");
	host_until(h, has_started, c);
	host_send(h, BULK, AG_CREDIT, AG_STDOUT, c->stream, "\1\0\0\0", 4);
	assert_recovers(h, 3);
}

static void a_used_stream_ends_the_epoch(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_open(h, "{\"argv\":[\"sleep\",\"60\"]}");
	const char again[] = "{\"argv\":[\"true\"]}";

	host_send(h, CONTROL, AG_EXEC, 0, c->stream, again, strlen(again));
	assert_recovers(h, 2);
}

/* -- hello -------------------------------------------------------------------------- */

static void hello_tells_what_the_agent_is(void **state)
{
	struct host *h = *state;
	struct json_object *v;

	assert_true(json_object_object_get_ex(h->hello, "version", &v));
	assert_int_equal(json_object_get_int(v), AG_VERSION);
	assert_true(json_object_object_get_ex(h->hello, "epoch", &v));
	assert_int_equal(json_object_get_int(v), 1);
	assert_true(json_object_object_get_ex(h->hello, "page_size", &v));
	assert_int_equal(json_object_get_int(v), sysconf(_SC_PAGESIZE));
	assert_true(json_object_object_get_ex(h->hello, "boot_id", &v));
	assert_int_equal(strlen(json_object_get_string(v)), 36);
	assert_true(json_object_object_get_ex(h->hello, "shells", &v));
	assert_true(json_object_array_length(v) > 0);
	assert_true(json_object_object_get_ex(h->hello, "unenforced", &v));
	assert_true(json_object_array_length(v) > 0); /* at least: this is no guest */
}

static void hello_of_another_version_is_refused(void **state)
{
	static const char hello[] = "{\"version_min\":1,\"version_max\":1,\"epoch\":1}";
	struct host *h = *state;

	host_send(h, CONTROL, AG_HELLO, 0, 0, hello, strlen(hello));
	host_send(h, BULK, AG_HELLO, 0, 0, hello, strlen(hello));
	host_until(h, said_bye, NULL);
	assert_non_null(strstr(buf_str(&h->bye), "version 4 only"));
	host_hello(h, 1);
}

static void hello_needs_both_ports(void **state)
{
	static const char first[] = "{\"version_min\":4,\"version_max\":4,\"epoch\":7}";
	struct host *h = *state;

	/* A host that died after the first half; the next one begins anew. */
	host_send(h, CONTROL, AG_HELLO, 0, 0, first, strlen(first));
	host_pump(h, 50);
	assert_null(h->hello);
	host_hello(h, 8);
}

static void new_epoch_detaches_what_runs(void **state)
{
	struct host *h = *state;
	char path[256], script[768];
	struct cmd *c;

	snprintf(path, sizeof(path), "%s/ended", h->root);
	snprintf(script, sizeof(script), "while [ ! -e %s/go ]; do echo noise; sleep 0.01; done; echo > %s", h->root,
		 path);
	c = cmd_script(h, "", script);
	while (c->out.len == 0)
		host_pump(h, 100);
	host_hello(h, 2);
	/* The same stream number again is another command now. */
	h->next_stream = c->stream;
	host_forget(h);
	snprintf(script, sizeof(script), "echo new; echo > %s/go", h->root);
	c = sh(h, script);
	assert_string_equal(cmd_out(c), "new\n");
	for (int i = 0; access(path, F_OK) < 0; i++) {
		assert_true(i < PATIENCE_MS / 10);
		host_pump(h, 10); /* a frame of the old one would fail here: no such stream, no second exit */
	}
}

static bool has_pong(struct host *h, void *arg)
{
	(void)arg;
	return h->pongs == 3;
}

static bool has_synced(struct host *h, void *arg)
{
	(void)arg;
	return h->synced == 3;
}

static void ping_and_sync(void **state)
{
	struct host *h = *state;

	for (int i = 0; i < 3; i++)
		host_send(h, CONTROL, AG_PING, 0, 0, "0123456789", (size_t)i);
	host_until(h, has_pong, NULL);
	for (uint32_t i = 0; i < 3; i++)
		host_send(h, CONTROL, AG_SYNC, 0, 100 + i, NULL, 0);
	host_until(h, has_synced, NULL);
}

#define WITH_AGENT(t)  cmocka_unit_test_setup_teardown(t, agent_setup, agent_teardown)
#define WITH_SILENT(t) cmocka_unit_test_setup_teardown(t, agent_setup_silent, agent_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_AGENT(outputs_of_exact_sizes),
		WITH_AGENT(output_of_a_writer_that_ends_at_once),
		WITH_AGENT(stderr_first_then_stdout_then_both),
		WITH_AGENT(slow_reader_stops_one_stream_only),
		WITH_AGENT(the_agent_does_not_grow),
		WITH_AGENT(host_that_does_not_read),
		WITH_AGENT(stdin_of_1_MiB),
		WITH_AGENT(child_that_reads_one_byte_and_ends),
		WITH_AGENT(child_that_closes_its_input),
		WITH_AGENT(cat_without_stdin_returns_at_once),
		WITH_AGENT(stdin_that_comes_before_the_script_is_whole),
		WITH_AGENT(script_that_overtakes_its_exec),
		WITH_AGENT(malformed_frames_end_the_epoch),
		WITH_AGENT(sequence_gap_ends_the_epoch),
		WITH_AGENT(noise_is_skipped_up_to_hello),
		WITH_AGENT(more_than_the_window_ends_the_epoch),
		WITH_AGENT(a_used_stream_ends_the_epoch),
		WITH_AGENT(hello_tells_what_the_agent_is),
		WITH_SILENT(hello_of_another_version_is_refused),
		WITH_SILENT(hello_needs_both_ports),
		WITH_AGENT(new_epoch_detaches_what_runs),
		WITH_AGENT(ping_and_sync),
	};

	return tests_end(cmocka_run_group_tests(tests, NULL, NULL));
}
