/* SPDX-License-Identifier: Apache-2.0 */
/* A relay between two network namespaces: `inside`, where every address of 127.0.0.0/8 and the guest's lead to whoever
 * listens, as they do by TPROXY; and `outside`, where this process lives and the relay dials. One thread: rig_run()
 * turns the loop until something is so. */
#ifndef CRUCIBLE_TEST_RELAY_RIG_H
#define CRUCIBLE_TEST_RELAY_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "netpolicy/relay_priv.h"

#define RIG_EVENTS 64u

struct rig_event {
	struct relay_event ev; /* its texts are these: */
	char name[NET_NAME_MAX + 1], reason[128];
};
struct relay_rig {
	struct loop *loop;
	struct relay *relay;
	int tcp4; /* the relay's */
	unsigned fds_before;
	/* What decide says: NULL allows everything. */
	const char *denied_name;
	uint16_t denied_port;
	unsigned decided;
	struct net_addr decided_addr;
	uint16_t decided_port;
	char decided_tls[NET_NAME_MAX + 1];  /* "-": none */
	char decided_name[NET_NAME_MAX + 1]; /* what it was allowed by before */
	int dns_fd;
	unsigned asked;	   /* need_sockets */
	unsigned make_now; /* sockets that need_sockets makes at once */
	unsigned nevents;  /* may be more than are kept */
	struct rig_event events[RIG_EVENTS];
};

int rig_world(
	void **state); /* a group's set-up, once a process: both namespaces; exits with 77 where they cannot be made */
/* The same for a test that has made its own: @inside is borrowed, `outside` is where the caller is. */
void rig_world_of(int inside_ns);
void rig_address(const char *ip); /* outside has it from now on */
unsigned rig_open_fds(void);
/* A relay that takes what is dialed inside at @port (0: nothing), over IPv4 and IPv6. */
void rig_start(struct relay_rig *g, uint16_t port);
void rig_start_with(struct relay_rig *g, int tcp4, int tcp6); /* takes them */
void rig_stop(struct relay_rig *g);			      /* asserts that no descriptor is left */

enum rig_side { OUTSIDE, INSIDE };
int rig_socket(enum rig_side side, int family); /* does not block */
int rig_listen(enum rig_side side, const char *ip, uint16_t port, int backlog);
int rig_dial(enum rig_side side, const char *ip, uint16_t port);
void rig_give_sockets(struct relay_rig *g, unsigned n);

/* Turn the loop until @cond; a test that waits for too long fails. */
#define rig_run(g, cond)                                                                             \
	do {                                                                                         \
		uint64_t rig_until_ = now_ns() + 30000000000ull;                                     \
		while (!(cond)) {                                                                    \
			assert_int_equal(loop_once((g)->loop, 5), 0);                                \
			if (now_ns() > rig_until_)                                                   \
				fail_msg("%s:%d: waited in vain for %s", __FILE__, __LINE__, #cond); \
		}                                                                                    \
	} while (0)
int rig_accept(struct relay_rig *g, int listener); /* waits for it */
/* What one read gives, waited for: a count, 0 at the end, -errno. */
ssize_t rig_read(struct relay_rig *g, int fd, void *buf, size_t cap);
void rig_write(struct relay_rig *g, int fd, const void *data, size_t len);
void rig_expect(struct relay_rig *g, int fd, const char *text); /* exactly these bytes */
void rig_echo(struct relay_rig *g, int a, int b);		/* a word each way */
void rig_reset(int *fd);					/* closes it so */

void rig_expect_reset(struct relay_rig *g, int *fd); /* and closes it */
struct relay_stat rig_stat(const struct relay_rig *g);
/* The @n-th event is the last one, and says this; waited for. */
const struct rig_event *rig_event(struct relay_rig *g, unsigned n, const char *direction, const char *verdict,
				  const char *reason);

/* One end of a long conversation: what it says is made from a seed, what it hears is summed up. */
struct rig_end {
	int fd;
	uint64_t left, seed; /* to say; then the end is told */
	uint64_t heard;
	bool shut, eof;
	void *said_sum, *heard_sum;
	uint8_t data[16384];
	size_t data_at, data_len;
};
void rig_end_init(struct rig_end *n, int fd, uint64_t bytes, uint64_t seed);
bool rig_end_step(struct rig_end *n); /* as far as it goes; true: both directions have ended */
void rig_end_fini(struct rig_end *n, uint8_t said[32], uint8_t heard[32]); /* closes */
void rig_talk(struct relay_rig *g, int a, int b, uint64_t bytes);	   /* both ways, and compare; closes both */

/* A ClientHello in one record: with @name (NULL: without server_name) and @padding bytes of an extension nobody knows.
 * Returns its length. */
size_t rig_hello(uint8_t *out, const char *name, size_t padding);

#endif
