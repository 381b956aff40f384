/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/libarchive.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/fd.h"

#define SONAME "libarchive.so.13" /* of all of libarchive 3 */

struct libarchive la;

static const struct {
	const char *name;
	size_t at; /* in struct libarchive */
} functions[] = {
#define LIBARCHIVE_ROW(f) { #f, offsetof(struct libarchive, f) },
	LIBARCHIVE_FUNCTIONS(LIBARCHIVE_ROW)
#undef LIBARCHIVE_ROW
};

int libarchive_load(struct err *e)
{
	static bool loaded;
	struct libarchive got = { 0 };
	void *lib;

	if (loaded)
		return 0;
	lib = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL); /* for good: it is used until the process ends */
	if (!lib)
		return err_set(e, -ENOPKG,
			       "directories are copied by libarchive, which is not there: %s (Debian: libarchive13)",
			       dlerror());
	for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
		void *f = dlsym(lib, functions[i].name);

		if (!f) {
			err_set(e, -ENOPKG, "%s has no %s: it is too old or too new", SONAME, functions[i].name);
			dlclose(lib);
			return -ENOPKG;
		}
		memcpy((char *)&got + functions[i].at, &f, sizeof(f));
	}
	la = got;
	loaded = true;
	return 0;
}
