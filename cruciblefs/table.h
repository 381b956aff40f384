/* SPDX-License-Identifier: Apache-2.0 */
/* The tree as tables: each directory is a struct cfs_table, each file a struct cfs_entry in it. A new file is one entry
 * and one function (docs/HOWTO-add-a-file.md); what a kind of file does with open, read, write and the rest is written
 * once, in the file named for the kind (text.c, control.c, stream.c, wait.c, uploadfile.c, …).
 *
 * How this works
 *
 * A lookup of a name finds its entry and calls cfs_enter(), which makes (or finds) the node:
 *  1. Rendered files (TEXT, CONTROL, …) are rendered there and then. The text belongs to the node and never changes;
 * when the next lookup renders another text it gets another node id. So size, read, splice and mmap agree for whoever
 * opened the file, and the page cache may be used. A read-only file whose text is the same as before keeps its node
 * (one LOOKUP instead of two: the kernel throws a cached name away when it comes back with another id). Files that can
 * be written get a new node each time: writers of one node would wait for each other, and O_TRUNC would cut a reader's
 * page cache.
 *  2. Streams, directories and links have one node as long as it is known.
 *  3. st_ino is a hash of the object's uuid and the place in the tables: the same over lookups and restarts.
 *  4. mtime: cfs_place remembers a hash of each file's content; the time moves when the hash does.
 *
 * What is seen through a view (view.h) has nodes and numbers of its own, and no cache. What policies permit is asked
 * for each request, by what the row says.
 *
 * Names that were unlinked ("hidden"), scratch files and those hashes are kept in a struct cfs_place, one for each
 * sandbox. */
#ifndef CRUCIBLE_TABLE_H
#define CRUCIBLE_TABLE_H

#include <fcntl.h>
#include "base/buf.h"
#include "cruciblefs/place.h"
#include "cruciblefs/session.h"

#define CFS_TEXT_MAX	(16u * 1024 * 1024) /* of one rendered file: a command is at most 8 MiB */
#define CFS_CONTROL_MAX (64u * 1024)	    /* of one write to a control file */

struct cfs_tree;
struct snapshot_job; /* snapshot.h */
struct cfs_entry;
struct cfs_table;

/* Which object a file is of: what every function of a table gets. */
struct cfs_about {
	struct cfs_tree *tree;
	const struct cfs_table *in;    /* the directory's table */
	const struct cfs_entry *entry; /* the file in it, or what stands for all children of a directory */
	struct view *view;	       /* through which it is seen, borrowed: the node holds it; NULL: the whole tree */
	struct cfs_place *place;
	struct sandbox *sbx; /* place's; NULL outside run/<id>/ */
	uint64_t exec;	     /* exec/<n>/ and below: n; else 0 */
	uint64_t bound; /* the command that the file is of: exec, or what bind() chose when the name was looked up */
	char name[CFS_NAME_MAX + 1]; /* a slot, a profile, a log's uuid; "" where there is only one */
	struct cfs_who owner;	     /* whose the file is */
	struct cfs_who viewer;	     /* who looked it up; for CFS_PER_CALLER files, else root */
	struct cfs_who caller;	     /* who looked it up, always: whom memory is counted for */
	uint64_t changed_ns;	     /* wall clock: mtime when nothing better is known */
};

/* Kinds of files. One constant each, defined in the file of its name. */
struct cfs_kind;
extern const struct cfs_kind cfs_kind_dir;     /* dir.c: .dir */
extern const struct cfs_kind cfs_kind_link;    /* text.c: .show gives the target */
extern const struct cfs_kind cfs_kind_text;    /* text.c: .show */
extern const struct cfs_kind cfs_kind_control; /* control.c: .show, .store */
extern const struct cfs_kind cfs_kind_stream;  /* stream.c: .stream */
extern const struct cfs_kind cfs_kind_wait;    /* wait.c: .bind, .show; unlisted */
extern const struct cfs_kind cfs_kind_upload;  /* uploadfile.c: .arg = enum upload_kind, .show or NULL */
extern const struct cfs_kind cfs_kind_livein;  /* livein.c: a slot's stdin; .arg = enum livein_kind */
extern const struct cfs_kind cfs_kind_lease;   /* lease.c */
extern const struct cfs_kind cfs_kind_job;     /* jobfile.c: .begin, .show */
extern const struct cfs_kind cfs_kind_guest;   /* run.c: `.fs`, handed over to guestfs.c */

enum livein_kind { LIVEIN_WAITS, LIVEIN_WHOLE };

#define CFS_UNLISTED   1u /* found by name only: what blocks and what is large */
#define CFS_LIST       2u /* control: a list of lines; the first write of an open file replaces, later ones add */
#define CFS_PER_CALLER 4u /* shows each user what it may see */
#define CFS_LASTING \
	8u /* a directory that is there as long as the mount and never changes owner: the kernel may remember it */

