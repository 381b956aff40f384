/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/setup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/mount.h"

#define FILE_MAX (4u * 1024 * 1024)
#define PRETTY	 (JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE)

const struct setup_client setup_clients[] = {
	{ "claude", "Claude Code", "", "", ".mcp.json", "mcpServers", "type", "stdio" },
	{ "claude-desktop", "Claude Desktop", "XDG_CONFIG_HOME", ".config", "Claude/claude_desktop_config.json",
	  "mcpServers", NULL, NULL },
	{ "cursor", "Cursor", "HOME", "", ".cursor/mcp.json", "mcpServers", NULL, NULL },
	{ "vscode", "VS Code", "", "", ".vscode/mcp.json", "servers", "type", "stdio" },
	{ "zed", "Zed", "XDG_CONFIG_HOME", ".config", "zed/settings.json", "context_servers", "source", "custom" },
};
const size_t nsetup_clients = ARRAY_LEN(setup_clients);

int setup_path(const struct setup_client *s, char out[PATH_MAX], struct err *e)
{
	const char *base = *s->base ? getenv(s->base) : NULL, *home = getenv("HOME");
	int n;

	if (!*s->base)
		n = snprintf(out, PATH_MAX, "%s", s->file);
	else if (base && *base)
		n = snprintf(out, PATH_MAX, "%s/%s", base, s->file);
	else if (home && *home)
		n = snprintf(out, PATH_MAX, "%s/%s/%s", home, s->below, s->file);
	else
		return err_set(e, -ENOENT, "HOME is not set: the file of %s is not known", s->title);
	return n < PATH_MAX ? 0 : err_set(e, -ENAMETOOLONG, "the path of the file of %s is too long", s->title);
}

int setup_args(const char *mount, struct json_object **ret, struct err *e)
{
	bool named = strcmp(mount, MOUNT_DEFAULT) != 0;
	AUTO_FREE char *path = named ? realpath(mount, NULL) : NULL;
	const char *words[] = { "mcp", "serve", "--mount", path };
	AUTO_JSON *args = json_object_new_array();

	if (named && !path)
		return err_set(e, -errno, "%s: %s", mount, strerror(errno));
	for (size_t i = 0; args && i < (named ? ARRAY_LEN(words) : 2); i++)
		json_object_array_add(args, json_object_new_string(words[i]));
	if (!args)
		return err_set(e, -ENOMEM, "no memory");
	*ret = json_object_get(args);
	return 0;
}

struct json_object *setup_block(const struct setup_client *s, const char *command, struct json_object *args)
{
	struct json_object *all = json_object_new_object(), *servers = json_object_new_object();
	struct json_object *one = json_object_new_object();

	if (all && servers && one && (!s->kind || fields_put(one, s->kind, json_object_new_string(s->value)) == 0) &&
	    fields_put(one, "command", json_text(command, strlen(command))) == 0 &&
	    fields_put(one, "args", json_object_get(args)) == 0 &&
	    fields_put(servers, "crucible", json_object_get(one)) == 0 &&
	    fields_put(all, s->servers, json_object_get(servers)) == 0) {
		json_object_put(one);
		json_object_put(servers);
		return all;
	}
	json_object_put(one);
	json_object_put(servers);
	json_object_put(all);
	return NULL;
}

static int read_file(const char *path, char **ret_text, size_t *ret_len, struct json_object **ret, struct err *e)
{
	int r = fd_slurp(AT_FDCWD, path, FILE_MAX, ret_text, ret_len);

	if (r == -ENOENT) {
		*ret = json_object_new_object();
		return *ret ? 0 : err_set(e, -ENOMEM, "no memory");
	}
	if (r < 0)
		return err_set(e, r, "%s: %s", path, strerror(-r));
	r = json_parse(*ret_text, *ret_len, ret, e);
	if (r == 0 && !json_object_is_type(*ret, json_type_object))
		r = err_set(e, -EINVAL, "no object");
	return r < 0 ? err_set(e, r, "%s is no plain JSON (has it comments?): put the block into it by hand", path) : 0;
}

static int make_directories(const char *path, struct err *e)
{
	char part[PATH_MAX];

	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return err_set(e, -errno, "%s: %s", part, strerror(errno));
	}
	return 0;
}

/* The oldest one is what was there before us: it is not replaced. */
static int keep_backup(const char *path, const char *text, size_t len, struct err *e)
{
	char backup[PATH_MAX + 32];
	AUTO_FD fd = -1;
	int r;

	snprintf(backup, sizeof(backup), "%s.before-crucible", path);
	fd = open(backup, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno == EEXIST ? 0 : err_set(e, -errno, "%s: %s", backup, strerror(errno));
	r = fd_write_all(fd, text, len);
	if (r < 0) {
		unlink(backup);
		return err_set(e, r, "%s: %s", backup, strerror(-r));
	}
	return 0;
}

static int put_in(const struct setup_client *s, struct json_object *all, struct json_object *block, const char *path,
		  struct err *e)
{
	struct json_object *servers = NULL, *ours = NULL;

	json_object_object_get_ex(json_object_object_get(block, s->servers), "crucible", &ours);
	if (!json_object_object_get_ex(all, s->servers, &servers)) {
		servers = json_object_new_object();
		if (fields_put(all, s->servers, servers) < 0)
			return err_set(e, -ENOMEM, "no memory");
	}
	if (!json_object_is_type(servers, json_type_object))
		return err_set(e, -EINVAL, "%s: \"%s\" in it is no object: put the block into it by hand", path,
			       s->servers);
	return fields_put(servers, "crucible", json_object_get(ours)) < 0 ? err_set(e, -ENOMEM, "no memory") : 0;
}

int setup_merge(const struct setup_client *s, const char *path, struct json_object *block, struct err *e)
{
	AUTO_FREE char *text = NULL, *real = realpath(path, NULL); /* a link to it stays one */
	AUTO_JSON *all = NULL;
	struct stat st = { .st_mode = 0644 };
	const char *merged;
	size_t len = 0;
	int r;

	if (real)
		path = real;
	r = read_file(path, &text, &len, &all, e);
	if (r == 0)
		r = put_in(s, all, block, path, e);
	if (r == 0 && text)
		r = keep_backup(path, text, len, e);
	if (r == 0 && !text)
		r = make_directories(path, e);
	if (r < 0)
		return r;
	stat(path, &st);
	merged = json_object_to_json_string_ext(all, PRETTY);
	r = merged ? fd_replace(AT_FDCWD, path, merged, strlen(merged), st.st_mode & 0777, true) : -ENOMEM;
	return r < 0 ? err_set(e, r, "%s: %s", path, strerror(-r)) : 0;
}
