/* SPDX-License-Identifier: Apache-2.0 */
/* Small files of the tree: one value read, one value written, and why it was refused. Thread: any. Paths are relative
 * to an object's directory (O_PATH is enough). */
#ifndef CRUCIBLE_TOOLS_TREE_H
#define CRUCIBLE_TOOLS_TREE_H

#include <stddef.h>
#include "base/err.h"
#include "base/json.h"

#define TREE_TEXT_MAX (4u * 1024 * 1024) /* a record holds twice 64 KiB of text, escaped */

/* The whole file, with a NUL behind it; malloc'd. Errors: those of open and read; -EFBIG; -EINVAL no regular file. */
int tree_read(int dir, const char *path, char **ret, size_t *ret_len);
/* Its first line without blanks around it, control characters replaced. Errors: as above; -ENOBUFS longer than @cap. */
int tree_word(int dir, const char *path, char *out, size_t cap);
/* A record. Errors: as above, with words (-EPERM: those of the `error` beside it); -EINVAL it is no JSON object. */
int tree_json(int dir, const char *path, struct json_object **ret, struct err *e);

/* An object's info.json; where the policy does not let it be read: its id and status. Errors: as tree_json(). */
int tree_info(int dir, const char *id, struct json_object **ret, struct err *e);

/* Write @len bytes of @data as they are, in one open file. Errors: those of open, write and close. */
int tree_write(int dir, const char *path, const void *data, size_t len);
/* The same; on failure @e is filled by tree_explain() for @dir, or with what the daemon said in the write. */
int tree_put(int dir, const char *path, const void *data, size_t len, struct err *e);
/* Write one value (with a newline), as tree_put(). */
int tree_set(int dir, const char *path, const char *value, struct err *e);

/* Words for @code, with which a file of the object @dir refused: the object's file `error` where it speaks of this,
 * else those of errno. "@fmt: words". Returns @code. */
int tree_explain(int dir, int code, struct err *e, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Call @fn for each name in the directory @path below @dir, sorted, names with a dot in front left out; ends when it
 * returns non-zero and returns that. Errors: those of opendir and readdir; -ENOMEM. */
int tree_list(int dir, const char *path, int (*fn)(void *arg, int parent, const char *name), void *arg);

#endif