#define CFS_ALWAYS   64u  /* may be read whatever a policy says; all else needs POLICY_READ */
#define CFS_DOCUMENT 128u /* control: a write is one document of several lines */

#define CFS_WHOLE 16u /* a list of which nothing acts when a line of it is wrong */
#define CFS_EDITED                                                                                                   \
	(CFS_WHOLE | 32u) /* the same; lines may begin with '+' or '-': if the first does, they change what is there \
			   */

struct cfs_stream_ops {
	/* A descriptor for reading, the caller closes; untouched: there is nothing to read. */
	int (*open)(const struct cfs_about *a, const struct cfs_who *who, int *ret_fd);
	uint64_t (*size)(const struct cfs_about *a);	   /* bytes held now */
	bool (*ended)(const struct cfs_about *a);	   /* no more will come; NULL: never */
	struct waitq *(*queue)(const struct cfs_about *a); /* woken when it has grown or ended */
};

struct cfs_entry {
	const char *name; /* NULL in an entry that stands for all children of a directory */
	const struct cfs_kind *kind;
	mode_t mode; /* permission bits */
	unsigned flags;
	int arg; /* for the functions */
	/* enum policy_op: what writing needs; of an entry that stands for objects: what removing one needs. 0: of what
	 * can be written POLICY_ADMIN, else nothing. */
	unsigned op;
	/* Append the text (with its newline) to @out. -ENOENT: the file does not exist now. Others become the error of
	 * the look-up. */
	int (*show)(const struct cfs_about *a, struct buf *out);
	/* Act on one line, or (CFS_LIST) set the whole list, or (CFS_DOCUMENT) take the document. @text is followed by
	 * a NUL. The words go into @e and, by the domain, into `error`. */
	int (*store)(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len, struct err *e);
	/* Called before anything else at a look-up and for a listing: may choose a->bound and a->changed_ns. -ENOENT:
	 * not there, not listed. */
	int (*bind)(struct cfs_about *a);
	/* Begin what takes a while. @order is trimmed, not empty. The words of a failure go into @e, and from there
	 * into `error`. */
	int (*begin)(const struct cfs_about *a, const struct cfs_who *who, const char *order, struct snapshot_job **ret,
		     struct err *e);
	/* Write the words of @e into the object's `error`. NULL: into the sandbox's, if there is one. */
	void (*fail)(const struct cfs_about *a, const struct cfs_who *who, struct err *e);
	/* Directories: give it to somebody else; sets *ret to whose it is now. NULL: EPERM. */
	int (*chown)(const struct cfs_about *a, uid_t uid, gid_t gid, const struct cfs_who *who, struct cfs_who *ret,
		     struct err *e);
	const struct cfs_stream_ops *stream;
	const struct cfs_table *dir; /* directories: what is in it */
};

typedef bool cfs_list_fn(void *arg, const char *name, const struct cfs_about *child);

struct cfs_table {
	const char *path; /* as TREE.md writes it, "run/<id>/limits": part of the inode numbers, so never change it */
	const struct cfs_entry *entries;
	size_t count;
	/* Children that are objects. child(): *c is a copy of the directory's own `about`; complete it (entry, and what
	 * tells it apart), or return -ENOENT. list(): the same for each, until @fn returns false. stamp(): a number
	 * that changes when the set of children does. */
	int (*child)(struct cfs_about *c, const char *name);
	void (*list)(const struct cfs_about *dir, cfs_list_fn *fn, void *arg);
	uint64_t (*stamp)(const struct cfs_about *dir);
	/* NULL: EPERM. */
	int (*mkdir)(const struct cfs_about *dir, const char *name, const struct cfs_who *who, struct err *e);
	int (*rmdir)(const struct cfs_about *child, const struct cfs_who *who, struct err *e);
	int (*rename)(const struct cfs_about *child, const char *to, const struct cfs_who *who, struct err *e);
	/* enum policy_op, 0: nothing. What mkdir and new scratch files need; what renaming a child needs. */
	unsigned make, move;
	bool user_may_hide; /* unlink and rmdir hide entries until they are created again */
	bool scratch;	    /* scratch files may be made */
};

/* -- a node of the tables ---------------------------------------------------------------------------- */

struct cfs_text { /* a frozen text; shared by nodes and handles */
	unsigned refs;
	struct cfs_session *session;
	uid_t uid; /* whom its memory is counted for */
	size_t len;
	char data[];
};
/* Errors: -EDQUOT @uid makes us keep too much; -ENOMEM. */
int cfs_text_new(struct cfs_session *cs, uid_t uid, const void *data, size_t len, struct cfs_text **ret);
struct cfs_text *cfs_text_ref(struct cfs_text *t);   /* NULL is fine */
struct cfs_text *cfs_text_unref(struct cfs_text *t); /* NULL is fine; returns NULL */

