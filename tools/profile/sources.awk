# Debian's own entries among the host's apt sources, one line each, for SUITES and COMPONENTS; everything else is ignored.
# Reads one-line files (*.list) and deb822 files (*.sources). An entry is Debian's when it is signed by debian-archive-*, or when
# it names no key and its address ends in /debian or /debian-security; apt then checks the signature against KEYRING whatever it says.
#   awk -v KEYRING=FILE -v SUITES='a b' -v COMPONENTS='a b' -f sources.awk FILE...

BEGIN {
	n = split(SUITES, s, " ")
	for (i = 1; i <= n; i++)
		suite_known[s[i]] = 1
	n = split(COMPONENTS, s, " ")
	for (i = 1; i <= n; i++)
		component_known[s[i]] = 1
}

function emit(uris, suites, components, signed_by, valid_until,    nu, ns, nc, u, v, c, i, j, k, kept, option) {
	if (signed_by != "" && signed_by !~ /(^|[\/ ])debian-archive-[^\/ ]*$/)
		return
	nc = split(components, c, " ")
	kept = ""
	for (k = 1; k <= nc; k++)
		if (c[k] in component_known)
			kept = kept " " c[k]
	if (kept == "")
		return
	option = "signed-by=" KEYRING
	if (tolower(valid_until) == "no")
		option = option " check-valid-until=no"
	nu = split(uris, u, " ")
	ns = split(suites, v, " ")
	for (i = 1; i <= nu; i++) {
		if (u[i] !~ /^(https?|mirror):\/\//)
			continue
		if (signed_by == "" && u[i] !~ /\/debian(-security)?\/?$/)
			continue
		for (j = 1; j <= ns; j++) {
			if (!(v[j] in suite_known) || seen[u[i], v[j]]++)
				continue
			print "deb [" option "] " u[i] " " v[j] kept
		}
	}
}

function stanza_end(    d) {
	d = " " field["types"] " "
	if (d ~ / deb / && tolower(field["enabled"]) != "no")
		emit(field["uris"], field["suites"], field["components"], field["signed-by"], field["check-valid-until"])
	split("", field)
	key = ""
}

FNR == 1 { stanza_end() }
END { stanza_end() }

{ sub(/\r$/, "") }

FILENAME ~ /\.sources$/ {
	if ($0 ~ /^#/)
		next
	if ($0 ~ /^[ \t]*$/) {
		stanza_end()
	} else if ($0 ~ /^[ \t]/) {
		field[key] = field[key] " " $0
	} else if ((i = index($0, ":")) > 0) {
		key = tolower(substr($0, 1, i - 1))
		field[key] = substr($0, i + 1)
		gsub(/\t/, " ", field[key])
		sub(/^ +/, "", field[key])
		sub(/ +$/, "", field[key])
	}
	next
}

$1 == "deb" {
	sub(/#.*/, "")
	signed_by = valid_until = options = ""
	sub(/^[ \t]*deb[ \t]+/, "")
	if ($0 ~ /^\[/) {
		i = index($0, "]")
		options = substr($0, 2, i - 2)
		$0 = substr($0, i + 1)
	}
	n = split(options, o, " ")
	for (i = 1; i <= n; i++) {
		if (o[i] ~ /^signed-by=/)
			signed_by = substr(o[i], 11)
		if (o[i] ~ /^check-valid-until=/)
			valid_until = substr(o[i], 19)
	}
	components = ""
	for (i = 3; i <= NF; i++)
		components = components " " $i
	emit($1, $2, components, signed_by, valid_until)
}
