/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A line costs: at most NETD_LOG_PER_S a second are told, and what a guest says again and again is told once. A
 * question or datagram is known by a hash of what it says; the few latest are looked at, and the one that was told
 * longest ago makes room. What was not told is counted: as "repeated" with the next line of its kind, else as
 * "dropped", which a timer tells, again and again while nobody is there to hear it. */
#include <string.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"
#include "netpolicy/netd/netd_priv.h"

#define SECOND_NS     1000000000ull
#define LINE_MAX_LEN  2048u
#define ADDRESSES_MAX 16u

/* -- telling ----------------------------------------------------------------------------------------------------- */

static void on_timer(void *arg);

static void drop(struct netd_log *g, uint64_t lines)
{
	g->dropped += lines;
	if (g->dropped && !g->timer)
		loop_timer(g->netd->loop, now_ns() + SECOND_NS, on_timer, g, &g->timer);
}

static int send_line(struct netd_log *g, struct json_object *o)
{
	const char *line = json_line(o);
	struct buf b;
	int r;

	if (!line)
		return -ENOMEM;
	if (strlen(line) > LINE_MAX_LEN)
		return -EFBIG;
	buf_init(&b, LINE_MAX_LEN + NETD_UUID_MAX + 8);
	r = wire_put_str(&b, g->uuid);
	if (r == 0)
		r = wire_put_str(&b, line);
	if (r == 0)
		r = netd_tell(g->netd, NETD_LOG, &b);
	buf_fini(&b);
	return r;
}

static void put(struct json_object *o, const char *key, struct json_object *value)
{
	json_object_object_add(o, key, value);
}

static void put_text(struct json_object *o, const char *key, const char *text)
{
	put(o, key, json_text(text, strlen(text)));
}

static void put_number(struct json_object *o, const char *key, uint64_t v)
{
	put(o, key, json_object_new_uint64(v));
}

/* An object with the first members; NULL: no memory. */
static struct json_object *begin(const char *event)
{
	struct json_object *o = json_object_new_object();
	char time[32];

	if (!o)
		return NULL;
	json_time(wall_ns(), time);
	put_text(o, "time", time);
	put_text(o, "event", event);
	return o;
}

static void on_timer(void *arg)
{
	struct netd_log *g = arg;
	AUTO_JSON *o = begin("dropped");

	g->timer = 0;
	if (o)
		put_number(o, "lines", g->dropped);
	if (o && send_line(g, o) == 0)
		g->dropped = 0;
	drop(g, 0);
}

/* May one more line be told now? */
static bool take_turn(struct netd_log *g)
{
	uint64_t now = now_ns();

	if (now - g->second_ns >= SECOND_NS) {
		g->second_ns = now;
		g->lines = 0;
	}
	if (g->lines == NETD_LOG_PER_S) {
		drop(g, 1);
		return false;
	}
	g->lines++;
	return true;
}

/* -- repeats ----------------------------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * 1099511628211ull;
	return h;
}

static uint64_t hash_text(uint64_t h, const char *text)
{
	return hash(h, text, strlen(text) + 1);
}

/* Was the same told within the last second? Then it is counted. Else *@ret_repeated: how often it was not told. */
static bool is_repeat(struct netd_log *g, uint64_t key, uint64_t *ret_repeated)
{
	struct netd_log_seen *oldest = &g->seen[0];
	uint64_t now = now_ns();

	*ret_repeated = 0;
	for (size_t i = 0; i < NETD_LOG_SEEN; i++) {
		struct netd_log_seen *s = &g->seen[i];

		if (s->told_ns < oldest->told_ns)
			oldest = s;
		if (!s->told_ns || s->key != key)
			continue;
		if (now - s->told_ns < SECOND_NS) {
			s->repeated++;
			return true;
		}
		*ret_repeated = s->repeated;
		*s = (struct netd_log_seen){ .key = key, .told_ns = now };
		return false;
	}
	if (oldest->repeated)
		drop(g, oldest->repeated);
	*oldest = (struct netd_log_seen){ .key = key, .told_ns = now };
	return false;
}

/* -- the lines --------------------------------------------------------------------------------------------------- */

static void finish(struct netd_log *g, struct json_object *o, uint64_t repeated)
{
	if (o && repeated)
		put_number(o, "repeated", repeated);
	if (!o || send_line(g, o) < 0)
		drop(g, 1 + repeated);
}

void netd_log_question(struct netd_log *g, const struct resolver_event *ev)
{
	uint64_t key = hash_text(hash_text(hash_text(14695981039346656037ull, ev->name), ev->type), ev->verdict),
		 repeated;
	struct json_object *list;

	if (is_repeat(g, key, &repeated))
		return;
	if (!take_turn(g)) {
		drop(g, repeated);
		return;
	}
	AUTO_JSON *o = begin("question");

	if (o) {
		put_text(o, "name", ev->name);
		put_text(o, "type", ev->type);
		put_text(o, "verdict", ev->verdict);
		list = json_object_new_array();
		for (size_t i = 0; list && i < ev->naddrs && i < ADDRESSES_MAX; i++) {
			char addr[NET_ADDR_TEXT];

			json_object_array_add(list, json_object_new_string(net_addr_text(&ev->addrs[i], addr)));
		}
		put(o, "addresses", list);
		put_text(o, "reason", ev->reason);
	}
	finish(g, o, repeated);
}

void netd_log_connection(struct netd_log *g, const struct relay_event *ev)
{
	char addr[NET_ADDR_TEXT];

	if (!take_turn(g))
		return;
	AUTO_JSON *o = begin("connection");

	if (o) {
		put_text(o, "direction", ev->direction);
		put_text(o, "name", ev->name);
		put_text(o, "address", net_addr_text(&ev->addr, addr));
		put_number(o, "port", ev->port);
		put_text(o, "verdict", ev->verdict);
		put_text(o, "reason", ev->reason);
		put_number(o, "bytes_out", ev->bytes_out);
		put_number(o, "bytes_in", ev->bytes_in);
		put_number(o, "duration_ms", ev->duration_ns / 1000000);
	}
	finish(g, o, 0);
}

void netd_log_datagram(struct netd_log *g, const struct net_addr *a, uint16_t port, const char *reason)
{
	uint64_t key = hash(hash(1469598103934665603ull, a, sizeof(*a)), &port, sizeof(port)), repeated;
	char addr[NET_ADDR_TEXT];

	if (is_repeat(g, key, &repeated))
		return;
	if (!take_turn(g)) {
		drop(g, repeated);
		return;
	}
	AUTO_JSON *o = begin("datagram");

	if (o) {
		put_text(o, "address", net_addr_text(a, addr));
		put_number(o, "port", port);
		put_text(o, "verdict", "refused");
		put_text(o, "reason", reason);
	}
	finish(g, o, repeated);
}

void netd_log_init(struct netd_log *g, struct netd *n, const char *uuid)
{
	*g = (struct netd_log){ .netd = n, .uuid = uuid };
}

void netd_log_fini(struct netd_log *g)
{
	if (g->netd)
		loop_del(g->netd->loop, &g->timer);
}