struct cfs_tnode {
	struct cfs_node node;
	struct cfs_about about;
	uint64_t ino, up_ino;	/* up_ino: of "..", directories only */
	uint64_t mtime_ns;	/* of the frozen text */
	struct cfs_text *text;	/* NULL: the kind has none (or none yet: wait) */
	struct cfs_tnode *next; /* tree.c: of the same hash */
	bool current;		/* tree.c: found by later look-ups */
	bool pending;		/* wait.c: looked up before there was a text */
	bool stale_told;	/* wait.c: ESTALE was answered once */
};

enum cfs_reuse { REUSE_ALWAYS, REUSE_SAME_TEXT, REUSE_NEVER };

struct cfs_kind {
	const char *name;
	mode_t type; /* S_IFREG … */
	const struct cfs_node_ops *ops;
	enum cfs_reuse reuse;
	double attr_timeout;
	bool writable;
	/* Open for @flags: make and register a handle (cfs_tnode_handle). NULL: only by @ops->open. */
	int (*open)(struct cfs_req *r, struct cfs_tnode *n, int flags, struct cfs_handle **ret,
		    unsigned *ret_open_flags);
	/* The kind's own look-up instead of the usual one (wait, guest); answers @r. NULL: the usual. */
	void (*lookup)(struct cfs_req *r, const struct cfs_about *a, uint64_t ino);
	/* Take @data as if it were written into a fresh open of the file: what a rename over it does. NULL: EPERM. */
	int (*apply)(const struct cfs_about *a, const struct cfs_who *who, const char *data, size_t len, struct err *e);
};

static inline struct cfs_tnode *cfs_tnode_of(struct cfs_node *n)
{
	return cfs_container(n, struct cfs_tnode, node);
}

/* -- the tree ------------------------------------------------------------------------------------------ */

struct cfs_session *cfs_tree_session(struct cfs_tree *t);
struct registry *cfs_tree_registry(struct cfs_tree *t);
struct cfs_place *cfs_tree_place(struct cfs_tree *t,
				 struct sandbox *s); /* borrowed; NULL: no memory; @s NULL: what is in no sandbox */
uint64_t cfs_tree_started_ns(struct cfs_tree *t);    /* wall clock */

/* The number of the file @a. */
uint64_t cfs_about_ino(const struct cfs_about *a);
/* Set @a->changed_ns from the sandbox or the command that @a is bound to. For bind() and child(). */
void cfs_about_changed(struct cfs_about *a);
/* What the tables say of @name in the directory @dir, without making anything: an entry (also one that is hidden now:
 * *ret_hidden), or a child. bind() has been called. Errors: -ENOENT, those of bind() and child(). */
int cfs_resolve(const struct cfs_about *dir, const char *name, const struct cfs_who *who, struct cfs_about *ret,
		bool *ret_hidden);
/* The node of @a as it is now; *ret carries a reference. Errors: those of show(), -ENOMEM, -ENFILE. */
int cfs_enter(const struct cfs_about *a, struct cfs_tnode **ret);
/* A node of its own, with @text (a reference is taken; may be NULL). Errors: -ENOMEM, -ENFILE. */
int cfs_tnode_new(const struct cfs_about *a, uint64_t ino, struct cfs_text *text, struct cfs_tnode **ret);
void cfs_tnode_free(struct cfs_node *n); /* node ops of every kind */
void cfs_tnode_stat(struct cfs_tnode *n, struct stat *st);
void cfs_tnode_reply_entry(struct cfs_req *r, struct cfs_tnode *n);
void cfs_tnode_getattr(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h); /* node ops of every kind */
void cfs_tnode_setattr(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, const struct stat *st, int valid);
void cfs_stat_times(struct stat *st, uint64_t ns); /* all three */

void cfs_tnode_open(struct cfs_req *r, struct cfs_node *n, int flags); /* node ops of the kinds that have .open */
/* cfs_handle_open() with the reason of a refusal in `error`. */
int cfs_tnode_handle(struct cfs_req *r, struct cfs_handle *h, struct cfs_tnode *n, int flags);
void cfs_reply_text(struct cfs_req *r, const struct cfs_text *t, size_t size,
		    uint64_t off); /* a slice; NULL: nothing */
static inline bool cfs_wants_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* Words that no domain function wrote: into the `error` of the file's object, if it has one. Returns e->code. */
int cfs_fail(const struct cfs_about *a, const struct cfs_who *who, struct err *e);

/* -- policies (tablemay.c). A refusal is -EPERM, with words in the `error` of the file's object, or -ESTALE: the view
 * has ended. */

int cfs_may(const struct cfs_about *a, const struct cfs_who *who, unsigned op); /* do @op; 0: nothing is asked */
int cfs_may_use(const struct cfs_about *a, const struct cfs_who *who, unsigned access); /* CFS_ACCESS_… */
int cfs_tnode_may(struct cfs_req *r, struct cfs_node *n, unsigned access);		/* node ops of every kind */

#endif
